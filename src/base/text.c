/*
 * Sanitizes strings from a target or a user before they are printed.
 */
#include "base/text.h"

#include "base/utf8.h"

#include <string.h>

/* Sorted. Most of the invisible ones have the Unicode property Default_Ignorable_Code_Point. U+FE00 to U+FE0F are left
 * out: emoji need them. */
static const struct {
    uint32_t first, last;
} hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x61c, 0x61c},
    {0x115f, 0x1160}, {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f}, {0x3164, 0x3164},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},
    {0xfffe, 0xffff}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool text_is_hidden(uint32_t cp)
{
    size_t i = 0;

    if (cp >= 0x20 && cp < 0x7f)
        return false;
    while (i < sizeof(hidden) / sizeof(hidden[0]) && cp > hidden[i].last)
        i++;
    return i < sizeof(hidden) / sizeof(hidden[0]) && cp >= hidden[i].first;
}

unsigned text_columns(uint32_t cp)
{
    bool wide = (cp >= 0x1100 && cp <= 0x115f) || (cp >= 0x2e80 && cp <= 0xa4cf) || (cp >= 0xac00 && cp <= 0xd7a3) ||
                (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0xfe30 && cp <= 0xfe6f) || (cp >= 0xff00 && cp <= 0xff60) ||
                (cp >= 0x1f000 && cp <= 0x3ffff);

    return wide ? 2 : 1;
}

size_t text_fit(const char *s, size_t max)
{
    size_t bytes = 0, columns = 0, len;
    uint32_t cp;

    while ((len = utf8_next(s + bytes, &cp)) > 0) {
        columns += text_columns(cp);
        if (columns > max)
            break;
        bytes += len;
    }
    return bytes;
}

#define ESCAPE_ROOM 12 /* for the longest, \U000e0041, and its NUL */

/* The escape of a character of `len` bytes that must not be shown as it is; 0 when it may be. */
static size_t text_escape(const char *s, size_t len, uint32_t cp, char ret[ESCAPE_ROOM])
{
    static const char named[] = "tn\0\0r"; /* from 9, tab, to 13, carriage return */
    bool invalid = cp == UTF8_REPLACEMENT && len == 1;

    if (!invalid && !text_is_hidden(cp))
        return 0;
    if (cp >= 9 && cp <= 13 && named[cp - 9] != 0)
        return (size_t)snprintf(ret, ESCAPE_ROOM, "\\%c", named[cp - 9]);
    if (invalid || cp < 0x80)
        return (size_t)snprintf(ret, ESCAPE_ROOM, "\\x%02x", (unsigned)(unsigned char)*s);
    if (cp >= 0x10000)
        return (size_t)snprintf(ret, ESCAPE_ROOM, "\\U%08x", (unsigned)cp);
    return (size_t)snprintf(ret, ESCAPE_ROOM, "\\u%04x", (unsigned)cp & 0xffff);
}

/* A few marks that terminals draw over the character before them. */
static bool is_mark(uint32_t cp)
{
    return (cp >= 0x300 && cp <= 0x36f) || (cp >= 0x20d0 && cp <= 0x20ff) || (cp >= 0xfe00 && cp <= 0xfe0f);
}

size_t text_safe_columns(const char *s, size_t n)
{
    char escape[ESCAPE_ROOM];
    size_t columns = 0, len;
    uint32_t cp;

    for (size_t i = 0; i < n && (len = utf8_next(s + i, &cp)) > 0; i += len) {
        size_t escaped = text_escape(s + i, len, cp, escape);

        columns += escaped ? escaped : is_mark(cp) ? 0 : text_columns(cp);
    }
    return columns;
}

void text_print_safe(FILE *out, const char *s)
{
    const char *plain = s; /* start of what can be written as it is */
    char escape[ESCAPE_ROOM];
    size_t len, n;
    uint32_t cp;

    for (; (len = utf8_next(s, &cp)) > 0; s += len) {
        n = text_escape(s, len, cp, escape);
        if (n == 0)
            continue;
        fwrite(plain, 1, (size_t)(s - plain), out);
        fwrite(escape, 1, n, out);
        plain = s + len;
    }
    fwrite(plain, 1, (size_t)(s - plain), out);
}

void text_copy_safe(char *to, size_t size, const char *s)
{
    char escape[ESCAPE_ROOM];
    size_t used = 0, len, n;
    uint32_t cp;

    for (; (len = utf8_next(s, &cp)) > 0; s += len) {
        size_t escaped = text_escape(s, len, cp, escape);

        n = escaped ? escaped : len;
        if (used + n + sizeof("...") > size) {
            memcpy(to + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(to + used, escaped ? escape : s, n);
        used += n;
    }
    to[used] = '\0';
}

struct text_safe text_safe(const char *s)
{
    struct text_safe ret;

    text_copy_safe(ret.s, sizeof(ret.s), s);
    return ret;
}
