/*
 * UTF-8: decoding that never fails, encoding, and cleaning of bytes that may be anything.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffdu

/* Writes code point `cp` (surrogates, NUL and values out of range become U+FFFD); returns 1 to 4. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* Decodes one code point of `len` > 0 bytes; an invalid byte is U+FFFD and one byte long. */
size_t utf8_decode(const char *s, size_t len, uint32_t *ret_cp);

/* The same for a text that ends with NUL; 0 at its end. Nothing behind the NUL is read. */
size_t utf8_next(const char *s, uint32_t *ret_cp);

/* Copies `len` bytes to `out`, invalid ones and NULs as U+FFFD. `out` has room for 3 * len bytes. Returns the length. */
size_t utf8_clean(const char *s, size_t len, char *out);

#endif
