/*
 * dict, int and instances of a target. Called by names.c, seldom: not part of the sampling loop.
 */
#include "python/objects.h"

#include "base/err.h"
#include "python/strings.h"

#include <stdlib.h>
#include <string.h>

#define TP_INLINE_VALUES (1u << 2) /* 3.13+, Include/object.h */
#define TP_MANAGED_DICT  (1u << 4) /* 3.11+ */

/* A dict's table: entries of `stride` bytes with the key at `key_at`, values beside the key or apart. */
struct entries {
    addr_t at;
    size_t n, stride, key_at;
    addr_t values; /* 0: beside the key */
};

/* 2.7: one table of (hash, key, value), with holes (Include/dictobject.h). */
static int entries_of_table(const struct python *py, addr_t dict, struct entries *ret)
{
    uint64_t mask_and_table[2];
    int r = mem_read(py->mem, dict + 32, mask_and_table, sizeof(mask_and_table));

    if (r < 0)
        return r;
    if (mask_and_table[0] >= PY_MAX_DICT)
        return ERR_BOUNDS;
    *ret = (struct entries){.at = mask_and_table[1], .n = mask_and_table[0] + 1, .stride = 24, .key_at = 8};
    return 0;
}

/* 3.6 on: a sparse index, then the dense entries (dict-common.h, pycore_dict.h). */
static int entries_of_keys(const struct python *py, addr_t keys, struct entries *ret)
{
    const struct layout *l = &py->layout;
    unsigned char head[48];
    uint64_t size, index_bytes, n;
    int r = mem_read(py->mem, keys, head, sizeof(head));

    if (r < 0)
        return r;
    memcpy(&n, head + l->dk_nentries, sizeof(n));
    *ret = (struct entries){.stride = 24, .key_at = 8};
    if (l->dk_size != NO) {
        memcpy(&size, head + l->dk_size, sizeof(size));
        index_bytes = size * (size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffffull ? 4 : 8);
    } else {
        if (head[l->dk_log2_size] > 40 || head[l->dk_log2_index] > 40)
            return ERR_BOUNDS;
        size = 1ull << head[l->dk_log2_size];
        index_bytes = 1ull << head[l->dk_log2_index];
        if (head[l->dk_kind] != 0) /* all keys are str: no hash is kept */
            *ret = (struct entries){.stride = 16, .key_at = 0};
    }
    if (n > size || n > PY_MAX_DICT || size > (uint64_t)PY_MAX_DICT * 4)
        return ERR_BOUNDS;
    ret->n = n;
    ret->at = keys + (addr_t)l->dk_indices + index_bytes;
    return 0;
}

static int entries_of_dict(const struct python *py, addr_t dict, struct entries *ret)
{
    const struct layout *l = &py->layout;
    addr_t keys, values;
    int r;

    if (l->di_keys == NO)
        return entries_of_table(py, dict, ret);
    r = mem_read_addr(py->mem, dict + (addr_t)l->di_keys, &keys);
    if (r == 0)
        r = mem_read_addr(py->mem, dict + (addr_t)l->di_values, &values);
    if (r == 0)
        r = entries_of_keys(py, keys, ret);
    if (r == 0 && values)
        ret->values = values + (addr_t)l->dv_values;
    return r;
}

static int entries_walk(const struct python *py, const struct entries *e, objects_visit visit, void *arg)
{
    unsigned char chunk[24 * 64];
    bool more = true;

    for (size_t i = 0; i < e->n && more;) {
        size_t batch = sizeof(chunk) / e->stride;
        int r;

        if (batch > e->n - i)
            batch = e->n - i;
        r = mem_read(py->mem, e->at + i * e->stride, chunk, batch * e->stride);
        if (r < 0)
            return r;
        for (size_t k = 0; k < batch && more; k++, i++) {
            addr_t key, value = 0;

            memcpy(&key, chunk + k * e->stride + e->key_at, sizeof(key));
            memcpy(&value, chunk + k * e->stride + e->key_at + 8, sizeof(value));
            if (e->values && mem_read_addr(py->mem, e->values + i * 8, &value) < 0)
                value = 0;
            if (key && value)
                more = visit(py, key, value, arg);
        }
    }
    return 0;
}

int objects_dict_walk(const struct python *py, addr_t dict, objects_visit visit, void *arg)
{
    struct entries e;
    int r = entries_of_dict(py, dict, &e);

    return r < 0 ? r : entries_walk(py, &e, visit, arg);
}

struct wanted {
    const char *key;
    addr_t value;
};

static bool visit_wanted(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct wanted *w = arg;

    if (!strings_equal(py, key, w->key))
        return true;
    w->value = value;
    return false;
}

static int wanted_result(int r, const struct wanted *w, addr_t *ret_value)
{
    if (r < 0)
        return r;
    if (!w->value)
        return ERR_READ;
    *ret_value = w->value;
    return 0;
}

int objects_dict_get(const struct python *py, addr_t dict, const char *key, addr_t *ret_value)
{
    struct wanted w = {.key = key};
    int r = objects_dict_walk(py, dict, visit_wanted, &w);

    return wanted_result(r, &w, ret_value);
}

/* The keys that all instances of a class share, with the values at `values`. */
static int values_get(const struct python *py, addr_t type, addr_t values, const char *name, addr_t *ret_value)
{
    struct wanted w = {.key = name};
    struct entries e;
    addr_t keys;
    int r = mem_read_addr(py->mem, type + (addr_t)py->layout.ty_cached_keys, &keys);

    if (r == 0)
        r = entries_of_keys(py, keys, &e);
    if (r < 0)
        return r;
    e.values = values + (addr_t)py->layout.dv_values;
    r = entries_walk(py, &e, visit_wanted, &w);
    return wanted_result(r, &w, ret_value);
}

/* 3.11 on: the dict or the values lie before the object, or the values behind it (pycore_object.h). */
static int managed_get(const struct python *py, addr_t object, addr_t type, uint64_t flags, const char *name,
                       addr_t *ret_value)
{
    addr_t before[2]; /* at -32 and -24 */
    uint64_t size;
    int r = mem_read(py->mem, object - 32, before, sizeof(before));

    if (r < 0)
        return r;
    switch (py->layout.attr_kind) {
    case ATTRS_TWO_POINTERS:
        if (before[0])
            return values_get(py, type, before[0], name, ret_value);
        break;
    case ATTRS_TAGGED_POINTER:
        if (before[1] & 1)
            return values_get(py, type, before[1] + 1, name, ret_value);
        break;
    case ATTRS_INLINE_VALUES:
        if (before[1] || !(flags & TP_INLINE_VALUES))
            break;
        r = mem_read_addr(py->mem, type + (addr_t)py->layout.ty_basicsize, &size);
        if (r < 0)
            return r;
        return values_get(py, type, object + size, name, ret_value);
    case ATTRS_DICTOFFSET:
        break;
    }
    return before[1] ? objects_dict_get(py, before[1], name, ret_value) : ERR_READ;
}

int objects_attr_get(const struct python *py, addr_t object, const char *name, addr_t *ret_value)
{
    const struct layout *l = &py->layout;
    addr_t type, dict;
    uint64_t flags, offset;
    int r = mem_read_addr(py->mem, object + 8, &type);

    if (r == 0)
        r = mem_read_addr(py->mem, type + (addr_t)l->ty_flags, &flags);
    if (r == 0)
        r = mem_read_addr(py->mem, type + (addr_t)l->ty_dictoffset, &offset);
    if (r < 0)
        return r;
    if (l->attr_kind != ATTRS_DICTOFFSET && (flags & TP_MANAGED_DICT))
        return managed_get(py, object, type, flags, name, ret_value);
    if (!offset || offset > 1u << 20)
        return ERR_BOUNDS;
    r = mem_read_addr(py->mem, object + offset, &dict);
    return r < 0 ? r : objects_dict_get(py, dict, name, ret_value);
}

int objects_int_read(const struct python *py, addr_t object, uint64_t *ret)
{
    uint32_t digits[3];
    uint64_t size, value = 0;
    int r = mem_read_addr(py->mem, object + 16, &size);

    if (r < 0)
        return r;
    /* A plain int of 2.7 holds its value where others have the number of digits: its type tells, but a
     * thread's ident is far beyond any number of digits. */
    if (py->major == 2 && size > 3) {
        *ret = size;
        return 0;
    }
    if (py->layout.lo_tag != NO)
        size >>= 3;
    if (size > 3)
        return ERR_BOUNDS;
    r = mem_read(py->mem, object + (addr_t)py->layout.lo_digits, digits, size * sizeof(digits[0]));
    for (size_t i = size; r == 0 && i > 0; i--)
        value = value << 30 | digits[i - 1];
    if (r == 0)
        *ret = value;
    return r;
}
