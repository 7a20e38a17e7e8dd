/*
 * Turns a symbol into a readable name: demangles C++ and Rust, and drops symbol versions, compiler suffixes,
 * parameters, return types and Rust's hash.
 *
 *     _ZN3foo3barIiEEvT_.constprop.0  ->  foo::bar<int>
 *     memcpy@@GLIBC_2.14              ->  memcpy
 *
 * Elides the template arguments of very long names: std::function<...>::operator().
 */
#ifndef ELF_DEMANGLE_H
#define ELF_DEMANGLE_H

#include <stddef.h>

#define DEMANGLE_ROOM 2048 /* bytes of a name with its NUL; longer names end in "..." */

/* Writes valid UTF-8 and returns its length; 0 for an empty name. */
size_t demangle_name(const char *symbol, char ret[DEMANGLE_ROOM]);

/* The length of `symbol` without its version and compiler suffixes such as `.cold`, `.isra.0` and `.llvm.123`. */
size_t demangle_base_length(const char *symbol);

#endif
