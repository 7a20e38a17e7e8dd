/*
 * Build ids of modules, compared. Called by unwind.c.
 */
#include "unwind/marks.h"

#include "unwind/modules.h"

#include <string.h>

static bool has(const struct marks *marks, const struct module *mod)
{
    for (size_t i = 0; i < marks->n; i++)
        if (marks->items[i] == mod)
            return true;
    return false;
}

void marks_add(struct marks *marks, struct module *mod)
{
    if (!mod->id.len || has(marks, mod))
        return;
    if (marks->n < MARKS_MAX)
        marks->items[marks->n++] = mod;
    else
        marks->items[marks->next++ % MARKS_MAX] = mod;
}

void marks_forget(struct marks *marks)
{
    marks->n = 0;
}

size_t marks_spans(struct marks *marks, struct mem_span *spans)
{
    marks->round++;
    for (size_t i = 0; i < marks->n; i++)
        spans[i] = (struct mem_span){marks->items[i]->id_at, marks->bytes[i], marks->items[i]->id.len};
    return marks->n;
}

void marks_take(struct marks *marks, size_t n)
{
    for (size_t i = 0; i < n && i < marks->n; i++) {
        struct module *mod = marks->items[i];

        if (memcmp(marks->bytes[i], mod->id.bytes, mod->id.len) == 0)
            mod->vouched = marks->round;
        else
            mod->stale = true;
    }
}

bool marks_vouch(const struct marks *marks, const struct module *mod)
{
    return marks->round && mod->vouched == marks->round;
}
