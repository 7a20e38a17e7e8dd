/*
 * ndarray, NumPy scalars and array.array: `<ndarray shape=(2, 3) dtype=float64>`, with the items if there
 * is one dimension. The layouts are those of NumPy's C API (ndarraytypes.h, arrayscalars.h), unchanged
 * from 1.x to 2.x.
 */
#include "python/repr/arrays.h"

#include "base/err.h"
#include "python/repr/numbers.h"

#include <inttypes.h>
#include <string.h>

#define DIMENSIONS_MAX 64
#define ITEMS_MAX      (1ull << 40)

enum item_kind { ITEM_NONE, ITEM_BOOL, ITEM_INT, ITEM_UINT, ITEM_FLOAT, ITEM_COMPLEX };

struct item_type {
    const char *name;
    enum item_kind kind;
    size_t size;
};

/* By type_num, enum NPY_TYPES. */
static const struct item_type item_types[] = {
    {"bool", ITEM_BOOL, 1},           {"int8", ITEM_INT, 1},         {"uint8", ITEM_UINT, 1},
    {"int16", ITEM_INT, 2},           {"uint16", ITEM_UINT, 2},      {"int32", ITEM_INT, 4},
    {"uint32", ITEM_UINT, 4},         {"int64", ITEM_INT, 8},        {"uint64", ITEM_UINT, 8},
    {"int64", ITEM_INT, 8},           {"uint64", ITEM_UINT, 8},      {"float32", ITEM_FLOAT, 4},
    {"float64", ITEM_FLOAT, 8},       {"float128", ITEM_NONE, 16},   {"complex64", ITEM_COMPLEX, 8},
    {"complex128", ITEM_COMPLEX, 16}, {"complex256", ITEM_NONE, 32}, {"object", ITEM_NONE, 8},
    {"bytes", ITEM_NONE, 0},          {"str", ITEM_NONE, 0},         {"void", ITEM_NONE, 0},
    {"datetime64", ITEM_NONE, 8},     {"timedelta64", ITEM_NONE, 8}, {"float16", ITEM_FLOAT, 2},
};

void arrays_put_name(struct repr *v, const struct repr_type *t)
{
    if (strncmp(t->name, "numpy.", 6) == 0)
        repr_printf(v, "np.%s", t->name + 6);
    else
        repr_put(v, t->name);
}

static void put_int(struct repr *v, const unsigned char *bytes, const struct item_type *type)
{
    uint64_t value = 0;
    unsigned int unused = (unsigned int)(8 - type->size) * 8;

    memcpy(&value, bytes, type->size);
    if (type->kind == ITEM_UINT)
        repr_printf(v, "%" PRIu64, value);
    else
        repr_printf(v, "%" PRId64, (int64_t)(value << unused) >> unused);
}

/* IEEE half precision. */
static double half_to_double(const unsigned char *bytes)
{
    unsigned int h = bytes[0] | (unsigned int)bytes[1] << 8, exponent = h >> 10 & 31, fraction = h & 1023;
    double value = exponent ? 1 + fraction / 1024.0 : fraction / 1024.0;
    int shift = exponent ? (int)exponent - 15 : -14;

    if (exponent == 31)
        value = fraction ? __builtin_nan("") : __builtin_inf();
    for (; shift > 0; shift--)
        value *= 2;
    for (; shift < 0; shift++)
        value /= 2;
    return h >> 15 ? -value : value;
}

static double read_float(const unsigned char *bytes, size_t size)
{
    float single;
    double value;

    if (size == 2)
        return half_to_double(bytes);
    if (size == 4) {
        memcpy(&single, bytes, sizeof(single));
        return (double)single;
    }
    memcpy(&value, bytes, sizeof(value));
    return value;
}

/* Significant digits that distinguish any two numbers of that size. */
static int digits_of(size_t size)
{
    return size == 8 ? 17 : size == 4 ? 9 : 5;
}

static void put_item(struct repr *v, const unsigned char *bytes, const struct item_type *type)
{
    char text[NUMBERS_FLOAT_MAX];

    switch (type->kind) {
    case ITEM_BOOL:
        repr_put(v, bytes[0] ? "True" : "False");
        break;
    case ITEM_INT:
    case ITEM_UINT:
        put_int(v, bytes, type);
        break;
    case ITEM_FLOAT:
        numbers_print_float(text, read_float(bytes, type->size), digits_of(type->size), ".0");
        repr_put(v, text);
        break;
    case ITEM_COMPLEX:
        numbers_put_complex(v, read_float(bytes, type->size / 2), read_float(bytes + type->size / 2, type->size / 2),
                            digits_of(type->size / 2));
        break;
    case ITEM_NONE:
        break;
    }
}

/* Writes `n` items that are `stride` bytes apart. */
static int put_items(struct repr *v, addr_t data, uint64_t n, uint64_t stride, const struct item_type *type)
{
    unsigned char bytes[16];
    bool first = true;

    for (uint64_t i = 0; i < n; i++) {
        int r = repr_read(v, data + i * stride, bytes, type->size);

        if (r < 0)
            return r;
        if (!repr_next(v, &first))
            break;
        put_item(v, bytes, type);
    }
    return 0;
}

/* ---- ndarray ---- */

/* PyArrayObject_fields, from offset 16 on. */
struct ndarray {
    addr_t data;
    int32_t dimensions, pad;
    addr_t shape, strides, base, descr;
};

/* PyArray_Descr: kind at 24, byteorder at 26, type_num at 28. */
static int read_descr(struct repr *v, addr_t descr, const struct item_type **ret, bool *ret_swapped)
{
    unsigned char head[8];
    int32_t number;
    int r = repr_read(v, descr + 24, head, sizeof(head));

    if (r < 0)
        return r;
    memcpy(&number, head + 4, sizeof(number));
    *ret_swapped = head[2] == '>';
    *ret = number >= 0 && number < (int32_t)(sizeof(item_types) / sizeof(item_types[0])) ? &item_types[number] : NULL;
    return 0;
}

int arrays_write_ndarray(struct repr *v, addr_t object, const struct repr_type *t)
{
    uint64_t shape[DIMENSIONS_MAX], stride = 0;
    const struct item_type *type = NULL;
    struct ndarray a;
    bool swapped = false;
    int r = repr_read(v, object + 16, &a, sizeof(a));

    if (r == 0 && (a.dimensions < 0 || a.dimensions > DIMENSIONS_MAX))
        r = ERR_BOUNDS;
    if (r == 0)
        r = repr_read(v, a.shape, shape, (size_t)a.dimensions * sizeof(shape[0]));
    if (r == 0)
        r = read_descr(v, a.descr, &type, &swapped);
    if (r == 0 && a.dimensions == 1)
        r = repr_word(v, a.strides, &stride);
    if (r < 0)
        return r;
    repr_printf(v, "<%s shape=(", repr_short_name(t));
    for (int i = 0; i < a.dimensions; i++)
        repr_printf(v, i ? ", %" PRId64 : "%" PRId64, (int64_t)shape[i]);
    repr_put(v, a.dimensions == 1 ? ",)" : ")");
    repr_printf(v, " dtype=%s%s", swapped ? ">" : "", type ? type->name : "?");
    if (type && type->kind != ITEM_NONE && !swapped && a.dimensions <= 1 && (!a.dimensions || shape[0] < ITEMS_MAX)) {
        repr_put(v, a.dimensions ? ": [" : ": ");
        r = put_items(v, a.data, a.dimensions ? shape[0] : 1, stride, type);
        repr_put(v, a.dimensions ? "]" : "");
    }
    repr_put(v, ">");
    return r;
}

/* The value of a scalar is at 16, in the format of an array item of that name. */
int arrays_write_scalar(struct repr *v, addr_t object, const struct repr_type *t)
{
    const char *name = repr_short_name(t);
    const struct item_type *type = NULL;
    unsigned char bytes[16];
    size_t start;
    int r;

    for (size_t i = 0; i < sizeof(item_types) / sizeof(item_types[0]) && !type; i++) {
        size_t len = strlen(item_types[i].name);

        if (item_types[i].kind != ITEM_NONE && strncmp(name, item_types[i].name, len) == 0 &&
            (!name[len] || strcmp(name + len, "_") == 0))
            type = &item_types[i];
    }
    if (!type && strcmp(name, "longlong") == 0)
        type = &item_types[9];
    if (!type && strcmp(name, "ulonglong") == 0)
        type = &item_types[10];
    r = type ? repr_read(v, object + 16, bytes, type->size) : ERR_UNSUPPORTED;
    if (r < 0)
        return r;
    if (type->kind == ITEM_BOOL) {
        repr_put(v, bytes[0] ? "np.True_" : "np.False_");
        return 0;
    }
    arrays_put_name(v, t);
    start = v->len;
    put_item(v, bytes, type);
    if (v->text[start] == '(') /* complex numbers have their own parentheses */
        return 0;
    v->len = start;
    repr_put(v, "(");
    put_item(v, bytes, type);
    repr_put(v, ")");
    return 0;
}

/* dtype('float64') */
int arrays_write_dtype(struct repr *v, addr_t object, const struct repr_type *t)
{
    const struct item_type *type;
    bool swapped;
    int r = read_descr(v, object, &type, &swapped);

    (void)t;
    if (r < 0 || !type)
        return r < 0 ? r : ERR_UNSUPPORTED;
    repr_printf(v, "dtype('%s%s')", swapped ? ">" : "", type->name);
    return 0;
}

/* ---- array.array ---- */

/* ob_item at 24; the descriptor at 40 starts with the type code (arraymodule.c) */
int arrays_write_array(struct repr *v, addr_t object, const struct repr_type *t)
{
    static const char codes[] = "bBhHiIlLqQfd";
    static const unsigned char numbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    uint64_t head[4]; /* size, items, allocated, descriptor */
    const char *found;
    char code;
    int r = repr_read(v, object + 16, head, sizeof(head));

    if (r == 0)
        r = repr_read(v, head[3], &code, 1);
    if (r < 0)
        return r;
    found = code ? strchr(codes, code) : NULL;
    if (!found || head[0] > ITEMS_MAX)
        return ERR_BOUNDS;
    repr_printf(v, "%s('%c'", repr_short_name(t), code);
    if (head[0]) {
        const struct item_type *type = &item_types[numbers[found - codes]];

        repr_put(v, ", [");
        r = put_items(v, head[1], head[0], type->size, type);
        repr_put(v, "]");
    }
    repr_put(v, ")");
    return r;
}
