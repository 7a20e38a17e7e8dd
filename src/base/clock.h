/*
 * Monotonic time and CPU time in nanoseconds.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull

uint64_t clock_now_ns(void);

/* CPU time that this process has used. For limits on work: a busy machine does not use them up. */
uint64_t clock_cpu_ns(void);

/* Sleeps until the absolute time; returns early (nonzero) when a signal came. */
int clock_sleep_until_ns(uint64_t when);
void clock_sleep_ns(uint64_t ns);

/* The kernel may otherwise let us sleep 50 us longer than asked. */
void clock_be_precise(void);

#endif
