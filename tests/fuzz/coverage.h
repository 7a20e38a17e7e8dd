/*
 * Which code an input has reached. Counts only in a build with -fsanitize-coverage=trace-pc (`make fuzzers`); in others, no
 * input reaches anything new.
 */
#ifndef TESTS_FUZZ_COVERAGE_H
#define TESTS_FUZZ_COVERAGE_H

#include <stdbool.h>
#include <stddef.h>

/* True if a branch was taken for the first time since the last call. */
bool coverage_is_new(void);

/* Branches taken so far, roughly: some share a number. */
size_t coverage_count(void);

#endif
