/*
 * Recognizes what kind of dump a file is, and collects the frames of a stack.
 */
#include "profile/group_files.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

int group_file_read(struct group_file *f, const char *text, size_t len)
{
    size_t at = 0;

    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* a byte order mark, from an editor */
        text += 3, len -= 3;
    while (at < len && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    if (at == len) {
        f->why = "the file is empty";
        return ERR_DUMP;
    }
    return text[at] == '[' || text[at] == '{' ? group_file_read_json(f, text, len) : group_file_read_text(f, text, len);
}

void group_stack_clear(struct group_stack *s)
{
    s->n = s->omitted = 0;
}

int group_stack_push(struct group_stack *s, const struct func *func, int line)
{
    if (s->n == GROUP_FILE_MAX_FRAMES) {
        s->omitted++;
        return 0;
    }
    if (grow_array((void **)&s->frames, &s->cap_frames, s->n + 1, sizeof(*s->frames)) < 0 ||
        grow_array((void **)&s->funcs, &s->cap_funcs, s->n + 1, sizeof(*s->funcs)) < 0)
        return ERR_NOMEM;
    s->funcs[s->n] = *func;
    s->frames[s->n++] = (struct frame){.line = line};
    return 0;
}

int group_stack_add(struct group_stack *s, struct group_file *f, uint32_t member, struct trace *trace)
{
    for (size_t i = 0; i < s->n; i++)
        s->frames[i].func = &s->funcs[i];
    trace->n_frames = s->n;
    trace->frames = s->frames;
    f->n_threads++;
    f->groups->cut += s->omitted > 0;
    return groups_add_thread(f->groups, member, trace, NULL);
}

void group_stack_free(struct group_stack *s)
{
    free(s->frames);
    free(s->funcs);
    *s = (struct group_stack){0};
}
