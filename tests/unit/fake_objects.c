/*
 * Objects of a synthetic CPython: str, bytes, int, dict, instances, code.
 */
#include "fake_python.h"

#include <stdlib.h>
#include <string.h>

#define TYPE_SIZE       1024
#define MANAGED_DICT    (1u << 4)
#define INLINE_VALUES   (1u << 2)
#define THREAD_BASESIZE 48

static void put_at(struct fake_python *p, addr_t base, int field, uint64_t value)
{
    fake_mem_put(p->mem, base + (addr_t)field, value);
}

/* Any hash works as long as equal strings have equal hashes. */
static uint64_t hash_of(const void *bytes, size_t len)
{
    const unsigned char *b = bytes;
    uint64_t h = 14695981039346656037ull;

    for (size_t i = 0; i < len; i++)
        h = (h ^ b[i]) * 1099511628211ull;
    return h;
}

static addr_t str_make(struct fake_python *p, const void *data, size_t n, int kind, bool ascii)
{
    const struct layout *l = &p->py.layout;
    size_t head = (size_t)(ascii ? l->str_ascii : l->str_compact), bytes = n * (size_t)kind;
    addr_t s = fake_alloc(p, head + bytes + 4);
    unsigned char state = (unsigned char)(kind << 2 | 1 << 5 | ascii << 6);

    put_at(p, s, l->str_length, n);
    put_at(p, s, l->str_length + 8, hash_of(data, bytes));
    if (l->str_state != NO)
        fake_mem_put_bytes(p->mem, s + (addr_t)l->str_state, &state, 1);
    fake_mem_put_bytes(p->mem, s + head, data, bytes);
    return s;
}

addr_t fake_str(struct fake_python *p, const char *ascii)
{
    return str_make(p, ascii, strlen(ascii), 1, true);
}

addr_t fake_str_wide(struct fake_python *p, const uint32_t *characters, size_t n, int kind)
{
    unsigned char *data = malloc(n * 4 + 1);
    addr_t s;

    if (!data)
        abort();
    for (size_t i = 0; i < n; i++)
        memcpy(data + i * (size_t)kind, &characters[i], (size_t)kind);
    s = str_make(p, data, n, kind, false);
    free(data);
    return s;
}

addr_t fake_bytes(struct fake_python *p, const void *bytes, size_t len)
{
    const struct layout *l = &p->py.layout;
    addr_t b = fake_alloc(p, (size_t)l->by_data + len + 8);

    put_at(p, b, l->by_size, len);
    fake_mem_put_bytes(p->mem, b + (addr_t)l->by_data, bytes, len);
    return b;
}

addr_t fake_int(struct fake_python *p, uint64_t value)
{
    const struct layout *l = &p->py.layout;
    addr_t o = fake_alloc(p, 40);
    uint32_t digits[3] = {value & 0x3fffffff, value >> 30 & 0x3fffffff, (uint32_t)(value >> 60)};
    uint64_t n = digits[2] ? 3 : digits[1] ? 2 : digits[0] ? 1 : 0;

    put_at(p, o, 16, p->py.major == 2 ? value : l->lo_tag == NO ? n : n << 3);
    if (p->py.major > 2)
        fake_mem_put_bytes(p->mem, o + (addr_t)l->lo_digits, digits, sizeof(digits));
    return o;
}

/* 2.7: one table, here with an empty slot after each entry. */
static addr_t dict_table(struct fake_python *p, const addr_t *keys, const addr_t *values, size_t n)
{
    addr_t dict = fake_alloc(p, 248), table;
    size_t slots = 8;

    while (slots < 2 * n)
        slots *= 2;
    table = fake_alloc(p, slots * 24);
    put_at(p, dict, 24, n);
    put_at(p, dict, 32, slots - 1);
    put_at(p, dict, 40, table);
    for (size_t i = 0; i < n; i++) {
        fake_mem_put(p->mem, table + 2 * i * 24 + 8, keys[i]);
        fake_mem_put(p->mem, table + 2 * i * 24 + 16, values[i]);
    }
    return dict;
}

/* `values` NULL: a key table that instances share. */
static addr_t keys_make(struct fake_python *p, const addr_t *keys, const addr_t *values, size_t n, bool are_str)
{
    const struct layout *l = &p->py.layout;
    unsigned char log2 = 3;
    size_t index, stride = l->dk_size == NO && are_str ? 16 : 24;
    addr_t dk, at;

    while ((1u << log2) < n * 3 / 2)
        log2++;
    index = (size_t)(1u << log2) * (log2 < 8 ? 1 : log2 < 16 ? 2 : 4);
    dk = fake_alloc(p, (size_t)l->dk_indices + index + n * stride + 8);
    if (l->dk_size != NO) {
        put_at(p, dk, l->dk_size, 1ull << log2);
    } else {
        unsigned char head[3] = {log2, (unsigned char)(log2 + (log2 < 8 ? 0 : log2 < 16 ? 1 : 2)), are_str};

        fake_mem_put_bytes(p->mem, dk + 8, head, sizeof(head));
    }
    put_at(p, dk, l->dk_nentries, n);
    at = dk + (addr_t)l->dk_indices + index + (stride == 24 ? 8 : 0);
    for (size_t i = 0; i < n; i++, at += stride) {
        fake_mem_put(p->mem, at, keys[i]);
        fake_mem_put(p->mem, at + 8, values ? values[i] : 0);
    }
    return dk;
}

addr_t fake_dict(struct fake_python *p, const addr_t *keys, const addr_t *values, size_t n, bool are_str)
{
    addr_t dict;

    if (p->py.layout.di_keys == NO)
        return dict_table(p, keys, values, n);
    dict = fake_alloc(p, 48);
    put_at(p, dict, p->py.layout.di_used, n);
    put_at(p, dict, p->py.layout.di_keys, keys_make(p, keys, values, n, are_str));
    return dict;
}

size_t fake_lines(const struct fake_python *p, unsigned char out[64])
{
    static const unsigned char locations[4] = {128 | 11 << 3 | 1, 0, 0}, first[3] = {128 | 10 << 3 | 1, 0, 0};
    size_t len = 0;

    for (int i = 0; i < 16; i++) {
        switch (p->py.layout.line_kind) {
        case LINES_LNOTAB_UNSIGNED:
        case LINES_LNOTAB:
            out[len++] = i ? 4 : 0;
            out[len++] = i != 0;
            break;
        case LINES_RANGES:
            out[len++] = 4;
            out[len++] = i != 0;
            break;
        case LINES_LOCATIONS:
            memcpy(out + len, i ? locations : first, 3);
            len += 3;
            break;
        }
    }
    return len;
}

/* The fields around co_firstlineno: co_stacksize, co_nlocalsplus, co_framesize. */
static void put_frame_size(struct fake_python *p, addr_t code)
{
    const struct layout *l = &p->py.layout;
    int words = (int)fake_frame_size(p) / 8, locals = 1, stack = words - locals - l->fr_slots / 8;
    addr_t line = code + (addr_t)l->co_firstline;

    if (l->frame_size_kind == FRAME_SIZE_NONE)
        return;
    fake_mem_put_bytes(p->mem, line - 4, &stack, sizeof(stack));
    fake_mem_put_bytes(p->mem, line + 4, &locals, sizeof(locals));
    if (l->frame_size_kind == FRAME_SIZE_FIELD)
        fake_mem_put_bytes(p->mem, line + 8, &words, sizeof(words));
}

addr_t fake_code_of(struct fake_python *p, addr_t name, addr_t file, int first_line, addr_t table)
{
    const struct layout *l = &p->py.layout;
    size_t size = (size_t)(l->co_bytecode == NO ? l->co_size : l->co_bytecode) + 128;
    addr_t code = fake_alloc(p, size);

    put_at(p, code, l->co_name, name);
    if (l->co_qualname != NO)
        put_at(p, code, l->co_qualname, name);
    put_at(p, code, l->co_filename, file);
    put_at(p, code, l->co_lines, table);
    fake_mem_put_bytes(p->mem, code + (addr_t)l->co_firstline, &first_line, sizeof(first_line));
    put_frame_size(p, code);
    return code;
}

addr_t fake_code(struct fake_python *p, const char *name, const char *file, int first_line)
{
    unsigned char table[64];
    size_t len = fake_lines(p, table);

    return fake_code_of(p, fake_str(p, name), fake_str(p, file), first_line, fake_bytes(p, table, len));
}

addr_t fake_instance(struct fake_python *p, const addr_t *keys, const addr_t *values, size_t n)
{
    const struct layout *l = &p->py.layout;
    addr_t type = fake_alloc(p, TYPE_SIZE), object = fake_alloc(p, 256) + 32, apart;

    fake_mem_put(p->mem, object + 8, type);
    if (l->attr_kind == ATTRS_DICTOFFSET) {
        put_at(p, type, l->ty_dictoffset, 16);
        fake_mem_put(p->mem, object + 16, fake_dict(p, keys, values, n, true));
        return object;
    }
    put_at(p, type, l->ty_flags, MANAGED_DICT | (l->attr_kind == ATTRS_INLINE_VALUES ? INLINE_VALUES : 0));
    put_at(p, type, l->ty_cached_keys, keys_make(p, keys, NULL, n, true));
    put_at(p, type, l->ty_basicsize, THREAD_BASESIZE);
    apart = l->attr_kind == ATTRS_INLINE_VALUES ? object + THREAD_BASESIZE : fake_alloc(p, n * 8 + 16);
    for (size_t i = 0; i < n; i++)
        fake_mem_put(p->mem, apart + (addr_t)l->dv_values + i * 8, values[i]);
    if (l->attr_kind == ATTRS_TWO_POINTERS)
        fake_mem_put(p->mem, object - 32, apart);
    else if (l->attr_kind == ATTRS_TAGGED_POINTER)
        fake_mem_put(p->mem, object - 24, apart - 1);
    return object;
}

addr_t fake_thread_object(struct fake_python *p, const char *name)
{
    addr_t keys[3] = {fake_str(p, "_target"), fake_str(p, p->py.major == 2 ? "_Thread__name" : "_name"),
                      fake_str(p, "_daemonic")};
    addr_t values[3] = {p->none, fake_str(p, name), p->none};

    return fake_instance(p, keys, values, 3);
}

void fake_threading(struct fake_python *p, addr_t interp, const uint64_t *ids, const char *const *names, size_t n)
{
    addr_t keys[16], values[16], module = fake_alloc(p, 64), modules[2] = {p->none, module};
    addr_t module_names[2] = {fake_str(p, "sys"), fake_str(p, "threading")};
    addr_t active_name = fake_str(p, "_active"), active;

    if (n > 16)
        abort();
    for (size_t i = 0; i < n; i++) {
        keys[i] = fake_int(p, ids[i]);
        values[i] = fake_thread_object(p, names[i]);
    }
    active = fake_dict(p, keys, values, n, false);
    fake_mem_put(p->mem, module + 16, fake_dict(p, &active_name, &active, 1, true));
    put_at(p, interp, p->py.layout.in_modules, fake_dict(p, module_names, modules, 2, true));
}
