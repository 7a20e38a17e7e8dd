/*
 * The program that record launches: waits for Python in it or below it, stops with it, waits for its exit.
 */
#include "cmd/record_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "cmd/command_line.h"
#include "cmd/offer.h"
#include "cmd/signals.h"

#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KILL_PATIENCE_NS (5 * NS_PER_S) /* between SIGTERM and SIGKILL */
#define LOOK_NS          (500 * NS_PER_MS)
#define STOPPED_NS       (100 * NS_PER_MS)
#define SETTLE_NS        (200 * NS_PER_MS) /* for threads that have not stopped yet */
#define TELL_WAIT_NS     (2 * NS_PER_S)    /* before saying that no Python runs yet */

/* ---- starting ---- */

int record_program_find(struct record *rec)
{
    const struct options *o = rec->o;
    int r = command_line_of_python(o, &rec->line, rec->text);

    rec->name = o->module ? o->module : o->program[0];
    if (rec->line) {
        rec->options = *o;
        rec->options.program = rec->line;
        rec->o = &rec->options;
    } else if (r == 0 && o->word && !o->as_py_spy && !strchr(rec->name, '/') && access(rec->name, F_OK) < 0 &&
               !command_line_is_program(rec->name)) {
        r = offer_processes(o, rec->text); /* if there is none, launching it fails with a better message */
    }
    return r;
}

/* The program could not be started. If there is a file of that name, says how to run it. */
static void hint_file(struct record *rec)
{
    const char *name = rec->name, *dot = strrchr(name, '.');

    if (access(name, F_OK) < 0) {
        if (rec->o->word && !rec->o->as_py_spy && !strchr(name, '/'))
            error_text_hint(rec->text, "No program in PATH, script or Python process has this name. To list the Python "
                                       "processes, run: spyglass list");
        return;
    }
    if (rec->line) {
        error_text_hint(rec->text,
                        "The first line of the script names this interpreter. To use another one: %s record -- "
                        "python3 %s",
                        args_name(rec->o), name);
        return;
    }
    if (dot && strcmp(dot, ".py") == 0)
        error_text_hint(rec->text, "To run this script with Python: %s record -- python3 %s", args_name(rec->o), name);
    else if (!strchr(name, '/'))
        error_text_hint(rec->text, "A program in the current directory needs ./ in front: %s record -- ./%s",
                        args_name(rec->o), name);
}

/* Says which Python runs the script. */
static void tell_command(struct record *rec)
{
    char *line = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&line, &len);

    if (!out)
        return;
    command_line_print(out, rec->o->program);
    if (fclose(out) == 0)
        record_say(rec, "Launched: %s", line);
    free(line);
}

int record_program_start(struct record *rec)
{
    struct launch_options options = {.before_reap = signals_forget_program,
                                     .capture = rec->o->capture,
                                     .adopt = true,
                                     .origin = rec->o->origin,
                                     .caller = rec->has_caller ? &rec->caller : NULL};
    struct err_note note = {0};
    sigset_t before;
    int r;

    signals_hold(&before);
    r = launch_start(rec->o->program, &options, &rec->launch, &note);
    signals_release(r == 0 ? &rec->launch : NULL, &before);
    rec->launched_ns = clock_now_ns();
    rec->tree.is_subreaper = rec->launch.adopts;
    rec->sampler->pauser.tracer.child = rec->launch.pid;
    error_text_explain(rec->text, r, &note.facts);
    if (r == ERR_LAUNCH)
        hint_file(rec);
    else if (r == 0 && rec->line)
        tell_command(rec);
    return r;
}

static int gone_without_python(struct record *rec)
{
    if (rec->tree.refused) {
        error_text_explain(rec->text, rec->tree.refused, &rec->refusal.facts);
        return rec->tree.refused;
    }
    error_text_what(rec->text, ERR_GONE, "'%s' exited with status %d before it ran any Python", rec->o->program[0],
                    launch_exit_status(&rec->launch));
    error_text_hint(rec->text,
                    "spyglass samples the program itself, or the first Python process that it starts. It may "
                    "miss a process that runs for a few milliseconds.");
    return ERR_GONE;
}

int record_program_failed(struct record *rec, int r)
{
    /* A process that is exiting fails in many ways before its exit status is available. */
    if (r != ERR_NOMEM)
        launch_wait(&rec->launch, LOOK_NS);
    if (!launch_poll(&rec->launch))
        return r;
    return rec->launch.adopts && rec->tree.n ? 0 : gone_without_python(rec);
}

/* ---- waiting for Python ---- */

/* Says which process is sampled, unless it is the program itself. */
static void tell_followed(struct record *rec)
{
    const struct tree_entry *e = record_target(rec);
    char path[1024];

    if (!rec->tree.one_at_a_time || !e || !e->process || e->pid == rec->announced_pid)
        return;
    if (e->pid == rec->launch.pid) {
        launch_stop_adopting(); /* a Python program's orphans go to init, as without us */
        if (rec->announced_pid)
            record_say(rec, "Following the program itself (PID %d), which now runs Python", (int)e->pid);
    } else {
        snprintf(path, sizeof(path), "%s", process_tree_entry_info(e)->executable);
        record_say(rec, "Following %s (PID %d), started by %s", basename(path), (int)e->pid, rec->o->program[0]);
    }
    rec->announced_pid = e->pid;
}

/* True if the program itself cannot be sampled, and waiting would not help. */
static bool is_refused(const struct record *rec)
{
    return rec->tree.refused && rec->tree.items[0].error == rec->tree.refused;
}

static bool tick_waiting(void *arg, uint64_t elapsed_ns)
{
    struct record *rec = arg;

    record_program_check(rec);
    record_suspend_if_asked(rec);
    if (!rec->said_waiting && !rec->ended_ns && elapsed_ns >= TELL_WAIT_NS) {
        rec->said_waiting = true;
        record_say(rec, "'%s' runs no Python yet. Waiting for it to start Python; press Ctrl-C to stop.",
                   rec->o->program[0]);
    }
    return !signals_ended_by() && !record_is_orphan(rec) && !is_refused(rec);
}

int record_program_attach(struct record *rec)
{
    loop_tick tick = rec->loop.tick;
    struct err_note note = {0};
    int r;

    rec->tree.refusal_note = &rec->refusal;
    r = sampled_tree_add_root(&rec->tree, rec->launch.pid, 0, false, &note);
    if (r == ERR_NOMEM || rec->tree.n == 0)
        return error_text_explain(rec->text, r, &note.facts);
    rec->loop.tick = tick_waiting;
    r = loop_wait(&rec->loop);
    rec->loop.tick = tick;
    if (r < 0)
        return r;
    if (rec->tree.has_python) {
        tell_followed(rec);
        return 0;
    }
    /* A signal that ends the recording goes to the program as well: it may exit before we notice the signal. */
    if (is_refused(rec) || (rec->loop.end == LOOP_GONE && !signals_ended_by()))
        return record_program_ran_python(rec);
    return error_text_what(rec->text, ERR_NO_SAMPLES, "'%s' had not started Python when the recording stopped",
                           rec->o->program[0]);
}

/* ---- while it runs ---- */

/* If the launched program stops itself, we must stop too, or the user gets neither the program nor the shell. A program
 * that is just resuming looks stopped for a moment, so wait STOPPED_NS before deciding. */
static bool program_is_stopped(struct record *rec)
{
    if (!rec->launch.pid || !launch_is_stopped(&rec->launch) || !launch_needs_us()) {
        rec->stopped_ns = 0;
        return false;
    }
    if (!rec->stopped_ns)
        rec->stopped_ns = clock_now_ns();
    return clock_now_ns() - rec->stopped_ns >= STOPPED_NS;
}

void record_suspend_if_asked(struct record *rec)
{
    if (!signals_take_stop() && !program_is_stopped(rec))
        return;
    progress_erase(rec->progress);
    if (rec->sampler)
        tracer_settle(&rec->sampler->pauser.tracer, SETTLE_NS);
    signals_stop_us();
    rec->stopped_ns = 0;
}

/* The program has exited. Says once that sampling goes on, if it left processes running. */
static void say_still_sampling(struct record *rec)
{
    const struct tree_entry *e = record_target(rec);
    int status = launch_exit_status(&rec->launch);

    if (rec->said_still_sampling || clock_now_ns() - rec->ended_ns < LOOK_NS || process_tree_has_only_root(&rec->tree))
        return;
    if (!rec->tree.one_at_a_time) {
        record_say(rec, "The program has exited with status %d; still sampling its children. Press Ctrl-C to stop.",
                   status);
    } else if (e && e->process) {
        record_say(rec, "The program has exited with status %d; still sampling process %d. Press Ctrl-C to stop.",
                   status, (int)e->pid);
    } else {
        return;
    }
    rec->said_still_sampling = true;
}

void record_program_check(struct record *rec)
{
    tell_followed(rec);
    if (!launch_poll(&rec->launch))
        return;
    if (!rec->ended_ns)
        rec->ended_ns = clock_now_ns();
    say_still_sampling(rec);
}

/* ---- the end ---- */

/* Waits up to LOOK_NS for the program to exit. First resumes threads that are still stopping for us. */
static void wait_a_while(struct record *rec)
{
    if (rec->sampler)
        tracer_settle(&rec->sampler->pauser.tracer, SETTLE_NS);
    launch_wait(&rec->launch, LOOK_NS);
}

int record_program_ran_python(struct record *rec)
{
    if (!rec->launch.pid || rec->tree.has_python)
        return 0;
    /* We notice the exit before the status is available. */
    if (!launch_poll(&rec->launch) && rec->loop.end == LOOP_GONE)
        wait_a_while(rec);
    return rec->launch.ended || is_refused(rec) ? gone_without_python(rec) : 0;
}

static void give_time_to_exit(struct record *rec)
{
    uint64_t deadline = clock_now_ns() + KILL_PATIENCE_NS;

    while (!rec->launch.ended && signals_ended_times() < 2 && clock_now_ns() < deadline)
        wait_a_while(rec);
}

/* SIGTERM first, SIGKILL after KILL_PATIENCE_NS. SIGCONT lets a stopped program handle SIGTERM. A signal that ended the
 * recording was forwarded, so it may be about to exit. */
static void kill_program(struct record *rec)
{
    if (signals_ended_by())
        give_time_to_exit(rec);
    if (rec->launch.ended)
        return;
    rec->killed = true;
    kill(rec->launch.pid, SIGTERM);
    kill(rec->launch.pid, SIGCONT);
    give_time_to_exit(rec);
    if (!rec->launch.ended) {
        kill(rec->launch.pid, SIGKILL);
        while (!rec->launch.ended)
            wait_a_while(rec);
    }
}

/* Waits until the program exits and forwards signals to it. The second signal ends the wait; the program gets it, too, and a
 * moment to exit. */
static void wait_for_program(struct record *rec)
{
    record_say(rec, "Waiting for the program to exit (PID %d). Press Ctrl-C %s to leave it running.",
               (int)rec->launch.pid, signals_ended_times() ? "again" : "twice");
    while (!rec->launch.ended && signals_ended_times() < 2) {
        wait_a_while(rec);
        record_suspend_if_asked(rec);
    }
    if (!rec->launch.ended)
        wait_a_while(rec);
}

/* Callers of py-spy expect that the program ends with the recording, and wait for its pipes to close. */
static bool ends_with_recording(const struct options *o)
{
    return o->kill || (o->as_py_spy && !o->wait);
}

/* The recording is over, but the program may still be running. */
static void part_with_program(struct record *rec)
{
    struct launch *l = &rec->launch;

    /* It may be about to exit: the sampler notices an exit before wait does, and a forwarded signal takes time. */
    if (!launch_poll(l) && (rec->loop.end == LOOP_GONE || signals_ended_by()))
        wait_a_while(rec);
    if (l->ended)
        return;
    if (ends_with_recording(rec->o))
        kill_program(rec);
    else if (signals_ended_times() < 2 && (rec->o->wait || signals_ended_by() || launch_needs_us()))
        wait_for_program(rec);
    if (!l->ended)
        record_say(rec, "The program is still running (PID %d).", (int)l->pid);
}

int record_program_finish(struct record *rec, int status)
{
    if (!rec->launch.pid)
        return status;
    part_with_program(rec);
    if (launch_exit_status(&rec->launch) == 0)
        return status;
    if (!rec->o->as_py_spy || !rec->killed)
        launch_show_output(&rec->launch, stderr);
    return rec->o->as_py_spy ? status : launch_exit_status(&rec->launch);
}
