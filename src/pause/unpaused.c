/*
 * Reads a thread without pausing it: with --nonblocking, or if ptrace is refused. Also threads of core files, which
 * need no pause.
 */
#include "base/clock.h"
#include "pause/pause_method.h"

#define LOOK_AGE_NS (500 * NS_PER_US)

static int unpaused_begin(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    (void)ps;
    p->method = PAUSE_UNPAUSED;
    if (t->tid && p->since_ns >= t->running_until_ns) /* less often while it runs */
        t->running_until_ns = p->since_ns + LOOK_AGE_NS;
    return 0;
}

static int dead_begin(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    (void)ps;
    p->method = PAUSE_DEAD;
    p->look.state = t->was_running ? 'R' : 'S';
    return 0;
}

static int end(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    (void)ps;
    (void)p;
    t->left_ns = 0;
    return 0;
}

const struct pause_ops pause_unpaused = {unpaused_begin, end};
const struct pause_ops pause_dead = {dead_begin, end};
