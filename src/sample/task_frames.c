/*
 * The frames of a task, with names, lines, variables and positions.
 */
#include "sample/task_frames.h"

#include <stdlib.h>
#include <string.h>

#define LOCALS_MAX ((size_t)64 * 1024 * 1024) /* bytes of all values together */

static size_t text_size(const struct locals *l)
{
    size_t size = 1;

    for (size_t i = 0; i < l->n; i++)
        size += strlen(locals_text(l, &l->items[i])) + 1;
    return size;
}

/* Copies the variables of all frames behind the frames. */
static void copy_locals(const struct locals *l, struct frame *frames, struct local *to, char *text)
{
    for (size_t i = 0; i < l->n_frames; i++) {
        frames[i].locals = to + l->first[i];
        frames[i].n_locals = l->first[i + 1] - l->first[i];
    }
    for (size_t i = 0; i < l->n; i++) {
        const char *value = locals_text(l, &l->items[i]);

        to[i] = (struct local){
            .name = l->items[i].name, .value = text, .addr = l->items[i].addr, .is_arg = l->items[i].is_arg};
        text = stpcpy(text, value) + 1;
    }
}

void process_position(const struct code *code, int64_t at, struct frame_source *ret)
{
    struct position position;

    *ret = (struct frame_source){.column = -1, .end_column = -1};
    if (code_position(code, at, &position) && position.end_line)
        *ret = (struct frame_source){
            .end_line = position.end_line, .column = position.column, .end_column = position.end_column};
}

const struct frame *task_frames_copy(struct process *p, const struct tasks *t, size_t *locals_bytes)
{
    const struct sampler_options *o = &p->sampler->options;
    const struct coroutines *c = &t->coro;
    struct locals *l = &p->stack.locals;
    size_t n_locals = 0, text = 1, n_sources = o->positions ? c->n : 0;
    struct frame_source *sources;
    struct frame *frames;

    if (o->locals && *locals_bytes < LOCALS_MAX) {
        struct locals_options options = {.level = o->locals, .show_secrets = o->show_secrets};

        if (locals_read(l, t->py, c->frames, c->n, &options) < 0)
            return NULL;
        n_locals = l->n;
        text = text_size(l);
        *locals_bytes += text;
    }
    frames =
        calloc(1, (c->n + 1) * sizeof(*frames) + n_locals * sizeof(struct local) + n_sources * sizeof(*sources) + text);
    if (!frames)
        return NULL;
    sources = (struct frame_source *)((struct local *)(frames + c->n + 1) + n_locals);
    for (size_t i = 0; i < c->n; i++) {
        const struct code *code = t->codes[i];

        frames[i].func = process_func(p, code);
        frames[i].line = code_line(code, c->frames[i].at);
        frames[i].is_entry = c->frames[i].is_entry;
        if (o->positions) {
            process_position(code, c->frames[i].at, &sources[i]);
            frames[i].source = &sources[i];
        }
        if (!frames[i].func) {
            free(frames);
            return NULL;
        }
    }
    if (n_locals)
        copy_locals(l, frames, (struct local *)(frames + c->n + 1), (char *)(sources + n_sources));
    return frames;
}
