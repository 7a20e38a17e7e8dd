/*
 * Checks the command line as a whole: flags that cannot be combined, and flags and commands that require something else.
 */
#include "base/text.h"
#include "cmd/args_private.h"

#include <string.h>

/* ADD A CONTRADICTION HERE. The first row that applies gives the message. */
static const struct contradiction {
    const char *flag, *other;
    const char *message; /* NULL: "--FLAG and --OTHER cannot be combined" */
    const char *hint;    /* NULL: the general one for bad arguments */
    unsigned commands;   /* only there; 0: everywhere */
} contradictions[] = {
    {"all", "core"},
    {"name", "core"},
    {"pid", "core"},
    {"deadline", "core"},
    {"all", "pid", .hint = "Remove one of the two flags."},
    {"all", "name", .hint = "Remove one of the two flags."},
    {"tasks", "no-tasks"},
    {"waits", "no-waits"},
    {"group", "core", .hint = "To group several core files, dump each with --json and run: spyglass group FILE..."},
    {"group", "locals"},
    {"group", "source"},
    {"group", "tasks"},
    {"group", "waits"},
    {"json", "output", .hint = "Remove one of the two flags."},
    {"json", "format", .hint = "Remove one of the two flags."},
    {"async", "nonblocking"},
    {"wait", "kill"},
    {"mode", "idle", .hint = "Remove --idle: --mode wall includes idle threads."},
    {"mode", "gil", .hint = "Remove --gil: --mode gil measures the time that the GIL is held."},
#define NATIVE_NONBLOCKING                                                                                             \
    .message = "--native and --nonblocking cannot be combined: a recording must stop threads to read their registers", \
    .hint = "Remove one of the two flags. dump accepts both.", .commands = ARGS_IN(ARGS_RECORD)
    {"native", "nonblocking", NATIVE_NONBLOCKING},
    {"native-all", "nonblocking", NATIVE_NONBLOCKING},
};

/* A PID as a word counts as --pid. */
static bool is_given(const struct args_parser *p, const char *name)
{
    const struct args_flag *flag = args_find_flag(name, strlen(name), 0, ARGS_IN(p->o->command));

    return flag && (p->seen >> (flag - args_flags()) & 1);
}

static int check_contradictions(const struct args_parser *p)
{
    for (size_t i = 0; i < sizeof(contradictions) / sizeof(contradictions[0]); i++) {
        const struct contradiction *c = &contradictions[i];

        if ((c->commands && !(c->commands & ARGS_IN(p->o->command))) || !is_given(p, c->flag) || !is_given(p, c->other))
            continue;
        if (c->message)
            error_text_what(p->text, ERR_USAGE, "%s", c->message);
        else
            error_text_what(p->text, ERR_USAGE, "--%s and --%s cannot be combined", c->flag, c->other);
        if (c->hint)
            error_text_hint(p->text, "%s", c->hint);
        return ERR_USAGE;
    }
    return 0;
}

static int fail_extension(const struct args_parser *p)
{
    const char *ending, *dot = strrchr(p->o->output, '.');
    const struct format *format;
    char list[256] = "";

    for (size_t i = 0; (ending = format_ending(i, &format)); i++) {
        size_t used = strlen(list);

        snprintf(list + used, sizeof(list) - used, "%s%s (%s)", i ? ", " : "", ending, format->name);
    }
    error_text_what(p->text, ERR_USAGE, "no format has the extension '%s'", text_safe(dot).s);
    error_text_hint(p->text, "Use one of %s, or choose the format with --format.", list);
    return ERR_USAGE;
}

/* What to sample: processes, a program or a core file. */
static int check_target(const struct args_parser *p)
{
    const struct options *o = p->o;

    if (args_choose_process(o) && o->program) {
        error_text_what(p->text, ERR_USAGE, "%s cannot be combined with a program to launch ('%s')",
                        o->all     ? "--all"
                        : o->names ? "--name"
                                   : "--pid",
                        text_safe(o->module ? o->module : o->program[0]).s);
        error_text_hint(p->text, "Use one or the other.");
        return ERR_USAGE;
    }
    if (o->name && (args_choose_process(o) || o->core))
        return error_text_what(p->text, ERR_USAGE, "unexpected argument '%s'", text_safe(o->name).s);
    if (o->command == ARGS_DOCTOR && o->several_pids)
        return error_text_what(p->text, ERR_USAGE, "doctor accepts only one process ID");
    return 0;
}

/* The time that a task waits is elapsed time, and many tasks wait at the same time. */
static int check_async_all(const struct args_parser *p)
{
    const struct options *o = p->o;
    const struct format *format = o->format ? o->format : o->output ? format_by_path(o->output) : NULL;

    if (o->async != ASYNC_ALL)
        return 0;
    if (o->idle || o->gil || (o->mode != MODE_NONE && o->mode != MODE_WALL)) {
        error_text_what(p->text, ERR_USAGE, "--async all measures elapsed time, as --mode wall does");
        error_text_hint(p->text, "Remove --%s.", o->idle ? "idle" : o->gil ? "gil" : "mode");
        return ERR_USAGE;
    }
    if (format && format->timeline) {
        error_text_what(p->text, ERR_USAGE, "%s shows one stack at a time, but many tasks wait at the same time",
                        format->name);
        error_text_hint(p->text, "With --async all, use --format flamegraph or --format raw.");
        return ERR_USAGE;
    }
    return 0;
}

/* Flags and commands that require something else. */
static int check_requirements(const struct args_parser *p)
{
    const struct options *o = p->o;

    if (!o->program && (o->wait || o->kill))
        return error_text_what(p->text, ERR_USAGE, "--%s requires a program to launch", o->wait ? "wait" : "kill");
    if (o->command == ARGS_DUMP && !o->group && (o->output || o->format || o->rounds || o->every))
        return error_text_what(p->text, ERR_USAGE, "--%s requires --group",
                               o->output   ? "output"
                               : o->format ? "format"
                               : o->rounds ? "rounds"
                                           : "every");
    if (o->every && !o->rounds)
        return error_text_what(p->text, ERR_USAGE, "--every requires --rounds");
    if (!o->core && (o->root || o->exe))
        return error_text_what(p->text, ERR_USAGE, "--%s requires --core FILE", o->root ? "root" : "exe");
    if (!o->as_py_spy && o->output && !o->format && format_is_unknown(o->output) && strncmp(o->output, "/dev/", 5) != 0)
        return fail_extension(p);
    if (o->command == ARGS_COMPLETIONS && !o->shell) {
        error_text_what(p->text, ERR_USAGE, "completions requires the name of a shell");
        error_text_hint(p->text, "For example: %s completions bash", args_name(o));
        return ERR_USAGE;
    }
    if (o->command == ARGS_GROUP && !o->n_files) {
        error_text_what(p->text, ERR_USAGE, "group requires at least one file with the output of dump");
        error_text_hint(p->text, "For example: %s group node1.json node2.json", args_name(o));
        return ERR_USAGE;
    }
    if (o->command == ARGS_MERGE && !o->n_files) {
        error_text_what(p->text, ERR_USAGE, "merge requires at least one raw profile");
        error_text_hint(p->text, "For example: %s merge -o all.svg 'node 1=one.txt' 'node 2=two.txt'", args_name(o));
        return ERR_USAGE;
    }
    return 0;
}

int args_check(const struct args_parser *p)
{
    int r;

    if (p->o->show_help || p->o->show_version)
        return 0;
    r = check_target(p);
    if (r == 0)
        r = check_contradictions(p);
    if (r == 0)
        r = check_async_all(p);
    return r == 0 ? check_requirements(p) : r;
}
