/*
 * Lists the processes that a name matches. spyglass does not choose one itself: a name may match the wrong process, or another
 * one tomorrow.
 */
#include "cmd/offer.h"

#include "base/text.h"
#include "cmd/command_line.h"
#include "cmd/list.h"

#include <stdlib.h>
#include <string.h>

#define OFFERED_MAX     20
#define COMMAND_COLUMNS 100

struct offer {
    const struct options *o;
    FILE *lines; /* what to show, in memory */
    size_t n;
};

/* The command line of spyglass itself, with `pid` in place of the name. */
static void print_line(const struct options *o, pid_t pid, FILE *out)
{
    char **words = calloc((size_t)o->argc + 1, sizeof(*words)), number[16];

    if (!words)
        return;
    snprintf(number, sizeof(number), "%d", (int)pid);
    for (int i = 1; i < o->argc; i++)
        words[i] = i == o->word ? number : o->argv[i];
    words[0] = (char[]){"spyglass"};
    fputs("  ", out);
    command_line_print(out, words);
    fputc('\n', out);
    free(words);
}

static void offer_one(pid_t pid, const char *command, void *arg)
{
    struct offer *offer = arg;
    char shown[4 * COMMAND_COLUMNS + 1];

    if (offer->n++ >= OFFERED_MAX)
        return;
    snprintf(shown, sizeof(shown), "%s", command);
    shown[text_fit(shown, COMMAND_COLUMNS)] = '\0';
    fprintf(offer->lines, "  # %d: ", (int)pid);
    text_print_safe(offer->lines, shown);
    fputc('\n', offer->lines);
    print_line(offer->o, pid, offer->lines);
}

int offer_processes(const struct options *o, struct error_text *text)
{
    const char *name = o->argv[o->word];
    struct offer offer = {.o = o};
    struct list_counts counts;
    char *lines = NULL;
    size_t len = 0;
    int r;

    offer.lines = open_memstream(&lines, &len);
    if (!offer.lines)
        return ERR_NOMEM;
    r = list_matching(name, offer_one, &offer, &counts);
    if (fclose(offer.lines) != 0 && r == 0)
        r = ERR_NOMEM;
    if (r == 0 && offer.n) {
        fputs(lines, stderr);
        if (offer.n > OFFERED_MAX)
            fprintf(stderr, "  # and %zu more\n", offer.n - OFFERED_MAX);
        r = error_text_what(text, ERR_USAGE, "'%s' is %s, but matches %zu Python process%s", text_safe(name).s,
                            o->command == ARGS_NONE ? "neither a command nor a process ID" : "not a process ID",
                            offer.n, offer.n == 1 ? "" : "es");
        error_text_hint(text, "Run %s above.", offer.n == 1 ? "the line" : "one of the lines");
    }
    free(lines);
    return r;
}
