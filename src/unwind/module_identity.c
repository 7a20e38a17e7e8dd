/*
 * Compares the build IDs or first pages of modules in memory with those seen when the modules were found.
 */
#include "unwind/module_identity.h"

#include "unwind/modules.h"

#include <string.h>

_Static_assert(MODULE_IDENTITY_BYTES >= MODULE_PAGE && MODULE_IDENTITY_BYTES >= BUILD_ID_MAX, "room for an identity");

static void remove_at(struct module_identities *ids, size_t i)
{
    ids->n--;
    memmove(ids->items + i, ids->items + i + 1, (ids->n - i) * sizeof(struct module *));
}

void module_identity_add(struct module_identities *ids, struct module *mod)
{
    size_t i = 0;

    if (!mod->first_page)
        return;
    while (i < ids->n && ids->items[i] != mod)
        i++;
    if (i < ids->n)
        remove_at(ids, i);
    else if (ids->n == MODULE_IDENTITY_MAX)
        remove_at(ids, 0);
    ids->items[ids->n++] = mod;
}

/* Compares pointers only: `mod` may have been freed. */
static bool contains(struct module *const *mods, size_t n, const struct module *mod)
{
    for (size_t i = 0; i < n; i++)
        if (mods[i] == mod)
            return true;
    return false;
}

void module_identity_update(struct module_identities *ids, struct module *const *mods, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < ids->n; i++)
        if (contains(mods, n, ids->items[i]))
            ids->items[kept++] = ids->items[i];
    ids->n = kept;
    for (size_t i = 0; i < n; i++)
        if (mods[i]->address_reused)
            module_identity_add(ids, mods[i]);
}

size_t module_identity_spans(struct module_identities *ids, struct mem_span *spans)
{
    ids->round++;
    for (size_t i = 0; i < ids->n; i++) {
        const struct module *mod = ids->items[i];

        spans[i] = mod->id.len ? (struct mem_span){mod->id_addr, ids->bytes[i], mod->id.len}
                               : (struct mem_span){mod->start, ids->bytes[i], MODULE_PAGE};
    }
    return ids->n;
}

void module_identity_check(struct module_identities *ids, size_t n)
{
    for (size_t i = 0; i < n && i < ids->n; i++) {
        struct module *mod = ids->items[i];

        if (mod->id.len ? memcmp(ids->bytes[i], mod->id.bytes, mod->id.len) == 0
                        : memcmp(ids->bytes[i], mod->first_page, MODULE_PAGE) == 0)
            mod->confirmed_round = ids->round;
        else
            mod->stale = true;
    }
    if (n < ids->n) {
        ids->items[n]->stale = true;
        remove_at(ids, n);
    }
}

bool module_identity_is_confirmed(const struct module_identities *ids, const struct module *mod)
{
    return ids->round && mod->confirmed_round == ids->round;
}
