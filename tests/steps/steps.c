/*
 * Runs a Python process one machine instruction at a time, and reads the stack of its main thread after each one:
 *
 *     steps PID COUNT
 *
 * A thread can be paused after any instruction. Sampling finds the few at which the interpreter is in the middle of an
 * update only by chance; this finds all that the process executes. It prints the stacks as `record --nolineno -f raw`
 * does, one line for each number of consecutive steps with the same stack, then the totals on standard error: the
 * steps, and how many were rejected (the profiler would read again).
 */
#include "base/err.h"
#include "base/grow.h"
#include "sample/process_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define ATTACH_NS 10000000000u

struct reader {
    struct process *process;
    addr_t tstate;
    struct frames frames;
    struct frames_state state;
    struct read_plan plan;
    addr_t *addrs;
    const struct code **codes;
    size_t cap_addrs, cap_codes;
    uint64_t rejected;
};

/* One stack, as the addresses of its code objects; `codes` has their names. */
static int read_stack(struct reader *r)
{
    struct process *p = r->process;
    size_t n;
    int result;

    snapshot_begin(p->snapshot, &r->plan, SNAPSHOT_ONCE, 0);
    r->state.generator = 0;
    result = frames_read(&r->frames, &p->py, p->snapshot, r->tstate, &r->state);
    n = r->frames.n;
    if (result == 0 && (grow_array((void **)&r->addrs, &r->cap_addrs, n, sizeof(*r->addrs)) < 0 ||
                        grow_array((void **)&r->codes, &r->cap_codes, n, sizeof(*r->codes)) < 0))
        result = ERR_NOMEM;
    for (size_t i = 0; result == 0 && i < n; i++)
        r->addrs[i] = r->frames.items[i].code;
    if (result == 0) {
        code_cache_round(p->codes, false); /* a code object may be freed and another one created in its place */
        result = code_cache_get(p->codes, &p->py, r->addrs, n, r->codes);
    }
    for (size_t i = 0; result == 0 && i < n; i++)
        if (!r->codes[i])
            result = ERR_TORN;
    snapshot_end(p->snapshot, result == 0);
    return result;
}

/* Root first. The names of code objects are the test's own, so they need no escapes. */
static char *stack_text(const struct reader *r)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return NULL;
    for (size_t i = r->frames.n; i > 0; i--)
        fprintf(out, "%s (%s)%s", r->codes[i - 1]->name, r->codes[i - 1]->filename, i > 1 ? ";" : "");
    return fclose(out) == 0 ? text : NULL;
}

/* 0, or -1 when the process has ended. Signals reach it as they would without us. */
static int step(pid_t pid, int *signal)
{
    int status;

    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, (long)*signal) < 0 || waitpid(pid, &status, __WALL) != pid ||
        !WIFSTOPPED(status))
        return -1;
    *signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    return 0;
}

static int stop(pid_t pid)
{
    int status;

    return ptrace(PTRACE_SEIZE, pid, NULL, 0L) == 0 && ptrace(PTRACE_INTERRUPT, pid, NULL, 0L) == 0 &&
                   waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)
               ? 0
               : -1;
}

static int walk(struct reader *r, pid_t pid, unsigned long count)
{
    char *last = NULL, *text;
    unsigned long same = 0, done;
    int signal = 0, result;

    for (done = 0; done < count && step(pid, &signal) == 0; done++) {
        result = read_stack(r);
        if (result == ERR_NOMEM)
            return result;
        if (result < 0) {
            r->rejected++;
            continue;
        }
        text = stack_text(r);
        if (!text)
            return ERR_NOMEM;
        if (last && strcmp(last, text) == 0) {
            same++;
            free(text);
            continue;
        }
        if (last)
            printf("%s %lu\n", last, same);
        free(last);
        last = text;
        same = 1;
    }
    if (last)
        printf("%s %lu\n", last, same);
    free(last);
    fprintf(stderr, "%lu steps, %llu rejected\n", done, (unsigned long long)r->rejected);
    return done == count ? 0 : ERR_GONE;
}

static int attach(struct sampler *s, pid_t pid, struct reader *r)
{
    struct err_note note = {0};
    int result = process_attach(s, pid, ATTACH_NS, &r->process, &note);

    if (result == 0 && stop(pid) < 0)
        result = ERR_PERMISSION;
    if (result == 0)
        result = threads_read(&r->process->py, &r->process->threads);
    if (result < 0)
        return result;
    if (r->process->threads.n != 1)
        return ERR_UNSUPPORTED;
    r->tstate = r->process->threads.items[0].tstate;
    return 0;
}

int main(int argc, char **argv)
{
    struct sampler_options options = {.include_idle = true};
    struct sampler *s = sampler_new(&options);
    struct reader r = {0};
    int result;

    if (argc != 3 || !s) {
        fprintf(stderr, "usage: steps PID COUNT\n");
        return 2;
    }
    result = attach(s, atoi(argv[1]), &r);
    if (result == 0)
        result = walk(&r, atoi(argv[1]), strtoul(argv[2], NULL, 10));
    if (result < 0)
        fprintf(stderr, "steps: %s\n", err_name(result));
    free(r.addrs);
    free(r.codes);
    read_plan_free(&r.plan);
    frames_state_free(&r.state);
    frames_free(&r.frames);
    process_free(r.process);
    sampler_free(s);
    return result < 0;
}
