/*
 * record: samples a process, or a program that it launches, and writes the profile.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/signame.h"
#include "cmd/cmd.h"
#include "cmd/command_line.h"
#include "cmd/log_session.h"
#include "cmd/record_private.h"
#include "cmd/report.h"
#include "cmd/signals.h"
#include "cmd/size_limit.h"
#include "cmd/status.h"
#include "cmd/summary.h"
#include "out/output_file.h"
#include "target/access.h"
#include "target/cpu_limit.h"
#include "target/descriptors.h"
#include "target/proc.h"
#include "tree/profilers.h"

#include <ctype.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ATTACH_PATIENCE_NS (1000 * NS_PER_MS)
#define PAUSE_PATIENCE_NS  NS_PER_S        /* in total, for threads that get no CPU time to stop on */
#define UNATTRIBUTED_SHARE 100             /* show this part of the CPU time or more, if it belongs to no stack */
#define TELL_STALLED_NS    NS_PER_S        /* before saying that the output is not being read */
#define ATTACH_BUDGET_NS   (5 * NS_PER_MS) /* per tick: a thousand new children must not delay sampling */

void record_say(struct record *rec, const char *fmt, ...)
{
    va_list args;

    progress_erase(rec->progress);
    va_start(args, fmt);
    report_line(rec->messages, rec->o, fmt, args);
    va_end(args);
}

static int add_trace(const struct trace *trace, uint64_t elapsed_ns, void *arg)
{
    struct record *rec = arg;
    int r = profile_add(rec->profile, trace, elapsed_ns);

    if (r < 0 || !profile_is_full(rec->profile))
        return r;
    sampler_leave_core(rec->sampler);
    return profile_enforce_limits(rec->profile);
}

static int fill(FILE *out, void *arg)
{
    struct record *rec = arg;
    char several[32];
    struct out_options options = {.title = rec->several  ? several
                                           : rec->tree.n ? process_tree_entry_info(&rec->tree.items[0])->command
                                                         : "",
                                  .exporter = args_version(rec->o),
                                  .full_filenames = rec->o->full_filenames,
                                  .gaps = !rec->o->as_py_spy,
                                  .each_sample = rec->o->as_py_spy,
                                  .show_lines = !rec->o->nolineno,
                                  .remark = rec->remark[0] ? rec->remark : filtered_remark(&rec->filtered)};

    snprintf(several, sizeof(several), "%zu process%s", rec->n_chosen, rec->n_chosen == 1 ? "" : "es");
    return size_limit_write(rec->format, rec->filtered.shown, &options, size_limit_of(rec->o), out);
}

static size_t count_processes(const struct process_tree *tree)
{
    size_t n = 0;

    for (size_t i = 0; i < tree->n; i++)
        n += tree->items[i].process && !tree->items[i].dead;
    return n;
}

static struct status_counts count_all(const struct record *rec, uint64_t elapsed_ns)
{
    return (struct status_counts){.elapsed_ns = elapsed_ns,
                                  .samples = rec->profile->samples,
                                  .errors = sampler_errors(rec->sampler),
                                  .missed = rec->loop.missed,
                                  .cpu_ns = rec->cpu.total_ns,
                                  .native_cpu_ns = rec->cpu.native_ns,
                                  .processes = count_processes(&rec->tree)};
}

static void take_snapshot(struct record *rec, uint64_t elapsed_ns)
{
    struct status_counts counts = count_all(rec, elapsed_ns);
    struct err_note note = {0};
    struct error_text text = {0};
    int r;

    sampler_leave_core(rec->sampler);
    rec->profile->duration_ns = elapsed_ns;
    r = filtered_update(&rec->filtered, rec->o, rec->profile);
    if (r == 0)
        r = error_text_explain(&text, output_file_write(rec->place, fill, rec, &note), &note.facts);
    log_info("output", "snapshot to %s: %s", output_file_path(rec->place), r < 0 ? err_name(r) : "written");
    progress_erase(rec->progress);
    if (r < 0) {
        status_error(rec->o->status, r, &text, false);
        error_text_print(stderr, r, &text);
        return;
    }
    status_snapshot(rec->o->status, &counts, output_file_path(rec->place));
    record_say(rec, "Wrote a snapshot to '%s'. Samples: %llu", output_file_path(rec->place),
               (unsigned long long)rec->filtered.shown->samples);
}

static void report_samples(struct record *rec, uint64_t elapsed_ns)
{
    uint64_t now = clock_now_ns();
    struct status_counts counts;

    if (!status_samples_due(rec->o->status, now))
        return;
    counts = count_all(rec, elapsed_ns);
    status_samples(rec->o->status, &counts, now);
}

bool record_is_orphan(const struct record *rec)
{
    return rec->o->with_parent && getppid() != rec->o->with_parent;
}

const struct tree_entry *record_target(const struct record *rec)
{
    const struct tree_entry *e = process_tree_followed(&rec->tree);

    return e ? e : rec->tree.n ? &rec->tree.items[0] : NULL;
}

static pid_t target_pid(const struct record *rec)
{
    const struct tree_entry *e = record_target(rec);

    return e ? e->pid : 0;
}

/* A tree of many short-lived processes: forgets those whose threads the profile has merged. Best effort. */
static void forget_merged(struct record *rec)
{
    const struct proc_info **used;
    size_t n;

    if (rec->profile->folded == rec->folded || profile_list_processes(rec->profile, &used, &n) < 0)
        return;
    rec->folded = rec->profile->folded;
    process_node_unpin(&rec->tree.pinned, used, n);
    free(used);
}

static bool tick(void *arg, uint64_t elapsed_ns)
{
    struct record *rec = arg;
    double elapsed = (double)elapsed_ns / (double)NS_PER_S;
    struct progress_counts counts = {.samples = rec->profile->samples,
                                     .errors = sampler_errors(rec->sampler),
                                     .rate_asked = rec->o->rate,
                                     .rate_held = elapsed > 0 ? (double)rec->loop.ticks / elapsed : 0,
                                     .elapsed = elapsed,
                                     .duration = rec->o->duration};

    forget_merged(rec);
    if (signals_take_snapshot())
        take_snapshot(rec, elapsed_ns);
    progress_update(rec->progress, &counts, clock_now_ns());
    if (rec->o->status)
        report_samples(rec, elapsed_ns);
    if (rec->launch.pid)
        record_program_check(rec);
    record_suspend_if_asked(rec);
    return !signals_ended_by() && !record_is_orphan(rec);
}

static const struct format *choose_format(const struct options *o)
{
    const struct format *by_path = o->output ? format_by_path(o->output) : NULL;

    return o->format ? o->format : by_path ? by_path : format_by_name("flamegraph");
}

/* Called while nobody reads the output. The first signal ends the recording, the second one this wait. */
static bool stalled(void *arg, uint64_t waited_ns)
{
    struct record *rec = arg;

    record_suspend_if_asked(rec);
    if (!rec->said_stalled && signals_ended_times() == 1 && waited_ns >= TELL_STALLED_NS) {
        rec->said_stalled = true;
        record_say(rec, "Waiting for the reader of '%s'. Press Ctrl-C again to give up.", output_file_path(rec->place));
    }
    return signals_ended_times() >= 2 || record_is_orphan(rec);
}

static int open_place(struct record *rec)
{
    struct output_owner owner = {rec->caller.uid, rec->caller.gid};
    char name[512], pid[16];
    struct err_note note = {0};
    int r;

    snprintf(pid, sizeof(pid), "%d", (int)rec->o->pid);
    output_file_default_name(name, sizeof(name),
                             rec->name      ? rec->name
                             : rec->several ? "processes"
                                            : pid,
                             rec->format->extension, time(NULL));
    r = output_file_open(rec->o->output ? rec->o->output : name, rec->has_caller ? &owner : NULL, &rec->place, &note);
    if (r == 0)
        output_file_on_stall(rec->place, stalled, rec);
    return error_text_explain(rec->text, r, &note.facts);
}

/* Starts watching for new processes before the launch, so that no child is missed. */
static int start_tree(struct record *rec)
{
    const struct options *o = rec->o;
    int r = 0;

    rec->tree.is_subreaper = o->program != NULL;
    if (rec->tree.subprocesses)
        r = process_tree_watch(&rec->tree);
    if (r == 0 && o->program)
        r = record_program_start(rec);
    return r;
}

/* Callers of py-spy, --idle and --gil count samples. */
static enum sampler_mode choose_mode(const struct options *o)
{
    switch (o->mode) {
    case MODE_CPU:
        return SAMPLER_CPU;
    case MODE_WALL:
        return SAMPLER_WALL;
    case MODE_GIL:
        return SAMPLER_GIL;
    case MODE_WAIT:
        return SAMPLER_WAIT;
    case MODE_NONE:
    case MODES_:
        break;
    }
    return o->as_py_spy || o->idle || o->gil ? SAMPLER_COUNT : SAMPLER_CPU;
}

static const char *measure_of(enum sampler_mode mode)
{
    static const char *const names[] = {[SAMPLER_CPU] = "CPU time",
                                        [SAMPLER_WALL] = "time of all threads",
                                        [SAMPLER_GIL] = "time with the GIL held",
                                        [SAMPLER_WAIT] = "waiting time",
                                        [SAMPLER_COUNT] = NULL};

    return names[mode];
}

/* "skipped process 7 …" -> "Skipped process 7 …" */
static void say_choice(const char *line, void *arg)
{
    record_say(arg, "%c%s", toupper((unsigned char)line[0]), line + 1);
}

static int attach_several(struct record *rec)
{
    int r;

    rec->chosen = (struct selection){.o = rec->o, .say = say_choice, .arg = rec};
    r = selection_attach(&rec->chosen, &rec->tree, rec->text);
    rec->n_chosen = count_processes(&rec->tree);
    return r;
}

static int attach(struct record *rec)
{
    const struct options *o = rec->o;
    enum sampler_mode mode = choose_mode(o);
    bool gil_only = o->gil || mode == SAMPLER_GIL;
    struct err_note note = {0};
    int r;

    rec->sampler = sampler_new(&(struct sampler_options){
        .nonblocking = o->nonblocking,
        .mode = mode,
        .include_idle = o->idle || mode == SAMPLER_WALL || mode == SAMPLER_WAIT || mode == SAMPLER_GIL,
        .gil_only = gil_only,
        .find_gil_holder = gil_only || mode == SAMPLER_WALL || mode == SAMPLER_WAIT,
        .same_core = !o->nonblocking,
        .native = o->native || o->native_all,
        .native_all = o->native_all,
        .kernel_names = !o->as_py_spy,
        .patience_ns = PAUSE_PATIENCE_NS,
        .recording = true,
        .await_stacks = o->async != ASYNC_NONE,
        .all_tasks = o->async == ASYNC_ALL,
        .known_keys = profile_known_keys(rec->profile)});
    rec->tree = (struct process_tree){.sampler = rec->sampler,
                                      .subprocesses = o->subprocesses || o->program,
                                      .one_at_a_time = o->program && !o->subprocesses,
                                      .max_depth = o->subprocess_depth,
                                      .attach_budget_ns = ATTACH_BUDGET_NS};
    if (!rec->sampler)
        return ERR_NOMEM;
    r = start_tree(rec);
    if (r < 0)
        return r;
    if (rec->tree.one_at_a_time)
        return record_program_attach(rec);
    if (rec->several)
        return attach_several(rec);
    /* With --subprocesses the root may start Python late or never; its children must not wait for it. */
    r = sampled_tree_add_root(&rec->tree, o->program ? rec->launch.pid : o->pid,
                              o->subprocesses ? 0 : ATTACH_PATIENCE_NS, !o->subprocesses, &note);
    error_text_explain(rec->text, r, &note.facts);
    return r == 0 || !o->program ? r : record_program_failed(rec, r);
}

static int prepare(struct record *rec)
{
    const struct options *o = rec->o;
    struct profile_options options = {.interval_ns = (uint64_t)((double)NS_PER_S / o->rate),
                                      .processes = o->subprocesses || rec->several,
                                      .threads = o->threads || o->filter.thread.n,
                                      .by_function = o->function,
                                      .no_lines = o->nolineno,
                                      .measure = o->async == ASYNC_ALL ? "time of all threads and waiting tasks"
                                                                       : measure_of(choose_mode(o)),
                                      .by_state = o->mode == MODE_WALL || o->mode == MODE_WAIT};
    int r;

    rec->format = choose_format(o);
    options.timeline = rec->format->timeline;
    if (!options.interval_ns)
        options.interval_ns = 1;
    r = open_place(rec);
    if (r < 0)
        return r;
    log_info("output", "%s to %s%s%s", rec->format->name, output_file_path(rec->place),
             rec->o->output ? "" : ", the default name", rec->has_caller ? ", owned by the caller of sudo" : "");
    rec->messages = report_stream(o, output_file_is_stdout(rec->place));
    rec->profile = profile_new(&options);
    if (!rec->profile)
        return ERR_NOMEM;
    rec->loop = (struct loop){.tree = &rec->tree,
                              .interval_ns = options.interval_ns,
                              .duration_ns = (uint64_t)(o->duration * (double)NS_PER_S),
                              .tick = tick,
                              .trace = add_trace,
                              .arg = rec};
    return 0;
}

static void say_start(struct record *rec)
{
    char what[48] = "process", duration[48] = "";

    if (rec->several)
        snprintf(what, sizeof(what), "%zu process%s", rec->n_chosen, rec->n_chosen == 1 ? "" : "es");
    if (rec->o->duration > 0)
        snprintf(duration, sizeof(duration), " for %g seconds", rec->o->duration);
    record_say(rec, "Sampling %s %g times a second%s. Press Control-C to exit.", what, rec->o->rate, duration);
}

static void report_start(struct record *rec)
{
    const struct options *o = rec->o;

    status_started(o->status, &(struct status_started){.program = args_version(o),
                                                       .command = args_command_row(o->command)->name,
                                                       .pid = rec->several ? 0 : o->pid,
                                                       .format = rec->format->name,
                                                       .output = output_file_path(rec->place)});
}

static void report_ready(struct record *rec)
{
    const struct tree_entry *e = rec->several ? NULL : record_target(rec);

    status_ready(rec->o->status, e ? e->pid : 0, e ? process_tree_entry_info(e)->command : NULL,
                 count_processes(&rec->tree));
}

static void report_end(struct record *rec)
{
    struct status_counts counts = count_all(rec, rec->loop.elapsed_ns);
    struct status_end end = {.reason = "duration", .text = counts.samples ? NULL : rec->text};
    char name[16];

    if (rec->loop.end == LOOP_GONE) {
        end.reason = "exited";
    } else if (rec->loop.end == LOOP_STOPPED && signals_ended_by()) {
        snprintf(name, sizeof(name), "SIG%s", signame_of(signals_ended_by()));
        end.reason = "signal";
        end.signal = name;
    } else if (rec->loop.end == LOOP_STOPPED) {
        end.reason = "parent";
    }
    status_finished(rec->o->status, &end, &counts, output_file_path(rec->place));
}

static void say_end(struct record *rec)
{
    if (rec->loop.end == LOOP_GONE)
        record_say(rec, "Stopped sampling because %s exited", rec->several ? "all processes have" : "process");
    else if (signals_ended_by() == SIGINT)
        record_say(rec, "Stopped sampling because Control-C pressed");
    else if (signals_ended_by())
        record_say(rec, "Stopped sampling because of signal %s", signame_of(signals_ended_by()));
    else if (record_is_orphan(rec))
        record_say(rec, "Stopped sampling because the parent process exited");
}

static void say_cost(struct record *rec)
{
    struct account account = {.out = rec->messages,
                              .o = rec->o,
                              .loop = &rec->loop,
                              .sampler = rec->sampler,
                              .profile = rec->profile,
                              .cpu = rec->cpu,
                              .pid = target_pid(rec),
                              .throttled_ns = cpu_limit_throttled_ns(&rec->cpu_limit)};

    progress_erase(rec->progress);
    summary_write(&account);
}

/* format->look has at most one %s, which stands for the path. */
static void say_look(struct record *rec)
{
    const char *at = strstr(rec->format->look, "%s");

    if (at)
        record_say(rec, "%.*s%s%s", (int)(at - rec->format->look), rec->format->look, output_file_path(rec->place),
                   at + 2);
    else
        record_say(rec, "%s", rec->format->look);
}

static int write_result(struct record *rec)
{
    struct err_note note = {0};
    int r = 0;

    rec->profile->duration_ns = rec->loop.elapsed_ns;
    if (rec->sampler->lost_ns >= rec->profile->total / UNATTRIBUTED_SHARE &&
        rec->sampler->options.mode == SAMPLER_CPU && rec->profile->samples &&
        profile_add_unattributed(rec->profile, rec->sampler->lost_ns) < 0)
        return ERR_NOMEM;
    if (!rec->profile->samples) {
        r = record_explain_empty(rec);
        /* Callers of py-spy expect an error, but only for a flame graph. */
        if (r < 0 && !rec->o->as_py_spy)
            return r;
        /* A file that explains this is more useful than an error. */
        if (!rec->o->as_py_spy || rec->sampler->idle || rec->sampler->no_gil)
            snprintf(rec->remark, sizeof(rec->remark), "No stack counts found: %s. %s", rec->text->what,
                     rec->text->hint);
    }
    if (filtered_update(&rec->filtered, rec->o, rec->profile) < 0)
        return ERR_NOMEM;
    r = error_text_explain(rec->text, output_file_write(rec->place, fill, rec, &note), &note.facts);
    log_info("output", "%s: %s", output_file_path(rec->place), r < 0 ? err_name(r) : "written");
    if (r < 0)
        return r;
    report_end(rec);
    filtered_say(&rec->filtered, rec->o, rec->messages);
    record_say(rec, "Wrote %s to '%s'. Samples: %llu Errors: %llu", rec->format->wrote, output_file_path(rec->place),
               (unsigned long long)rec->filtered.shown->samples, (unsigned long long)sampler_errors(rec->sampler));
    if (!rec->profile->samples) {
        record_say(rec, "No stack counts found: %s", rec->text->what);
        record_say(rec, "%s", rec->text->hint);
    } else if (rec->filtered.shown->samples && rec->format->look && !output_file_is_stdout(rec->place)) {
        say_look(rec);
    }
    return 0;
}

/* If the processes have used more CPU time than the threads we know of, the difference belongs to threads that ended
 * after we last saw them. */
static void count_unattributed(struct record *rec)
{
    struct sampler *s = rec->sampler;
    uint64_t known_ns = s->attributed_ns + (s->options.native_all ? 0 : rec->cpu.native_ns);

    if (rec->cpu.total_ns > known_ns && rec->cpu.total_ns - known_ns > s->lost_ns)
        s->lost_ns = rec->cpu.total_ns - known_ns;
}

static int run(struct record *rec)
{
    int r = prepare(rec);

    if (r < 0)
        return r;
    report_start(rec);
    r = attach(rec);
    /* Not for a launched program: it is already running, and this would miss its start. */
    for (size_t i = 0; r == 0 && !rec->launch.pid && i < rec->tree.n; i++)
        if (rec->tree.items[i].process)
            r = process_warm_up(rec->tree.items[i].process);
    if (r < 0)
        return r;
    report_ready(rec);
    say_start(rec);
    if (rec->tree.n && !rec->several)
        cpu_limit_find(rec->tree.items[0].pid, &rec->cpu_limit);
    rec->progress = progress_new(STDERR_FILENO, rec->o->hide_progress);
    r = loop_run(&rec->loop);
    rec->progress = progress_free(rec->progress);
    if (r < 0)
        return r;
    r = record_program_ran_python(rec);
    if (r < 0)
        return r;
    rec->cpu = sampled_tree_cpu_use(&rec->tree);
    count_unattributed(rec);
    say_end(rec);
    say_cost(rec);
    return write_result(rec);
}

int cmd_record(const struct options *o)
{
    struct err_note note = {0};
    struct error_text text = {.command = "record"};
    struct record rec = {.o = o,
                         .several = args_choose_several(o),
                         .text = &text,
                         .messages = stderr,
                         .launch = {.output = -1, .pidfd = -1}};
    int r = error_text_explain(&text, access_check_proc(&note), &note.facts), status;

    if (r == 0 && o->program)
        r = record_program_find(&rec);
    if (r == 0 && !args_choose_process(o) && !o->program) {
        status_error(o->status, ERR_USAGE, NULL, true);
        return report_missing_target(o);
    }
    if (r == 0) {
        signals_catch(o->origin);
        profilers_announce(o->as_py_spy);
        descriptors_raise_limit();
        rec.has_caller = sudo_caller_find(&rec.caller);
        r = run(&rec);
    }
    if (o->pid && !rec.several &&
        (r == ERR_NO_PROCESS || (r == ERR_NOT_PYTHON && !report_hint_python_below(&text, o, o->pid))))
        report_hint_container_pid(&text, o->pid);
    if (r == ERR_NO_PROCESS && o->word && access(o->argv[o->word], F_OK) == 0)
        error_text_hint(&text, "To launch the file of that name, run: spyglass record ./%s", o->argv[o->word]);
    if (r < 0)
        status_error(o->status, r, &text, true);
    status = record_program_finish(&rec, r < 0 ? error_text_print(stderr, r, &text) : rec.chosen.failed > 0);
    if (r < 0)
        log_error("record", "%s: %s", err_name(r), text.what);
    log_session_counters(rec.sampler, &rec.loop);
    process_tree_free(&rec.tree);
    sampler_free(rec.sampler);
    filtered_free(&rec.filtered);
    profile_free(rec.profile);
    output_file_close(rec.place);
    signals_forget_program();
    launch_close(&rec.launch);
    sudo_caller_free(&rec.caller);
    command_line_free(rec.line);
    return status;
}
