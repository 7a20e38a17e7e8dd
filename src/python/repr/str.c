/*
 * str, unicode, bytes and bytearray objects, quoted and escaped like repr() (unicodeobject.c,
 * bytesobject.c). Every length from the target is bounded before use.
 */
#include "python/repr/str.h"

#include "base/err.h"
#include "base/utf8.h"
#include "python/objects.h"
#include "python/repr/printable.h"
#include "python/strings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 512

/* How to show characters. */
struct style {
    char quote;
    bool ascii_only; /* 2.7: escape everything else */
    bool bytes;      /* escape as \xNN only */
    bool quotes;     /* always escape single quotes */
};

/* ---- where the characters are ---- */

/* The text is behind a pointer: a subclass of str, or a str made by a legacy C API. */
static int shape_noncompact(struct repr *v, addr_t object, unsigned int kind, struct str_shape *ret)
{
    const struct layout *l = &v->py.layout;
    bool ready = kind == 1 || kind == 2 || kind == 4;
    uint64_t length;
    addr_t data;
    int r;

    if (!ready && (kind != 0 || l->str_wstr == NO))
        return ERR_BOUNDS;
    r = repr_word(v, object + (addr_t)(ready ? l->str_length : l->str_wstr_length), &length);
    if (r == 0)
        r = repr_word(v, object + (addr_t)(ready ? l->str_compact : l->str_wstr), &data);
    if (r < 0 || length > INT64_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    *ret = (struct str_shape){.length = length, .kind = ready ? (int)kind : 4, .data = data};
    return 0;
}

static int shape_of_str(struct repr *v, addr_t object, struct str_shape *ret)
{
    unsigned char state;
    int r = repr_read(v, object + (addr_t)v->py.layout.str_state, &state, 1);

    if (r < 0)
        return r;
    if (state & 32) /* compact */
        return strings_shape(&v->py, object, ret);
    return shape_noncompact(v, object, state >> 2 & 7, ret);
}

/* The characters of 2.7 have 2 or 4 bytes; sys.maxunicode tells which. */
static uint64_t max_unicode(struct repr *v)
{
    addr_t interp, modules, sys, dict, object;

    if (v->max_unicode)
        return v->max_unicode;
    v->max_unicode = 0x10ffff;
    if (repr_word(v, v->py.interp_head, &interp) == 0 &&
        repr_word(v, interp + (addr_t)v->py.layout.in_modules, &modules) == 0 &&
        objects_dict_get(&v->py, modules, "sys", &sys) == 0 && repr_word(v, sys + 16, &dict) == 0 &&
        objects_dict_get(&v->py, dict, "maxunicode", &object) == 0)
        repr_word(v, object + 16, &v->max_unicode);
    return v->max_unicode;
}

/* 2.7: PyUnicodeObject has the length at 16 and a pointer at 24 (unicodeobject.h). */
static int shape_of_unicode(struct repr *v, addr_t object, struct str_shape *ret)
{
    uint64_t length_and_data[2];
    int r = repr_read(v, object + 16, length_and_data, sizeof(length_and_data));

    if (r < 0 || length_and_data[0] > INT64_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    *ret = (struct str_shape){
        .length = length_and_data[0], .kind = max_unicode(v) == 0xffff ? 2 : 4, .data = length_and_data[1]};
    return 0;
}

/* ---- characters ---- */

static void put_escaped(struct repr *v, uint32_t cp)
{
    repr_printf(v, cp <= 0xff ? "\\x%02" PRIx32 : cp <= 0xffff ? "\\u%04" PRIx32 : "\\U%08" PRIx32, cp);
}

static void put_character(struct repr *v, const struct style *style, uint32_t cp)
{
    static const char from[] = "\t\n\r", to[] = "tnr";
    const char *named = cp < 0x20 && cp ? strchr(from, (int)cp) : NULL;
    char utf8[4];

    if (cp == (unsigned char)style->quote || cp == '\\' || (style->quotes && cp == '\''))
        repr_printf(v, "\\%c", (int)cp);
    else if (named)
        repr_printf(v, "\\%c", to[named - from]);
    else if (cp < 0x20 || cp == 0x7f || (cp > 0x7f && (style->ascii_only || style->bytes || !printable_is(cp))))
        put_escaped(v, cp);
    else
        repr_put_bytes(v, utf8, utf8_encode(cp, utf8));
}

static int read_chunk(struct repr *v, const struct str_shape *s, uint64_t at, size_t n, uint32_t *out)
{
    unsigned char bytes[CHUNK * 4];
    int r = repr_read(v, s->data + at * (uint64_t)s->kind, bytes, n * (size_t)s->kind);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        memcpy(&out[i], bytes + i * (size_t)s->kind, (size_t)s->kind);
    }
    return 0;
}

/* Single quotes, unless the text contains single quotes but no double quotes. */
static int choose_quote(struct repr *v, const struct str_shape *s, uint64_t n, char *ret)
{
    uint32_t chunk[CHUNK];
    bool has_single = false, has_double = false;

    for (uint64_t at = 0; at < n; at += CHUNK) {
        size_t len = n - at < CHUNK ? n - at : CHUNK;
        int r = read_chunk(v, s, at, len, chunk);

        if (r < 0)
            return r;
        for (size_t i = 0; i < len; i++) {
            has_single |= chunk[i] == '\'';
            has_double |= chunk[i] == '"';
        }
    }
    *ret = has_single && !has_double ? '"' : '\'';
    return 0;
}

/* 2.7 with 2-byte characters shows a surrogate pair as one character. */
static bool is_surrogate_pair(const struct style *style, int kind, uint32_t a, uint32_t b)
{
    return style->ascii_only && kind == 2 && a >= 0xd800 && a <= 0xdbff && b >= 0xdc00 && b <= 0xdfff;
}

static int put_chunks(struct repr *v, const struct str_shape *s, uint64_t n, const struct style *style)
{
    uint32_t chunk[CHUNK + 1];

    for (uint64_t at = 0; at < n;) {
        size_t len = n - at < CHUNK ? n - at : CHUNK, i = 0;
        int r = read_chunk(v, s, at, len, chunk);

        if (r < 0)
            return r;
        chunk[len] = 0;
        for (; i < len && repr_room(v); i++) {
            if (i + 1 == len && at + len < n && is_surrogate_pair(style, s->kind, chunk[i], 0xdc00) && i)
                break; /* the other half is in the next chunk */
            if (is_surrogate_pair(style, s->kind, chunk[i], chunk[i + 1])) {
                put_escaped(v, 0x10000 + ((chunk[i] & 0x3ff) << 10 | (chunk[i + 1] & 0x3ff)));
                i++;
            } else {
                put_character(v, style, chunk[i]);
            }
        }
        at += i;
        if (!repr_room(v) && at < n)
            return 1;
    }
    return 0;
}

/* "..." after the closing quote marks a cut. */
static int put_quoted(struct repr *v, const struct str_shape *s, struct style style)
{
    size_t room = repr_room(v);
    uint64_t n = s->length < room ? s->length : room;
    int r = choose_quote(v, s, n, &style.quote);

    if (r < 0)
        return r;
    repr_put_bytes(v, &style.quote, 1);
    r = put_chunks(v, s, n, &style);
    if (r < 0)
        return r;
    repr_put_bytes(v, &style.quote, 1);
    if (r > 0 || n < s->length)
        repr_put(v, "...");
    return 0;
}

/* ---- objects ---- */

int str_write_bytes(struct repr *v, addr_t object, const struct repr_type *t)
{
    const struct layout *l = &v->py.layout;
    struct str_shape shape = {.kind = 1, .data = object + (addr_t)l->by_data};
    int r = repr_word(v, object + (addr_t)l->by_size, &shape.length);

    (void)t;
    if (r < 0 || shape.length > INT64_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    if (!(l->repr_flags & REPR_PY2))
        repr_put(v, "b");
    return put_quoted(v, &shape, (struct style){.bytes = true});
}

int str_write(struct repr *v, addr_t object, const struct repr_type *t)
{
    struct str_shape shape;
    int r;

    if (v->py.layout.repr_flags & REPR_PY2)
        return str_write_bytes(v, object, t);
    r = shape_of_str(v, object, &shape);
    return r < 0 ? r : put_quoted(v, &shape, (struct style){0});
}

int str_write_unicode(struct repr *v, addr_t object, const struct repr_type *t)
{
    struct str_shape shape;
    int r = shape_of_unicode(v, object, &shape);

    (void)t;
    if (r < 0)
        return r;
    repr_put(v, "u");
    return put_quoted(v, &shape, (struct style){.ascii_only = true});
}

int str_write_bytearray(struct repr *v, addr_t object, const struct repr_type *t)
{
    struct style style = {.bytes = true, .quotes = v->py.layout.repr_flags & REPR_ARRAY_QUOTES};
    struct str_shape shape = {.kind = 1};
    int r = repr_word(v, object + 16, &shape.length);

    if (r == 0)
        r = repr_word(v, object + (addr_t)v->py.layout.ba_start, &shape.data);
    if (r < 0 || shape.length > INT64_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    repr_printf(v, "%s(b", t->name);
    r = put_quoted(v, &shape, style);
    repr_put(v, ")");
    return r;
}

bool str_read_key(struct repr *v, addr_t object, char out[REPR_KEY_MAX])
{
    const struct repr_type *t = repr_type_of(v, object);
    const struct layout *l = &v->py.layout;
    struct str_shape s = {.kind = 1, .data = object + (addr_t)l->by_data};
    uint32_t chars[REPR_KEY_MAX / 4];
    size_t n, len = 0;
    int r;

    if (!t)
        return false;
    if (t->row->write == str_write_unicode)
        r = shape_of_unicode(v, object, &s);
    else if (t->row->write == str_write && !(l->repr_flags & REPR_PY2))
        r = shape_of_str(v, object, &s);
    else if (t->row->write == str_write_bytes || t->row->write == str_write)
        r = repr_word(v, object + (addr_t)l->by_size, &s.length);
    else
        return false;
    n = s.length < REPR_KEY_MAX / 4 - 1 ? s.length : REPR_KEY_MAX / 4 - 1;
    if (r < 0 || read_chunk(v, &s, 0, n, chars) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        len += utf8_encode(chars[i], out + len);
    out[len] = '\0';
    return true;
}

int str_put_name(struct repr *v, addr_t object)
{
    const char *name;
    int r = strings_read(&v->py, object, &name);

    if (r == 0)
        repr_put(v, name);
    return r;
}
