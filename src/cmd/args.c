/*
 * argv -> struct options. The tables below are all that parser, help and completions know of the
 * command line. Called by main.c. Never prints, never exits, never allocates: strings point into argv.
 */
#include "cmd/args.h"

#include "cmd/cmd.h"
#include "cmd/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef SPYGLASS_VERSION
#define SPYGLASS_VERSION "0.1.0"
#endif

/* The py-spy whose command line the name py-spy answers to. */
#define PY_SPY_VERSION "0.4.3"

#define IN(command) (1u << (command))
#define IN_RECORD   IN(ARGS_RECORD)
#define IN_DUMP     IN(ARGS_DUMP)
#define IN_MERGE    IN(ARGS_MERGE)
#define IN_DOCTOR   IN(ARGS_DOCTOR)
#define IN_BOTH     (IN_RECORD | IN_DUMP)
#define IN_ALL      (IN(ARGS_COMMANDS_) - 1)
#define FIELD(name) offsetof(struct options, name)

/* In the order of the help texts. A letter is unique within a command. */
static const struct args_flag flags[] = {
    {"pid", 'p', ARGS_PID, IN_BOTH | IN_DOCTOR, FIELD(pid), "PID", "The process to look at: decimal, or hex with 0x"},
    {"core", 'c', ARGS_FILE, IN_DUMP, FIELD(core), "FILE",
     "Read a core file instead of a running process; it may be packed by gzip or zstd"},
    {"root", 0, ARGS_FILE, IN_DUMP, FIELD(root), "DIR", "With --core: where the files of its machine or container are"},
    {"exe", 0, ARGS_FILE, IN_DUMP, FIELD(exe), "FILE", "With --core: the program, if it is not where it was"},
    {"output", 'o', ARGS_FILE, IN_RECORD | IN_MERGE, FIELD(output), "FILE", "Where to write; - is standard output"},
    {"format", 'f', ARGS_FORMAT, IN_RECORD | IN_MERGE, FIELD(format), "FORMAT",
     "What to write; else FILE's extension decides"},
    {"duration", 'd', ARGS_DURATION, IN_RECORD, FIELD(duration), "SECONDS",
     "How long to record, or 'unlimited' [default: unlimited]"},
    {"title", 0, ARGS_TEXT, IN_MERGE, FIELD(title), "TEXT", "What stands above the picture"},
    {"rate", 'r', ARGS_RATE, IN_RECORD | IN_MERGE, FIELD(rate), "RATE", "Samples a second [default: 100]"},
    {"subprocesses", 's', ARGS_BOOL, IN_BOTH, FIELD(subprocesses), NULL, "Include the children of the process"},
    {"subprocess-depth", 0, ARGS_DEPTH, IN_BOTH, FIELD(subprocess_depth), "N",
     "Only N generations of them: 1 is the children, 2 their children too"},
    {"idle", 'i', ARGS_BOOL, IN_RECORD, FIELD(idle), NULL, "Include threads that wait"},
    {"gil", 'g', ARGS_BOOL, IN_RECORD, FIELD(gil), NULL, "Only the thread that holds the GIL"},
    {"threads", 't', ARGS_BOOL, IN_RECORD, FIELD(threads), NULL, "Keep threads apart"},
    {"function", 'F', ARGS_BOOL, IN_RECORD, FIELD(function), NULL, "Add up by function, not by line"},
    {"nolineno", 0, ARGS_BOOL, IN_RECORD, FIELD(nolineno), NULL, "Leave line numbers out"},
    {"locals", 'l', ARGS_COUNT, IN_DUMP, FIELD(locals), NULL,
     "Show local variables; -ll: longer values, and attributes of objects"},
    {"show-secrets", 0, ARGS_BOOL, IN_DUMP, FIELD(show_secrets), NULL,
     "Do not mask values whose names tell of passwords, tokens, secrets or keys"},
    {"json", 'j', ARGS_BOOL, IN_DUMP | IN_DOCTOR, FIELD(json), NULL, "Write JSON"},
    {"native", 'n', ARGS_BOOL, IN_BOTH, FIELD(native), NULL, "Include native functions: C, C++, Rust, Cython"},
    {"native-all", 0, ARGS_BOOL, IN_BOTH, FIELD(native_all), NULL,
     "The interpreter's own functions too, and threads without Python"},
    {"full-filenames", 0, ARGS_BOOL, IN_BOTH, FIELD(full_filenames), NULL, "Show whole paths"},
    {"nonblocking", 0, ARGS_BOOL, IN_BOTH, FIELD(nonblocking), NULL,
     "Read without holding threads still: a stack may be torn"},
    {"capture", 0, ARGS_BOOL, IN_RECORD, FIELD(capture), NULL, "Hold back what the launched program prints"},
    {"wait", 0, ARGS_BOOL, IN_RECORD, FIELD(wait), NULL,
     "When the recording ends first: stay until the launched program ends, too"},
    {"kill", 0, ARGS_BOOL, IN_RECORD, FIELD(kill), NULL,
     "When the recording ends first: end the launched program, too"},
    {"hideprogress", 0, ARGS_BOOL, IN_RECORD, FIELD(hide_progress), NULL, "No progress line"},
    {"with-parent", 0, ARGS_PID, IN_RECORD, FIELD(with_parent), "PID",
     "Stop, and save, when PID, the process that started this one, has ended"},
    {"status-fd", 0, ARGS_FD, IN_BOTH, FIELD(status_fd), "N",
     "Report events as JSON, one object per line, on this open descriptor"},
    {"verbose", 'v', ARGS_BOOL, IN_BOTH | IN(ARGS_NONE), FIELD(verbose), NULL,
     "Say more about what is found; with --version: how this program was built"},
    {"help", 'h', ARGS_SHOW_HELP, IN_ALL, FIELD(show_help), NULL, "Show this help"},
    {"version", 'V', ARGS_SHOW_VERSION, IN_ALL, FIELD(show_version), NULL, "Show the version"},
    {0},
};

static const struct args_command_row commands[ARGS_COMMANDS_] = {
    [ARGS_RECORD] = {"record", "Sample a program for a while and draw where its time goes",
                     "[FLAGS] --pid PID | [FLAGS] [--] PROGRAM [ARGUMENT]...", false, false},
    [ARGS_DUMP] = {"dump", "Show where each thread of a program is right now", "[FLAGS] --pid PID | --core FILE", false,
                   false},
    [ARGS_MERGE] = {"merge", "Draw raw profiles, each below a root of its own, in one picture",
                    "[FLAGS] [ROOT=]FILE...", false, false},
    [ARGS_RAY] = {"ray", "Dump or record all workers of a Ray cluster", "dump [FLAGS] | record [FLAGS]", true, true},
    [ARGS_DOCTOR] = {"doctor", "Say what this machine allows, and what would help", "[FLAGS] [--pid PID]", true, false},
    [ARGS_COMPLETIONS] = {"completions", "Write a completion script for a shell", "SHELL", false, false},
    [ARGS_HELP] = {"help", "Show the help of a command", "[COMMAND]", false, false},
};

/* The state of one run over argv. */
struct parser {
    char *const *argv;
    int argc, next;
    uint64_t seen;                             /* flags with a value that were met, by index in the table */
    int (*visit)(const char *word, void *arg); /* of args_each_file; else NULL */
    void *arg;
    struct options *o;
    struct err_note *note;
};

/* A word as messages may show it: short, and printable whatever it holds. */
struct shown {
    char text[96];
};

static struct shown show(const char *word)
{
    struct shown s;
    size_t i;

    for (i = 0; word[i] && i < sizeof(s.text) - 1; i++)
        s.text[i] = word[i] >= ' ' && word[i] < 0x7f ? word[i] : '?';
    s.text[i] = '\0';
    if (word[i])
        memcpy(s.text + i - 3, "...", 3);
    return s;
}

const struct args_flag *args_flags(void)
{
    return flags;
}

const struct args_command_row *args_command_row(enum args_command command)
{
    return &commands[command];
}

const char *args_name(const struct options *options)
{
    return options->as_py_spy ? "py-spy" : "spyglass";
}

const char *args_version(const struct options *options)
{
    return options->as_py_spy ? "py-spy " PY_SPY_VERSION " (spyglass " SPYGLASS_VERSION ")"
                              : "spyglass " SPYGLASS_VERSION;
}

const char *args_prefix(const struct options *options)
{
    return options->as_py_spy ? "py-spy> " : "spyglass> ";
}

/* ---- suggestions ---- */

static const char *guess_flag(const char *name, enum args_command command)
{
    struct suggest g = {.word = name};

    for (const struct args_flag *f = flags; f->name; f++)
        if (f->commands & IN(command))
            suggest_try(&g, f->name);
    return g.best;
}

/* ---- values ---- */

static bool is_number(const char *word)
{
    return *word && word[strspn(word, "0123456789")] == '\0';
}

static int set_pid(struct parser *p, void *field, const char *value)
{
    bool hex = value[0] == '0' && (value[1] == 'x' || value[1] == 'X');
    const char *digits = value + (hex ? 2 : 0);
    char *end;

    errno = 0;
    unsigned long long pid = strtoull(digits, &end, hex ? 16 : 10);
    if (!isxdigit((unsigned char)*digits) || *end)
        return err_note_what(p->note, ERR_USAGE, "'%s' is not a process id", show(value).text);
    if (errno || pid == 0 || pid > INT_MAX)
        return err_note_what(p->note, ERR_USAGE, "no process can have the id %s", show(value).text);
    *(pid_t *)field = (pid_t)pid;
    return 0;
}

/* A plain decimal number; neither nan, inf nor hex, which strtod would take. */
static bool read_number(const char *value, double *ret)
{
    char *end;

    if (value[strspn(value, "0123456789.eE+-")] != '\0' || !*value)
        return false;
    *ret = strtod(value, &end);
    return *end == '\0' && isfinite(*ret);
}

static int set_depth(struct parser *p, void *field, const char *value)
{
    errno = 0;
    unsigned long depth = is_number(value) ? strtoul(value, NULL, 10) : 0;
    if (!depth || errno || depth > UINT_MAX)
        return err_note_what(p->note, ERR_USAGE,
                             "'%s' is not a number of generations: 1 is the children, 2 their children too",
                             show(value).text);
    *(unsigned *)field = (unsigned)depth;
    p->o->subprocesses = true;
    return 0;
}

static int set_rate(struct parser *p, void *field, const char *value)
{
    double rate;

    if (!read_number(value, &rate))
        return err_note_what(p->note, ERR_USAGE, "'%s' is not a rate: give a number of samples a second",
                             show(value).text);
    if (rate <= 0)
        return err_note_what(p->note, ERR_USAGE, "the rate must be more than 0, not %s", show(value).text);
    /* Beyond these an interval in whole nanoseconds makes no sense. */
    if (rate < 1e-6 || rate > 1e6)
        return err_note_what(p->note, ERR_USAGE, "the rate must lie between 0.000001 and 1000000, not %s",
                             show(value).text);
    *(double *)field = rate;
    return 0;
}

static int set_duration(struct parser *p, void *field, const char *value)
{
    double seconds;

    if (strcasecmp(value, "unlimited") == 0) {
        *(double *)field = 0;
        return 0;
    }
    if (!read_number(value, &seconds))
        return err_note_what(p->note, ERR_USAGE, "'%s' is not a duration: give seconds, or 'unlimited'",
                             show(value).text);
    if (seconds < 1e-9)
        return err_note_what(p->note, ERR_USAGE, "the duration must be more than 0 seconds, not %s", show(value).text);
    /* Thirty years are no limit, and more would not fit into nanoseconds. */
    *(double *)field = seconds > 1e9 ? 0 : seconds;
    return 0;
}

/* A word that is none of the `kind`s that `g` was tried with. */
static int fail_choice(struct parser *p, const char *kind, const struct suggest *g)
{
    err_note_what(p->note, ERR_USAGE, "unknown %s '%s'", kind, show(g->word).text);
    if (g->best)
        err_note_hint(p->note, "Did you mean '%s'? The %ss are %s.", g->best, kind, g->all);
    else
        err_note_hint(p->note, "The %ss are %s.", kind, g->all);
    return ERR_USAGE;
}

static int set_format(struct parser *p, void *field, const char *value)
{
    const struct format *found = format_by_name(value);
    struct suggest g = {.word = value};

    if (found) {
        *(const struct format **)field = found;
        return 0;
    }
    for (const struct format *const *f = format_all(); *f; f++)
        suggest_try(&g, (*f)->name);
    return fail_choice(p, "format", &g);
}

static int set_fd(struct parser *p, void *field, const char *value)
{
    errno = 0;
    unsigned long fd = is_number(value) ? strtoul(value, NULL, 10) : ULONG_MAX;
    if (errno || fd > INT_MAX)
        return err_note_what(p->note, ERR_USAGE, "'%s' is not a file descriptor: give a number", show(value).text);
    *(int *)field = (int)fd;
    return 0;
}

static int set_text(struct parser *p, void *field, const char *value)
{
    (void)p;
    *(const char **)field = value;
    return 0;
}

static int set_true(struct parser *p, void *field, const char *value)
{
    (void)p;
    (void)value;
    *(bool *)field = true;
    return 0;
}

static int set_count(struct parser *p, void *field, const char *value)
{
    (void)p;
    (void)value;
    ++*(unsigned *)field;
    return 0;
}

static int (*const setters[])(struct parser *p, void *field, const char *value) = {
    [ARGS_BOOL] = set_true,     [ARGS_COUNT] = set_count, [ARGS_TEXT] = set_text,      [ARGS_FILE] = set_text,
    [ARGS_PID] = set_pid,       [ARGS_DEPTH] = set_depth, [ARGS_RATE] = set_rate,      [ARGS_DURATION] = set_duration,
    [ARGS_FORMAT] = set_format, [ARGS_FD] = set_fd,       [ARGS_SHOW_HELP] = set_true, [ARGS_SHOW_VERSION] = set_true,
};

/* ---- flags ---- */

static const struct args_flag *find_flag(const char *name, size_t n, char letter, unsigned in)
{
    for (const struct args_flag *f = flags; f->name; f++) {
        bool same = letter ? f->letter == letter : strlen(f->name) == n && memcmp(f->name, name, n) == 0;
        if (same && (f->commands & in))
            return f;
    }
    return NULL;
}

/* A flag that is not one of this command's: `name` is its long name, or NULL for `letter`. */
static int fail_unknown(struct parser *p, const char *name, char letter)
{
    char word[104];
    const char *close = NULL;
    const struct args_flag *elsewhere = find_flag(name, name ? strlen(name) : 0, letter, IN_ALL);
    const char *here = commands[p->o->command].name;

    if (name)
        snprintf(word, sizeof(word), "--%s", show(name).text);
    else
        snprintf(word, sizeof(word), "-%s", show((char[]){letter, '\0'}).text);
    if (elsewhere && here) {
        err_note_what(p->note, ERR_USAGE, "%s takes no flag '%s'", here, word);
        err_note_hint(p->note, "See the flags it takes with: %s %s --help", args_name(p->o), here);
        return ERR_USAGE;
    }
    err_note_what(p->note, ERR_USAGE, "unknown flag '%s'", word);
    if (elsewhere)
        err_note_hint(p->note, "A command comes before its flags: %s COMMAND %s", args_name(p->o), word);
    else if (name && (close = guess_flag(name, p->o->command)))
        err_note_hint(p->note, "Did you mean '--%s'?", close);
    return ERR_USAGE;
}

static int fail_value(struct parser *p, const struct args_flag *f, const char *found)
{
    if (!found)
        return err_note_what(p->note, ERR_USAGE, "--%s needs a value: --%s %s", f->name, f->name, f->value);
    err_note_what(p->note, ERR_USAGE, "--%s needs a value, but '%s' follows", f->name, show(found).text);
    err_note_hint(p->note, "A value that begins with a dash is given as: --%s=%s", f->name, show(found).text);
    return ERR_USAGE;
}

/* The value of `f` from the next word. A word that looks like a flag is not one; `-` alone and `-5` are. */
static int next_value(struct parser *p, const struct args_flag *f, const char **ret)
{
    const char *word = p->next < p->argc ? p->argv[p->next] : NULL;
    bool number_wanted = f->kind == ARGS_PID || f->kind == ARGS_DEPTH || f->kind == ARGS_RATE ||
                         f->kind == ARGS_DURATION || f->kind == ARGS_FD;

    if (!word || !*word)
        return fail_value(p, f, NULL);
    if (word[0] == '-' && word[1] && !(number_wanted && isdigit((unsigned char)word[1])))
        return fail_value(p, f, word);
    p->next++;
    *ret = word;
    return 0;
}

/* `value` is what was attached to the flag, or NULL. */
static int apply_flag(struct parser *p, const struct args_flag *f, const char *value)
{
    uint64_t bit = UINT64_C(1) << (f - flags);
    int r;

    if (f->value) {
        if (!value && (r = next_value(p, f, &value)) < 0)
            return r;
        if (!*value)
            return fail_value(p, f, NULL);
        if (p->seen & bit)
            return err_note_what(p->note, ERR_USAGE, "--%s may be given only once", f->name);
        p->seen |= bit;
    } else if (value) {
        return err_note_what(p->note, ERR_USAGE, "--%s takes no value, but got '%s'", f->name, show(value).text);
    }
    return setters[f->kind](p, (char *)p->o + f->offset, value);
}

static int parse_long(struct parser *p, const char *word)
{
    char name[SUGGEST_WORD_MAX + 1];
    size_t n = strcspn(word, "=");
    const struct args_flag *f = find_flag(word, n, 0, IN(p->o->command));

    if (f)
        return apply_flag(p, f, word[n] ? word + n + 1 : NULL);
    if (n > SUGGEST_WORD_MAX)
        n = SUGGEST_WORD_MAX;
    memcpy(name, word, n);
    name[n] = '\0';
    return fail_unknown(p, name, 0);
}

/* `-sn`, `-nsp 5`, `-p5`, `-p=5`: letters up to the first that takes a value. */
static int parse_short(struct parser *p, const char *word)
{
    int r = 0;

    if (strlen(word) > 1 && find_flag(word, strlen(word), 0, IN(p->o->command))) {
        err_note_what(p->note, ERR_USAGE, "unknown flag '-%s'", show(word).text);
        err_note_hint(p->note, "Did you mean '--%s'?", show(word).text);
        return ERR_USAGE;
    }
    while (*word && r == 0) {
        const struct args_flag *f = find_flag(NULL, 0, *word, IN(p->o->command));
        if (!f)
            return fail_unknown(p, NULL, *word);
        word++;
        if (*word == '=' || (f->value && *word))
            return apply_flag(p, f, word + (*word == '='));
        r = apply_flag(p, f, NULL);
    }
    return r;
}

/* ---- words ---- */

/* The first word of record that is no flag: the program; all that follows is its own. */
static int take_program(struct parser *p, const char *word)
{
    if (is_number(word)) {
        err_note_what(p->note, ERR_USAGE, "'%s' is not a program", show(word).text);
        err_note_hint(p->note, "For the process of that id: %s record --pid %s", args_name(p->o), show(word).text);
        return ERR_USAGE;
    }
    p->o->program = p->argv + p->next - 1;
    p->next = p->argc;
    return 0;
}

static int take_shell(struct parser *p, const char *word)
{
    struct suggest g = {.word = word};

    if (p->o->shell)
        return err_note_what(p->note, ERR_USAGE, "completions takes one shell, but '%s' follows", show(word).text);
    for (size_t i = 0; completions_shell(i); i++) {
        if (strcasecmp(completions_shell(i), word) == 0) {
            p->o->shell = completions_shell(i);
            return 0;
        }
        suggest_try(&g, completions_shell(i));
    }
    return fail_choice(p, "shell", &g);
}

static int find_command(struct parser *p, const char *word, enum args_command *ret);

static int take_word(struct parser *p, const char *word)
{
    switch (p->o->command) {
    case ARGS_RECORD:
        return take_program(p, word);
    case ARGS_MERGE:
        p->o->n_files++;
        return p->visit ? p->visit(word, p->arg) : 0;
    case ARGS_COMPLETIONS:
        return take_shell(p, word);
    case ARGS_HELP:
        p->o->show_help = true;
        return find_command(p, word, &p->o->command);
    default:
        err_note_what(p->note, ERR_USAGE, "unexpected word '%s'", show(word).text);
        if (is_number(word))
            err_note_hint(p->note, "For the process of that id: %s dump --pid %s", args_name(p->o), show(word).text);
        else if (p->o->command == ARGS_NONE && p->o->verbose)
            err_note_hint(p->note, "A command comes before its flags: %s %s FLAGS", args_name(p->o), show(word).text);
        return ERR_USAGE;
    }
}

static int parse_rest(struct parser *p)
{
    int r = 0;

    while (r == 0 && p->next < p->argc && !p->o->show_help && !p->o->show_version) {
        const char *word = p->argv[p->next++];
        if (strcmp(word, "--") == 0 && p->o->command == ARGS_RECORD) {
            p->o->program = p->next < p->argc ? p->argv + p->next : NULL;
            return 0;
        }
        if (strncmp(word, "--", 2) == 0 && word[2])
            r = parse_long(p, word + 2);
        else if (word[0] == '-' && word[1] && word[1] != '-')
            r = parse_short(p, word + 1);
        else if (strcmp(word, "--") != 0)
            r = take_word(p, word);
    }
    return r;
}

/* By name or by an abbreviation that fits one command only. */
static int find_command(struct parser *p, const char *word, enum args_command *ret)
{
    size_t n = strlen(word);
    int found = ARGS_NONE;
    struct suggest g = {.word = word};

    for (int c = 0; n && c < ARGS_COMMANDS_; c++) {
        if (!commands[c].name || strncmp(commands[c].name, word, n) != 0)
            continue;
        if (found != ARGS_NONE && commands[c].yields)
            continue;
        if (found != ARGS_NONE && !commands[found].yields)
            return err_note_what(p->note, ERR_USAGE, "'%s' may mean %s or %s", show(word).text, commands[found].name,
                                 commands[c].name);
        found = c;
    }
    if (found != ARGS_NONE) {
        *ret = (enum args_command)found;
        return 0;
    }
    if (n && strncmp("top", word, n) == 0)
        return err_note_what(p->note, ERR_USAGE, "top is not available in this version");
    for (int c = 0; c < ARGS_COMMANDS_; c++)
        if (commands[c].name)
            suggest_try(&g, commands[c].name);
    return fail_choice(p, "command", &g);
}

/* Arguments after --version are ignored, except --verbose, which makes it show more. */
static void find_verbose(struct parser *p)
{
    for (; p->next < p->argc && strcmp(p->argv[p->next], "--") != 0; p->next++)
        if (strcmp(p->argv[p->next], "--verbose") == 0 || strcmp(p->argv[p->next], "-v") == 0)
            p->o->verbose = true;
}

/* What no single flag can see. */
static int check_whole(struct parser *p)
{
    const struct options *o = p->o;

    if (o->show_help || o->show_version)
        return 0;
    if (o->pid && o->program) {
        err_note_what(p->note, ERR_USAGE, "--pid and a program to launch ('%s') exclude each other",
                      show(o->program[0]).text);
        err_note_hint(p->note, "Leave one of them out.");
        return ERR_USAGE;
    }
    if (o->pid && o->core)
        return err_note_what(p->note, ERR_USAGE, "--pid and --core exclude each other");
    if (o->wait && o->kill)
        return err_note_what(p->note, ERR_USAGE, "--wait and --kill exclude each other");
    if (!o->program && (o->wait || o->kill))
        return err_note_what(p->note, ERR_USAGE, "--%s goes with a program to start only", o->wait ? "wait" : "kill");
    if (!o->core && (o->root || o->exe))
        return err_note_what(p->note, ERR_USAGE, "--%s goes with --core FILE only", o->root ? "root" : "exe");
    if (o->command == ARGS_COMPLETIONS && !o->shell) {
        err_note_what(p->note, ERR_USAGE, "completions needs the name of a shell");
        err_note_hint(p->note, "For example: %s completions bash", args_name(o));
        return ERR_USAGE;
    }
    if (o->command == ARGS_MERGE && !o->n_files) {
        err_note_what(p->note, ERR_USAGE, "merge needs at least one raw profile");
        err_note_hint(p->note, "For example: %s merge -o all.svg 'node 1=one.txt' 'node 2=two.txt'", args_name(o));
        return ERR_USAGE;
    }
    return 0;
}

static bool named_py_spy(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path && strcmp(slash ? slash + 1 : path, "py-spy") == 0;
}

int args_parse(int argc, char *const argv[], struct options *ret, struct err_note *note)
{
    struct parser p = {.argv = argv, .argc = argc, .next = 1, .o = ret, .note = note};
    int r;

    *ret = (struct options){
        .rate = 100, .status_fd = -1, .argc = argc, .argv = argv, .as_py_spy = named_py_spy(argc > 0 ? argv[0] : NULL)};
    if (argc > 1 && argv[1][0] != '-') {
        r = find_command(&p, argv[p.next++], &ret->command);
        if (r < 0)
            return r;
    }
    if (commands[ret->command].in_package && p.next == argc)
        ret->bare = ret->show_help = true;
    /* A flag in the first place is ours; the first word, and all that follows it, is the package's. */
    if (commands[ret->command].in_package && (p.next == argc || argv[p.next][0] != '-')) {
        ret->program = argv + p.next;
        return 0;
    }
    r = parse_rest(&p);
    if (r == 0 && ret->show_version)
        find_verbose(&p);
    if (r == 0)
        r = check_whole(&p);
    if (r == 0 && ret->command == ARGS_HELP) {
        ret->show_help = !ret->show_version;
        ret->command = ARGS_NONE;
    }
    if (r == 0 && ret->command == ARGS_NONE && !ret->show_help && !ret->show_version)
        ret->bare = ret->show_help = true;
    return r;
}

int args_each_file(const struct options *options, int (*visit)(const char *word, void *arg), void *arg)
{
    struct options again = {.command = options->command};
    struct parser p = {
        .argv = options->argv, .argc = options->argc, .next = 2, .o = &again, .visit = visit, .arg = arg};

    return parse_rest(&p);
}
