/*
 * Prints traces as text for `dump`. All strings from the target go through text_print_safe.
 */
#include "base/text.h"
#include "out/dump.h"

#include <inttypes.h>
#include <string.h>

#define DUMP_RULE "--------------------------------------------------------------------------------"

/* Core files only: the path and the signal that ended the process. */
static void dump_text_core(const struct proc_info *process, FILE *out)
{
    const struct trace_signal *s = &process->signal;

    fputs("Core file: ", out);
    text_print_safe(out, process->core);
    putc('\n', out);
    if (!s->number)
        return;
    fprintf(out, "Signal: %s (%d)", s->name, s->number);
    if (s->has_address)
        fprintf(out, " at 0x%" PRIx64, s->address);
    fprintf(out, " in thread %d", (int)s->tid);
    if (s->sender > 0)
        fprintf(out, ", sent by process %d", (int)s->sender);
    putc('\n', out);
}

/* Shortens the container ID to 12 digits, as docker and podman do. */
static void dump_text_container(const struct proc_info *process, FILE *out)
{
    if (!process->inner_pid && !process->container)
        return;
    fputs("Container: ", out);
    if (process->inner_pid)
        fprintf(out, "pid %d inside%s", (int)process->inner_pid, process->container ? ", " : "");
    if (process->container) {
        char id[13] = "";

        strncat(id, process->container, sizeof(id) - 1);
        fprintf(out, "%s/", process->runtime);
        text_print_safe(out, id);
    }
    putc('\n', out);
}

static void dump_text_header(const struct proc_info *process, FILE *out)
{
    const struct proc_info *parent = process->parent_info;

    fprintf(out, "Process %d: ", (int)process->pid);
    text_print_safe(out, process->command ? process->command : "");
    fprintf(out, "\nPython v%d.%d.%d", process->major, process->minor, process->patch);
    text_print_safe(out, process->version_suffix ? process->version_suffix : "");
    fputs(" (", out);
    text_print_safe(out, process->executable ? process->executable : "?");
    fputs(")\n", out);
    if (parent != NULL) {
        fprintf(out, "Parent Process %d: ", (int)parent->pid);
        text_print_safe(out, parent->command ? parent->command : "");
        putc('\n', out);
    }
    dump_text_container(process, out);
    if (process->core)
        dump_text_core(process, out);
    putc('\n', out);
}

/* Prints the arguments or the other local variables of a frame, under a heading if there are any. */
static void dump_text_locals(const struct frame *frame, bool args, FILE *out)
{
    bool first = true;

    for (size_t i = 0; i < frame->n_locals; i++) {
        const struct local *local = &frame->locals[i];

        if (local->is_arg != args)
            continue;
        if (first)
            fprintf(out, "        %s:\n", args ? "Arguments" : "Locals");
        first = false;
        fputs("            ", out);
        text_print_safe(out, local->name);
        fputs(": ", out);
        text_print_safe(out, local->value);
        putc('\n', out);
    }
}

static void dump_text_frame(const struct frame *frame, const struct dump_options *options, FILE *out)
{
    fputs("    ", out);
    text_print_safe(out, frame->func->name);
    fputs(" (", out);
    text_print_safe(out, options->full_filenames ? frame->func->filename : frame->func->short_filename);
    if (frame->line > 0)
        fprintf(out, ":%d", frame->line);
    fputs(")\n", out);
    dump_text_locals(frame, true, out);
    dump_text_locals(frame, false, out);
}

static void dump_text_thread(const struct trace *trace, const struct dump_options *options, FILE *out)
{
    const char *status = trace->waits_for_gil && !options->as_py_spy ? "waiting for the GIL"
                         : !trace->active                            ? "idle"
                         : trace->owns_gil                           ? "active+gil"
                                                                     : "active";

    if (trace->os_thread_id > 0)
        fprintf(out, "Thread %d (%s)", (int)trace->os_thread_id, status);
    else
        fprintf(out, "Thread 0x%" PRIX64 " (%s)", trace->thread_id, status);
    if (trace->thread_name != NULL) {
        fputs(": \"", out);
        text_print_safe(out, trace->thread_name);
        putc('"', out);
    }
    putc('\n', out);
    for (size_t i = 0; i < trace->n_frames; i++) {
        size_t most = options->max_frames;

        if (most && trace->n_frames > most && i == most / 2) {
            i = trace->n_frames - most / 2;
            fprintf(out, "    [%zu frames omitted to limit the size]\n", i - most / 2);
        }
        dump_text_frame(&trace->frames[i], options, out);
    }
}

void dump_text(const struct proc_info *process, const struct trace *traces, size_t n_traces,
               const struct dump_options *options, bool first, FILE *out)
{
    if (!first)
        fputs("\n" DUMP_RULE "\n", out);
    dump_text_header(process, out);
    for (size_t i = 0; i < n_traces; i++)
        dump_text_thread(&traces[i], options, out);
}
