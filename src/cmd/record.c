/*
 * record: samples a process, or a program that it launches, and writes the profile.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/signame.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/log_session.h"
#include "cmd/report.h"
#include "cmd/signals.h"
#include "cmd/size_limit.h"
#include "cmd/status.h"
#include "cmd/summary.h"
#include "out/output_file.h"
#include "profile/profile.h"
#include "sample/loop.h"
#include "target/access.h"
#include "target/descriptors.h"
#include "target/launch.h"
#include "target/proc.h"
#include "target/sudo_caller.h"
#include "tree/profilers.h"
#include "ui/progress.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ATTACH_PATIENCE_NS (1000 * NS_PER_MS)
#define LAUNCH_PATIENCE_NS (10 * NS_PER_S)
#define KILL_PATIENCE_NS   (5 * NS_PER_S) /* between SIGTERM and SIGKILL */
#define PAUSE_PATIENCE_NS  NS_PER_S       /* in total, for threads that get no CPU time to stop on */
#define LOOK_NS            (500 * NS_PER_MS)
#define STOPPED_NS         (100 * NS_PER_MS)
#define SETTLE_NS          (200 * NS_PER_MS) /* for threads that have not stopped yet */
#define ATTACH_BUDGET_NS   (5 * NS_PER_MS)   /* per tick: a thousand new children must not delay sampling */

struct record {
    const struct options *o;
    const struct format *format;
    FILE *messages;
    struct sampler *sampler;
    struct process_tree tree;
    struct launch launch;
    struct sudo_caller caller;
    bool has_caller;     /* we run under sudo */
    uint64_t stopped_ns; /* when the launched program was first seen stopped; 0: not stopped */
    uint64_t ended_ns;   /* when it was first seen to have exited; 0: still running */
    bool told_of_left;   /* printed that children are still running */
    struct profile *profile;
    struct output_file *place;
    struct progress *progress;
    struct loop loop;
    struct cpu_use cpu; /* of the target, after the loop */
    struct error_text *text;
    char remark[2 * sizeof(struct error_text)]; /* why the profile is empty; "" otherwise */
};

__attribute__((format(printf, 2, 3))) static void say(struct record *rec, const char *fmt, ...)
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

    return profile_add(rec->profile, trace, elapsed_ns);
}

static int fill(FILE *out, void *arg)
{
    struct record *rec = arg;
    struct out_options options = {.title = rec->tree.n ? process_tree_entry_info(&rec->tree.items[0])->command : "",
                                  .exporter = args_version(rec->o),
                                  .full_filenames = rec->o->full_filenames,
                                  .show_lines = !rec->o->nolineno,
                                  .remark = rec->remark[0] ? rec->remark : NULL};

    return size_limit_write(rec->format, rec->profile, &options, size_limit_of(rec->o), out);
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

    rec->profile->duration_ns = elapsed_ns;
    r = error_text_explain(&text, output_file_write(rec->place, fill, rec, &note), &note.facts);
    log_info("output", "snapshot to %s: %s", output_file_path(rec->place), r < 0 ? err_name(r) : "written");
    progress_erase(rec->progress);
    if (r < 0) {
        status_error(rec->o->status, r, &text, false);
        error_text_print(stderr, r, &text);
        return;
    }
    status_snapshot(rec->o->status, &counts, output_file_path(rec->place));
    say(rec, "Wrote what there is so far to '%s'. Samples: %llu", output_file_path(rec->place),
        (unsigned long long)rec->profile->samples);
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

/* True if the parent process exited. If it exited before our first check, it never was our parent. */
static bool is_orphan(const struct options *o)
{
    return o->with_parent && getppid() != o->with_parent;
}

/* The tracer may have collected the exit status when it waited for a paused thread. */
static void note_end(struct record *rec)
{
    if (rec->sampler->pauser.tracer.exited)
        launch_set_ended(&rec->launch, rec->sampler->pauser.tracer.exit_status);
}

/* If the launched program stops itself, we must stop too, or the user gets neither the program nor the shell. A program
 * that is just resuming looks stopped for a moment, so wait STOPPED_NS before deciding. */
static bool program_stands(struct record *rec)
{
    if (!rec->launch.pid || !launch_is_stopped(&rec->launch) || !launch_needs_us()) {
        rec->stopped_ns = 0;
        return false;
    }
    if (!rec->stopped_ns)
        rec->stopped_ns = clock_now_ns();
    return clock_now_ns() - rec->stopped_ns >= STOPPED_NS;
}

/* Stops spyglass between samples, when no thread is paused, so that the target keeps running. */
static void stop_if_asked(struct record *rec)
{
    if (!signals_take_stop() && !program_stands(rec))
        return;
    progress_erase(rec->progress);
    tracer_settle(&rec->sampler->pauser.tracer, SETTLE_NS);
    signals_stop_us();
    rec->stopped_ns = 0;
}

/* Checks whether the launched program exited. If it left children running, says once that sampling goes on. */
static void look_at_program(struct record *rec)
{
    note_end(rec);
    if (!launch_poll(&rec->launch))
        return;
    signals_forget_program();
    if (!rec->ended_ns)
        rec->ended_ns = clock_now_ns();
    if (rec->told_of_left || clock_now_ns() - rec->ended_ns < LOOK_NS || process_tree_has_only_root(&rec->tree))
        return;
    rec->told_of_left = true;
    say(rec, "The program has exited with status %d; still sampling its children. Press Ctrl-C to stop.",
        launch_exit_status(&rec->launch));
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

    if (signals_take_snapshot())
        take_snapshot(rec, elapsed_ns);
    progress_update(rec->progress, &counts, clock_now_ns());
    if (rec->o->status)
        report_samples(rec, elapsed_ns);
    if (rec->launch.pid)
        look_at_program(rec);
    stop_if_asked(rec);
    return !signals_ended_by() && !is_orphan(rec->o);
}

static const struct format *choose_format(const struct options *o)
{
    const struct format *by_path = o->output ? format_by_path(o->output) : NULL;

    return o->format ? o->format : by_path ? by_path : format_by_name("flamegraph");
}

static int open_place(struct record *rec)
{
    char name[512], pid[16];
    struct err_note note = {0};
    int r;

    snprintf(pid, sizeof(pid), "%d", (int)rec->o->pid);
    output_file_default_name(name, sizeof(name), rec->o->program ? rec->o->program[0] : pid, rec->format->extension,
                             time(NULL));
    r = output_file_open(rec->o->output ? rec->o->output : name, &rec->place, &note);
    if (r == 0 && rec->has_caller)
        output_file_set_owner(rec->place, rec->caller.uid, rec->caller.gid);
    return error_text_explain(rec->text, r, &note.facts);
}

static int start_program(struct record *rec)
{
    struct launch_options options = {.capture = rec->o->capture,
                                     .adopt = rec->o->subprocesses,
                                     .origin = rec->o->origin,
                                     .caller = rec->has_caller ? &rec->caller : NULL};
    struct err_note note = {0};
    sigset_t before;
    int r;

    signals_hold(&before);
    r = launch_start(rec->o->program, &options, &rec->launch, &note);
    signals_release(r == 0 ? rec->launch.pid : 0, &before);
    rec->tree.is_subreaper = rec->launch.adopts;
    rec->sampler->pauser.tracer.child = rec->launch.pid;
    return error_text_explain(rec->text, r, &note.facts);
}

static int gone_without_python(struct record *rec)
{
    error_text_what(rec->text, ERR_GONE, "'%s' exited with status %d before it ran any Python", rec->o->program[0],
                    launch_exit_status(&rec->launch));
    if (!rec->o->subprocesses)
        error_text_hint(rec->text, "If it leaves Python processes running, add --subprocesses.");
    return ERR_GONE;
}

/* Starts watching for new processes before the launch, so that no child is missed. */
static int start_tree(struct record *rec)
{
    const struct options *o = rec->o;
    int r = 0;

    rec->tree.is_subreaper = o->subprocesses && o->program;
    if (o->subprocesses)
        r = process_tree_watch(&rec->tree);
    if (r == 0 && o->program)
        r = start_program(rec);
    return r;
}

/* Attaching to the launched program failed with `r`. If it has exited, its children may still run Python. */
static int look_at_failed(struct record *rec, int r)
{
    /* The main thread may exit before the others; the exit status is available only after the last one. */
    if (r == ERR_GONE || r == ERR_NO_PROCESS)
        launch_wait(&rec->launch, LOOK_NS);
    if (!launch_poll(&rec->launch))
        return r;
    signals_forget_program();
    return rec->launch.adopts && rec->tree.n ? 0 : gone_without_python(rec);
}

static int attach(struct record *rec)
{
    const struct options *o = rec->o;
    struct err_note note = {0};
    int r;

    rec->sampler = sampler_new(&(struct sampler_options){.nonblocking = o->nonblocking,
                                                         .include_idle = o->idle,
                                                         .gil_only = o->gil,
                                                         .find_gil_holder = o->gil,
                                                         .same_core = !o->nonblocking,
                                                         .native = o->native || o->native_all,
                                                         .native_all = o->native_all,
                                                         .kernel_names = !o->as_py_spy,
                                                         .patience_ns = PAUSE_PATIENCE_NS,
                                                         .recording = true,
                                                         .known_keys = profile_known_keys(rec->profile)});
    rec->tree = (struct process_tree){.sampler = rec->sampler,
                                      .subprocesses = o->subprocesses,
                                      .max_depth = o->subprocess_depth,
                                      .attach_budget_ns = ATTACH_BUDGET_NS};
    if (!rec->sampler)
        return ERR_NOMEM;
    r = start_tree(rec);
    if (r < 0)
        return r;
    /* With --subprocesses the root may start Python late or never; its children must not wait for it. */
    r = sampled_tree_add_root(&rec->tree, o->program ? rec->launch.pid : o->pid,
                              o->subprocesses ? 0 : (o->program ? LAUNCH_PATIENCE_NS : ATTACH_PATIENCE_NS),
                              !o->subprocesses, &note);
    error_text_explain(rec->text, r, &note.facts);
    return r == 0 || !o->program ? r : look_at_failed(rec, r);
}

static int prepare(struct record *rec)
{
    const struct options *o = rec->o;
    struct profile_options options = {.interval_ns = (uint64_t)((double)NS_PER_S / o->rate),
                                      .processes = o->subprocesses,
                                      .threads = o->threads,
                                      .by_function = o->function,
                                      .no_lines = o->nolineno};
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
    rec->messages = output_file_is_stdout(rec->place) ? stderr : stdout;
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
    if (rec->o->duration > 0)
        say(rec, "Sampling process %g times a second for %g seconds. Press Control-C to exit.", rec->o->rate,
            rec->o->duration);
    else
        say(rec, "Sampling process %g times a second. Press Control-C to exit.", rec->o->rate);
}

static void report_start(struct record *rec)
{
    const struct options *o = rec->o;

    status_started(o->status, &(struct status_started){.program = args_version(o),
                                                       .command = args_command_row(o->command)->name,
                                                       .pid = o->pid,
                                                       .format = rec->format->name,
                                                       .output = output_file_path(rec->place)});
}

static void report_ready(struct record *rec)
{
    const struct tree_entry *root = rec->tree.n ? &rec->tree.items[0] : NULL;

    status_ready(rec->o->status, root ? root->pid : 0, root ? process_tree_entry_info(root)->command : NULL,
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
        say(rec, "Stopped sampling because process exited");
    else if (signals_ended_by() == SIGINT)
        say(rec, "Stopped sampling because Control-C pressed");
    else if (signals_ended_by())
        say(rec, "Stopped sampling because of signal %s", signame_of(signals_ended_by()));
    else if (is_orphan(rec->o))
        say(rec, "Stopped sampling because the parent process exited");
}

static void say_cost(struct record *rec)
{
    struct account account = {.out = rec->messages,
                              .o = rec->o,
                              .loop = &rec->loop,
                              .sampler = rec->sampler,
                              .profile = rec->profile,
                              .cpu = rec->cpu,
                              .pid = rec->tree.n ? rec->tree.items[0].pid : 0};

    progress_erase(rec->progress);
    summary_write(&account);
}

/* Explains an empty profile and names the flag that helps. */
static void explain_no_samples(struct record *rec)
{
    const struct sampler *s = rec->sampler;
    struct proc_stat st;
    pid_t pid = rec->tree.n ? rec->tree.items[0].pid : 0;

    if (s->idle && proc_stat_read(pid, 0, &st) == 0 && st.state == 'T') {
        error_text_what(rec->text, ERR_NO_SAMPLES, "process %d is stopped (by SIGSTOP or a debugger)", (int)pid);
        error_text_hint(rec->text, "Resume it with: kill -CONT %d", (int)pid);
    } else if (s->idle) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "all %llu stacks were idle: the %s sleeping or waiting",
                        (unsigned long long)s->idle,
                        summary_native_percent(rec->o, &rec->cpu) ? "Python threads were" : "process was");
        error_text_hint(rec->text,
                        "Add --idle to see where it waits, or print its current stacks with: %s dump --pid %d",
                        args_name(rec->o), (int)pid);
    } else if (s->no_gil) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "no thread held the GIL in any of the %llu stacks",
                        (unsigned long long)s->no_gil);
        error_text_hint(rec->text, "Remove --gil.");
    } else if (sampler_errors(s)) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "none of the %llu stacks could be read",
                        (unsigned long long)sampler_errors(s));
        error_text_hint(rec->text, "See why with: %s doctor", args_name(rec->o));
    } else if (!rec->tree.has_python) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "neither process %d nor its descendants ran Python", (int)pid);
    } else {
        error_text_what(rec->text, ERR_NO_SAMPLES, "the process exited before the first sample");
        error_text_hint(rec->text, "Use a higher --rate, or launch the program with: %s record -- PROGRAM",
                        args_name(rec->o));
    }
}

/* format->look has at most one %s, which stands for the path. */
static void say_look(struct record *rec)
{
    const char *at = strstr(rec->format->look, "%s");

    if (at)
        say(rec, "%.*s%s%s", (int)(at - rec->format->look), rec->format->look, output_file_path(rec->place), at + 2);
    else
        say(rec, "%s", rec->format->look);
}

static int write_result(struct record *rec)
{
    struct err_note note = {0};
    int r;

    rec->profile->duration_ns = rec->loop.elapsed_ns;
    if (!rec->profile->samples) {
        explain_no_samples(rec);
        /* A file that explains this is more useful than an error, unless the process was never sampled. */
        if (rec->sampler->idle || rec->sampler->no_gil)
            snprintf(rec->remark, sizeof(rec->remark), "No stack counts found: %s. %s", rec->text->what,
                     rec->text->hint);
    }
    r = error_text_explain(rec->text, output_file_write(rec->place, fill, rec, &note), &note.facts);
    log_info("output", "%s: %s", output_file_path(rec->place), r < 0 ? err_name(r) : "written");
    if (r < 0)
        return r;
    report_end(rec);
    say(rec, "Wrote %s to '%s'. Samples: %llu Errors: %llu", rec->format->wrote, output_file_path(rec->place),
        (unsigned long long)rec->profile->samples, (unsigned long long)sampler_errors(rec->sampler));
    if (!rec->profile->samples) {
        say(rec, "No stack counts found: %s", rec->text->what);
        say(rec, "%s", rec->text->hint);
    } else if (rec->format->look) {
        say_look(rec);
    }
    return 0;
}

/* Waits up to LOOK_NS for the program to exit. First resumes threads that are still stopping for us. */
static void wait_a_while(struct record *rec)
{
    if (rec->sampler)
        tracer_settle(&rec->sampler->pauser.tracer, SETTLE_NS);
    launch_wait(&rec->launch, LOOK_NS);
}

/* True if the launched program exited without running Python. We notice the exit before the status is available. */
static bool ended_without_python(struct record *rec)
{
    if (!rec->launch.pid || rec->tree.has_python)
        return false;
    note_end(rec);
    if (!launch_poll(&rec->launch) && rec->loop.end == LOOP_GONE)
        wait_a_while(rec);
    return rec->launch.ended;
}

static int run(struct record *rec)
{
    int r = prepare(rec);

    if (r < 0)
        return r;
    report_start(rec);
    r = attach(rec);
    if (r < 0)
        return r;
    report_ready(rec);
    say_start(rec);
    rec->progress = progress_new(STDERR_FILENO, rec->o->hide_progress);
    r = loop_run(&rec->loop);
    rec->progress = progress_free(rec->progress);
    if (r < 0)
        return r;
    if (ended_without_python(rec))
        return gone_without_python(rec);
    rec->cpu = sampled_tree_cpu_use(&rec->tree);
    say_end(rec);
    say_cost(rec);
    return write_result(rec);
}

/* SIGTERM first, SIGKILL after KILL_PATIENCE_NS. SIGCONT lets a stopped program handle SIGTERM. */
static void kill_program(struct record *rec)
{
    uint64_t deadline = clock_now_ns() + KILL_PATIENCE_NS;

    kill(rec->launch.pid, SIGTERM);
    kill(rec->launch.pid, SIGCONT);
    while (!rec->launch.ended && clock_now_ns() < deadline)
        wait_a_while(rec);
    if (!rec->launch.ended) {
        kill(rec->launch.pid, SIGKILL);
        while (!rec->launch.ended)
            wait_a_while(rec);
    }
}

/* Waits until the program exits and forwards signals to it. A second signal from kill (not from the terminal) ends the
 * wait. */
static void wait_for_program(struct record *rec)
{
    while (!rec->launch.ended && signals_ended_times() < 2) {
        wait_a_while(rec);
        stop_if_asked(rec);
    }
}

/* The recording is over, but the program may still be running. Only --kill terminates it. */
static void part_with_program(struct record *rec)
{
    struct launch *l = &rec->launch;

    note_end(rec);
    /* It may be about to exit: the sampler notices an exit before wait does, and a forwarded signal takes time. */
    if (!launch_poll(l) && (rec->loop.end == LOOP_GONE || signals_ended_by()))
        wait_a_while(rec);
    if (l->ended)
        return;
    if (rec->o->kill)
        kill_program(rec);
    else if (rec->o->wait || signals_ended_by() || launch_needs_us()) {
        say(rec, "Waiting for the program to exit (PID %d).", (int)l->pid);
        wait_for_program(rec);
    }
    if (!l->ended)
        say(rec, "The program is still running (PID %d).", (int)l->pid);
}

/* Returns the exit status of the program if it is nonzero. Callers of py-spy expect 0. */
static int exit_status(struct record *rec, int status)
{
    if (!rec->launch.pid)
        return status;
    part_with_program(rec);
    if (launch_exit_status(&rec->launch) == 0)
        return status;
    launch_show_output(&rec->launch, stderr);
    return rec->o->as_py_spy ? status : launch_exit_status(&rec->launch);
}

int cmd_record(const struct options *o)
{
    struct error_text text = {0};
    struct record rec = {.o = o, .text = &text, .messages = stdout, .launch = {.output = -1, .pidfd = -1}};
    int r = report_contradiction(o, &text), status;

    if (r == 0 && !o->pid && !o->program) {
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
    if (o->pid && (r == ERR_NO_PROCESS || r == ERR_NOT_PYTHON))
        report_hint_container_pid(&text, o->pid);
    if (r < 0)
        status_error(o->status, r, &text, true);
    status = exit_status(&rec, r < 0 ? error_text_print(stderr, r, &text) : 0);
    if (r < 0)
        log_error("record", "%s: %s", err_name(r), text.what);
    log_session_counters(rec.sampler, &rec.loop);
    process_tree_free(&rec.tree);
    sampler_free(rec.sampler);
    profile_free(rec.profile);
    output_file_close(rec.place);
    launch_close(&rec.launch);
    sudo_caller_free(&rec.caller);
    return status;
}
