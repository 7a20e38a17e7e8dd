#include "coverage.h"

#include <stdint.h>

#define BITS  18
#define PLAIN __attribute__((no_sanitize_coverage, no_sanitize("address", "undefined")))

static uint8_t taken[1u << BITS];
static size_t n_taken, n_known;
static uintptr_t last;

/* The compiler calls this in each basic block. */
void __sanitizer_cov_trace_pc(void);
PLAIN void __sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    size_t branch = (size_t)(((here ^ last << 1) * 0x9e3779b97f4a7c15ull) >> (64 - BITS));

    last = here;
    n_taken += !taken[branch];
    taken[branch] = 1;
}

PLAIN bool coverage_is_new(void)
{
    bool is_new = n_taken > n_known;

    n_known = n_taken;
    return is_new;
}

PLAIN size_t coverage_count(void)
{
    return n_taken;
}
