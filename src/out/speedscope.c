/*
 * Writes a file for https://www.speedscope.app: one line of JSON with a sampled profile per thread. The weights of each
 * profile add up to exactly its endValue, as speedscope requires.
 */
#include "base/err.h"
#include "out/format.h"
#include "out/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SPEEDSCOPE_UNUSED UINT32_MAX

/*
 * Numbers the frames that are functions; processes and threads are in the names of the profiles. Skips frames that no
 * node uses any more because the profile was pruned.
 */
static uint32_t *speedscope_number_frames(const struct profile *p)
{
    uint32_t *number = malloc((p->n_frames + 1) * sizeof(*number)), n = 0;

    for (size_t i = 0; number != NULL && i < p->n_frames; i++)
        number[i] = SPEEDSCOPE_UNUSED;
    for (size_t i = 1; number != NULL && i < p->n_nodes; i++)
        number[p->nodes[i].frame] = 0;
    for (size_t i = 0; number != NULL && i < p->n_frames; i++)
        if (p->frames[i].label != NULL)
            number[i] = SPEEDSCOPE_UNUSED;
        else if (number[i] != SPEEDSCOPE_UNUSED)
            number[i] = n++;
    return number;
}

static void speedscope_write_frames(const struct profile *p, const uint32_t *number, const struct out_options *options,
                                    FILE *out)
{
    const char *comma = "";

    for (size_t i = 0; i < p->n_frames; i++) {
        const struct profile_frame *frame = &p->frames[i];

        if (number[i] == SPEEDSCOPE_UNUSED)
            continue;
        fprintf(out, "%s{\"name\":", comma);
        json_string(out, frame->func->name);
        fputs(",\"file\":", out);
        json_string(out, frame->func->filename);
        fprintf(out, ",\"line\":%d%s}", frame->line > 0 ? frame->line : 0, options->each_sample ? ",\"col\":null" : "");
        comma = ",";
    }
}

static int speedscope_write_name(const struct profile *p, const struct profile_thread *t, FILE *out)
{
    bool is_thread = t->os_thread_id > 0 || t->thread_id != 0; /* false for a root of merged profiles */
    char *name = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&name, &len);

    if (mem == NULL)
        return ERR_NOMEM;
    if (p->options.processes && t->process->pid > 0)
        fprintf(mem, "Process %d ", (int)t->process->pid);
    if (t->os_thread_id > 0)
        fprintf(mem, "Thread %d", (int)t->os_thread_id);
    else if (t->thread_id != 0)
        fprintf(mem, "Thread 0x%" PRIX64, t->thread_id);
    if (t->name != NULL)
        fprintf(mem, is_thread ? " \"%s\"" : "%s", t->name);
    if (fclose(mem) != 0) {
        free(name);
        return ERR_NOMEM;
    }
    json_string(out, name);
    free(name);
    return 0;
}

/* The time before a span in which the thread was not seen: an empty sample, so that everything is shown when it happened.
 * `now` is where the samples before it end. */
static uint64_t speedscope_gap(const struct profile *p, const struct out_options *options,
                               const struct profile_span *span, uint64_t *now)
{
    uint64_t gap = span->time_ns > *now + p->options.interval_ns ? span->time_ns - *now : 0;

    if (!options->gaps)
        return 0;
    *now += gap + span->weight_ns;
    return gap;
}

/* The number of entries for a span, and the weight of each. Rounding goes into the last one. */
static uint32_t speedscope_n_entries(const struct profile_span *span, const struct out_options *options)
{
    return options->each_sample && span->count > 1 ? span->count : 1;
}

static uint64_t speedscope_entry_weight(const struct profile_span *span, uint32_t entry, uint32_t n)
{
    uint64_t each = span->weight_ns / n;

    return entry + 1 < n ? each : span->weight_ns - each * (n - 1);
}

static void speedscope_write_stack(const struct profile *p, const struct profile_path *path, const uint32_t *number,
                                   FILE *out)
{
    putc('[', out);
    for (size_t k = 0; k < path->n; k++)
        fprintf(out, k > 0 ? ",%" PRIu32 : "%" PRIu32, number[p->nodes[path->nodes[k]].frame]);
    putc(']', out);
}

static int speedscope_write_samples(const struct profile *p, const struct profile_thread *t, const uint32_t *number,
                                    const struct out_options *options, struct profile_path *path, FILE *out)
{
    uint64_t now = 0;

    for (size_t i = 0; i < t->n_spans; i++) {
        uint32_t n = speedscope_n_entries(&t->spans[i], options);

        if (profile_path_fill(path, p, t->spans[i].node) < 0)
            return ERR_NOMEM;
        fputs(i > 0 ? "," : "", out);
        if (speedscope_gap(p, options, &t->spans[i], &now) > 0)
            fputs("[],", out);
        for (uint32_t k = 0; k < n; k++) {
            fputs(k > 0 ? "," : "", out);
            speedscope_write_stack(p, path, number, out);
        }
    }
    return 0;
}

static void speedscope_write_weights(const struct profile *p, const struct profile_thread *t,
                                     const struct out_options *options, FILE *out)
{
    uint64_t now = 0;

    for (size_t i = 0; i < t->n_spans; i++) {
        uint64_t gap = speedscope_gap(p, options, &t->spans[i], &now);
        uint32_t n = speedscope_n_entries(&t->spans[i], options);

        fputs(i > 0 ? "," : "", out);
        if (gap > 0) {
            json_seconds(out, gap);
            putc(',', out);
        }
        for (uint32_t k = 0; k < n; k++) {
            fputs(k > 0 ? "," : "", out);
            json_seconds(out, speedscope_entry_weight(&t->spans[i], k, n));
        }
    }
}

static int speedscope_write_thread(const struct profile *p, const struct profile_thread *t, const uint32_t *number,
                                   const struct out_options *options, struct profile_path *path, FILE *out)
{
    uint64_t now = 0, end = 0;
    int r;

    for (size_t i = 0; i < t->n_spans; i++)
        end += t->spans[i].weight_ns + speedscope_gap(p, options, &t->spans[i], &now);
    fputs("{\"type\":\"sampled\",\"name\":", out);
    r = speedscope_write_name(p, t, out);
    if (r < 0)
        return r;
    fputs(",\"unit\":\"seconds\",\"startValue\":0.0,\"endValue\":", out);
    json_seconds(out, end);
    fputs(",\"samples\":[", out);
    r = speedscope_write_samples(p, t, number, options, path, out);
    fputs("],\"weights\":[", out);
    speedscope_write_weights(p, t, options, out);
    fputs("]}", out);
    return r;
}

static int speedscope_write_threads(const struct profile *p, const uint32_t *number, const struct out_options *options,
                                    FILE *out)
{
    struct profile_path path = {0};
    const char *comma = "";
    int r = 0;

    for (size_t i = 0; i < p->n_threads && r == 0; i++) {
        if (p->threads[i].n_spans == 0)
            continue;
        fputs(comma, out);
        r = speedscope_write_thread(p, &p->threads[i], number, options, &path, out);
        comma = ",";
    }
    profile_path_free(&path);
    return r;
}

/* speedscope shows no other text, so the title includes the remark. */
static int speedscope_write_title(const struct out_options *options, FILE *out)
{
    char *title = NULL;

    if (options->remark == NULL) {
        json_string(out, options->title);
        return 0;
    }
    if (asprintf(&title, "%s [%s]", options->title ? options->title : "", options->remark) < 0)
        return ERR_NOMEM;
    json_string(out, title);
    free(title);
    return 0;
}

static int speedscope_write(const struct profile *p, const struct out_options *options, FILE *out)
{
    uint32_t *number = speedscope_number_frames(p);
    int r;

    if (number == NULL)
        return ERR_NOMEM;
    fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"profiles\":[", out);
    r = speedscope_write_threads(p, number, options, out);
    fputs("],\"shared\":{\"frames\":[", out);
    speedscope_write_frames(p, number, options, out);
    free(number);
    fputs("]},\"exporter\":", out);
    json_string(out, options->exporter);
    fputs(",\"name\":", out);
    if (speedscope_write_title(options, out) < 0)
        return ERR_NOMEM;
    fputs("}\n", out);
    return r;
}

const struct format format_speedscope = {
    .name = "speedscope",
    .extension = "json",
    .wrote = "speedscope file",
    .look = "Open it at https://www.speedscope.app/ (the file stays in your browser): %s",
    .timeline = true,
    .write = speedscope_write,
};
