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

/* CPU time used by this process. Use it to limit work: unlike wall time, it does not advance while other processes have
 * the CPU. */
uint64_t clock_cpu_ns(void);

/* Sleeps until `when` on the clock_now_ns clock. Returns nonzero if a signal interrupts the sleep. */
int clock_sleep_until_ns(uint64_t when);
void clock_sleep_ns(uint64_t ns);

/* Sets this thread's timer slack to 1 ns. With the default of 50 us, every sleep may end that much late. */
void clock_set_min_timer_slack(void);

#endif
