/*
 * Writes trace events for chrome://tracing and Perfetto: one JSON array with a B event where a frame begins and an E
 * event where it ends. A frame that is in consecutive stacks stays open. Every B has its E, events nest properly, and
 * the times of a thread never decrease.
 */
#include "base/err.h"
#include "out/format.h"
#include "out/json.h"

#include <inttypes.h>
#include <string.h>

struct chrometrace {
    const struct profile *p;
    FILE *out;
    const char *category; /* the first word of options->exporter; not NUL-terminated */
    int category_len;
    const char *comma;
    const struct profile_thread *thread;
};

/* Writes the part of an event after `args`, which all events share. */
static void chrometrace_event_end(struct chrometrace *c, const char *name, char phase, uint64_t time_ns)
{
    const struct profile_thread *t = c->thread;
    uint64_t tid = t->thread_id;

    if (t->os_thread_id > 0)
        tid = (uint64_t)t->os_thread_id;
    fprintf(c->out, ",\"cat\":\"%.*s\",\"name\":", c->category_len, c->category);
    json_string(c->out, name);
    fprintf(c->out, ",\"ph\":\"%c\",\"pid\":%d,\"tid\":%" PRIu64 ",\"ts\":%" PRIu64 "}", phase, (int)t->process->pid,
            tid, time_ns / 1000);
    c->comma = ",";
}

static void chrometrace_frame(struct chrometrace *c, uint32_t node, char phase, uint64_t time_ns)
{
    const struct profile_frame *frame = &c->p->frames[c->p->nodes[node].frame];

    fprintf(c->out, "%s{\"args\":{\"filename\":", c->comma);
    json_string(c->out, frame->func->filename);
    fprintf(c->out, ",\"line\":%d}", frame->line > 0 ? frame->line : 0);
    chrometrace_event_end(c, frame->func->name, phase, time_ns);
}

/* Writes the name of a process or thread. */
static void chrometrace_name(struct chrometrace *c, const char *kind, const char *name)
{
    if (name == NULL)
        return;
    fprintf(c->out, "%s{\"args\":{\"name\":", c->comma);
    json_string(c->out, name);
    putc('}', c->out);
    chrometrace_event_end(c, kind, 'M', 0);
}

/* Ends the frames of `open` that are not in `next`, then begins the frames that are new in `next`. */
static void chrometrace_change(struct chrometrace *c, const struct profile_path *open, const struct profile_path *next,
                               uint64_t time_ns)
{
    size_t same = 0;

    while (same < open->n && same < next->n && open->nodes[same] == next->nodes[same])
        same++;
    for (size_t i = open->n; i-- > same;)
        chrometrace_frame(c, open->nodes[i], 'E', time_ns);
    for (size_t i = same; i < next->n; i++)
        chrometrace_frame(c, next->nodes[i], 'B', time_ns);
}

static int chrometrace_thread(struct chrometrace *c, struct profile_path *open, struct profile_path *next)
{
    const struct profile_thread *t = c->thread;
    static const struct profile_path nothing;
    uint64_t end = 0;

    open->n = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct profile_span *span = &t->spans[i];
        struct profile_path swap;

        if (profile_path_fill(next, c->p, span->node) < 0)
            return ERR_NOMEM;
        if (i > 0 && t->spans[i - 1].end_ns < span->time_ns) { /* a gap */
            chrometrace_change(c, open, &nothing, end);
            open->n = 0;
        }
        chrometrace_change(c, open, next, span->time_ns);
        swap = *open;
        *open = *next;
        *next = swap;
        end = span->end_ns;
    }
    chrometrace_change(c, open, &nothing, end);
    return 0;
}

/* True for the first thread of a process, which writes the name of the process. */
static bool chrometrace_is_first(const struct profile *p, size_t thread)
{
    for (size_t i = thread; i-- > 0;)
        if (p->threads[i].process->pid == p->threads[thread].process->pid)
            return false;
    return true;
}

static int chrometrace_write(const struct profile *p, const struct out_options *options, FILE *out)
{
    struct chrometrace c = {
        .p = p, .out = out, .category = options->exporter ? options->exporter : "spyglass", .comma = ""};
    struct profile_path open = {0}, next = {0};
    int r = 0;

    c.category_len = (int)strspn(c.category, "abcdefghijklmnopqrstuvwxyz-");
    putc('[', out);
    for (size_t i = 0; i < p->n_threads && r == 0; i++) {
        c.thread = &p->threads[i];
        if (c.thread->n_spans == 0)
            continue;
        if (chrometrace_is_first(p, i))
            chrometrace_name(&c, "process_name", c.thread->process->command);
        chrometrace_name(&c, "thread_name", c.thread->name);
        r = chrometrace_thread(&c, &open, &next);
    }
    fputs("]\n", out);
    profile_path_free(&open);
    profile_path_free(&next);
    return r;
}

const struct format format_chrometrace = {
    .name = "chrometrace",
    .extension = "json",
    .wrote = "chrome trace",
    .look = "Open it at https://ui.perfetto.dev or chrome://tracing: %s",
    .timeline = true,
    .write = chrometrace_write,
};
