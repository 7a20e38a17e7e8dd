/*
 * Sanitizes strings from a target before they are printed. The output is valid UTF-8 without control characters.
 */
#include "base/text.h"

#include "base/utf8.h"

#include <string.h>

bool text_is_control(uint32_t cp)
{
    if (cp < 0x20 || (cp >= 0x7f && cp <= 0x9f))
        return true;
    if (cp == 0x061c || cp == 0x200e || cp == 0x200f || cp == 0xfeff)
        return true;
    return (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
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

#define ESCAPE_ROOM 8 /* for the longest, \u2069, and its NUL */

/* The escape of a character of `len` bytes that must not be shown as it is; 0 when it may be. */
static size_t text_escape(const char *s, size_t len, uint32_t cp, char ret[ESCAPE_ROOM])
{
    static const char named[] = "tn\0\0r"; /* from 9, tab, to 13, carriage return */
    bool invalid = cp == UTF8_REPLACEMENT && len == 1;

    if (!invalid && !text_is_control(cp))
        return 0;
    if (cp >= 9 && cp <= 13 && named[cp - 9] != 0)
        return (size_t)snprintf(ret, ESCAPE_ROOM, "\\%c", named[cp - 9]);
    if (invalid || cp < 0x80)
        return (size_t)snprintf(ret, ESCAPE_ROOM, "\\x%02x", (unsigned)(unsigned char)*s);
    return (size_t)snprintf(ret, ESCAPE_ROOM, "\\u%04x", (unsigned)cp & 0xffff);
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

struct text_safe text_safe(const char *s)
{
    struct text_safe ret = {0};
    char escape[ESCAPE_ROOM];
    size_t used = 0, len, n;
    uint32_t cp;

    for (; (len = utf8_next(s, &cp)) > 0; s += len) {
        size_t escaped = text_escape(s, len, cp, escape);

        n = escaped ? escaped : len;
        if (used + n + sizeof("...") > sizeof(ret.s)) {
            memcpy(ret.s + used, "...", 3);
            break;
        }
        memcpy(ret.s + used, escaped ? escape : s, n);
        used += n;
    }
    return ret;
}
