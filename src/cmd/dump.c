/*
 * dump: prints the current stack of every thread of a process, as text or JSON, to standard output.
 */
#include "out/dump.h"
#include "base/clock.h"
#include "base/grow.h"
#include "base/helper.h"
#include "base/log.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/log_session.h"
#include "cmd/postmortem.h"
#include "cmd/report.h"
#include "cmd/size_limit.h"
#include "cmd/status.h"
#include "sample/sampled_tree.h"
#include "target/access.h"
#include "target/descriptors.h"
#include "tree/profilers.h"

#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS       (1000 * NS_PER_MS)
#define CHILD_PATIENCE_NS (300 * NS_PER_MS) /* for all children together */
#define PAUSE_PATIENCE_NS (10 * NS_PER_S)   /* long, because Ray's workers run at low priority */

/* Traces that own their frames. */
struct traces {
    struct trace *items;
    size_t n, cap;
};

static void traces_clear(struct traces *t)
{
    for (size_t i = 0; i < t->n; i++)
        free((void *)(uintptr_t)t->items[i].frames);
    t->n = 0;
}

/* Copies frames, local variables and their values into a single allocation. */
static struct frame *frames_copy(const struct trace *trace)
{
    size_t n_locals = 0, text_len = 1;
    struct frame *frames;
    struct local *local;
    char *text;

    for (size_t i = 0; i < trace->n_frames; i++) {
        n_locals += trace->frames[i].n_locals;
        for (size_t k = 0; k < trace->frames[i].n_locals; k++)
            text_len += strlen(trace->frames[i].locals[k].value) + 1;
    }
    frames = malloc(trace->n_frames * sizeof(*frames) + n_locals * sizeof(*local) + text_len);
    if (!frames)
        return NULL;
    local = (struct local *)(frames + trace->n_frames);
    text = (char *)(local + n_locals);
    for (size_t i = 0; i < trace->n_frames; i++) {
        frames[i] = trace->frames[i];
        frames[i].locals = frames[i].locals ? local : NULL;
        for (size_t k = 0; k < frames[i].n_locals; k++, local++) {
            *local = trace->frames[i].locals[k];
            local->value = strcpy(text, local->value);
            text += strlen(text) + 1;
        }
    }
    return frames;
}

static int traces_add(const struct trace *trace, void *arg)
{
    struct traces *t = arg;
    struct frame *frames = frames_copy(trace);

    if (!frames || grow_array((void **)&t->items, &t->cap, t->n + 1, sizeof(*t->items)) < 0) {
        free(frames);
        return ERR_NOMEM;
    }
    t->items[t->n] = *trace;
    t->items[t->n++].frames = frames;
    return 0;
}

static void note_skipped(const struct tree_entry *e, int error)
{
    fprintf(stderr, "Note: skipped process %d (", (int)e->pid);
    text_print_safe(stderr, process_tree_entry_info(e)->command);
    if (e->reason == REASON_NOT_INITIALIZED)
        fprintf(stderr, "): it has loaded Python but has not initialized it\n");
    else
        fprintf(stderr, "): %s\n", err_name(error));
}

/* Attaches to a child process. Children that are still starting share *patience_ns. */
static int attach_child(struct process_tree *tree, struct tree_entry *e, uint64_t *patience_ns)
{
    uint64_t begin = clock_now_ns(), took;
    int r = sampled_tree_attach(tree, e, *patience_ns);

    took = clock_now_ns() - begin;
    *patience_ns = r == ERR_STARTING || took > *patience_ns ? 0 : *patience_ns - took;
    return r;
}

/* An error of the root fails the command. An error of a child is only a note, and an exited child is ignored. */
static int dump_entry(struct process_tree *tree, struct tree_entry *e, uint64_t *patience_ns, struct traces *traces,
                      struct error_text *text)
{
    bool is_root = e == &tree->items[0];
    int r = is_root && !e->process ? e->error : 0;

    if (!is_root)
        r = attach_child(tree, e, patience_ns);
    if (r == 0)
        r = process_sample(e->process, traces_add, traces);
    if (r == 0 || r == ERR_NOMEM || (is_root && e->process))
        return r == ERR_GONE ? error_text_what(text, r, "process %d", (int)e->pid) : r;
    if (!e->dead && r != ERR_GONE && !process_tree_is_our_ancestor(tree, e))
        note_skipped(e, r);
    sampled_tree_detach(e);
    return 0;
}

static void note_errors(const struct sampler *s, pid_t pid)
{
    for (int i = 0; i < SAMPLER_ERRORS; i++)
        if (s->errors[i])
            fprintf(stderr, "Note: could not read %llu thread(s): %s\n", (unsigned long long)s->errors[i],
                    err_name(ERR_NOMEM + i));
    if (s->cut_locals)
        fprintf(stderr, "Note: %llu thread(s) have too many variables; some are not shown.\n",
                (unsigned long long)s->cut_locals);
    if (s->native_failed)
        fprintf(stderr, "Note: could not fully merge the native and Python frames of %llu thread(s).\n",
                (unsigned long long)s->native_failed);
    if (s->native_none)
        fprintf(stderr, "Note: %llu thread(s) are shown without native frames: spyglass could not pause them.\n",
                (unsigned long long)s->native_none);
    if (s->pauser.ptrace_refused)
        fprintf(stderr, "Note: could not pause the process (%s), so spyglass read it while it was running.\n",
                report_pause_refusal(pid).what);
}

/* Reports that no process of the tree is Python. */
static int fail_no_python(const struct process_tree *tree, struct error_text *text)
{
    size_t others = 0;

    for (size_t i = 1; i < tree->n; i++)
        others += !tree->items[i].is_profiler;
    if (!others)
        error_text_what(text, ERR_NOT_PYTHON, "process %d is not Python and has no children", (int)tree->items[0].pid);
    else
        error_text_what(text, ERR_NOT_PYTHON, "neither process %d nor any of its %zu descendants runs Python",
                        (int)tree->items[0].pid, others);
    error_text_hint(text, "To list the Python processes, run: spyglass list");
    return tree->items[0].error == ERR_STARTING ? ERR_STARTING : ERR_NOT_PYTHON;
}

/* With a size limit, a process may use half of what is left; the last one may use all of it. */
static void write_process(const struct proc_info *info, const struct traces *traces, const struct dump_options *out,
                          bool first, bool last, size_t *left)
{
    size_t used;

    if (!*left) {
        dump_text(info, traces->items, traces->n, out, first, stdout);
        return;
    }
    used = size_limit_dump(info, traces->items, traces->n, out, first, last ? *left : *left / 2, stdout);
    *left = used < *left ? *left - used : 1;
}

/* Detaches from each child once it is printed, to free its memory. */
static int dump_tree(const struct options *o, struct process_tree *tree, struct error_text *text)
{
    struct dump_options out = {.full_filenames = o->full_filenames, .as_py_spy = o->as_py_spy};
    struct traces traces = {0};
    uint64_t patience_ns = CHILD_PATIENCE_NS;
    size_t shown = 0, left = size_limit_of_dump(o);
    int r = 0;

    for (size_t i = 0; i < tree->n && r == 0; i++) {
        struct tree_entry *e = &tree->items[i];

        if (e->is_profiler)
            continue;
        r = dump_entry(tree, e, &patience_ns, &traces, text);
        if (r < 0 || !e->process)
            continue;
        if (!o->json) {
            write_process(process_tree_entry_info(e), &traces, &out, shown == 0, i + 1 == tree->n, &left);
            traces_clear(&traces);
        }
        shown++;
        if (i > 0) /* the root stays attached: its children reuse what we know about it */
            sampled_tree_detach(e);
    }
    if (r == 0 && !shown)
        r = fail_no_python(tree, text);
    if (r == 0 && o->json)
        dump_json(traces.items, traces.n, stdout);
    traces_clear(&traces);
    free(traces.items);
    return r;
}

static struct sampler *new_sampler(const struct options *o)
{
    return sampler_new(&(struct sampler_options){.nonblocking = o->nonblocking,
                                                 .include_idle = true,
                                                 .find_gil_holder = true,
                                                 .same_core = !o->nonblocking,
                                                 .native = o->native || o->native_all,
                                                 .native_all = o->native_all,
                                                 .kernel_names = !o->as_py_spy,
                                                 .locals = o->locals,
                                                 .show_secrets = o->show_secrets,
                                                 .patience_ns = PAUSE_PATIENCE_NS});
}

static int dump_core(const struct options *o, struct error_text *text)
{
    struct dump_options out = {.full_filenames = o->full_filenames, .as_py_spy = o->as_py_spy};
    struct sampler *s = new_sampler(o);
    struct postmortem pm = {0};
    struct traces traces = {0};
    int r = s ? postmortem_open(&pm, s, o->core, o->root, o->exe, text) : ERR_NOMEM;

    if (r == 0)
        r = postmortem_sample(&pm, traces_add, &traces, text);
    if (r == 0 && o->json)
        dump_json(traces.items, traces.n, stdout);
    else if (r == 0)
        dump_text(process_info(pm.process), traces.items, traces.n, &out, true, stdout);
    postmortem_report(&pm);
    if (r == 0)
        note_errors(s, 0);
    report_losses();
    traces_clear(&traces);
    free(traces.items);
    log_session_counters(s, NULL);
    postmortem_close(&pm);
    sampler_free(s);
    return r;
}

static void report_start(const struct options *o)
{
    status_started(o->status, &(struct status_started){.program = args_version(o),
                                                       .command = args_command_row(o->command)->name,
                                                       .pid = o->pid,
                                                       .format = o->json ? "json" : "text"});
}

static int fail(const struct options *o, int r, const struct error_text *text)
{
    status_error(o->status, r, text, true);
    return error_text_print(stderr, r, text);
}

/* Reports the start and errors, but not success: main.c does, once standard output is flushed. */
int cmd_dump(const struct options *o)
{
    struct err_note note = {0};
    struct error_text text = {0};
    struct process_tree tree = {
        .subprocesses = o->subprocesses, .max_depth = o->subprocess_depth, .manual_attach = true};
    int r = report_contradiction(o, &text);

    if (r == 0 && o->core) {
        report_start(o);
        r = dump_core(o, &text);
        return r < 0 ? fail(o, r, &text) : 0;
    }
    if (r == 0)
        r = error_text_explain(&text, access_check_proc(&note), &note.facts);
    if (r == 0 && !o->pid) {
        status_error(o->status, ERR_USAGE, NULL, true);
        return report_missing_target(o);
    }
    if (r == 0) {
        report_start(o);
        profilers_announce(o->as_py_spy);
        descriptors_raise_limit();
        tree.sampler = new_sampler(o);
        r = tree.sampler ? sampled_tree_add_root(&tree, o->pid, PATIENCE_NS, !o->subprocesses, &note) : ERR_NOMEM;
        error_text_explain(&text, r, &note.facts);
    }
    if (r == 0)
        r = sampled_tree_refresh(&tree);
    if (r == 0)
        r = dump_tree(o, &tree, &text);
    if (r == 0)
        note_errors(tree.sampler, o->pid);
    report_losses();
    if (r == ERR_NO_PROCESS ||
        (r == ERR_NOT_PYTHON && (o->subprocesses || !report_hint_python_below(&text, o, o->pid))))
        report_hint_container_pid(&text, o->pid);
    if (r < 0)
        log_error("dump", "pid %d: %s: %s", (int)o->pid, err_name(r), text.what);
    log_session_counters(tree.sampler, NULL);
    process_tree_free(&tree);
    sampler_free(tree.sampler);
    return r < 0 ? fail(o, r, &text) : 0;
}
