/*
 * --pid, --name, --all -> attached processes. A process is attached at most once, unless its interpreter is starting.
 */
#include "cmd/selection.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "cmd/list.h"
#include "cmd/report.h"
#include "cmd/status.h"
#include "sample/sampled_roots.h"
#include "target/access.h"
#include "tree/profilers.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIVEN_PATIENCE_NS (1000 * NS_PER_MS) /* for all interpreters that are starting, together */
#define FOUND_PATIENCE_NS (300 * NS_PER_MS)  /* the same without --pid */
#define COMMAND_COLUMNS   100
#define LISTED_MAX        8 /* processes to list if nothing matches */
#define MAX_ANCESTORS     64

struct name_pattern {
    const char *text;
    bool found; /* it matches a Python process */
};

struct candidate {
    pid_t pid;
    bool given; /* with --pid; else it was found */
};

struct choice {
    struct selection *s;
    struct sampler *sampler;
    bool subprocesses;
    struct error_text *text;
    struct name_pattern *patterns;
    size_t n_patterns, cap_patterns;
    struct candidate *candidates; /* first those that were given, then by PID */
    size_t n_candidates, cap_candidates;
    struct hash_table by_pid; /* index of `candidates` */
    struct candidate *starting;
    size_t n_starting, cap_starting;
    struct sampled_root *roots;
    size_t n_roots, cap_roots;
    size_t n_other; /* processes that match a pattern, and are not Python */
    size_t denied;  /* with --all: they look like Python, and cannot be read */
    FILE *lines;    /* about processes that are left out; shown at the end */
};

/* ---- patterns ---- */

static int add_pattern(const char *text, void *arg)
{
    struct choice *c = arg;

    if (grow_array((void **)&c->patterns, &c->cap_patterns, c->n_patterns + 1, sizeof(*c->patterns)) < 0)
        return ERR_NOMEM;
    c->patterns[c->n_patterns++] = (struct name_pattern){.text = text};
    return 0;
}

/* True if a pattern matches the command line of the process. `is_python`: notes that these patterns have found one. */
static bool match_patterns(struct choice *c, pid_t pid, bool is_python)
{
    char *command = NULL;
    bool any = false;

    if (!c->n_patterns || proc_command_read(pid, &command) < 0)
        return false;
    for (size_t i = 0; i < c->n_patterns; i++)
        if (list_command_matches(c->patterns[i].text, command)) {
            c->patterns[i].found |= is_python;
            any = true;
        }
    free(command);
    return any;
}

/* ---- messages ---- */

static void write_left_out(FILE *out, pid_t pid, int error, enum err_reason reason)
{
    char *command = NULL;

    fprintf(out, "skipped process %d", (int)pid);
    if (proc_command_read(pid, &command) == 0) {
        size_t fit = text_fit(command, COMMAND_COLUMNS);
        const char *dots = command[fit] ? "..." : "";

        command[fit] = '\0';
        fprintf(out, " (%s%s)", text_safe(command).s, dots);
    }
    fprintf(out, ": %s\n", report_skip_reason(error, reason));
    free(command);
}

__attribute__((format(printf, 2, 3))) static void say(const struct selection *s, const char *fmt, ...)
{
    char line[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    s->say(line, s->arg);
}

static void count_left_out(struct selection *s, pid_t pid, bool given, int error)
{
    s->left_out++;
    s->failed += given;
    s->error = error;
    s->last = pid;
    if (error == ERR_PERMISSION && !s->refused)
        s->refused = pid;
}

static int compare_given(pid_t pid, void *arg)
{
    return pid == *(const pid_t *)arg;
}

void selection_leave_out(struct selection *s, pid_t pid, int error)
{
    char *line = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&line, &len);

    count_left_out(s, pid, args_each_pid(s->o, compare_given, &pid) > 0, error);
    if (!out)
        return;
    write_left_out(out, pid, error, REASON_NONE);
    if (fclose(out) == 0 && len > 0) {
        line[len - 1] = '\0';
        s->say(line, s->arg);
    }
    free(line);
}

int selection_fail(const struct selection *s, struct error_text *text)
{
    int error = s->refused ? ERR_PERMISSION : s->error;

    if (s->left_out == 1)
        error_text_what(text, error, "process %d", (int)s->last);
    else
        error_text_what(text, error, "none of the %zu processes can be read", s->left_out);
    if (s->refused)
        error_text_hint(text, "To see what would help, run: %s doctor --pid %d", args_name(s->o), (int)s->refused);
    return error;
}

/* Its explanation becomes the error, if there is no other process. */
static void leave_out(struct choice *c, const struct candidate *one, int error, const struct err_note *note)
{
    if (!one->given)
        match_patterns(c, one->pid, true);
    count_left_out(c->s, one->pid, one->given, error);
    write_left_out(c->lines, one->pid, error, note->facts.reason);
    error_text_what(c->text, error, "process %d", (int)one->pid);
    error_text_explain(c->text, error, &note->facts);
    if (one->given)
        status_left_out(c->s->o->status, one->pid, error, c->text);
}

/* Shows the lines that were collected, but not for a single process whose error is shown. */
static void say_lines(struct choice *c, char *lines)
{
    const struct selection *s = c->s;
    char *save = NULL;

    if (c->n_roots || s->left_out != 1)
        for (const char *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            s->say(line, s->arg);
    if (!c->n_roots)
        return;
    if (s->refused)
        say(s, "to see what would help, run: %s doctor --pid %d", args_name(s->o), (int)s->refused);
    if (c->denied)
        say(s, "%zu Python process%s of other users cannot be read: run %s as root to include %s", c->denied,
            c->denied == 1 ? "" : "es", args_name(s->o), c->denied == 1 ? "it" : "them");
    for (size_t i = 0; i < c->n_patterns; i++)
        if (!c->patterns[i].found)
            say(s, "no Python process matches '%s'", text_safe(c->patterns[i].text).s);
}

/* Nothing was found: lists what there is. */
static int fail_match(const struct choice *c)
{
    const struct options *o = c->s->o;
    struct list_counts counts = {0};

    if (!o->all)
        list_write(false, LISTED_MAX, stderr, &counts);
    if (counts.shown > LISTED_MAX)
        fprintf(stderr, "%zu more Python processes: run %s list\n", counts.shown - LISTED_MAX, args_name(o));
    if (!counts.shown)
        error_text_what(c->text, ERR_NO_MATCH, "there is no Python process that spyglass can read");
    else if (c->n_patterns > 1)
        error_text_what(c->text, ERR_NO_MATCH, "none of the %zu patterns matches a Python process", c->n_patterns);
    else
        error_text_what(c->text, ERR_NO_MATCH, "no Python process matches '%s'", text_safe(c->patterns[0].text).s);
    if (!counts.shown)
        error_text_hint(c->text, "spyglass reads your own processes, and as root those of all users.");
    else if (c->n_other)
        error_text_hint(c->text, "%zu other process%s, but run%s no Python. Choose a text from the list above.",
                        c->n_other, c->n_other == 1 ? " matches" : "es match", c->n_other == 1 ? "s" : "");
    else
        error_text_hint(c->text, "Choose a text from the list above. A pattern with * or ? must match the whole "
                                 "command line: --name '*worker*'");
    return ERR_NO_MATCH;
}

/* ---- candidates ---- */

static int add_candidate(struct choice *c, struct candidate one)
{
    uint64_t hash = hash_mix(0, (uint64_t)one.pid);
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&c->by_pid, hash, &step)) != HASH_TABLE_NONE)
        if (c->candidates[at].pid == one.pid)
            return 0;
    if (hash_table_reserve_item(&c->by_pid, (void **)&c->candidates, &c->cap_candidates, c->n_candidates,
                                sizeof(*c->candidates)) < 0)
        return ERR_NOMEM;
    c->candidates[c->n_candidates++] = one;
    hash_table_add(&c->by_pid, hash, (uint32_t)c->n_candidates - 1);
    return 0;
}

static int add_given(pid_t pid, void *arg)
{
    return add_candidate(arg, (struct candidate){.pid = pid, .given = true});
}

/* Adds what may be Python: our own processes, profilers among them, are recognized once they are attached. */
static int add_found(struct choice *c)
{
    pid_t *pids = NULL;
    size_t n = 0;
    int r = proc_pids_read(&pids, &n);

    for (size_t i = 0; i < n && r == 0; i++) {
        struct candidate one = {.pid = pids[i]};
        struct proc_stat st;

        if (one.pid == getpid() || proc_stat_read(one.pid, 0, &st) < 0 || st.is_kernel_thread)
            continue;
        if (!c->s->o->all && !match_patterns(c, one.pid, false))
            continue;
        r = add_candidate(c, one);
    }
    free(pids);
    return r;
}

/* ---- attaching ---- */

static int keep_root(struct choice *c, const struct sampled_root *root)
{
    if (grow_array((void **)&c->roots, &c->cap_roots, c->n_roots + 1, sizeof(*c->roots)) < 0) {
        process_free(root->process);
        return ERR_NOMEM;
    }
    c->roots[c->n_roots++] = *root;
    return 0;
}

/* True if it is worth waiting for. */
static bool may_start(const struct candidate *one, int r, const struct err_note *note)
{
    if (r == ERR_STARTING && note->facts.reason != REASON_NOT_INITIALIZED)
        return true;
    return (r == ERR_STARTING || r == ERR_NOT_PYTHON || r == ERR_READ) && access_is_starting(one->pid);
}

/* True for what started spyglass, such as sudo or a shell: its command line has ours, and so the pattern. */
static bool has_started_us(pid_t pid)
{
    struct proc_stat st;
    pid_t at = getppid();

    for (int step = 0; step < MAX_ANCESTORS && at > 0; step++) {
        if (at == pid)
            return !list_looks_like_python(pid);
        at = proc_stat_read(at, 0, &st) < 0 ? 0 : st.parent;
    }
    return false;
}

/* One that was chosen by its name, and is not Python or has exited, was not meant. */
static int handle_failure(struct choice *c, const struct candidate *one, const struct sampled_root *root, int r,
                          const struct err_note *note)
{
    bool all = c->s->o->all, is_other = r == ERR_NOT_PYTHON || r == ERR_NO_PROCESS || r == ERR_GONE ||
                                        (r == ERR_STARTING && (all || note->facts.reason == REASON_NOT_INITIALIZED));

    log_info("choose", "pid %d: left out: %s", (int)one->pid, err_name(r));
    if (one->given && c->subprocesses && (r == ERR_NOT_PYTHON || r == ERR_STARTING))
        return keep_root(c, root); /* its children may be Python */
    if (!one->given && !all && has_started_us(one->pid))
        return 0;
    if (all && r == ERR_PERMISSION)
        c->denied += list_looks_like_python(one->pid);
    else if (one->given || !is_other)
        leave_out(c, one, r, note);
    else
        c->n_other++;
    return 0;
}

/* Attaches, or puts the process on the list of those that are starting if `may_wait`. */
static int attach_one(struct choice *c, const struct candidate *one, uint64_t patience_ns, bool may_wait)
{
    struct sampled_root root = {.pid = one->pid};
    struct err_note note = {0};
    int r = sampled_root_attach(c->sampler, &root, patience_ns, c->roots, c->n_roots, &note);

    if (r == ERR_NOMEM)
        return r;
    if (r < 0 && may_wait && may_start(one, r, &note)) {
        if (grow_array((void **)&c->starting, &c->cap_starting, c->n_starting + 1, sizeof(*c->starting)) < 0)
            return ERR_NOMEM;
        c->starting[c->n_starting++] = *one;
        return 0;
    }
    if (r < 0)
        return handle_failure(c, one, &root, r, &note);
    if (!one->given && profilers_match(one->pid)) {
        process_free(root.process);
        return 0;
    }
    match_patterns(c, one->pid, true);
    return keep_root(c, &root);
}

static int attach_all(struct choice *c)
{
    uint64_t deadline = clock_now_ns() + (c->s->o->pid ? GIVEN_PATIENCE_NS : FOUND_PATIENCE_NS), now;
    int r = 0;

    for (size_t i = 0; i < c->n_candidates && r == 0; i++)
        r = attach_one(c, &c->candidates[i], 0, true);
    for (size_t i = 0; i < c->n_starting && r == 0; i++) {
        now = clock_now_ns();
        r = attach_one(c, &c->starting[i], now < deadline ? deadline - now : 0, false);
    }
    return r;
}

static int choose(struct choice *c)
{
    const struct options *o = c->s->o;
    int r = args_each_pid(o, add_given, c);

    if (r == 0)
        r = args_each_name(o, add_pattern, c);
    if (r == 0 && (o->all || o->names))
        r = add_found(c);
    if (r == 0)
        r = attach_all(c);
    log_info("choose", "%zu candidates, %zu attached", c->n_candidates, c->n_roots);
    return r;
}

static void choice_free(struct choice *c)
{
    for (size_t i = 0; i < c->n_roots; i++)
        process_free(c->roots[i].process);
    free(c->roots);
    free(c->starting);
    free(c->candidates);
    free(c->patterns);
    hash_table_free(&c->by_pid);
}

int selection_attach(struct selection *s, struct process_tree *tree, struct error_text *text)
{
    struct choice c = {.s = s, .sampler = tree->sampler, .subprocesses = tree->subprocesses, .text = text};
    struct error_text empty = {.command = text->command};
    char *lines = NULL;
    size_t len = 0;
    int r;

    c.lines = open_memstream(&lines, &len);
    r = c.lines ? choose(&c) : ERR_NOMEM;
    if (c.lines && fclose(c.lines) != 0)
        r = ERR_NOMEM;
    if (r == 0)
        say_lines(&c, lines);
    if (r == 0 && c.n_roots) {
        *text = empty;
        r = sampled_roots_add(tree, c.roots, c.n_roots);
    } else if (r == 0 && s->left_out) {
        r = s->left_out == 1 ? s->error : selection_fail(s, text);
    } else if (r == 0) {
        r = fail_match(&c);
    }
    choice_free(&c);
    free(lines);
    return r;
}
