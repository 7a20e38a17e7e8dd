/*
 * A symbol as the compiler wrote it -> the name a person knows: without the version and the compiler's endings, C++
 * and Rust spelled out, without parameters, return type and Rust's hash.
 *
 *     demangle_name("_ZN3foo3barIiEEvT_.constprop.0", ...)    ->  foo::bar<int>
 *     demangle_name("memcpy@@GLIBC_2.14", ...)                ->  memcpy
 *
 * Of names that fill more than a line the template arguments are left out: std::function<...>::operator().
 */
#ifndef ELF_DEMANGLE_H
#define ELF_DEMANGLE_H

#include <stddef.h>

#define DEMANGLE_ROOM 2048 /* of a name with its NUL: longer ones end in "..." */

/* Writes valid UTF-8 and returns its length; 0 for an empty name. */
size_t demangle_name(const char *symbol, char ret[DEMANGLE_ROOM]);

/* The length of `symbol` without its version and what the compiler put at its end: `.cold`, `.isra.0`, `.llvm.123`. */
size_t demangle_stem(const char *symbol);

#endif
