/*
 * Reads dicts, ints and the attributes of instances from a target. Not on the sampling path.
 */
#include "python/objects.h"

#include "base/err.h"
#include "python/strings.h"

#include <stdlib.h>
#include <string.h>

#define TP_INLINE_VALUES (1u << 2) /* 3.13+, Include/object.h */
#define TP_MANAGED_DICT  (1u << 4) /* 3.11+ */
#define DICT_SIZE_MAX    (1ull << 40)
#define OFFSET_MAX       (1ll << 20)
#define ORDER_MAX        32 /* a split dict has at most 30 values (SHARED_KEYS_MAX_SIZE) */

/* The entries of a dict: `stride` bytes each, with the key at `key_at`; the values are next to the keys or in an
 * array of their own. */
struct entries {
    addr_t at;
    size_t n, stride, key_at;
    addr_t values;                  /* 0: next to the key */
    unsigned char order[ORDER_MAX]; /* indices in insertion order */
    size_t n_order;                 /* 0: in memory order */
};

/* 2.7: one table of (hash, key, value) with empty slots (Include/dictobject.h). */
static int entries_from_table(const struct python *py, addr_t dict, struct entries *ret)
{
    uint64_t mask_and_table[2];
    int r = mem_read(py->mem, dict + 32, mask_and_table, sizeof(mask_and_table));

    if (r < 0)
        return r;
    if (mask_and_table[0] >= DICT_SIZE_MAX)
        return ERR_BOUNDS;
    *ret = (struct entries){.at = mask_and_table[1], .n = mask_and_table[0] + 1, .stride = 24, .key_at = 8};
    if (ret->n > PY_MAX_DICT)
        ret->n = PY_MAX_DICT;
    return 0;
}

/* 3.6 and later: a sparse index, then dense entries (dict-common.h, pycore_dict.h). */
static int entries_from_keys(const struct python *py, addr_t keys, struct entries *ret)
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
        if (head[l->dk_kind] != 0) /* all keys are str: the entries have no hash */
            *ret = (struct entries){.stride = 16, .key_at = 0};
    }
    if (n > size || size > DICT_SIZE_MAX)
        return ERR_BOUNDS;
    ret->n = n < PY_MAX_DICT ? n : PY_MAX_DICT;
    ret->at = keys + (addr_t)l->dk_indices + index_bytes;
    return 0;
}

/* Reads the insertion order of the values at `values`. If that fails, memory order applies. */
static void entries_order(const struct python *py, addr_t values, struct entries *e)
{
    unsigned char head[8], used = 0, bytes[ORDER_MAX];
    addr_t at = 0;

    if (py->layout.order_kind == ORDER_BEFORE && mem_read(py->mem, values - 2, head, 2) == 0) {
        used = head[0];
        at = values - 2 - used;
    } else if (py->layout.order_kind == ORDER_AFTER && mem_read(py->mem, values, head, 2) == 0) {
        used = head[1]; /* struct _dictvalues: capacity, size */
        at = values + (addr_t)py->layout.dv_values + head[0] * 8ull;
    }
    if (!used || used > ORDER_MAX || used > e->n || mem_read(py->mem, at, bytes, used) < 0)
        return;
    for (size_t i = 0; i < used; i++) {
        e->order[i] = bytes[py->layout.order_kind == ORDER_BEFORE ? used - 1u - i : i];
        if (e->order[i] >= e->n)
            return;
    }
    e->n_order = used;
}

static int entries_from_dict(const struct python *py, addr_t dict, struct entries *ret)
{
    const struct layout *l = &py->layout;
    addr_t keys, values;
    int r;

    if (l->di_keys == NO)
        return entries_from_table(py, dict, ret);
    r = mem_read_addr(py->mem, dict + (addr_t)l->di_keys, &keys);
    if (r == 0)
        r = mem_read_addr(py->mem, dict + (addr_t)l->di_values, &values);
    if (r == 0)
        r = entries_from_keys(py, keys, ret);
    if (r == 0 && values) {
        ret->values = values + (addr_t)l->dv_values;
        entries_order(py, values, ret);
    }
    return r;
}

/* Visits the values of a split dict in insertion order. */
static int entries_walk_ordered(const struct python *py, const struct entries *e, objects_visit visit, void *arg)
{
    bool more = true;
    int r = 0;

    for (size_t i = 0; i < e->n_order && more && r == 0; i++) {
        size_t at = e->order[i];
        addr_t key, value;

        r = mem_read_addr(py->mem, e->at + at * e->stride + e->key_at, &key);
        if (r == 0)
            r = mem_read_addr(py->mem, e->values + at * 8, &value);
        if (r == 0 && key && value)
            more = visit(py, key, value, arg);
    }
    return r;
}

static int entries_walk(const struct python *py, const struct entries *e, objects_visit visit, void *arg)
{
    unsigned char chunk[24 * 64];
    bool more = true;

    if (e->n_order)
        return entries_walk_ordered(py, e, visit, arg);

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
    int r = entries_from_dict(py, dict, &e);

    return r < 0 ? r : entries_walk(py, &e, visit, arg);
}

struct lookup {
    const char *key;
    addr_t value;
};

static bool visit_key(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct lookup *w = arg;

    if (!strings_equal(py, key, w->key))
        return true;
    w->value = value;
    return false;
}

static int lookup_result(int r, const struct lookup *w, addr_t *ret_value)
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
    struct lookup w = {.key = key};
    int r = objects_dict_walk(py, dict, visit_key, &w);

    return lookup_result(r, &w, ret_value);
}

/* Visits the attributes of an instance whose keys belong to the class and whose values are at `values`. */
static int values_walk(const struct python *py, addr_t type, addr_t values, objects_visit visit, void *arg)
{
    struct entries e;
    addr_t keys;
    int r = mem_read_addr(py->mem, type + (addr_t)py->layout.ty_cached_keys, &keys);

    if (r == 0)
        r = entries_from_keys(py, keys, &e);
    if (r < 0)
        return r;
    e.values = values + (addr_t)py->layout.dv_values;
    entries_order(py, values, &e);
    return entries_walk(py, &e, visit, arg);
}

/* 3.11 and later: the dict or the values precede the object, or the values follow it (pycore_object.h). */
static int managed_dict_walk(const struct python *py, addr_t object, addr_t type, uint64_t flags, objects_visit visit,
                             void *arg)
{
    addr_t before[2]; /* at -32 and -24 */
    uint64_t size;
    int r = mem_read(py->mem, object - 32, before, sizeof(before));

    if (r < 0)
        return r;
    switch (py->layout.attr_kind) {
    case ATTRS_TWO_POINTERS:
        if (before[0])
            return values_walk(py, type, before[0], visit, arg);
        break;
    case ATTRS_TAGGED_POINTER:
        if (before[1] & 1)
            return values_walk(py, type, before[1] + 1, visit, arg);
        break;
    case ATTRS_INLINE_VALUES:
        if (before[1] || !(flags & TP_INLINE_VALUES))
            break;
        r = mem_read_addr(py->mem, type + (addr_t)py->layout.ty_basicsize, &size);
        if (r < 0)
            return r;
        return values_walk(py, type, object + size, visit, arg);
    case ATTRS_DICTOFFSET:
        break;
    }
    return before[1] ? objects_dict_walk(py, before[1], visit, arg) : 0;
}

/* Up to 3.11 a negative offset counts from the end of a variable-size object (_PyObject_GetDictPtr, object.c). */
static int dict_offset(const struct python *py, addr_t object, addr_t type, int64_t *ret)
{
    const struct layout *l = &py->layout;
    int64_t offset, items, sizes[2]; /* tp_basicsize, tp_itemsize */
    int r = mem_read(py->mem, type + (addr_t)l->ty_dictoffset, &offset, sizeof(offset));

    if (r == 0 && offset < 0) {
        r = mem_read(py->mem, type + (addr_t)l->ty_basicsize, sizes, sizeof(sizes));
        if (r == 0)
            r = mem_read(py->mem, object + 16, &items, sizeof(items));
        if (r < 0)
            return r;
        items = items < 0 ? -items : items;
        if (items < 0 || items > OFFSET_MAX || sizes[0] < 0 || sizes[0] > OFFSET_MAX || sizes[1] < 0 || sizes[1] > 64)
            return ERR_BOUNDS;
        offset += (sizes[0] + items * sizes[1] + 7) & ~(int64_t)7;
    }
    if (r == 0 && (offset < 0 || offset > 128ll * OFFSET_MAX))
        r = ERR_BOUNDS;
    if (r == 0)
        *ret = offset;
    return r;
}

int objects_attrs_walk(const struct python *py, addr_t object, objects_visit visit, void *arg)
{
    const struct layout *l = &py->layout;
    addr_t type, dict;
    uint64_t flags;
    int64_t offset = 0;
    int r = mem_read_addr(py->mem, object + 8, &type);

    if (r == 0)
        r = mem_read_addr(py->mem, type + (addr_t)l->ty_flags, &flags);
    if (r == 0 && l->attr_kind != ATTRS_DICTOFFSET && (flags & TP_MANAGED_DICT))
        return managed_dict_walk(py, object, type, flags, visit, arg);
    if (r == 0)
        r = dict_offset(py, object, type, &offset);
    if (r < 0 || !offset)
        return r;
    r = mem_read_addr(py->mem, object + (addr_t)offset, &dict);
    return r < 0 || !dict ? r : objects_dict_walk(py, dict, visit, arg);
}

int objects_attr_get(const struct python *py, addr_t object, const char *name, addr_t *ret_value)
{
    struct lookup w = {.key = name};
    int r = objects_attrs_walk(py, object, visit_key, &w);

    return lookup_result(r, &w, ret_value);
}

int objects_int_read(const struct python *py, addr_t object, uint64_t *ret)
{
    uint32_t digits[3];
    uint64_t size, value = 0;
    int r = mem_read_addr(py->mem, object + 16, &size);

    if (r < 0)
        return r;
    /* A 2.7 int holds its value where a long holds the number of digits. The type would tell them apart, but a
     * thread ident is always larger than any number of digits. */
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
