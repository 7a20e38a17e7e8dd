/*
 * Parses argv into struct options. The parser, the help texts and the completions all use the tables below.
 * Nothing here prints, exits or allocates: strings point into argv.
 */
#include "cmd/args.h"

#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/suggest.h"
#include "profile/pattern.h"

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

/* The version of py-spy whose command line we accept under the name py-spy. */
#define PY_SPY_VERSION "0.4.3"

#define IN(command)        (1u << (command))
#define IN_RECORD          IN(ARGS_RECORD)
#define IN_DUMP            IN(ARGS_DUMP)
#define IN_LIST            IN(ARGS_LIST)
#define IN_MERGE           IN(ARGS_MERGE)
#define IN_DOCTOR          IN(ARGS_DOCTOR)
#define IN_RECORD_AND_DUMP (IN_RECORD | IN_DUMP)
#define IN_STACKS          (IN_RECORD_AND_DUMP | IN_MERGE)
#define IN_ALL             (IN(ARGS_COMMANDS_) - 1)
#define FIELD(name)        offsetof(struct options, name)

/* In the order of the help text. A letter is unique within a command. */
static const struct args_flag flags[] = {
    {"pid", 'p', ARGS_PIDS, IN_RECORD_AND_DUMP | IN_DOCTOR, FIELD(pid), "PID",
     "Process ID, decimal or hexadecimal with 0x; dump and record accept several: 12,34"},
    {"name", 0, ARGS_NAME, IN_RECORD_AND_DUMP, FIELD(names), "PATTERN",
     "Python processes with this text in their command line; *, ? and [ match all of it"},
    {"all", 0, ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(all), NULL, "Every Python process that you may read"},
    {"core", 'c', ARGS_FILE, IN_DUMP, FIELD(core), "FILE",
     "Read a core file instead of a running process; gzip and zstd are supported"},
    {"root", 0, ARGS_FILE, IN_DUMP, FIELD(root), "DIR",
     "With --core: directory containing the original machine's or container's files"},
    {"exe", 0, ARGS_FILE, IN_DUMP, FIELD(exe), "FILE", "With --core: path of the executable, if it has moved"},
    {"module", 'm', ARGS_MODULE, IN_RECORD, FIELD(module), "MODULE",
     "Launch a Python module, as python3 -m does; all words after it are its arguments"},
    {"output", 'o', ARGS_FILE, IN_RECORD | IN_MERGE, FIELD(output), "FILE", "Output file; - is standard output"},
    {"format", 'f', ARGS_FORMAT, IN_RECORD | IN_MERGE, FIELD(format), "FORMAT", "Output format"},
    {"duration", 'd', ARGS_DURATION, IN_RECORD, FIELD(duration), "SECONDS",
     "How long to record, in seconds or 'unlimited' [default: unlimited]"},
    {"title", 0, ARGS_TEXT, IN_MERGE, FIELD(title), "TEXT", "Title of the profile"},
    {"rate", 'r', ARGS_RATE, IN_RECORD | IN_MERGE, FIELD(rate), "RATE", "Samples per second [default: 100]"},
    {"subprocesses", 's', ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(subprocesses), NULL, "Include child processes"},
    {"subprocess-depth", 0, ARGS_DEPTH, IN_RECORD_AND_DUMP, FIELD(subprocess_depth), "N",
     "Include N generations of child processes: 1 is the children, 2 adds their children"},
    {"mode", 0, ARGS_MODE, IN_RECORD, FIELD(mode), "MODE",
     "What to measure: cpu or wall time, gil (time held) or wait (time off the CPU) [default: cpu]"},
    {"idle", 'i', ARGS_BOOL, IN_RECORD, FIELD(idle), NULL, "Include idle threads, and count samples instead of time"},
    {"gil", 'g', ARGS_BOOL, IN_RECORD, FIELD(gil), NULL,
     "Include only the thread that holds the GIL, and count samples instead of time"},
    {"threads", 't', ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(threads), NULL,
     "Show each thread separately (dump always does)"},
    {"async", 0, ARGS_BOOL, IN_RECORD, FIELD(async), NULL,
     "Show a running task of asyncio below the tasks that await it"},
    {"function", 'F', ARGS_BOOL, IN_RECORD, FIELD(function), NULL, "Aggregate by function instead of by line"},
    {"nolineno", 0, ARGS_BOOL, IN_RECORD, FIELD(nolineno), NULL, "Omit line numbers"},
    {"include", 0, ARGS_PATTERN, IN_STACKS, FIELD(filter.include), "PATTERN",
     "Keep only stacks in which a function, module or file matches, such as 'json.*'; repeatable"},
    {"exclude", 0, ARGS_PATTERN, IN_STACKS, FIELD(filter.exclude), "PATTERN",
     "Drop stacks in which a function, module or file matches; repeatable"},
    {"thread", 0, ARGS_PATTERN, IN_STACKS, FIELD(filter.thread), "PATTERN",
     "Keep only threads whose name or ID matches, such as 'worker*'; repeatable"},
    {"only-mine", 0, ARGS_BOOL, IN_STACKS, FIELD(filter.only_mine), NULL,
     "Fold frames of the standard library and of installed packages into your code that calls them"},
    {"min-percent", 0, ARGS_PERCENT, IN_RECORD | IN_MERGE, FIELD(filter.min_percent), "N",
     "Fold calls below N percent of what the filter kept into their callers"},
    {"locals", 'l', ARGS_COUNT, IN_DUMP, FIELD(locals), NULL,
     "Show local variables; -ll and -lll show longer values and object attributes"},
    {"show-secrets", 0, ARGS_BOOL, IN_DUMP, FIELD(show_secrets), NULL,
     "Do not mask values whose names suggest passwords, tokens, secrets or keys"},
    {"source", 0, ARGS_BOOL, IN_DUMP, FIELD(source), NULL,
     "Show the source line of each frame; on Python 3.11+, mark the part that is being executed"},
    {"waits", 0, ARGS_BOOL, IN_DUMP, FIELD(waits), NULL,
     "Show what each thread waits for: the system call, files and processes, and the time left"},
    {"tasks", 0, ARGS_BOOL, IN_DUMP, FIELD(tasks), NULL, "Show asyncio tasks and greenlets"},
    {"no-tasks", 0, ARGS_BOOL, IN_DUMP, FIELD(no_tasks), NULL, "Do not show asyncio tasks and greenlets"},
    {"json", 'j', ARGS_BOOL, IN_DUMP | IN_LIST | IN_DOCTOR, FIELD(json), NULL, "Write JSON"},
    {"native", 'n', ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(native), NULL,
     "Include native functions: C, C++, Rust and Cython"},
    {"native-all", 0, ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(native_all), NULL,
     "Also include the interpreter's own functions and threads that run no Python"},
    {"full-filenames", 0, ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(full_filenames), NULL, "Show full paths"},
    {"nonblocking", 0, ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(nonblocking), NULL,
     "Read without pausing threads; stacks may be incomplete"},
    {"deadline", 0, ARGS_DURATION, IN_DUMP, FIELD(deadline), "SECONDS",
     "Stop after this time and show what was read; in seconds or 'unlimited' [default: 30]"},
    {"capture", 0, ARGS_BOOL, IN_RECORD, FIELD(capture), NULL,
     "Hide the output of the launched program unless it fails"},
    {"wait", 0, ARGS_BOOL, IN_RECORD, FIELD(wait), NULL,
     "If the recording ends first, wait for the launched program to exit"},
    {"kill", 0, ARGS_BOOL, IN_RECORD, FIELD(kill), NULL, "If the recording ends first, terminate the launched program"},
    {"hideprogress", 0, ARGS_BOOL, IN_RECORD, FIELD(hide_progress), NULL, "Do not show the progress line"},
    {"with-parent", 0, ARGS_PID, IN_RECORD, FIELD(with_parent), "PID",
     "Stop and save the profile when the parent process PID exits"},
    {"status-fd", 0, ARGS_FD, IN_RECORD_AND_DUMP, FIELD(status_fd), "N",
     "Report events as JSON, one object per line, on this open descriptor"},
    {"verbose", 'v', ARGS_BOOL, IN_RECORD_AND_DUMP | IN(ARGS_NONE), FIELD(verbose), NULL,
     "Print more details (no effect in dump); with --version, show how this program was built"},
    {"log-level", 0, ARGS_LOG_LEVEL, IN_RECORD_AND_DUMP | IN_LIST | IN_MERGE | IN_DOCTOR, FIELD(log_level), "LEVEL",
     "Log to standard error: error, warning, info or debug"},
    {"help", 'h', ARGS_SHOW_HELP, IN_ALL, FIELD(show_help), NULL, "Show this help"},
    {"version", 'V', ARGS_SHOW_VERSION, IN_ALL, FIELD(show_version), NULL, "Show the version"},
    {0},
};

/* parser.seen has a bit for each row. */
_Static_assert(sizeof(flags) / sizeof(flags[0]) - 1 <= 64, "struct parser needs a wider set");

static const struct args_command_row commands[ARGS_COMMANDS_] = {
    [ARGS_RECORD] =
        {"record", "Record where a program spends its time",
         "[FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | [FLAGS] [--] PROGRAM [ARGUMENT]...", false, false,
         "[FLAGS] PID... | [FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | [FLAGS] SCRIPT [ARGUMENT]... | "
         "[FLAGS] -m MODULE [ARGUMENT]... | [FLAGS] [--] PROGRAM [ARGUMENT]..."},
    [ARGS_DUMP] = {"dump", "Show the current call stack of every thread",
                   "[FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | [FLAGS] --core FILE", false, false,
                   "[FLAGS] PID... | [FLAGS] NAME | [FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | "
                   "[FLAGS] --core FILE"},
    [ARGS_LIST] = {"list", "List the Python processes, busiest first", "[FLAGS]", false, false},
    [ARGS_MERGE] = {"merge", "Combine raw profiles into one, with a separate root for each", "[FLAGS] [ROOT=]FILE...",
                    false, false},
    [ARGS_RAY] = {"ray", "Dump or record every worker of a Ray cluster", "dump [FLAGS] | record [FLAGS]", true, true},
    [ARGS_DOCTOR] = {"doctor", "Check what this system permits, and suggest fixes", "[FLAGS] [--pid PID]", true, false,
                     "[FLAGS] [PID]"},
    [ARGS_COMPLETIONS] = {"completions", "Generate a shell completion script", "SHELL", false, false},
    [ARGS_HELP] = {"help", "Show help for a command", "[COMMAND]", false, false},
};

struct parser {
    char *const *argv;
    int argc, next;
    uint64_t seen; /* bit set of the flags with a value seen so far, by table index */
    /* Set by args_each_file, args_each_pid and args_each_name, else NULL. */
    int (*visit)(const char *word, void *arg);
    int (*visit_pid)(pid_t pid, void *arg);
    int (*visit_name)(const char *pattern, void *arg);
    void *arg;
    struct options *o;
    struct error_text *text;
};

const struct args_flag *args_flags(void)
{
    return flags;
}

const struct args_command_row *args_command_row(enum args_command command)
{
    return &commands[command];
}

const char *args_usage(const struct options *options)
{
    const struct args_command_row *row = &commands[options->command];

    return row->short_usage && !options->as_py_spy ? row->short_usage : row->usage;
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
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a process ID", text_safe(value).s);
    if (errno || pid == 0 || pid > INT_MAX)
        return error_text_what(p->text, ERR_USAGE, "process ID %s is out of range", text_safe(value).s);
    *(pid_t *)field = (pid_t)pid;
    return 0;
}

/* The field has the first PID only: args_each_pid visits all of them. */
static int add_pid(struct parser *p, pid_t *first, const char *value)
{
    pid_t pid;
    int r = set_pid(p, &pid, value);

    if (r < 0 || p->visit_pid)
        return r < 0 ? r : p->visit_pid(pid, p->arg);
    if (!*first)
        *first = pid;
    p->o->several_pids |= pid != *first;
    return 0;
}

/* "12" or "12,34" */
static int set_pids(struct parser *p, void *field, const char *value)
{
    const char *at = value;
    char word[32];
    size_t n;
    int r;

    if (!strchr(value, ','))
        return add_pid(p, field, value);
    do {
        n = strcspn(at, ",");
        snprintf(word, sizeof(word), "%.*s", (int)(n < sizeof(word) ? n : sizeof(word)), at);
        r = add_pid(p, field, word);
        at += n;
    } while (r == 0 && *at++);
    if (r == ERR_USAGE && (n >= sizeof(word) || !is_number(word))) {
        error_text_what(p->text, r, "'%s' is not a list of process IDs", text_safe(value).s);
        error_text_hint(p->text, "Separate process IDs with commas, without spaces: --pid 12,34");
    }
    return r;
}

static int set_name(struct parser *p, void *field, const char *value)
{
    *(bool *)field = true;
    return p->visit_name ? p->visit_name(value, p->arg) : 0;
}

/* Accepts plain decimal numbers only. strtod alone would also accept nan, inf and hex. */
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
        return error_text_what(p->text, ERR_USAGE,
                               "'%s' is not a number of generations: 1 is the children, 2 adds their children",
                               text_safe(value).s);
    *(unsigned *)field = (unsigned)depth;
    p->o->subprocesses = true;
    return 0;
}

static int set_rate(struct parser *p, void *field, const char *value)
{
    double rate;

    if (!read_number(value, &rate))
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a rate: use a number of samples per second",
                               text_safe(value).s);
    if (rate <= 0)
        return error_text_what(p->text, ERR_USAGE, "the rate must be greater than 0, not %s", text_safe(value).s);
    /* Outside these limits the interval is not useful in whole nanoseconds. */
    if (rate < 1e-6 || rate > 1e6)
        return error_text_what(p->text, ERR_USAGE, "the rate must be between 0.000001 and 1000000, not %s",
                               text_safe(value).s);
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
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a duration: use a number of seconds, or 'unlimited'",
                               text_safe(value).s);
    if (seconds < 1e-9)
        return error_text_what(p->text, ERR_USAGE, "the duration must be greater than 0 seconds, not %s",
                               text_safe(value).s);
    /* More than 1e9 s (about 30 years) counts as unlimited; larger values overflow nanoseconds. */
    *(double *)field = seconds > 1e9 ? 0 : seconds;
    return 0;
}

/* Reports that g->word is not a known `kind`. */
static int fail_choice(struct parser *p, const char *kind, const struct suggest *g)
{
    error_text_what(p->text, ERR_USAGE, "unknown %s '%s'", kind, text_safe(g->word).s);
    if (g->best)
        error_text_hint(p->text, "Did you mean '%s'? Available %ss: %s.", g->best, kind, g->all);
    else
        error_text_hint(p->text, "Available %ss: %s.", kind, g->all);
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

static int set_log_level(struct parser *p, void *field, const char *value)
{
    enum log_level level = log_level_by_name(value);
    struct suggest g = {.word = value};

    if (level != LOG_LEVEL_OFF) {
        *(enum log_level *)field = level;
        return 0;
    }
    for (level = LOG_LEVEL_ERROR; log_level_name(level); level++)
        suggest_try(&g, log_level_name(level));
    return fail_choice(p, "log level", &g);
}

const char *args_mode_name(enum args_mode mode)
{
    static const char *const names[MODES_] = {
        [MODE_CPU] = "cpu", [MODE_WALL] = "wall", [MODE_GIL] = "gil", [MODE_WAIT] = "wait"};

    return mode < MODES_ ? names[mode] : NULL;
}

static int set_mode(struct parser *p, void *field, const char *value)
{
    struct suggest g = {.word = value};

    for (enum args_mode mode = MODE_CPU; mode < MODES_; mode++) {
        if (strcmp(args_mode_name(mode), value) == 0) {
            *(enum args_mode *)field = mode;
            return 0;
        }
        suggest_try(&g, args_mode_name(mode));
    }
    return fail_choice(p, "mode", &g);
}

static int set_percent(struct parser *p, void *field, const char *value)
{
    double percent;

    if (!read_number(value, &percent) || percent < 0 || percent > 100)
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a percentage: use a number from 0 to 100, such as 0.5",
                               text_safe(value).s);
    *(double *)field = percent;
    return 0;
}

static int add_pattern(struct parser *p, void *field, const char *value)
{
    struct filter_patterns *patterns = field;

    if (strlen(value) > PATTERN_MAX)
        return error_text_what(p->text, ERR_USAGE, "a pattern is too long: the limit is %d bytes", PATTERN_MAX);
    if (patterns->n == FILTER_MAX_PATTERNS)
        return error_text_what(p->text, ERR_USAGE, "too many patterns: each flag may be given %d times",
                               FILTER_MAX_PATTERNS);
    patterns->items[patterns->n++] = value;
    return 0;
}

static int set_fd(struct parser *p, void *field, const char *value)
{
    errno = 0;
    unsigned long fd = is_number(value) ? strtoul(value, NULL, 10) : ULONG_MAX;
    if (errno || fd > INT_MAX)
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a file descriptor: give a number", text_safe(value).s);
    *(int *)field = (int)fd;
    return 0;
}

static int set_text(struct parser *p, void *field, const char *value)
{
    (void)p;
    *(const char **)field = value;
    return 0;
}

/* The arguments after the module belong to it. */
static int set_module(struct parser *p, void *field, const char *value)
{
    *(const char **)field = value;
    p->o->program = p->argv + p->next;
    p->next = p->argc;
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
    [ARGS_BOOL] = set_true,      [ARGS_COUNT] = set_count,       [ARGS_TEXT] = set_text,
    [ARGS_FILE] = set_text,      [ARGS_PID] = set_pid,           [ARGS_DEPTH] = set_depth,
    [ARGS_RATE] = set_rate,      [ARGS_DURATION] = set_duration, [ARGS_FORMAT] = set_format,
    [ARGS_SHOW_HELP] = set_true, [ARGS_SHOW_VERSION] = set_true, [ARGS_LOG_LEVEL] = set_log_level,
    [ARGS_FD] = set_fd,          [ARGS_MODE] = set_mode,         [ARGS_PIDS] = set_pids,
    [ARGS_NAME] = set_name,      [ARGS_PATTERN] = add_pattern,   [ARGS_PERCENT] = set_percent,
    [ARGS_MODULE] = set_module,
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

/* Reports a flag that this command does not accept: its long `name`, or `letter` if `name` is NULL. */
static int fail_unknown(struct parser *p, const char *name, char letter)
{
    char word[sizeof(struct text_safe) + 2];
    const char *close = NULL;
    const struct args_flag *elsewhere = find_flag(name, name ? strlen(name) : 0, letter, IN_ALL);
    const char *here = commands[p->o->command].name;

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

static int fail_value(struct parser *p, const struct args_flag *f, const char *found)
{
    if (!found)
        return error_text_what(p->text, ERR_USAGE, "--%s requires a value: --%s %s", f->name, f->name, f->value);
    error_text_what(p->text, ERR_USAGE, "--%s requires a value, but the next argument is '%s'", f->name,
                    text_safe(found).s);
    error_text_hint(p->text, "To pass a value that begins with a dash, write: --%s=%s", f->name, text_safe(found).s);
    return ERR_USAGE;
}

/* Takes the value of `f` from the next argument. Rejects flags, but accepts `-` and, for numbers, `-5`. */
static int next_value(struct parser *p, const struct args_flag *f, const char **ret)
{
    const char *word = p->next < p->argc ? p->argv[p->next] : NULL;
    bool number_wanted = f->kind == ARGS_PID || f->kind == ARGS_PIDS || f->kind == ARGS_DEPTH || f->kind == ARGS_RATE ||
                         f->kind == ARGS_DURATION || f->kind == ARGS_FD || f->kind == ARGS_PERCENT;

    if (!word || !*word)
        return fail_value(p, f, NULL);
    if (word[0] == '-' && word[1] && !(number_wanted && isdigit((unsigned char)word[1])))
        return fail_value(p, f, word);
    p->next++;
    *ret = word;
    return 0;
}

/* `value` is the part attached to the flag ("--pid=5", "-p5"), or NULL. */
static int apply_flag(struct parser *p, const struct args_flag *f, const char *value)
{
    uint64_t bit = UINT64_C(1) << (f - flags);
    int r;

    if (f->value) {
        if (!value && (r = next_value(p, f, &value)) < 0)
            return r;
        if (!*value)
            return fail_value(p, f, NULL);
        if ((p->seen & bit) && f->kind != ARGS_PIDS && f->kind != ARGS_NAME && f->kind != ARGS_PATTERN)
            return error_text_what(p->text, ERR_USAGE, "--%s may be given only once", f->name);
        p->seen |= bit;
    } else if (value) {
        return error_text_what(p->text, ERR_USAGE, "--%s takes no value, but got '%s'", f->name, text_safe(value).s);
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

/* `-sn`, `-nsp 5`, `-p5`, `-p=5`: parses letters up to the first that takes a value. */
static int parse_short(struct parser *p, const char *word)
{
    int r = 0;

    if (strlen(word) > 1 && find_flag(word, strlen(word), 0, IN(p->o->command))) {
        error_text_what(p->text, ERR_USAGE, "unknown flag '-%s'", text_safe(word).s);
        error_text_hint(p->text, "Did you mean '--%s'?", text_safe(word).s);
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

static int fail_word(struct parser *p, const char *word)
{
    return error_text_what(p->text, ERR_USAGE, "unexpected argument '%s'", text_safe(word).s);
}

/* True for a word that can only mean processes: a number, or a list of numbers. py-spy has no such arguments. */
static bool is_pid(const struct parser *p, const char *word)
{
    return !p->o->as_py_spy && ((isdigit((unsigned char)*word) && word[strspn(word, "0123456789,")] == '\0') ||
                                (strncasecmp(word, "0x", 2) == 0 && isxdigit((unsigned char)word[2])));
}

/* The same as --pid. */
static int take_pid(struct parser *p, const char *word)
{
    if (!p->o->word)
        p->o->word = p->next - 1;
    return set_pids(p, &p->o->pid, word);
}

/* The name of a process. */
static int take_name(struct parser *p, const char *word)
{
    if (p->o->as_py_spy || p->o->pid || p->o->word || p->o->core)
        return fail_word(p, word);
    p->o->word = p->next - 1;
    p->o->name = word;
    return 0;
}

/* The first argument of record that is not a flag is the program, unless it is a PID. The rest belongs to the program. */
static int take_program(struct parser *p, const char *word)
{
    if (is_pid(p, word))
        return take_pid(p, word);
    if (is_number(word)) {
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

static int take_shell(struct parser *p, const char *word)
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
        if ((p->o->command == ARGS_DUMP || p->o->command == ARGS_DOCTOR) && is_pid(p, word))
            return take_pid(p, word);
        if (p->o->command == ARGS_DUMP && take_name(p, word) == 0)
            return 0;
        fail_word(p, word);
        if (is_number(word) && !p->o->pid)
            error_text_hint(p->text, "To dump the process with that ID, run: %s dump --pid %s", args_name(p->o),
                            text_safe(word).s);
        else if (p->o->command == ARGS_NONE && p->o->verbose)
            error_text_hint(p->text, "Put the command before its flags: %s %s FLAGS", args_name(p->o),
                            text_safe(word).s);
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

/* Accepts the full name or an unambiguous abbreviation. */
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
            return error_text_what(p->text, ERR_USAGE, "'%s' is ambiguous: it could be %s or %s", text_safe(word).s,
                                   commands[found].name, commands[c].name);
        found = c;
    }
    if (found != ARGS_NONE) {
        *ret = (enum args_command)found;
        return 0;
    }
    if (n && strncmp("top", word, n) == 0)
        return error_text_what(p->text, ERR_USAGE, "top is not available in this version");
    for (int c = 0; c < ARGS_COMMANDS_; c++)
        if (commands[c].name)
            suggest_try(&g, commands[c].name);
    fail_choice(p, "command", &g);
    if (is_number(word))
        error_text_hint(p->text, "To dump the process with that ID, run: %s dump --pid %s", args_name(p->o), word);
    else if (n > 3 && strcmp(word + n - 3, ".py") == 0)
        error_text_hint(p->text, "To record this script, run: %s record %s%s", args_name(p->o),
                        p->o->as_py_spy ? "-- python3 " : "", text_safe(word).s);
    return ERR_USAGE;
}

/* --version ignores all arguments after it except --verbose. */
static void find_verbose(struct parser *p)
{
    for (; p->next < p->argc && strcmp(p->argv[p->next], "--") != 0; p->next++)
        if (strcmp(p->argv[p->next], "--verbose") == 0 || strcmp(p->argv[p->next], "-v") == 0)
            p->o->verbose = true;
}

/* Checks combinations of flags. */
static int fail_extension(struct parser *p)
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

/* The flag among --pid, --name and --all that was given. */
static const char *choosing_flag(const struct options *o)
{
    return o->all ? "--all" : o->names ? "--name" : "--pid";
}

static int check_whole(struct parser *p)
{
    const struct options *o = p->o;

    if (o->show_help || o->show_version)
        return 0;
    if (args_choose_process(o) && o->program) {
        error_text_what(p->text, ERR_USAGE, "%s cannot be combined with a program to launch ('%s')", choosing_flag(o),
                        text_safe(o->module ? o->module : o->program[0]).s);
        error_text_hint(p->text, "Use one or the other.");
        return ERR_USAGE;
    }
    if (o->name && (args_choose_process(o) || o->core))
        return fail_word(p, o->name);
    if (o->command == ARGS_DOCTOR && o->several_pids)
        return error_text_what(p->text, ERR_USAGE, "doctor accepts only one process ID");
    if (args_choose_process(o) && o->core)
        return error_text_what(p->text, ERR_USAGE, "%s and --core cannot be combined", choosing_flag(o));
    if (o->core && o->deadline >= 0)
        return error_text_what(p->text, ERR_USAGE, "--deadline and --core cannot be combined");
    if (o->all && (o->pid || o->names)) {
        error_text_what(p->text, ERR_USAGE, "--all and %s cannot be combined", o->pid ? "--pid" : "--name");
        error_text_hint(p->text, "Remove one of the two flags.");
        return ERR_USAGE;
    }
    if (o->tasks && o->no_tasks)
        return error_text_what(p->text, ERR_USAGE, "--tasks and --no-tasks cannot be combined");
    if (o->async && o->nonblocking)
        return error_text_what(p->text, ERR_USAGE, "--async and --nonblocking cannot be combined");
    if (o->wait && o->kill)
        return error_text_what(p->text, ERR_USAGE, "--wait and --kill cannot be combined");
    if (!o->program && (o->wait || o->kill))
        return error_text_what(p->text, ERR_USAGE, "--%s requires a program to launch", o->wait ? "wait" : "kill");
    if (!o->core && (o->root || o->exe))
        return error_text_what(p->text, ERR_USAGE, "--%s requires --core FILE", o->root ? "root" : "exe");
    if (!o->as_py_spy && o->output && !o->format && format_is_unknown(o->output) && strncmp(o->output, "/dev/", 5) != 0)
        return fail_extension(p);
    if (o->command == ARGS_COMPLETIONS && !o->shell) {
        error_text_what(p->text, ERR_USAGE, "completions requires the name of a shell");
        error_text_hint(p->text, "For example: %s completions bash", args_name(o));
        return ERR_USAGE;
    }
    if (o->command == ARGS_MERGE && !o->n_files) {
        error_text_what(p->text, ERR_USAGE, "merge requires at least one raw profile");
        error_text_hint(p->text, "For example: %s merge -o all.svg 'node 1=one.txt' 'node 2=two.txt'", args_name(o));
        return ERR_USAGE;
    }
    return 0;
}

static bool named_py_spy(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path && strcmp(slash ? slash + 1 : path, "py-spy") == 0;
}

int args_parse(int argc, char *const argv[], struct options *ret, struct error_text *text)
{
    struct parser p = {.argv = argv, .argc = argc, .next = 1, .o = ret, .text = text};
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
    if (commands[ret->command].in_package && p.next == argc)
        ret->bare = ret->show_help = true;
    /* A flag right after the command is ours. Otherwise pass all arguments to the Python package. */
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

/* Parses the arguments again, with the functions that `p` calls for some of them. */
static int parse_again(const struct options *options, struct parser p)
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
    return parse_again(options, (struct parser){.visit = visit, .arg = arg});
}

int args_each_pid(const struct options *options, int (*visit)(pid_t pid, void *arg), void *arg)
{
    return parse_again(options, (struct parser){.visit_pid = visit, .arg = arg});
}

int args_each_name(const struct options *options, int (*visit)(const char *pattern, void *arg), void *arg)
{
    return parse_again(options, (struct parser){.visit_name = visit, .arg = arg});
}

bool args_choose_process(const struct options *options)
{
    return options->pid || options->names || options->all;
}

bool args_choose_several(const struct options *options)
{
    return options->several_pids || options->names || options->all;
}
