/*
 * Strict UTF-8: overlong forms and surrogates are invalid.
 */
#include "base/utf8.h"

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp == 0 || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        cp = UTF8_REPLACEMENT;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | (cp >> 6));
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | (cp >> 12));
        out[1] = (char)(0x80 | ((cp >> 6) & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (cp >> 18));
    out[1] = (char)(0x80 | ((cp >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((cp >> 6) & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t utf8_decode(const char *s, size_t len, uint32_t *ret_cp)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)s[0];
    size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    uint32_t cp = n == 1 ? c : c & (0x7fu >> n);

    *ret_cp = UTF8_REPLACEMENT;
    if ((c >= 0x80 && c < 0xc0) || c >= 0xf8 || n > len)
        return 1;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 1;
        cp = (cp << 6) | ((unsigned char)s[i] & 0x3f);
    }
    if (cp < least[n] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        return 1;
    *ret_cp = cp;
    return n;
}

size_t utf8_next(const char *s, uint32_t *ret_cp)
{
    return *s ? utf8_decode(s, 4, ret_cp) : 0; /* a NUL is no continuation: the decoder stops there */
}

size_t utf8_clean(const char *s, size_t len, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        uint32_t cp;

        i += utf8_decode(s + i, len - i, &cp);
        n += utf8_encode(cp, out + n);
    }
    return n;
}
