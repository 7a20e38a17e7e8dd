/*
 * Names functions in debug info. Compilers omit the linkage name of a C++ function that has internal linkage, such as
 * one in an anonymous namespace. Then we need its scopes, and finding them means walking the unit from its start, so
 * the result is cached. C has no scopes.
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
#define STEPS_MAX 200000 /* DIEs visited for one name */
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

static const char *string_attr(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attr;

    return dwarf_attr_integrate(die, name, &attr) ? dwarf_formstring(&attr) : NULL;
}

/* Follows an inlined instance to its abstract origin, and a definition to its declaration, which is in the scope. */
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

static bool is_c_or_assembler(Dwarf_Die *unit_die)
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

/* DIEs are stored in tree order, so the child that contains `target` is the last one that starts before it. */
static bool last_child_before(Dwarf_Die *scope, const void *target, Dwarf_Die *ret, int *steps)
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

        if (!last_child_before(&at, declaration->addr, &inner, &steps) || inner.addr == declaration->addr)
            return;
        add_scope(text, len, &inner);
        at = inner;
    }
}

const char *die_names_get(struct die_names *names, Dwarf_Die *unit_die, Dwarf_Die *die)
{
    const char *name = string_attr(die, DW_AT_linkage_name);
    char text[NAME_ROOM];
    struct slot *slot;
    Dwarf_Die declaration;
    size_t len = 0;

    if (!name)
        name = string_attr(die, DW_AT_MIPS_linkage_name);
    if (name)
        return name;
    name = string_attr(die, DW_AT_name);
    if (!name || is_c_or_assembler(unit_die))
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
