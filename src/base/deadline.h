/*
 * The time by which a dump must have an answer, for everything that reads or waits. Without one, nothing is ever late.
 *
 *     deadline_set(30 * NS_PER_S);
 *     while (!deadline_passed() && ...)
 *     wait(deadline_cap(200 * NS_PER_MS));
 */
#ifndef BASE_DEADLINE_H
#define BASE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

/* So many nanoseconds from now; 0: none. */
void deadline_set(uint64_t ns);

bool deadline_passed(void);
/* The shorter of `ns` and the time that is left. */
uint64_t deadline_cap(uint64_t ns);

/* True after two thirds of the time: names and lines are given up before stacks. */
bool deadline_passed_for_names(void);

#endif
