/*
 * Finds out which source lines a dump needs, and reports those that are left out because their file has changed.
 */
#include "cmd/dump_source.h"

#include "base/text.h"
#include "sample/source_lines.h"

#include <stdlib.h>

/* Not <string>, <frozen importlib._bootstrap> or the like. */
static bool has_file(const struct frame *frame)
{
    return frame->line > 0 && frame->source && frame->func->filename[0] && frame->func->filename[0] != '<';
}

static size_t count_frames(const struct trace *traces, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += traces[i].n_frames;
    return count;
}

static bool is_listed(const struct changed_files *changed, const char *name)
{
    for (size_t i = 0; i < changed->n && i < CHANGED_FILES_SHOWN; i++)
        if (changed->names[i] == name)
            return true;
    return false;
}

static void list_changed(const struct source_line *lines, size_t n, struct changed_files *changed)
{
    for (size_t i = 0; i < n; i++) {
        if (!lines[i].changed || (i && lines[i].file == lines[i - 1].file) || is_listed(changed, lines[i].file))
            continue;
        if (changed->n < CHANGED_FILES_SHOWN)
            changed->names[changed->n] = lines[i].file;
        changed->n++;
    }
}

void dump_source_read(struct process *p, const struct trace *traces, size_t n, struct changed_files *changed)
{
    struct source_line *lines = calloc(count_frames(traces, n) + 1, sizeof(*lines));
    size_t n_lines = 0;

    if (!lines)
        return;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < traces[i].n_frames; k++) {
            const struct frame *frame = &traces[i].frames[k];

            if (has_file(frame))
                lines[n_lines++] = (struct source_line){.file = frame->func->filename,
                                                        .line = frame->line,
                                                        .native = frame->func->module != NULL,
                                                        .to = (struct frame_source *)(uintptr_t)frame->source};
        }
    source_lines_read(p, lines, n_lines);
    list_changed(lines, n_lines, changed);
    free(lines);
}

void dump_source_read_tasks(struct process *p, const struct task_set *set, struct changed_files *changed)
{
    struct trace *stacks = calloc(set->n + 1, sizeof(*stacks));

    if (!stacks)
        return;
    for (size_t i = 0; i < set->n; i++)
        stacks[i] = (struct trace){.frames = set->tasks[i].frames, .n_frames = set->tasks[i].n_frames};
    dump_source_read(p, stacks, set->n, changed);
    free(stacks);
}

void dump_source_note(const struct changed_files *changed, const char *since)
{
    for (size_t i = 0; i < changed->n && i < CHANGED_FILES_SHOWN; i++) {
        fputs("Note: left out the source lines of ", stderr);
        text_print_safe(stderr, changed->names[i]);
        fprintf(stderr, " (file changed since %s)\n", since);
    }
    if (changed->n > CHANGED_FILES_SHOWN)
        fprintf(stderr, "Note: left out the source lines of %zu more files, which have changed since %s\n",
                changed->n - CHANGED_FILES_SHOWN, since);
}
