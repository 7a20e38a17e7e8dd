/*
 * UTF-8 encoding and decoding. Decoding never fails: invalid bytes become U+FFFD.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffdu

/* Encodes `cp` and returns the number of bytes, 1 to 4. NUL, surrogates and values above U+10FFFF become U+FFFD. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* Decodes the first code point of the `len` > 0 bytes at `s` and returns its length. An invalid byte has length 1. */
size_t utf8_decode(const char *s, size_t len, uint32_t *ret_cp);

/* The same for a text that ends with NUL; 0 at its end. Nothing behind the NUL is read. */
size_t utf8_next(const char *s, uint32_t *ret_cp);

/* Copies `len` bytes to `out`, invalid ones and NULs as U+FFFD. `out` has room for 3 * len bytes. Returns the length. */
size_t utf8_clean(const char *s, size_t len, char *out);

#endif
