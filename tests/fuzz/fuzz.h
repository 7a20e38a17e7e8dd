/*
 * A fuzz target is one function over arbitrary bytes, which must always return. Linked with libFuzzer, or with driver.c
 * as a plain test.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0; or -1 if the input would be useless in the corpus, as libFuzzer understands it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
