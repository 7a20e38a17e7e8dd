/*
 * Reads str and bytes objects as UTF-8. Every length from the target is bounded before use.
 */
#include "python/strings.h"

#include "base/err.h"
#include "base/utf8.h"

#include <string.h>

#define HEADER_MAX 80

static int shape_of_bytes(const struct python *py, addr_t object, struct str_shape *ret)
{
    uint64_t size;
    int r = mem_read_addr(py->mem, object + (addr_t)py->layout.str_length, &size);

    if (r < 0)
        return r;
    *ret = (struct str_shape){.length = size, .kind = 1, .data = object + (addr_t)py->layout.str_ascii};
    return size > INT64_MAX ? ERR_BOUNDS : 0;
}

/* The bit field `state` is interned:2 kind:3 compact:1 ascii:1 in 3.6 to 3.15; its other bytes are not initialised. */
static int shape_of_str(const struct python *py, addr_t object, struct str_shape *ret)
{
    const struct layout *l = &py->layout;
    unsigned char header[HEADER_MAX];
    uint64_t length;
    unsigned int state, kind;
    bool compact, ascii;
    int r = mem_read(py->mem, object, header, (size_t)l->str_state + 1);

    if (r < 0)
        return r;
    memcpy(&length, header + l->str_length, sizeof(length));
    state = header[l->str_state] >> 2u;
    kind = state & 7;
    compact = state & 8;
    ascii = state & 16;
    if (!compact || (kind != 1 && kind != 2 && kind != 4) || length > INT64_MAX)
        return ERR_BOUNDS;
    *ret = (struct str_shape){.length = length, .kind = (int)kind};
    ret->data = object + (addr_t)(ascii ? l->str_ascii : l->str_compact);
    return 0;
}

int strings_shape(const struct python *py, addr_t object, struct str_shape *ret)
{
    if (!object)
        return ERR_READ;
    return py->layout.str_state == NO ? shape_of_bytes(py, object, ret) : shape_of_str(py, object, ret);
}

/* Converts `n` characters of 1, 2 or 4 bytes to UTF-8. `out` has room for 4 * n bytes. Returns the length. */
static size_t to_utf8(const unsigned char *data, size_t n, int kind, char *out)
{
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t cp = 0;

        memcpy(&cp, data + i * (size_t)kind, (size_t)kind);
        len += utf8_encode(cp, out + len);
    }
    return len;
}

int strings_read(const struct python *py, addr_t object, const char **ret)
{
    unsigned char data[PY_MAX_NAME * 4];
    char text[PY_MAX_NAME * 4 + 4];
    struct str_shape shape;
    const char *name;
    size_t n, len;
    int r = strings_shape(py, object, &shape);

    if (r < 0)
        return r;
    n = shape.length < PY_MAX_NAME ? shape.length : PY_MAX_NAME;
    r = mem_read(py->mem, shape.data, data, n * (size_t)shape.kind);
    if (r < 0)
        return r;
    if (py->layout.str_state == NO) /* 2.7: a byte string, usually UTF-8 */
        len = utf8_clean((const char *)data, n, text);
    else
        len = to_utf8(data, n, shape.kind, text);
    if (n < shape.length)
        len += utf8_encode(0x2026, text + len);
    name = intern_bytes(py->names, text, len);
    if (!name)
        return ERR_NOMEM;
    *ret = name;
    return 0;
}

bool strings_equal(const struct python *py, addr_t object, const char *ascii)
{
    struct str_shape shape;
    char data[64];
    size_t len = strlen(ascii);

    if (strings_shape(py, object, &shape) < 0 || shape.kind != 1 || shape.length != len || len > sizeof(data))
        return false;
    return mem_read(py->mem, shape.data, data, len) == 0 && memcmp(data, ascii, len) == 0;
}
