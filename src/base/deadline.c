/*
 * A point in time, set once per run.
 */
#include "base/deadline.h"

#include "base/clock.h"

/* An exception to "no mutable globals", like that of the helper: every layer waits for something, and passing the time down would
 * change every signature. 0: no deadline. */
static struct {
    uint64_t end_ns, names_end_ns;
} state;

void deadline_set(uint64_t ns)
{
    uint64_t now = clock_now_ns();

    if (!ns) {
        state.end_ns = state.names_end_ns = 0;
        return;
    }
    state.end_ns = now + ns;
    state.names_end_ns = now + ns / 3 * 2;
}

bool deadline_passed(void)
{
    return state.end_ns && clock_now_ns() >= state.end_ns;
}

uint64_t deadline_cap(uint64_t ns)
{
    uint64_t now = state.end_ns ? clock_now_ns() : 0, left = state.end_ns > now ? state.end_ns - now : 0;

    return !state.end_ns || ns < left ? ns : left;
}

bool deadline_passed_for_names(void)
{
    return state.end_ns && clock_now_ns() >= state.names_end_ns;
}
