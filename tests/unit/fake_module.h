/*
 * Programs and libraries in synthetic memory, as unwind/ finds them: an ELF header, code, unwind tables. Also real
 * files, mapped as a loader maps them.
 */
#ifndef TESTS_UNIT_FAKE_MODULE_H
#define TESTS_UNIT_FAKE_MODULE_H

#include "fake_cfi.h"
#include "fake_mem.h"
#include "target/proc.h"

#include <elf.h>

#define FAKE_MODULE_SIZE   0x8000
#define FAKE_MODULE_CODE   0x1000 /* start of its code */
#define FAKE_MODULE_HEADER 0x4000 /* .eh_frame_hdr */
#define FAKE_MODULE_FRAME  0x5000 /* .eh_frame */

/* One segment for everything; its addresses begin at 0, `at` is its bias. */
void fake_module_put(struct fake_mem *m, addr_t at);
void fake_module_phdr(struct fake_mem *m, addr_t at, size_t i, const Elf64_Phdr *phdr); /* changes or adds one */

/* Tables for these addresses: `frame` at FAKE_MODULE_FRAME of the module, and its header. */
void fake_module_tables(struct fake_mem *m, addr_t at, const struct fake_cfi *frame, const uint64_t *starts,
                        const size_t *offsets, size_t n);

/* Maps the segments of a file; returns their total size. */
size_t fake_module_map(struct fake_mem *m, addr_t at, const char *path);

/* Parses maps from text as in /proc/PID/maps. */
struct proc_maps fake_module_maps(const char *text);

#endif
