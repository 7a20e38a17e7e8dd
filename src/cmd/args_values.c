/*
 * The value of a flag, from text: process IDs, numbers, names of formats and modes. One function for each kind.
 */
#include "base/text.h"
#include "cmd/args_private.h"
#include "profile/groups.h"
#include "profile/pattern.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool args_is_number(const char *word)
{
    return *word && word[strspn(word, "0123456789")] == '\0';
}

static int set_pid(struct args_parser *p, void *field, const char *value)
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
static int add_pid(struct args_parser *p, pid_t *first, const char *value)
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
static int set_pids(struct args_parser *p, void *field, const char *value)
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
    if (r == ERR_USAGE && (n >= sizeof(word) || !args_is_number(word))) {
        error_text_what(p->text, r, "'%s' is not a list of process IDs", text_safe(value).s);
        error_text_hint(p->text, "Separate process IDs with commas, without spaces: --pid 12,34");
    }
    return r;
}

static int set_name(struct args_parser *p, void *field, const char *value)
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

static int set_depth(struct args_parser *p, void *field, const char *value)
{
    errno = 0;
    unsigned long depth = args_is_number(value) ? strtoul(value, NULL, 10) : 0;
    if (!depth || errno || depth > UINT_MAX)
        return error_text_what(p->text, ERR_USAGE,
                               "'%s' is not a number of generations: 1 is the children, 2 adds their children",
                               text_safe(value).s);
    *(unsigned *)field = (unsigned)depth;
    p->o->subprocesses = true;
    return 0;
}

static int set_rounds(struct args_parser *p, void *field, const char *value)
{
    errno = 0;
    unsigned long n = args_is_number(value) ? strtoul(value, NULL, 10) : 0;
    if (!n || errno || n > GROUPS_MAX_ROUNDS)
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a number of rounds: use 1 to %d", text_safe(value).s,
                               GROUPS_MAX_ROUNDS);
    *(unsigned *)field = (unsigned)n;
    return 0;
}

static int set_rate(struct args_parser *p, void *field, const char *value)
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

static int set_duration(struct args_parser *p, void *field, const char *value)
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

static int set_seconds(struct args_parser *p, void *field, const char *value)
{
    double seconds;

    if (!read_number(value, &seconds) || seconds < 1e-9 || seconds > 1e9)
        return error_text_what(p->text, ERR_USAGE,
                               "'%s' is not a number of seconds: use a number above 0, up to 1000000000",
                               text_safe(value).s);
    *(double *)field = seconds;
    return 0;
}

int args_fail_choice(struct args_parser *p, const char *kind, const struct suggest *g)
{
    error_text_what(p->text, ERR_USAGE, "unknown %s '%s'", kind, text_safe(g->word).s);
    if (g->best)
        error_text_hint(p->text, "Did you mean '%s'? Available %ss: %s.", g->best, kind, g->all);
    else
        error_text_hint(p->text, "Available %ss: %s.", kind, g->all);
    return ERR_USAGE;
}

static int set_format(struct args_parser *p, void *field, const char *value)
{
    const struct format *found = format_by_name(value);
    struct suggest g = {.word = value};

    if (found) {
        *(const struct format **)field = found;
        return 0;
    }
    for (const struct format *const *f = format_all(); *f; f++)
        suggest_try(&g, (*f)->name);
    return args_fail_choice(p, "format", &g);
}

static int set_log_level(struct args_parser *p, void *field, const char *value)
{
    enum log_level level = log_level_by_name(value);
    struct suggest g = {.word = value};

    if (level != LOG_LEVEL_OFF) {
        *(enum log_level *)field = level;
        return 0;
    }
    for (level = LOG_LEVEL_ERROR; log_level_name(level); level++)
        suggest_try(&g, log_level_name(level));
    return args_fail_choice(p, "log level", &g);
}

static int set_mode(struct args_parser *p, void *field, const char *value)
{
    struct suggest g = {.word = value};

    for (enum args_mode mode = MODE_CPU; mode < MODES_; mode++) {
        if (strcmp(args_mode_name(mode), value) == 0) {
            *(enum args_mode *)field = mode;
            return 0;
        }
        suggest_try(&g, args_mode_name(mode));
    }
    return args_fail_choice(p, "mode", &g);
}

static int set_percent(struct args_parser *p, void *field, const char *value)
{
    double percent;

    if (!read_number(value, &percent) || percent < 0 || percent > 100)
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a percentage: use a number from 0 to 100, such as 0.5",
                               text_safe(value).s);
    *(double *)field = percent;
    return 0;
}

static int add_pattern(struct args_parser *p, void *field, const char *value)
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

static int set_fd(struct args_parser *p, void *field, const char *value)
{
    errno = 0;
    unsigned long fd = args_is_number(value) ? strtoul(value, NULL, 10) : ULONG_MAX;
    if (errno || fd > INT_MAX)
        return error_text_what(p->text, ERR_USAGE, "'%s' is not a file descriptor: give a number", text_safe(value).s);
    *(int *)field = (int)fd;
    return 0;
}

static int set_text(struct args_parser *p, void *field, const char *value)
{
    (void)p;
    *(const char **)field = value;
    return 0;
}

/* The arguments after the module belong to it. */
static int set_module(struct args_parser *p, void *field, const char *value)
{
    *(const char **)field = value;
    p->o->program = p->argv + p->next;
    p->next = p->argc;
    return 0;
}

static int set_true(struct args_parser *p, void *field, const char *value)
{
    (void)p;
    (void)value;
    *(bool *)field = true;
    return 0;
}

/* `value` is NULL for a flag without one. */
static int set_async(struct args_parser *p, void *field, const char *value)
{
    if (value && strcmp(value, "all") != 0)
        return error_text_what(p->text, ERR_USAGE, "--async accepts only the value 'all', got '%s'",
                               text_safe(value).s);
    *(enum args_async *)field = value ? ASYNC_ALL : ASYNC_RUNNING;
    return 0;
}

static int set_count(struct args_parser *p, void *field, const char *value)
{
    (void)p;
    (void)value;
    ++*(unsigned *)field;
    return 0;
}

int args_set_value(struct args_parser *p, const struct args_flag *flag, const char *value)
{
    static int (*const setters[])(struct args_parser * p, void *field, const char *value) = {
        [ARGS_BOOL] = set_true,       [ARGS_COUNT] = set_count,       [ARGS_TEXT] = set_text,
        [ARGS_FILE] = set_text,       [ARGS_PID] = set_pid,           [ARGS_DEPTH] = set_depth,
        [ARGS_RATE] = set_rate,       [ARGS_DURATION] = set_duration, [ARGS_FORMAT] = set_format,
        [ARGS_SHOW_HELP] = set_true,  [ARGS_SHOW_VERSION] = set_true, [ARGS_LOG_LEVEL] = set_log_level,
        [ARGS_FD] = set_fd,           [ARGS_MODE] = set_mode,         [ARGS_PIDS] = set_pids,
        [ARGS_NAME] = set_name,       [ARGS_PATTERN] = add_pattern,   [ARGS_PERCENT] = set_percent,
        [ARGS_MODULE] = set_module,   [ARGS_ASYNC] = set_async,       [ARGS_ROUNDS] = set_rounds,
        [ARGS_SECONDS] = set_seconds,
    };

    return setters[flag->kind](p, (char *)p->o + flag->offset, value);
}

bool args_is_numeric(const struct args_flag *flag)
{
    static const bool numeric[ARGS_SHOW_VERSION + 1] = {
        [ARGS_PID] = true, [ARGS_PIDS] = true,    [ARGS_DEPTH] = true,  [ARGS_RATE] = true,    [ARGS_DURATION] = true,
        [ARGS_FD] = true,  [ARGS_PERCENT] = true, [ARGS_ROUNDS] = true, [ARGS_SECONDS] = true,
    };

    return numeric[flag->kind];
}
