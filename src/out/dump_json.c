/*
 * Prints traces as JSON for `dump --json`: one array with an object per thread, indented by two spaces.
 */
#include "out/dump_private.h"
#include "out/json.h"

#include <inttypes.h>

/* Ancestors printed for a process. Also ends the walk if the parent links form a cycle. */
#define DUMP_MAX_ANCESTORS 64

static void dump_json_locals(const struct frame *frame, FILE *out)
{
    if (frame->locals == NULL) {
        fputs("null", out);
        return;
    }
    putc('[', out);
    for (size_t i = 0; i < frame->n_locals; i++) {
        const struct local *local = &frame->locals[i];

        fputs(i > 0 ? ",\n          {\n            \"name\": " : "\n          {\n            \"name\": ", out);
        json_string(out, local->name);
        fprintf(out, ",\n            \"addr\": %" PRIu64, local->addr);
        fprintf(out, ",\n            \"arg\": %s,\n            \"repr\": ", local->is_arg ? "true" : "false");
        json_string(out, local->value);
        fputs("\n          }", out);
    }
    fputs(frame->n_locals > 0 ? "\n        ]" : "]", out);
}

static void dump_json_source(const struct frame_source *source, FILE *out)
{
    fputs(",\n        \"source\": ", out);
    json_string(out, source->text);
    if (source->end_line > 0)
        fprintf(out, ",\n        \"end_line\": %d,\n        \"column\": %d,\n        \"end_column\": %d",
                source->end_line, source->column, source->end_column);
    else
        fputs(",\n        \"end_line\": null,\n        \"column\": null,\n        \"end_column\": null", out);
}

void dump_json_frame(const struct frame *frame, FILE *out)
{
    fputs("      {\n        \"name\": ", out);
    json_string(out, frame->func->name);
    fputs(",\n        \"filename\": ", out);
    json_string(out, frame->func->filename);
    fputs(",\n        \"module\": ", out);
    json_string(out, frame->func->module);
    fputs(",\n        \"short_filename\": ", out);
    json_string(out, frame->func->short_filename);
    fprintf(out, ",\n        \"line\": %d,\n        \"locals\": ", frame->line > 0 ? frame->line : 0);
    dump_json_locals(frame, out);
    fprintf(out, ",\n        \"is_entry\": %s,\n", frame->is_entry ? "true" : "false");
    fprintf(out, "        \"is_shim_entry\": %s", frame->is_shim_entry ? "true" : "false");
    if (frame->source)
        dump_json_source(frame->source, out);
    fputs("\n      }", out);
}

/* Prints a process with its ancestors nested in it. Prints null for NULL. */
static void dump_json_process(const struct proc_info *process, FILE *out)
{
    int depth = 0, indent = 6;

    for (; process != NULL && depth < DUMP_MAX_ANCESTORS; depth++, indent += 2) {
        fprintf(out, "{\n%*s\"pid\": %d,\n", indent, "", (int)process->pid);
        fprintf(out, "%*s\"command_line\": ", indent, "");
        json_string(out, process->command ? process->command : "");
        fprintf(out, ",\n%*s\"parent\": ", indent, "");
        process = process->parent_info;
    }
    fputs("null", out);
    for (; depth > 0; depth--) {
        indent -= 2;
        fprintf(out, "\n%*s}", indent - 2, "");
    }
}

/* Core files only: the signal of the thread that received it, null for the others. */
static void dump_json_signal(const struct trace *trace, FILE *out)
{
    const struct trace_signal *s = &trace->process->signal;

    fputs(",\n    \"signal\": ", out);
    if (!s->number || s->tid != trace->os_thread_id) {
        fputs("null", out);
        return;
    }
    fprintf(out, "{\n      \"number\": %d,\n      \"name\": ", s->number);
    json_string(out, s->name);
    if (s->has_address)
        fprintf(out, ",\n      \"address\": \"0x%" PRIx64 "\"", s->address);
    else
        fputs(",\n      \"address\": null", out);
    if (s->sender > 0)
        fprintf(out, ",\n      \"sender\": %d\n    }", (int)s->sender);
    else
        fputs(",\n      \"sender\": null\n    }", out);
}

/* Only for a process in another container. */
static void dump_json_container(const struct proc_info *process, FILE *out)
{
    if (process->inner_pid)
        fprintf(out, ",\n    \"container\": {\n      \"pid\": %d", (int)process->inner_pid);
    else
        fputs(",\n    \"container\": {\n      \"pid\": null", out);
    fputs(",\n      \"runtime\": ", out);
    json_string(out, process->runtime);
    fputs(",\n      \"id\": ", out);
    json_string(out, process->container);
    fputs("\n    }", out);
}

/* Which process of a job it is: for `spyglass group`. */
static void dump_json_job(const struct proc_info *process, FILE *out)
{
    fputs(",\n    \"hostname\": ", out);
    json_string(out, process->hostname);
    if (process->rank_from)
        fprintf(out, ",\n    \"rank\": %" PRId64 ",\n    \"rank_from\": ", process->rank);
    else
        fputs(",\n    \"rank\": null,\n    \"rank_from\": ", out);
    json_string(out, process->rank_from);
    if (process->python_parent)
        fprintf(out, ",\n    \"parent_pid\": %d", (int)process->python_parent);
    else
        fputs(",\n    \"parent_pid\": null", out);
}

/* `n_same`: for the first thread of a process, how many it has; else 0. */
static void dump_json_thread(const struct trace *trace, const struct task_set *set, size_t n_same,
                             const struct dump_options *options, FILE *out)
{
    struct verdict verdict;
    const struct proc_info *process = trace->process;

    fprintf(out, "  {\n    \"pid\": %d,\n    \"thread_id\": %" PRIu64, (int)process->pid, trace->thread_id);
    fputs(",\n    \"thread_name\": ", out);
    json_string(out, trace->thread_name);
    if (trace->os_thread_id > 0)
        fprintf(out, ",\n    \"os_thread_id\": %d", (int)trace->os_thread_id);
    else
        fputs(",\n    \"os_thread_id\": null", out);
    fprintf(out, ",\n    \"active\": %s", trace->active ? "true" : "false");
    fprintf(out, ",\n    \"owns_gil\": %s", trace->owns_gil ? "true" : "false");
    fprintf(out, ",\n    \"state\": \"%s\"",
            trace->waits_for_gil ? "waiting for the GIL"
            : trace->active      ? "active"
                                 : "idle");
    if (trace->wait) {
        fputs(",\n    \"waits_for\": ", out);
        dump_json_wait(trace->wait, out);
    }
    if (process->hostname)
        dump_json_job(process, out);
    if (process->core)
        dump_json_signal(trace, out);
    if (process->inner_pid || process->container)
        dump_json_container(process, out);
    fputs(",\n    \"frames\": [", out);
    for (size_t i = 0; i < trace->n_frames; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        dump_json_frame(&trace->frames[i], out);
    }
    fputs(trace->n_frames > 0 ? "\n    ]" : "]", out);
    if (set)
        dump_json_tasks(set, trace, n_same > 0, out);
    if (n_same && options->verdict && verdict_find(trace, n_same, &verdict) == 0 && verdict.kind != VERDICT_NONE)
        dump_json_verdict(&verdict, out);
    fputs(",\n    \"process_info\": ", out);
    dump_json_process(options->several || process->parent_info != NULL ? process : NULL, out);
    fputs("\n  }", out);
}

static const struct task_set *find_set(const struct task_set *sets, size_t n, const struct proc_info *process)
{
    for (size_t i = 0; i < n; i++)
        if (sets[i].process == process)
            return &sets[i];
    return NULL;
}

static size_t count_same(const struct trace *traces, size_t n)
{
    size_t same = 1;

    while (same < n && traces[same].process == traces[0].process)
        same++;
    return same;
}

void dump_json(const struct trace *traces, size_t n_traces, const struct task_set *sets, size_t n_sets,
               const struct dump_options *options, FILE *out)
{
    const struct task_set *set = NULL;

    putc('[', out);
    for (size_t i = 0; i < n_traces; i++) {
        bool first = !i || traces[i].process != traces[i - 1].process;

        if (first)
            set = find_set(sets, n_sets, traces[i].process);
        fputs(i > 0 ? ",\n" : "\n", out);
        dump_json_thread(&traces[i], set, first ? count_same(&traces[i], n_traces - i) : 0, options, out);
    }
    fputs(n_traces > 0 ? "\n]\n" : "]\n", out);
}
