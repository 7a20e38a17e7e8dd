/*
 * Reads everything that spyglass reads of a Python process, through any struct mem: the interpreter, its threads and their names,
 * stacks (as if paused and as if running), code objects and, with `locals`, local variables.
 */
#ifndef TESTS_FUZZ_READ_PROCESS_H
#define TESTS_FUZZ_READ_PROCESS_H

#include "target/files.h"
#include "target/mem.h"
#include "target/proc.h"

/* Returns the number of stacks that were read without an error. Aborts if a result is out of its bounds. */
size_t read_process(struct mem *m, const struct proc_maps *maps, const struct files *files, bool locals);

#endif
