/*
 * Parses argv into struct options with the tables in args.c. Nothing here prints, exits or allocates: strings point into argv.
 */
#include "base/text.h"
#include "cmd/args_private.h"
#include "cmd/cmd.h"

#include <ctype.h>
#include <string.h>

/* ---- flags ---- */

static const char *guess_flag(const char *name, enum args_command command)
{
    struct suggest g = {.word = name};

    for (const struct args_flag *f = args_flags(); f->name; f++)
        if (f->commands & ARGS_IN(command))
            suggest_try(&g, f->name);
    return g.best;
}

/* Reports a flag that this command does not accept: its long `name`, or `letter` if `name` is NULL. */
static int fail_unknown(struct args_parser *p, const char *name, char letter)
{
    char word[sizeof(struct text_safe) + 2];
    const char *close = NULL;
    const struct args_flag *elsewhere = args_find_flag(name, name ? strlen(name) : 0, letter, ARGS_IN_ALL);
    const char *here = args_command_row(p->o->command)->name;

    if (name)
        snprintf(word, sizeof(word), "--%s", text_safe(name).s);
    else
        snprintf(word, sizeof(word), "-%s", text_safe((char[]){letter, '\0'}).s);
    if (elsewhere && here) {
        error_text_what(p->text, ERR_USAGE, "%s does not accept the flag '%s'", here, word);
        error_text_hint(p->text, "For the flags it accepts, run: %s %s --help", args_name(p->o), here);
        return ERR_USAGE;
    }
    error_text_what(p->text, ERR_USAGE, "unknown flag '%s'", word);
    if (elsewhere)
        error_text_hint(p->text, "Put the command before its flags: %s COMMAND %s", args_name(p->o), word);
    else if (name && (close = guess_flag(name, p->o->command)))
        error_text_hint(p->text, "Did you mean '--%s'?", close);
    return ERR_USAGE;
}

static int fail_value(struct args_parser *p, const struct args_flag *f, const char *found)
{
    if (!found)
        return error_text_what(p->text, ERR_USAGE, "--%s requires a value: --%s %s", f->name, f->name, f->value);
    error_text_what(p->text, ERR_USAGE, "--%s requires a value, but the next argument is '%s'", f->name,
                    text_safe(found).s);
    error_text_hint(p->text, "To pass a value that begins with a dash, write: --%s=%s", f->name, text_safe(found).s);
    return ERR_USAGE;
}

/* Takes the value of `f` from the next argument. Rejects flags, but accepts `-` and, for numbers, `-5`. */
static int next_value(struct args_parser *p, const struct args_flag *f, const char **ret)
{
    const char *word = p->next < p->argc ? p->argv[p->next] : NULL;

    if (!word || !*word)
        return fail_value(p, f, NULL);
    if (word[0] == '-' && word[1] && !(args_is_numeric(f) && isdigit((unsigned char)word[1])))
        return fail_value(p, f, word);
    p->next++;
    *ret = word;
    return 0;
}

/* `value` is the part attached to the flag ("--pid=5", "-p5"), or NULL. */
static int apply_flag(struct args_parser *p, const struct args_flag *f, const char *value)
{
    uint64_t bit = UINT64_C(1) << (f - args_flags());
    int r;

    /* A program called "all" needs a "--" before it. */
    if (f->kind == ARGS_ASYNC && !value && p->next < p->argc && strcmp(p->argv[p->next], "all") == 0)
        value = p->argv[p->next++];
    if (f->value) {
        if (!value && (r = next_value(p, f, &value)) < 0)
            return r;
        if (!*value)
            return fail_value(p, f, NULL);
        if ((p->seen & bit) && !args_may_repeat(f))
            return error_text_what(p->text, ERR_USAGE, "--%s may be given only once", f->name);
    } else if (value && f->kind != ARGS_ASYNC) {
        return error_text_what(p->text, ERR_USAGE, "--%s takes no value, but got '%s'", f->name, text_safe(value).s);
    }
    p->seen |= bit;
    return args_set_value(p, f, value);
}

static int parse_long(struct args_parser *p, const char *word)
{
    char name[SUGGEST_WORD_MAX + 1];
    size_t n = strcspn(word, "=");
    const struct args_flag *f = args_find_flag(word, n, 0, ARGS_IN(p->o->command));

    if (f)
        return apply_flag(p, f, word[n] ? word + n + 1 : NULL);
    if (n > SUGGEST_WORD_MAX)
        n = SUGGEST_WORD_MAX;
    memcpy(name, word, n);
    name[n] = '\0';
    return fail_unknown(p, name, 0);
}

/* `-sn`, `-nsp 5`, `-p5`, `-p=5`: parses letters up to the first that takes a value. */
static int parse_short(struct args_parser *p, const char *word)
{
    int r = 0;

    if (strlen(word) > 1 && args_find_flag(word, strlen(word), 0, ARGS_IN(p->o->command))) {
        error_text_what(p->text, ERR_USAGE, "unknown flag '-%s'", text_safe(word).s);
        error_text_hint(p->text, "Did you mean '--%s'?", text_safe(word).s);
        return ERR_USAGE;
    }
    while (*word && r == 0) {
        const struct args_flag *f = args_find_flag(NULL, 0, *word, ARGS_IN(p->o->command));
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

static int fail_word(struct args_parser *p, const char *word)
{
    return error_text_what(p->text, ERR_USAGE, "unexpected argument '%s'", text_safe(word).s);
}

/* True for a word that can only mean processes: a number, or a list of numbers. py-spy has no such arguments. */
static bool is_pid(const struct args_parser *p, const char *word)
{
    return !p->o->as_py_spy && ((isdigit((unsigned char)*word) && word[strspn(word, "0123456789,")] == '\0') ||
                                (strncasecmp(word, "0x", 2) == 0 && isxdigit((unsigned char)word[2])));
}

/* The same as --pid. */
static int take_pid(struct args_parser *p, const char *word)
{
    if (!p->o->word)
        p->o->word = p->next - 1;
    return apply_flag(p, args_find_flag("pid", 3, 0, ARGS_IN(p->o->command)), word);
}

/* The name of a process. */
static int take_name(struct args_parser *p, const char *word)
{
    if (p->o->as_py_spy || p->o->pid || p->o->word || p->o->core)
        return fail_word(p, word);
    p->o->word = p->next - 1;
    p->o->name = word;
    return 0;
}

/* The first argument of record that is not a flag is the program, unless it is a PID. The rest belongs to the program. */
static int take_program(struct args_parser *p, const char *word)
{
    if (is_pid(p, word))
        return take_pid(p, word);
    if (args_is_number(word)) {
        error_text_what(p->text, ERR_USAGE, "'%s' is not a program", text_safe(word).s);
        error_text_hint(p->text, "To profile the process with that ID, run: %s record --pid %s", args_name(p->o),
                        text_safe(word).s);
        return ERR_USAGE;
    }
    p->o->program = p->argv + p->next - 1;
    p->o->word = p->next - 1;
    p->next = p->argc;
    return 0;
}

static int take_shell(struct args_parser *p, const char *word)
{
    struct suggest g = {.word = word};

    if (p->o->shell)
        return error_text_what(p->text, ERR_USAGE, "completions accepts one shell; unexpected argument '%s'",
                               text_safe(word).s);
    for (size_t i = 0; completions_shell(i); i++) {
        if (strcasecmp(completions_shell(i), word) == 0) {
            p->o->shell = completions_shell(i);
            return 0;
        }
        suggest_try(&g, completions_shell(i));
    }
    return args_fail_choice(p, "shell", &g);
}

/* Accepts the full name or an unambiguous abbreviation. */
static int find_command(struct args_parser *p, const char *word, enum args_command *ret)
{
    size_t n = strlen(word);
    enum args_command found = ARGS_NONE;
    struct suggest g = {.word = word};

    for (enum args_command c = ARGS_NONE; n && c < ARGS_COMMANDS_; c++) {
        const struct args_command_row *row = args_command_row(c);

        if (!row->name || strncmp(row->name, word, n) != 0 || (found != ARGS_NONE && row->yields))
            continue;
        if (found != ARGS_NONE && !args_command_row(found)->yields)
            return error_text_what(p->text, ERR_USAGE, "'%s' is ambiguous: it could be %s or %s", text_safe(word).s,
                                   args_command_row(found)->name, row->name);
        found = c;
    }
    if (found != ARGS_NONE) {
        *ret = found;
        return 0;
    }
    if (n && strncmp("top", word, n) == 0)
        return error_text_what(p->text, ERR_USAGE, "top is not available in this version");
    for (enum args_command c = ARGS_NONE; c < ARGS_COMMANDS_; c++)
        if (args_command_row(c)->name)
            suggest_try(&g, args_command_row(c)->name);
    if (n && !g.best && !p->o->as_py_spy && p->o->command == ARGS_NONE)
        p->o->word = p->next - 1;
    args_fail_choice(p, "command", &g);
    if (args_is_number(word))
        error_text_hint(p->text, "To dump the process with that ID, run: %s dump --pid %s", args_name(p->o), word);
    else if (n > 3 && strcmp(word + n - 3, ".py") == 0)
        error_text_hint(p->text, "To record this script, run: %s record %s%s", args_name(p->o),
                        p->o->as_py_spy ? "-- python3 " : "", text_safe(word).s);
    return ERR_USAGE;
}

/* An empty name would match every process. */
static int fail_empty(struct args_parser *p)
{
    error_text_what(p->text, ERR_USAGE, "%s does not accept an empty argument", args_command_row(p->o->command)->name);
    error_text_hint(p->text, "To list the Python processes, run: %s list", args_name(p->o));
    return ERR_USAGE;
}

static int take_word(struct args_parser *p, const char *word)
{
    if (!*word && (p->o->command == ARGS_RECORD || p->o->command == ARGS_DUMP))
        return fail_empty(p);
    switch (p->o->command) {
    case ARGS_RECORD:
        return take_program(p, word);
    case ARGS_MERGE:
    case ARGS_GROUP:
        p->o->n_files++;
        return p->visit ? p->visit(word, p->arg) : 0;
    case ARGS_COMPLETIONS:
        return take_shell(p, word);
    case ARGS_HELP:
        p->o->show_help = true;
        return find_command(p, word, &p->o->command);
    default:
        if ((p->o->command == ARGS_DUMP || p->o->command == ARGS_DOCTOR) && is_pid(p, word))
            return take_pid(p, word);
        if (p->o->command == ARGS_DUMP && take_name(p, word) == 0)
            return 0;
        fail_word(p, word);
        if (args_is_number(word) && !p->o->pid)
            error_text_hint(p->text, "To dump the process with that ID, run: %s dump --pid %s", args_name(p->o),
                            text_safe(word).s);
        else if (p->o->command == ARGS_NONE && p->o->verbose)
            error_text_hint(p->text, "Put the command before its flags: %s %s FLAGS", args_name(p->o),
                            text_safe(word).s);
        return ERR_USAGE;
    }
}

static int parse_rest(struct args_parser *p)
{
    int r = 0;

    while (r == 0 && p->next < p->argc && !p->o->show_help && !p->o->show_version) {
        const char *word = p->argv[p->next++];
        if (strcmp(word, "--") == 0 && p->o->command == ARGS_RECORD) {
            p->o->program = p->next < p->argc ? p->argv + p->next : NULL;
            p->o->word = 0; /* as it is: neither a script nor the name of a process */
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

/* --version ignores all arguments after it except --verbose. */
static void find_verbose(struct args_parser *p)
{
    for (; p->next < p->argc && strcmp(p->argv[p->next], "--") != 0; p->next++)
        if (strcmp(p->argv[p->next], "--verbose") == 0 || strcmp(p->argv[p->next], "-v") == 0)
            p->o->verbose = true;
}

static bool named_py_spy(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path && strcmp(slash ? slash + 1 : path, "py-spy") == 0;
}

int args_parse(int argc, char *const argv[], struct options *ret, struct error_text *text)
{
    struct args_parser p = {.argv = argv, .argc = argc, .next = 1, .o = ret, .text = text};
    int r;

    *ret = (struct options){.rate = 100,
                            .deadline = -1,
                            .status_fd = -1,
                            .argc = argc,
                            .argv = argv,
                            .as_py_spy = named_py_spy(argc > 0 ? argv[0] : NULL)};
    if (argc > 1 && is_pid(&p, argv[1])) {
        ret->command = ARGS_DUMP; /* `spyglass 1234` */
    } else if (argc > 1 && argv[1][0] != '-') {
        r = find_command(&p, argv[p.next++], &ret->command);
        if (r < 0)
            return r;
    }
    if (args_command_row(ret->command)->in_package && p.next == argc)
        ret->bare = ret->show_help = true;
    /* A flag right after the command is ours. Otherwise pass all arguments to the Python package. */
    if (args_command_row(ret->command)->in_package && (p.next == argc || argv[p.next][0] != '-')) {
        ret->program = argv + p.next;
        return 0;
    }
    r = parse_rest(&p);
    if (r == 0 && ret->show_version)
        find_verbose(&p);
    if (r == 0)
        r = args_check(&p);
    if (r == 0 && ret->async == ASYNC_ALL)
        ret->mode = MODE_WALL;
    if (r == 0 && ret->command == ARGS_HELP) {
        ret->show_help = !ret->show_version;
        ret->command = ARGS_NONE;
    }
    if (r == 0 && ret->command == ARGS_NONE && !ret->show_help && !ret->show_version)
        ret->bare = ret->show_help = true;
    return r;
}

/* Parses the arguments again, with the functions that `p` calls for some of them. */
static int parse_again(const struct options *options, struct args_parser p)
{
    struct options again = {.command = options->command};

    p.argv = options->argv;
    p.argc = options->argc;
    p.o = &again;
    p.next = is_pid(&p, options->argv[1]) ? 1 : 2; /* `spyglass 1234` */
    return parse_rest(&p);
}

int args_each_file(const struct options *options, int (*visit)(const char *word, void *arg), void *arg)
{
    return parse_again(options, (struct args_parser){.visit = visit, .arg = arg});
}

int args_each_pid(const struct options *options, int (*visit)(pid_t pid, void *arg), void *arg)
{
    return parse_again(options, (struct args_parser){.visit_pid = visit, .arg = arg});
}

int args_each_name(const struct options *options, int (*visit)(const char *pattern, void *arg), void *arg)
{
    return parse_again(options, (struct args_parser){.visit_name = visit, .arg = arg});
}
