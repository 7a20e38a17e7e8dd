/*
 * Measures the cost of a test: CPU time and peak memory. Include it from one file of a test executable.
 */
#ifndef TESTS_UNIT_COST_H
#define TESTS_UNIT_COST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/*
 * Seconds of CPU time that hostile input may cost. Such tests take well under a second; an unbounded loop over their
 * input takes hours. 60 s catches the loop and leaves room for slow machines.
 */
#define COST_MAX 60.0

/* Limits ASan's quarantine of freed memory, so that peak memory can be measured. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=1:thread_local_quarantine_size_kb=64";
}

static inline double cost_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline size_t cost_resident_mb(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss / 1024;
}

#endif
