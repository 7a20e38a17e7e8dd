/*
 * Reads JSON (RFC 8259) from memory, value by value, without building a tree. The text is untrusted: depth is bounded, and after the
 * first error every function fails.
 *
 *     struct json_reader r = {.s = text, .len = len};
 *     if (json_read_open(&r, '{'))
 *         while (json_read_key(&r, &key))
 *             if (strcmp(key, "pid") == 0)
 *                 json_read_integer(&r, &pid);
 *             else
 *                 json_read_skip(&r);
 *     ok = json_read_end(&r);
 *     json_read_free(&r);
 */
#ifndef BASE_JSON_READ_H
#define BASE_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_READ_DEPTH 256

struct json_reader {
    const char *s;
    size_t len;
    size_t at;
    const char *why; /* the first error, in a few words; NULL: none so far */
    size_t depth;
    char close[JSON_READ_DEPTH]; /* what ends each open array and object */
    bool begun[JSON_READ_DEPTH]; /* it has had an item */
    char *text;                  /* the last key or string */
    size_t text_len, cap_text;
    bool skipping; /* strings are not copied */
};

/* The first character of the next value: one of [ { " t f n - or a digit; '\0' after an error or at the end of the text. */
char json_read_peek(struct json_reader *r);

/* Enters an array or object; `kind` is '[' or '{'. False: it is another value, which is skipped, or an error. */
bool json_read_open(struct json_reader *r, char kind);

/* Moves to the next item of the array that was entered last. False: there is none, and the array is left. */
bool json_read_item(struct json_reader *r);

/* The same for an object. *ret_key is valid until the next key or string is read. */
bool json_read_key(struct json_reader *r, const char **ret_key);

/* Reads a string: valid UTF-8 without NUL, which become U+FFFD. It is valid until the next key or string is read. False: it is
 * another value, such as null, which is skipped, or an error. */
bool json_read_string(struct json_reader *r, const char **ret);

/* The same for an integer. A number with a fraction or an exponent, or one that does not fit, counts as another value. */
bool json_read_integer(struct json_reader *r, int64_t *ret);

/* The same for true and false. */
bool json_read_bool(struct json_reader *r, bool *ret);

/* Skips a value with all that is in it. */
void json_read_skip(struct json_reader *r);

/* True if there was no error and nothing follows the value that was read. */
bool json_read_end(struct json_reader *r);

void json_read_free(struct json_reader *r);

#endif
