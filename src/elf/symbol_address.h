/*
 * Finds one variable or function of a file by its name, local ones included.
 */
#ifndef ELF_SYMBOL_ADDRESS_H
#define ELF_SYMBOL_ADDRESS_H

#include <stdint.h>

/* Sets `*ret` to the address of a defined symbol in .symtab, without the load bias. `fd` stays the caller's. Returns 0,
 * ERR_READ or ERR_NOMEM. */
int symbol_address_find(int fd, const char *name, uint64_t *ret);

#endif
