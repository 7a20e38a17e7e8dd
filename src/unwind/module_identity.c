/*
 * Marks of modules, compared. Called by unwind.c.
 */
#include "unwind/module_identity.h"

#include "unwind/modules.h"

#include <string.h>

_Static_assert(MODULE_IDENTITY_BYTES >= MODULE_PAGE && MODULE_IDENTITY_BYTES >= BUILD_ID_MAX, "room for a mark");

static struct mem_span span_of(const struct module *mod, unsigned char *buf)
{
    return mod->id.len ? (struct mem_span){mod->id_at, buf, mod->id.len}
                       : (struct mem_span){mod->start, buf, MODULE_PAGE};
}

static bool is_same(const struct module *mod, const unsigned char *bytes)
{
    return mod->id.len ? memcmp(bytes, mod->id.bytes, mod->id.len) == 0
                       : memcmp(bytes, mod->first_page, MODULE_PAGE) == 0;
}

static void take_out(struct module_identities *marks, size_t i)
{
    marks->n--;
    memmove(marks->items + i, marks->items + i + 1, (marks->n - i) * sizeof(struct module *));
}

void module_identity_add(struct module_identities *marks, struct module *mod)
{
    size_t i = 0;

    if (!mod->first_page)
        return;
    while (i < marks->n && marks->items[i] != mod)
        i++;
    if (i < marks->n)
        take_out(marks, i);
    else if (marks->n == MODULE_IDENTITY_MAX)
        take_out(marks, 0);
    marks->items[marks->n++] = mod;
}

/* By its pointer alone: what it points to may have been freed. */
static bool is_in(const struct module *mod, struct module *const *mods, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mods[i] == mod)
            return true;
    return false;
}

void module_identity_update(struct module_identities *marks, struct module *const *mods, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < marks->n; i++)
        if (is_in(marks->items[i], mods, n))
            marks->items[kept++] = marks->items[i];
    marks->n = kept;
    for (size_t i = 0; i < n; i++)
        if (mods[i]->shares)
            module_identity_add(marks, mods[i]);
}

size_t module_identity_spans(struct module_identities *marks, struct mem_span *spans)
{
    marks->round++;
    for (size_t i = 0; i < marks->n; i++)
        spans[i] = span_of(marks->items[i], marks->bytes[i]);
    return marks->n;
}

void module_identity_check(struct module_identities *marks, size_t n)
{
    for (size_t i = 0; i < n && i < marks->n; i++) {
        struct module *mod = marks->items[i];

        if (is_same(mod, marks->bytes[i]))
            mod->vouched = marks->round;
        else
            mod->stale = true;
    }
    if (n < marks->n) {
        marks->items[n]->stale = true;
        take_out(marks, n);
    }
}

bool module_identity_is_confirmed(const struct module_identities *marks, const struct module *mod)
{
    return marks->round && mod->vouched == marks->round;
}
