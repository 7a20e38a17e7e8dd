/*
 * dump: prints the current stack of every thread of a process, its tasks and greenlets, as text or JSON, to standard output.
 */
#include "out/dump.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/grow.h"
#include "base/helper.h"
#include "base/log.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/color.h"
#include "cmd/dump_group.h"
#include "cmd/dump_source.h"
#include "cmd/filtered.h"
#include "cmd/log_session.h"
#include "cmd/offer.h"
#include "cmd/postmortem.h"
#include "cmd/report.h"
#include "cmd/selection.h"
#include "cmd/size_limit.h"
#include "cmd/status.h"
#include "sample/greenlets.h"
#include "sample/lock_waits.h"
#include "sample/sampled_tree.h"
#include "sample/tasks.h"
#include "sample/wait_reason.h"
#include "target/access.h"
#include "target/descriptors.h"
#include "tree/profilers.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_NS       (1000 * NS_PER_MS)
#define CHILD_PATIENCE_NS (300 * NS_PER_MS) /* for all children together */
#define PAUSE_PATIENCE_NS (10 * NS_PER_S)   /* long, because Ray's workers run at low priority */
#define DEADLINE          30                /* seconds */
#define MANY              10                /* processes; from then on, --group is worth a note */

/* Traces that own their frames, and the tasks of each process. */
struct traces {
    struct trace *items;
    size_t n, cap;
    size_t unread; /* processes that there was no time for */
    struct task_set *sets;
    size_t n_sets, cap_sets;
    bool with_tasks;
    bool with_source; /* each frame has a struct frame_source */
    struct changed_files changed;
    struct filtered_dump filtered;
    struct dump_group *group;         /* NULL: each process is printed */
    char hostname[HOST_NAME_MAX + 1]; /* for JSON; "": not wanted */
};

/* What threads that a filter leaves out wait for, and their tasks, would be misleading. */
static bool shows_all_threads(const struct options *o)
{
    return !o->filter.include.n && !o->filter.exclude.n && !o->filter.thread.n;
}

static bool tasks_wanted(const struct options *o)
{
    return o->tasks || (!o->no_tasks && !o->as_py_spy && !o->group && shows_all_threads(o));
}

static bool waits_wanted(const struct options *o)
{
    return o->waits || (!o->no_waits && !o->as_py_spy && !o->group);
}

static int traces_open(struct traces *t, const struct options *o)
{
    *t = (struct traces){.with_source = o->source, .with_tasks = tasks_wanted(o)};
    if (o->json && !o->as_py_spy && !o->core && gethostname(t->hostname, sizeof(t->hostname) - 1) < 0)
        t->hostname[0] = '\0';
    return filtered_dump_open(&t->filtered, o);
}

static void traces_clear(struct traces *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free((void *)(uintptr_t)t->items[i].frames);
        free(t->items[i].wait);
    }
    for (size_t i = 0; i < t->n_sets; i++)
        task_set_free(&t->sets[i]);
    t->n = t->n_sets = 0;
}

static void traces_free(struct traces *t)
{
    traces_clear(t);
    free(t->items);
    free(t->sets);
    filtered_dump_free(&t->filtered);
}

/* Copies frames, local variables and their values into a single allocation. */
static struct frame *frames_copy(const struct trace *trace, bool with_source)
{
    size_t n_locals = 0, text_len = 1, n_sources = with_source ? trace->n_frames : 0;
    struct frame_source *source;
    struct frame *frames;
    struct local *local;
    char *text;

    for (size_t i = 0; i < trace->n_frames; i++) {
        n_locals += trace->frames[i].n_locals;
        for (size_t k = 0; k < trace->frames[i].n_locals; k++)
            text_len += strlen(trace->frames[i].locals[k].value) + 1;
    }
    frames =
        malloc(trace->n_frames * sizeof(*frames) + n_locals * sizeof(*local) + n_sources * sizeof(*source) + text_len);
    if (!frames)
        return NULL;
    local = (struct local *)(frames + trace->n_frames);
    source = (struct frame_source *)(local + n_locals);
    text = (char *)(source + n_sources);
    for (size_t i = 0; i < trace->n_frames; i++) {
        frames[i] = trace->frames[i];
        frames[i].locals = frames[i].locals ? local : NULL;
        for (size_t k = 0; k < frames[i].n_locals; k++, local++) {
            *local = trace->frames[i].locals[k];
            local->value = strcpy(text, local->value);
            text += strlen(text) + 1;
        }
        if (with_source) {
            *source = frames[i].source ? *frames[i].source : (struct frame_source){.column = -1, .end_column = -1};
            frames[i].source = source++;
        }
    }
    return frames;
}

static int traces_add(const struct trace *trace, void *arg)
{
    struct traces *t = arg;
    struct frame *frames = frames_copy(trace, t->with_source);
    size_t n = 0;
    int r = frames ? filtered_dump_frames(&t->filtered, trace, frames, &n) : ERR_NOMEM;

    if (r > 0 && grow_array((void **)&t->items, &t->cap, t->n + 1, sizeof(*t->items)) < 0)
        r = ERR_NOMEM;
    if (r <= 0) {
        free(frames);
        return r;
    }
    t->items[t->n] = *trace;
    t->items[t->n].n_frames = n;
    t->items[t->n].frames = frames;
    if (trace->wait && (t->items[t->n].wait = malloc(sizeof(*trace->wait))) != NULL)
        *t->items[t->n].wait = *trace->wait;
    t->n++;
    return 0;
}

/* A process that there was no time for. It may not even be Python. */
static int add_unread_process(const struct tree_entry *e, struct traces *traces)
{
    static const struct func unread = {
        .name = "[not read in time]", .filename = "deadline passed", .short_filename = "deadline passed"};
    struct frame frame = {.func = &unread};
    struct trace trace = {
        .process = process_tree_entry_info(e), .os_thread_id = e->pid, .key = 1, .n_frames = 1, .frames = &frame};

    if (process_node_read_command(e->node) == ERR_NOMEM)
        return ERR_NOMEM;
    traces->unread++;
    return traces_add(&trace, traces);
}

/* Reads the tasks and greenlets of a process whose threads have just been sampled. */
static int add_tasks(struct process *p, struct traces *t)
{
    int r;

    if (!t->with_tasks || deadline_passed())
        return 0;
    if (grow_array((void **)&t->sets, &t->cap_sets, t->n_sets + 1, sizeof(*t->sets)) < 0)
        return ERR_NOMEM;
    t->sets[t->n_sets] = (struct task_set){0};
    r = process_tasks(p, &t->sets[t->n_sets]);
    if (r == 0)
        r = process_greenlets(p, &t->sets[t->n_sets]);
    t->n_sets++;
    if (r == ERR_NOMEM) /* the stacks of the threads matter more */
        fprintf(stderr, "Note: left out the tasks of process %d: out of memory\n", (int)process_info(p)->pid);
    return r == ERR_NOMEM ? 0 : r;
}

/* Reads the source lines of what was added since there were `n` traces and `n_sets` sets. */
static void add_source(struct process *p, struct traces *t, size_t n, size_t n_sets)
{
    if (!t->with_source)
        return;
    dump_source_read(p, t->items + n, t->n - n, &t->changed);
    for (size_t i = n_sets; i < t->n_sets; i++)
        dump_source_read_tasks(p, &t->sets[i], &t->changed);
}

/* What the threads wait for is known only after all of them were read: the holder of a lock, the other end of a pipe. */
static void describe_waits(struct process *p, const struct trace *traces, size_t n)
{
    struct wait_reason **waits = calloc(n + 1, sizeof(struct wait_reason *));
    uint64_t *threads = calloc(n + 1, sizeof(*threads));
    size_t n_waits = 0;

    for (size_t i = 0; waits && threads && i < n; i++) {
        if (!traces[i].wait)
            continue;
        threads[n_waits] = traces[i].thread_id;
        waits[n_waits++] = traces[i].wait;
    }
    if (n_waits) /* first, because the other call confirms that the threads still wait */
        wait_reasons_describe(p, waits, n_waits);
    lock_waits_finish(p, waits, threads, n_waits);
    free(waits);
    free(threads);
}

static void note_skipped(const struct tree_entry *e, int error, struct dump_group *group)
{
    if (group && error != ERR_NOT_PYTHON) /* which is not missing in a group */
        dump_group_leave_out(group, e->pid, report_skip_reason(error, e->reason));
    if (group)
        return;
    fprintf(stderr, "Note: skipped process %d (", (int)e->pid);
    text_print_safe(stderr, process_tree_entry_info(e)->command);
    fprintf(stderr, "): %s\n", report_skip_reason(error, e->reason));
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

/* An error of a single root fails the command. One of several was chosen and is attached. An error of a child is only a note,
 * and an exited child is ignored. After the deadline, a child is listed without its stacks. */
static int dump_entry(struct process_tree *tree, struct tree_entry *e, struct selection *chosen, uint64_t *patience_ns,
                      struct traces *traces, struct error_text *text)
{
    bool several = args_choose_several(chosen->o), is_root = !several && e == &tree->items[0],
         was_attached = e->process != NULL;
    int r = is_root && !e->process ? e->error : 0;

    if (!e->process && deadline_passed() && r != ERR_NOT_PYTHON)
        return e->dead || process_tree_is_our_ancestor(tree, e) ? 0 : add_unread_process(e, traces);
    if (!is_root)
        r = attach_child(tree, e, patience_ns);
    if (r == 0 && *traces->hostname && !traces->group)
        dump_group_describe(&e->node->info, traces->hostname);
    if (r == 0) {
        size_t n = traces->n, n_sets = traces->n_sets;

        r = process_sample(e->process, traces_add, traces);
        if (r == 0)
            describe_waits(e->process, traces->items + n, traces->n - n);
        if (r == 0)
            r = add_tasks(e->process, traces);
        if (r == 0)
            add_source(e->process, traces, n, n_sets);
    }
    if (r == 0 || r == ERR_NOMEM || (is_root && e->process))
        return r == ERR_GONE ? error_text_what(text, r, "process %d", (int)e->pid) : r;
    if (several && was_attached)
        selection_leave_out(chosen, e->pid, r);
    else if (!e->dead && r != ERR_GONE && !process_tree_is_our_ancestor(tree, e))
        note_skipped(e, r, traces->group);
    sampled_tree_detach(e);
    return 0;
}

static double seconds_of(const struct options *o)
{
    return o->deadline < 0 ? DEADLINE : o->deadline;
}

static void note_unread(const struct options *o, const struct sampler *s, size_t processes)
{
    if (!s->unread && !processes)
        return;
    fputs("Note: ", stderr);
    if (s->unread)
        fprintf(stderr, "%llu thread(s)%s", (unsigned long long)s->unread, processes ? " and " : "");
    if (processes)
        fprintf(stderr, "%zu process(es)", processes);
    fprintf(stderr, " could not be read within %g s%s. To allow more time, add --deadline SECONDS.\n", seconds_of(o),
            o->group ? "" : ": they are marked [not read in time]");
}

/* The process failed for lack of time. */
static void explain_deadline(const struct options *o, int r, struct error_text *text)
{
    if (r != ERR_READ || !deadline_passed())
        return;
    error_text_what(text, r, "process %d could not be read within %g s", (int)o->pid, seconds_of(o));
    error_text_hint(text, "To allow more time, add --deadline SECONDS.");
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
        fprintf(stderr, "Note: %llu thread(s) are shown without native frames: %s.\n",
                (unsigned long long)s->native_none,
                s->options.nonblocking ? "they were running, and --nonblocking does not pause them"
                                       : "spyglass could not pause them");
    if (s->pauser.ptrace_refused)
        fprintf(stderr, "Note: could not pause the process (%s), so spyglass read it while it was running.\n",
                report_pause_refusal(pid).what);
}

/* Reports that no process of the tree is Python. */
static int fail_no_python(const struct process_tree *tree, const struct selection *chosen, struct error_text *text)
{
    size_t others = 0;

    if (chosen->left_out)
        return selection_fail(chosen, text);
    for (size_t i = 1; i < tree->n; i++)
        others += !tree->items[i].is_profiler;
    if (args_choose_several(chosen->o))
        error_text_what(text, ERR_NOT_PYTHON, "none of the processes and their %zu descendants runs Python", others);
    else if (!others)
        error_text_what(text, ERR_NOT_PYTHON, "process %d is not Python and has no children", (int)tree->items[0].pid);
    else
        error_text_what(text, ERR_NOT_PYTHON, "neither process %d nor any of its %zu descendants runs Python",
                        (int)tree->items[0].pid, others);
    error_text_hint(text, "To list the Python processes, run: spyglass list");
    return tree->items[0].error == ERR_STARTING ? ERR_STARTING : ERR_NOT_PYTHON;
}

static int write_verdict(const struct traces *traces, const struct dump_options *out)
{
    struct verdict verdict;
    int r = out->verdict ? verdict_find(traces->items, traces->n, &verdict) : 0;

    if (r < 0 || !out->verdict || verdict.kind == VERDICT_NONE)
        return r;
    putchar('\n');
    dump_text_verdict(&verdict, stdout);
    putchar('\n');
    return 0;
}

static int write_text(const struct proc_info *info, const struct traces *traces, const struct dump_options *out,
                      bool first)
{
    int r = 0;

    dump_text(info, traces->items, traces->n, out, first, stdout);
    for (size_t i = 0; i < traces->n_sets && r == 0; i++)
        r = dump_text_tasks(&traces->sets[i], out, stdout);
    return r == 0 ? write_verdict(traces, out) : r;
}

/* With a size limit, which only Ray needs, a process may use half of what is left; the last one may use all of it. */
static int write_process(const struct proc_info *info, const struct traces *traces, const struct dump_options *out,
                         bool first, bool last, size_t *left)
{
    size_t used;

    if (!*left)
        return write_text(info, traces, out, first);
    used = size_limit_dump(info, traces->items, traces->n, out, first, last ? *left : *left / 2, stdout);
    *left = used < *left ? *left - used : 1;
    return 0;
}

static struct dump_options text_options(const struct options *o)
{
    return (struct dump_options){.verdict = waits_wanted(o) && !o->core && shows_all_threads(o),
                                 .several = !o->core && args_choose_several(o),
                                 .full_filenames = o->full_filenames,
                                 .as_py_spy = o->as_py_spy,
                                 .color = !o->as_py_spy && color_is_wanted(stdout)};
}

/* Detaches from each child once it is printed, to free its memory. */
static int dump_tree(const struct options *o, struct process_tree *tree, struct selection *chosen,
                     struct dump_group *group, struct error_text *text)
{
    struct dump_options out = text_options(o);
    struct traces traces;
    uint64_t patience_ns = CHILD_PATIENCE_NS;
    size_t shown = 0, written = 0, left = size_limit_of_dump();
    int r = traces_open(&traces, o);

    traces.group = group;
    for (size_t i = 0; i < tree->n && r == 0; i++) {
        struct tree_entry *e = &tree->items[i];
        size_t before = traces.n;

        if (e->is_profiler)
            continue;
        r = dump_entry(tree, e, chosen, &patience_ns, &traces, text);
        if (r < 0 || (!e->process && traces.n == before))
            continue;
        if (group) {
            r = dump_group_add(group, traces.items, traces.n, text);
            traces_clear(&traces);
        } else if (!o->json) {
            if (traces.n || !traces.filtered.filter)
                r = write_process(process_tree_entry_info(e), &traces, &out, written++ == 0, i + 1 == tree->n, &left);
            traces_clear(&traces);
        }
        shown++;
        if (i > 0) /* the root stays attached: its children reuse what we know about it */
            sampled_tree_detach(e);
    }
    if (r == 0 && !shown)
        r = fail_no_python(tree, chosen, text);
    if (r == 0)
        r = filtered_dump_check(&traces.filtered, o, text);
    if (r == 0 && o->json && !group)
        dump_json(traces.items, traces.n, traces.sets, traces.n_sets, &out, stdout);
    if (r == 0 && !o->json && !group && !o->as_py_spy && shown >= MANY && isatty(STDOUT_FILENO))
        fprintf(stderr, "Note: to merge the equal stacks of these %zu processes, add --group.\n", shown);
    dump_source_note(&traces.changed, "the process started");
    if (r == 0)
        note_unread(o, tree->sampler, traces.unread);
    traces_free(&traces);
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
                                                 .positions = o->source,
                                                 .waits = waits_wanted(o),
                                                 .patience_ns = PAUSE_PATIENCE_NS});
}

static int dump_core(const struct options *o, struct error_text *text)
{
    struct dump_options out = text_options(o);
    struct sampler *s = new_sampler(o);
    struct postmortem pm = {0};
    struct traces traces;
    int r = traces_open(&traces, o);

    if (r == 0)
        r = s ? postmortem_open(&pm, s, o->core, o->root, o->exe, text) : ERR_NOMEM;
    if (r == 0)
        r = postmortem_sample(&pm, traces_add, &traces, text);
    if (r == 0)
        r = add_tasks(pm.process, &traces);
    if (r == 0)
        add_source(pm.process, &traces, 0, 0);
    if (r == 0)
        r = filtered_dump_check(&traces.filtered, o, text);
    if (r == 0 && o->json)
        dump_json(traces.items, traces.n, traces.sets, traces.n_sets, &out, stdout);
    else if (r == 0)
        r = write_text(process_info(pm.process), &traces, &out, true);
    dump_source_note(&traces.changed, "the core file was written");
    postmortem_report(&pm);
    if (r == 0)
        note_errors(s, 0);
    report_losses();
    traces_free(&traces);
    log_session_counters(s, NULL);
    postmortem_close(&pm);
    sampler_free(s);
    return r;
}

static void report_start(const struct options *o)
{
    status_started(o->status, &(struct status_started){.program = args_version(o),
                                                       .command = args_command_row(o->command)->name,
                                                       .pid = args_choose_several(o) ? 0 : o->pid,
                                                       .format = o->json ? "json" : "text"});
}

static int fail(const struct options *o, int r, const struct error_text *text)
{
    status_error(o->status, r, text, true);
    return error_text_print(stderr, r, text);
}

static int attach(const struct options *o, struct process_tree *tree, struct selection *chosen, struct error_text *text)
{
    struct err_note note = {0};
    int r;

    tree->sampler = new_sampler(o);
    if (!tree->sampler)
        return ERR_NOMEM;
    if (args_choose_several(o))
        return selection_attach(chosen, tree, text);
    r = sampled_tree_add_root(tree, o->pid, PATIENCE_NS, !o->subprocesses, &note);
    return error_text_explain(text, r, &note.facts);
}

/* Reads the tree as often as --rounds says, then prints the groups. */
static int dump_groups(const struct options *o, struct process_tree *tree, struct selection *chosen,
                       struct dump_group *group, struct error_text *text)
{
    int r = dump_tree(o, tree, chosen, group, text);

    for (unsigned round = 1; round < o->rounds && r == 0; round++) {
        log_info("group", "round %u of %u has been read", round, o->rounds);
        if (args_choose_several(o)) /* as all others: its exit is no error */
            sampled_tree_detach(&tree->items[0]);
        dump_group_next_round(group, o);
        deadline_set((uint64_t)(seconds_of(o) * (double)NS_PER_S));
        r = sampled_tree_refresh(tree);
        if (r == 0)
            r = dump_tree(o, tree, chosen, group, text);
        if (r < 0 && r != ERR_NOMEM) {
            r = dump_group_stop(group, r, text);
            break;
        }
    }
    return r == 0 ? dump_group_write(group, o, text) : r;
}

/* Shows the processes that the name matches. Always an error, with `text` filled. */
static int find_name(const struct options *o, struct error_text *text)
{
    int r = offer_processes(o, text);

    if (r < 0)
        return r;
    error_text_what(text, ERR_USAGE, "'%s' is neither a process ID nor part of the command line of a Python process",
                    text_safe(o->name).s);
    error_text_hint(text, "To list the Python processes that you may read, run: spyglass list");
    return ERR_USAGE;
}

/* Reports the start and errors, but not success: main.c does, once standard output is flushed. */
int cmd_dump(const struct options *o)
{
    struct err_note note = {0};
    struct error_text text = {0};
    struct dump_group *group = NULL;
    struct selection chosen = {.o = o, .say = dump_group_say};
    bool several = args_choose_several(o);
    struct process_tree tree = {
        .subprocesses = o->subprocesses, .max_depth = o->subprocess_depth, .manual_attach = true};
    int r;

    if (!o->core) /* which waits for us */
        deadline_set((uint64_t)(seconds_of(o) * (double)NS_PER_S));
    if (o->core) {
        report_start(o);
        r = dump_core(o, &text);
        return r < 0 ? fail(o, r, &text) : 0;
    }
    r = error_text_explain(&text, access_check_proc(&note), &note.facts);
    if (r == 0 && o->name)
        return fail(o, find_name(o, &text), &text);
    if (r == 0 && !args_choose_process(o)) {
        status_error(o->status, ERR_USAGE, NULL, true);
        return report_missing_target(o);
    }
    if (r == 0 && o->group && !(chosen.arg = group = dump_group_new(o)))
        r = ERR_NOMEM;
    if (r == 0) {
        report_start(o);
        profilers_announce(o->as_py_spy);
        descriptors_raise_limit();
        r = attach(o, &tree, &chosen, &text);
        explain_deadline(o, r, &text);
    }
    if (r == 0)
        r = sampled_tree_refresh(&tree);
    if (r == 0)
        r = group ? dump_groups(o, &tree, &chosen, group, &text) : dump_tree(o, &tree, &chosen, NULL, &text);
    if (r == 0)
        note_errors(tree.sampler, tree.items[0].pid);
    report_losses();
    if (!several && (r == ERR_NO_PROCESS ||
                     (r == ERR_NOT_PYTHON && (o->subprocesses || !report_hint_python_below(&text, o, o->pid)))))
        report_hint_container_pid(&text, o->pid);
    if (r < 0)
        log_error("dump", "pid %d: %s: %s", (int)o->pid, err_name(r), text.what);
    log_session_counters(tree.sampler, NULL);
    process_tree_free(&tree);
    sampler_free(tree.sampler);
    dump_group_free(group);
    return r < 0 ? fail(o, r, &text) : chosen.failed > 0;
}
