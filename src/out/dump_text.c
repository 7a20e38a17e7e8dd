/*
 * Prints traces as text for `dump`. All strings from the target go through text_print_safe.
 */
#include "base/text.h"
#include "out/dump.h"
#include "out/dump_private.h"

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
    putc('\n', out);
    if (process->major) { /* 0: there was no time to find out */
        fprintf(out, "Python v%d.%d.%d", process->major, process->minor, process->patch);
        text_print_safe(out, process->version_suffix ? process->version_suffix : "");
        fputs(" (", out);
        text_print_safe(out, process->executable ? process->executable : "?");
        fputs(")\n", out);
    }
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
static void dump_text_locals(const struct frame *frame, bool args, unsigned indent, FILE *out)
{
    bool first = true;

    for (size_t i = 0; i < frame->n_locals; i++) {
        const struct local *local = &frame->locals[i];

        if (local->is_arg != args)
            continue;
        if (first)
            fprintf(out, "%*s%s:\n", (int)indent, "", args ? "Arguments" : "Locals");
        first = false;
        fprintf(out, "%*s", (int)indent + 4, "");
        text_print_safe(out, local->name);
        fputs(": ", out);
        text_print_safe(out, local->value);
        putc('\n', out);
    }
}

static const char *const styles[] = {
    [STYLE_NONE] = "0",     [STYLE_FUNCTION] = "1", [STYLE_PLACE] = "36",
    [STYLE_IDLE] = "2",     [STYLE_ACTIVE] = "32",  [STYLE_HAS_GIL] = "1;32",
    [STYLE_WAITING] = "33", [STYLE_CODE] = "1",     [STYLE_CARETS] = "1;31",
};

void dump_style(const struct dump_options *options, enum dump_style style, FILE *out)
{
    if (options->color)
        fprintf(out, "\x1b[%sm", styles[style]);
}

void dump_text_frame(const struct frame *frame, const struct dump_options *options, unsigned indent, FILE *out)
{
    fprintf(out, "%*s", (int)indent, "");
    dump_style(options, STYLE_FUNCTION, out);
    text_print_safe(out, frame->func->name);
    dump_style(options, STYLE_NONE, out);
    fputs(" (", out);
    dump_style(options, STYLE_PLACE, out);
    text_print_safe(out, options->full_filenames ? frame->func->filename : frame->func->short_filename);
    if (frame->line > 0)
        fprintf(out, ":%d", frame->line);
    dump_style(options, STYLE_NONE, out);
    fputs(")\n", out);
    if (frame->source && frame->source->text)
        dump_text_source(frame, options, indent + 4, out);
    dump_text_locals(frame, true, indent + 4, out);
    dump_text_locals(frame, false, indent + 4, out);
}

static void dump_text_status(const struct trace *trace, const struct dump_options *options, FILE *out)
{
    static const struct {
        enum dump_style style;
        const char *text;
    } all[] = {{STYLE_WAITING, "waiting for the GIL"},
               {STYLE_IDLE, "idle"},
               {STYLE_HAS_GIL, "active+gil"},
               {STYLE_ACTIVE, "active"}};
    int i = trace->waits_for_gil && !options->as_py_spy ? 0 : !trace->active ? 1 : trace->owns_gil ? 2 : 3;

    dump_style(options, all[i].style, out);
    fputs(all[i].text, out);
    dump_style(options, STYLE_NONE, out);
}

static void dump_text_thread(const struct trace *trace, const struct dump_options *options, FILE *out)
{
    if (trace->os_thread_id > 0)
        fprintf(out, "Thread %d (", (int)trace->os_thread_id);
    else
        fprintf(out, "Thread 0x%" PRIX64 " (", trace->thread_id);
    dump_text_status(trace, options, out);
    putc(')', out);
    if (trace->thread_name != NULL) {
        fputs(": \"", out);
        text_print_safe(out, trace->thread_name);
        putc('"', out);
    }
    putc('\n', out);
    if (trace->wait)
        dump_text_wait(trace->wait, trace->process->pid, options, out);
    for (size_t i = 0; i < trace->n_frames; i++) {
        size_t most = options->max_frames;

        if (most && trace->n_frames > most && i == most / 2) {
            i = trace->n_frames - most / 2;
            fprintf(out, "    [%zu frames omitted to limit the size]\n", i - most / 2);
        }
        dump_text_frame(&trace->frames[i], options, 4, out);
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
