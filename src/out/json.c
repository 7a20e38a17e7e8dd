/*
 * Writes JSON strings and numbers. Escapes all hidden characters (base/text.h), so that JSON is safe to print on a terminal.
 */
#include "out/json.h"

#include "base/text.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static void json_escape(FILE *out, uint32_t cp)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *named = cp < 0x80 ? memchr(from, (int)cp, sizeof(from) - 1) : NULL;

    if (named != NULL)
        fprintf(out, "\\%c", to[named - from]);
    else if (cp == UTF8_REPLACEMENT)
        fputs("\xef\xbf\xbd", out);
    else if (cp >= 0x10000) /* as a surrogate pair */
        fprintf(out, "\\u%04x\\u%04x", 0xd7c0 + (unsigned)(cp >> 10), 0xdc00 + (unsigned)(cp & 0x3ff));
    else
        fprintf(out, "\\u%04x", (unsigned)cp);
}

void json_string(FILE *out, const char *s)
{
    const char *plain = s; /* start of the run that needs no escape */
    uint32_t cp;
    size_t len;

    if (s == NULL) {
        fputs("null", out);
        return;
    }
    putc('"', out);
    for (; (len = utf8_next(s, &cp)) > 0; s += len) {
        if (cp != '"' && cp != '\\' && cp != UTF8_REPLACEMENT && !text_is_hidden(cp))
            continue;
        fwrite(plain, 1, (size_t)(s - plain), out);
        json_escape(out, cp);
        plain = s + len;
    }
    fwrite(plain, 1, (size_t)(s - plain), out);
    putc('"', out);
}

void json_seconds(FILE *out, uint64_t ns)
{
    char digits[16];
    int n = snprintf(digits, sizeof(digits), "%09" PRIu64, ns % 1000000000);

    while (n > 1 && digits[n - 1] == '0')
        n--;
    fprintf(out, "%" PRIu64 ".%.*s", ns / 1000000000, n, digits);
}
