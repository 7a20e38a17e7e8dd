/*
 * Sanitizes strings from a target before they are printed. The output is valid UTF-8 without control characters.
 */
#include "base/text.h"

#include <string.h>

/* Length of the sequence that starts with `c`; 0 if `c` cannot start one. */
static size_t text_utf8_len(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

size_t text_utf8_next(const char *s, uint32_t *ret_cp)
{
    static const unsigned char first_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = text_utf8_len((unsigned char)s[0]);
    uint32_t cp;

    *ret_cp = TEXT_REPLACEMENT;
    if (len == 0)
        return 1;
    cp = (unsigned char)s[0] & first_mask[len];
    for (size_t i = 1; i < len; i++) {
        unsigned char c = (unsigned char)s[i];

        if ((c & 0xc0) != 0x80) /* also true for the final NUL, so nothing is read past it */
            return 1;
        cp = cp << 6 | (c & 0x3f);
    }
    if (cp < lowest[len] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        return 1;
    *ret_cp = cp;
    return cp == 0 ? 0 : len;
}

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

    while ((len = text_utf8_next(s + bytes, &cp)) > 0) {
        columns += text_columns(cp);
        if (columns > max)
            break;
        bytes += len;
    }
    return bytes;
}

static void text_print_escape(FILE *out, uint32_t cp)
{
    static const char named[] = "tn\0\0r"; /* from 9 (tab) to 13 (carriage return) */

    if (cp >= 9 && cp <= 13 && named[cp - 9] != 0)
        fprintf(out, "\\%c", named[cp - 9]);
    else
        fprintf(out, cp < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)cp);
}

void text_print_safe(FILE *out, const char *s)
{
    const char *plain = s; /* start of the run that needs no escape */
    uint32_t cp;
    size_t len;

    for (; (len = text_utf8_next(s, &cp)) > 0; s += len) {
        bool invalid = cp == TEXT_REPLACEMENT && len == 1;

        if (!invalid && !text_is_control(cp))
            continue;
        fwrite(plain, 1, (size_t)(s - plain), out);
        if (invalid)
            fprintf(out, "\\x%02x", (unsigned)(unsigned char)*s);
        else
            text_print_escape(out, cp);
        plain = s + len;
    }
    fwrite(plain, 1, (size_t)(s - plain), out);
}
