/*
 * Names of functions in debug info. Called for each function that is shown, so what had to be searched for is kept. C
 * has no scopes; compilers leave the linkage name of C++ functions out where nobody links to them, such as those in an
 * anonymous namespace: there the scopes are looked up, which means walking the unit from its start.
 */
#include "elf/die_name.h"

#include "base/hash.h"
#include "base/intern.h"

#include <dwarf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS     1024
#define STEPS_MAX 200000 /* entries looked at for one name */
#define DEPTH_MAX 32
#define NAME_ROOM 2048
#define LANG_C17  0x2c /* newer than some dwarf.h */

struct slot {
    const void *die;
    const char *name;
};

struct die_names {
    struct slot slots[SLOTS];
    struct intern *texts;
};

struct die_names *die_names_new(void)
{
    struct die_names *names = calloc(1, sizeof(*names));

    if (!names)
        return NULL;
    names->texts = intern_new();
    return names->texts ? names : die_names_free(names);
}

struct die_names *die_names_free(struct die_names *names)
{
    if (!names)
        return NULL;
    intern_free(names->texts);
    free(names);
    return NULL;
}

static const char *text_of(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attr;

    return dwarf_attr_integrate(die, name, &attr) ? dwarf_formstring(&attr) : NULL;
}

/* The entry that was declared in a scope: behind that of the inlined, and that of the defined one. */
static Dwarf_Die declaration_of(const Dwarf_Die *die)
{
    static const unsigned links[] = {DW_AT_abstract_origin, DW_AT_specification};
    Dwarf_Die at = *die;

    for (size_t i = 0; i < 2 * sizeof(links) / sizeof(links[0]); i++) {
        Dwarf_Attribute attr;
        Dwarf_Die next;

        if (dwarf_attr(&at, links[i % 2], &attr) && dwarf_formref_die(&attr, &next))
            at = next;
    }
    return at;
}

static bool has_no_scopes(Dwarf_Die *unit_die)
{
    switch (dwarf_srclang(unit_die)) {
    case DW_LANG_C89:
    case DW_LANG_C:
    case DW_LANG_C99:
    case DW_LANG_C11:
    case LANG_C17:
    case DW_LANG_Mips_Assembler:
        return true;
    default:
        return false;
    }
}

static void add_scope(char *text, size_t *len, Dwarf_Die *die)
{
    int tag = dwarf_tag(die);
    const char *name = dwarf_diename(die);

    if (tag != DW_TAG_namespace && tag != DW_TAG_class_type && tag != DW_TAG_structure_type &&
        tag != DW_TAG_union_type && tag != DW_TAG_subprogram && tag != DW_TAG_module && tag != DW_TAG_enumeration_type)
        return;
    if (!name)
        name = tag == DW_TAG_namespace ? "(anonymous namespace)" : "{unnamed}";
    *len += (size_t)snprintf(text + *len, NAME_ROOM - *len, "%s::", name);
    if (*len >= NAME_ROOM)
        *len = NAME_ROOM - 1;
}

/* Entries lie in the file in the order of the tree: the one that holds `target` is the last that starts before it. */
static bool last_before(Dwarf_Die *scope, const void *target, Dwarf_Die *ret, int *steps)
{
    Dwarf_Die child;
    bool found = false;
    int more = dwarf_child(scope, &child);

    for (; more == 0 && (const char *)child.addr <= (const char *)target && ++*steps < STEPS_MAX;
         more = dwarf_siblingof(&child, &child)) {
        *ret = child;
        found = true;
    }
    return found;
}

static void add_scopes(char *text, size_t *len, Dwarf_Die *declaration)
{
    Dwarf_Die at;
    int steps = 0;

    if (!dwarf_diecu(declaration, &at, NULL, NULL))
        return;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        Dwarf_Die inner;

        if (!last_before(&at, declaration->addr, &inner, &steps) || inner.addr == declaration->addr)
            return;
        add_scope(text, len, &inner);
        at = inner;
    }
}

const char *die_names_get(struct die_names *names, Dwarf_Die *unit_die, Dwarf_Die *die)
{
    const char *name = text_of(die, DW_AT_linkage_name);
    char text[NAME_ROOM];
    struct slot *slot;
    Dwarf_Die declaration;
    size_t len = 0;

    if (!name)
        name = text_of(die, DW_AT_MIPS_linkage_name);
    if (name)
        return name;
    name = text_of(die, DW_AT_name);
    if (!name || has_no_scopes(unit_die))
        return name;
    declaration = declaration_of(die);
    slot = &names->slots[hash_mix(0, (uint64_t)(uintptr_t)declaration.addr) % SLOTS];
    if (slot->die == declaration.addr)
        return slot->name;
    add_scopes(text, &len, &declaration);
    snprintf(text + len, sizeof(text) - len, "%s", name);
    *slot = (struct slot){declaration.addr, intern_str(names->texts, text)};
    return slot->name;
}
