/*
 * Why a recording has no samples, and which flag helps.
 */
#include "cmd/record_private.h"

#include "base/clock.h"
#include "cmd/signals.h"
#include "cmd/summary.h"
#include "target/proc.h"

int record_explain_empty(struct record *rec)
{
    const struct sampler *s = rec->sampler;
    struct proc_stat st;
    const struct tree_entry *e = record_target(rec);
    pid_t pid = e ? e->pid : 0;

    if (s->idle && !rec->several && proc_stat_read(pid, 0, &st) == 0 && st.state == 'T') {
        error_text_what(rec->text, ERR_NO_SAMPLES, "process %d is stopped (by SIGSTOP or a debugger)", (int)pid);
        error_text_hint(rec->text, "Resume it with: kill -CONT %d", (int)pid);
    } else if (sampler_errors(s) > s->idle + s->no_gil + s->unweighted) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "none of the %llu stacks could be read",
                        (unsigned long long)sampler_errors(s));
        error_text_hint(rec->text, "See why with: %s doctor --pid %d", args_name(rec->o), (int)pid);
        return ERR_NO_SAMPLES;
    } else if (rec->tree.has_python && rec->loop.is_early && (rec->loop.end != LOOP_GONE || signals_ended_by())) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "the recording was stopped before the first sample");
        error_text_hint(rec->text, "Record for longer.");
    } else if (s->idle > s->unweighted) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "all %llu stacks were idle: the %s sleeping or waiting",
                        (unsigned long long)s->idle,
                        summary_native_percent(rec->o, &rec->cpu) ? "Python threads were"
                        : rec->several                            ? "processes were"
                                                                  : "process was");
        if (rec->several)
            error_text_hint(rec->text, "%s to see where they wait, or print their current stacks with dump.",
                            rec->o->as_py_spy ? "Add --idle" : "Use --mode wait");
        else
            error_text_hint(rec->text, "%s to see where it waits, or print its current stacks with: %s dump --pid %d",
                            rec->o->as_py_spy ? "Add --idle" : "Use --mode wait", args_name(rec->o), (int)pid);
    } else if (s->no_gil) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "no thread held the GIL in any of the %llu stacks",
                        (unsigned long long)s->no_gil);
        error_text_hint(rec->text, "Remove %s.", rec->o->gil ? "--gil" : "--mode gil");
    } else if (s->unweighted && s->options.mode == SAMPLER_WAIT) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "no thread waited during the recording");
        error_text_hint(rec->text, "Remove --mode wait.");
    } else if (s->unweighted) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "every thread was waiting for a core whenever it was sampled");
        error_text_hint(rec->text, "Record for a longer --duration, or see where they wait with --mode wait.");
    } else if (!rec->tree.has_python) {
        return rec->several ? error_text_what(rec->text, ERR_NO_SAMPLES,
                                              "neither the processes nor their descendants ran Python")
                            : error_text_what(rec->text, ERR_NO_SAMPLES,
                                              "neither process %d nor its descendants ran Python", (int)pid);
    } else if (rec->launch.pid) {
        error_text_what(rec->text, ERR_NO_SAMPLES, "the program ended before the first sample, after %.0f ms",
                        (double)(clock_now_ns() - rec->launched_ns) / (double)NS_PER_MS);
        error_text_hint(rec->text, "Use a higher --rate, such as --rate 1000.");
    } else {
        error_text_what(rec->text, ERR_NO_SAMPLES, "the process%s exited before the first sample",
                        rec->several ? "es" : "");
        error_text_hint(rec->text, "Use a higher --rate, or launch the program with: %s record -- PROGRAM",
                        args_name(rec->o));
    }
    return 0;
}
