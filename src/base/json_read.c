/*
 * A pull parser for JSON. It keeps a stack of what is open, so that it does not recurse.
 */
#include "base/json_read.h"

#include "base/grow.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 18 /* of an integer; more do not always fit into 64 bits */

static bool fail(struct json_reader *r, const char *why)
{
    if (!r->why)
        r->why = r->at < r->len ? why : "the text ends too early";
    return false;
}

static char look(const struct json_reader *r)
{
    return r->why || r->at >= r->len ? '\0' : r->s[r->at];
}

static void skip_blanks(struct json_reader *r)
{
    while (r->at < r->len && strchr(" \t\r\n", r->s[r->at]) && r->s[r->at])
        r->at++;
}

char json_read_peek(struct json_reader *r)
{
    skip_blanks(r);
    return look(r);
}

/* ---- strings ---- */

static bool add_bytes(struct json_reader *r, const char *s, size_t n)
{
    if (r->skipping)
        return true;
    /* Each byte may become U+FFFD, which has three. */
    if (grow_array((void **)&r->text, &r->cap_text, r->text_len + 3 * n + 1, 1) < 0)
        return fail(r, "out of memory");
    r->text_len += utf8_clean(s, n, r->text + r->text_len);
    r->text[r->text_len] = '\0';
    return true;
}

/* The four digits after \u. */
static bool take_hex(struct json_reader *r, uint32_t *ret)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++, r->at++) {
        char c = look(r);

        if (!isxdigit((unsigned char)c))
            return fail(r, "invalid escape in a string");
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    *ret = value;
    return true;
}

/* What follows a backslash. Half of a surrogate pair becomes U+FFFD. */
static bool take_escape(struct json_reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = look(r), bytes[4];
    const char *named = c ? strchr(from, c) : NULL;
    uint32_t cp, low;

    r->at++;
    if (named)
        return add_bytes(r, &to[named - from], 1);
    if (c != 'u')
        return fail(r, "invalid escape in a string");
    if (!take_hex(r, &cp))
        return false;
    if (cp >= 0xd800 && cp < 0xdc00 && r->len - r->at >= 6 && r->s[r->at] == '\\' && r->s[r->at + 1] == 'u') {
        size_t before = r->at;

        r->at += 2;
        if (!take_hex(r, &low))
            return false;
        if (low >= 0xdc00 && low < 0xe000)
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        else
            r->at = before;
    }
    return add_bytes(r, bytes, utf8_encode(cp, bytes));
}

static bool take_string(struct json_reader *r)
{
    r->at++; /* the quote */
    r->text_len = 0;
    if (!add_bytes(r, "", 0))
        return false;
    while (r->at < r->len) {
        size_t n = 0;

        while (r->at + n < r->len && (unsigned char)r->s[r->at + n] >= 0x20 && r->s[r->at + n] != '"' &&
               r->s[r->at + n] != '\\')
            n++;
        if (!add_bytes(r, r->s + r->at, n))
            return false;
        r->at += n;
        if (look(r) == '"') {
            r->at++;
            return true;
        }
        if (look(r) != '\\')
            break;
        r->at++;
        if (!take_escape(r))
            return false;
    }
    return fail(r, "control character in a string");
}

/* ---- values ---- */

static bool take_word(struct json_reader *r, const char *word)
{
    size_t n = strlen(word);

    if (r->len - r->at < n || memcmp(r->s + r->at, word, n) != 0)
        return fail(r, "not JSON");
    r->at += n;
    return true;
}

static size_t take_digits(struct json_reader *r)
{
    size_t n = 0;

    while (isdigit((unsigned char)look(r)))
        r->at++, n++;
    return n;
}

/* False with r->why unset: it is not an integer, or too large. */
static bool take_number(struct json_reader *r, int64_t *ret)
{
    bool negative = look(r) == '-', is_integer = true;
    size_t from, digits;
    int64_t value = 0;

    r->at += negative;
    from = r->at;
    digits = take_digits(r);
    if (!digits || (digits > 1 && r->s[from] == '0'))
        return fail(r, "invalid number");
    for (size_t i = 0; i < digits && digits <= MAX_DIGITS; i++)
        value = value * 10 + (r->s[from + i] - '0');
    if (look(r) == '.') {
        r->at++;
        is_integer = false;
        if (!take_digits(r))
            return fail(r, "invalid number");
    }
    if (look(r) == 'e' || look(r) == 'E') {
        r->at++;
        is_integer = false;
        if (look(r) == '+' || look(r) == '-')
            r->at++;
        if (!take_digits(r))
            return fail(r, "invalid number");
    }
    if (!is_integer || digits > MAX_DIGITS)
        return false;
    *ret = negative ? -value : value;
    return true;
}

static bool enter(struct json_reader *r, char kind)
{
    if (r->depth == JSON_READ_DEPTH)
        return fail(r, "nested too deeply");
    r->at++;
    r->close[r->depth] = kind == '[' ? ']' : '}';
    r->begun[r->depth++] = false;
    return true;
}

/* The separator before the next item of what was opened last. False: it ends, or an error. */
static bool next_item(struct json_reader *r)
{
    char c = json_read_peek(r);

    if (r->why || !r->depth)
        return false;
    if (c == r->close[r->depth - 1]) {
        r->at++;
        r->depth--;
        return false;
    }
    if (r->begun[r->depth - 1]) {
        if (c != ',')
            return fail(r, "expected a comma");
        r->at++;
        c = json_read_peek(r);
    }
    r->begun[r->depth - 1] = true;
    return c ? true : fail(r, "expected a value");
}

static bool take_key(struct json_reader *r)
{
    if (look(r) != '"')
        return fail(r, "expected a key");
    if (!take_string(r))
        return false;
    if (json_read_peek(r) != ':')
        return fail(r, "expected a colon");
    r->at++;
    return true;
}

/* Reads a value that is no array or object, and drops it. */
static void skip_scalar(struct json_reader *r)
{
    int64_t ignored;
    char c = json_read_peek(r);

    if (c == '"')
        take_string(r);
    else if (c == '-' || isdigit((unsigned char)c))
        take_number(r, &ignored);
    else
        take_word(r, c == 't' ? "true" : c == 'f' ? "false" : "null");
}

static void skip_value(struct json_reader *r)
{
    size_t floor = r->depth;

    do {
        char c = json_read_peek(r);

        if (c == '[' || c == '{')
            enter(r, c);
        else if (!r->why)
            skip_scalar(r);
        /* To the next value, out of everything that ends here. */
        while (!r->why && r->depth > floor) {
            size_t depth = r->depth;

            if (!next_item(r)) {
                if (r->depth == depth)
                    return;
                continue;
            }
            if (r->close[r->depth - 1] == '}')
                take_key(r);
            break;
        }
    } while (!r->why && r->depth > floor);
}

void json_read_skip(struct json_reader *r)
{
    r->skipping = true;
    skip_value(r);
    r->skipping = false;
}

bool json_read_open(struct json_reader *r, char kind)
{
    if (json_read_peek(r) == kind)
        return enter(r, kind);
    json_read_skip(r);
    return false;
}

bool json_read_item(struct json_reader *r)
{
    return next_item(r);
}

bool json_read_key(struct json_reader *r, const char **ret_key)
{
    if (!next_item(r) || !take_key(r))
        return false;
    *ret_key = r->text;
    return true;
}

bool json_read_string(struct json_reader *r, const char **ret)
{
    if (json_read_peek(r) != '"') {
        json_read_skip(r);
        return false;
    }
    if (!take_string(r))
        return false;
    *ret = r->text;
    return true;
}

bool json_read_integer(struct json_reader *r, int64_t *ret)
{
    char c = json_read_peek(r);

    if (c == '-' || isdigit((unsigned char)c))
        return take_number(r, ret);
    json_read_skip(r);
    return false;
}

bool json_read_bool(struct json_reader *r, bool *ret)
{
    char c = json_read_peek(r);

    json_read_skip(r);
    if (r->why || (c != 't' && c != 'f'))
        return false;
    *ret = c == 't';
    return true;
}

bool json_read_end(struct json_reader *r)
{
    skip_blanks(r);
    if (!r->why && (r->depth || r->at < r->len))
        fail(r, "text after the end");
    return !r->why;
}

void json_read_free(struct json_reader *r)
{
    free(r->text);
    r->text = NULL;
    r->text_len = r->cap_text = 0;
}
