/*
 * _Py_DebugOffsets -> struct layout. Pure functions; the bytes come from the target and may hold
 * anything.
 */
#include "python/debug_offsets.h"

#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define OFFSET_MAX (4 * 1024 * 1024) /* PyInterpreterState is about 300 KB */

static uint64_t word_at(const unsigned char *bytes, size_t at)
{
    uint64_t value;

    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

void debug_offsets_split_version(uint64_t hex, struct debug_version *ret)
{
    static const char *const levels[16] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};
    unsigned int level = hex >> 4 & 15;

    *ret = (struct debug_version){.major = (int)(hex >> 24 & 255),
                                  .minor = (int)(hex >> 16 & 255),
                                  .patch = (int)(hex >> 8 & 255),
                                  .final = level == 0xf};
    if (levels[level])
        snprintf(ret->suffix, sizeof(ret->suffix), "%s%u", levels[level], (unsigned int)(hex & 15));
}

bool debug_offsets_version(const unsigned char *bytes, size_t len, struct debug_version *ret)
{
    uint64_t hex;

    if (len < 24 || memcmp(bytes, DEBUG_OFFSETS_COOKIE, 8) != 0)
        return false;
    hex = word_at(bytes, 8);
    if (hex >> 32 || hex >> 24 != 3)
        return false;
    debug_offsets_split_version(hex, ret);
    ret->free_threaded = word_at(bytes, 16) != 0;
    return true;
}

static int read_offset(const unsigned char *bytes, size_t len, size_t at, int *ret)
{
    uint64_t value;

    if (at + 8 > len)
        return ERR_BOUNDS;
    value = word_at(bytes, at);
    if (value > OFFSET_MAX)
        log_often(LOG_LEVEL_DEBUG, "layout", at, "debug offset in byte %zu is %#llx: too large", at,
                  (unsigned long long)value);
    if (value > OFFSET_MAX)
        return ERR_BOUNDS;
    *ret = (int)value;
    return 0;
}

/* The offsets of the GIL are relative to PyInterpreterState, but a shared GIL belongs to another interpreter. Make
 * them relative to the GIL itself. */
static int apply_gil(const unsigned char *bytes, size_t len, size_t column, struct layout *l)
{
    size_t start = debug_offset_gil(column);
    int gil, locked, holder;

    if (read_offset(bytes, len, start, &gil) < 0 || read_offset(bytes, len, start + 16, &locked) < 0 ||
        read_offset(bytes, len, start + 24, &holder) < 0 || locked < gil || holder < gil)
        return ERR_BOUNDS;
    l->gil_locked = locked - gil;
    l->gil_holder = holder - gil;
    return 0;
}

/* Each buffer that is read in one go must contain every field that is used from it. */
static bool sizes_fit(const struct layout *l)
{
    return l->fr_size >= 16 && l->fr_size <= 512 && l->fr_code + 8 <= l->fr_size && l->fr_back + 8 <= l->fr_size &&
           l->fr_instr + 8 <= l->fr_size && l->fr_stacktop + 8 <= l->fr_size && l->fr_owner < l->fr_size &&
           l->co_size <= 512 && l->str_state < 64 && l->str_length + 8 <= l->str_state && l->str_ascii < 256 &&
           l->str_compact < 256 && l->ts_chunk < 1024 && l->ts_frame < 1024 && l->ts_next < 1024 &&
           l->ts_interp < 1024 && l->ts_thread_id < 1024 && l->ts_native_id < 1024 && l->by_data < 256;
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

int debug_offsets_apply(const unsigned char *bytes, size_t len, struct layout *l)
{
    struct layout out = *l;
    size_t column = (size_t)(l->minor - DEBUG_OFFSETS_FIRST_MINOR);
    const struct debug_offset *entry;

    if (l->minor < DEBUG_OFFSETS_FIRST_MINOR || column >= DEBUG_OFFSETS_VERSIONS)
        return ERR_VERSION;
    for (size_t i = 0; (entry = debug_offset_nth(i)); i++) {
        int value;

        if (!entry->at[column])
            continue;
        if (read_offset(bytes, len, entry->at[column], &value) < 0)
            return ERR_BOUNDS;
        memcpy((char *)&out + entry->field, &value, sizeof(value));
    }
    out.co_size = max_of(max_of(out.co_filename, out.co_name), max_of(out.co_qualname, out.co_lines)) + 8;
    out.co_size = max_of(out.co_size, out.co_firstline + 4);
    if (!sizes_fit(&out))
        log_often(LOG_LEVEL_DEBUG, "layout", 0,
                  "debug offsets: a field lies outside of its struct (frame %d bytes, code %d)", out.fr_size,
                  out.co_size);
    if (apply_gil(bytes, len, column, &out) < 0 || !sizes_fit(&out))
        return ERR_BOUNDS;
    *l = out;
    return 0;
}
