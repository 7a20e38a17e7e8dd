/*
 * The methods of pausing a thread, one file each. pause.c tries them in order.
 */
#ifndef PAUSE_PAUSE_METHOD_H
#define PAUSE_PAUSE_METHOD_H

#include "base/err.h"
#include "pause/pause.h"

/* `begin` returns 0 when the thread is paused, ERR_UNSUPPORTED or ERR_PERMISSION to try the next method, ERR_GONE or ERR_STOP
 * to give up. It finds in `p` what the methods before it have read. `end` returns 0 or ERR_TORN. */
struct pause_ops {
    int (*begin)(struct pauser *ps, struct os_thread *t, struct pause *p);
    int (*end)(struct pauser *ps, struct os_thread *t, struct pause *p);
};

extern const struct pause_ops pause_asleep, pause_same_core, pause_ptrace, pause_unpaused, pause_dead;

/* PAUSE_SAME_CORE without reading schedstat or state: false unless the thread's recent past makes it almost certain that it
 * runs on our core. */
bool same_core_predict(struct pauser *ps, struct os_thread *t, addr_t cpu_word, struct pause *p);
/* True when the thread had a CPU, or waited for one, all the time from when we left it until `p` began. */
bool same_core_ran_throughout(const struct pause *p, const struct os_thread *t, const struct sched_stats *stats);
/* For a thread read before its schedstat. `after` was read at `now`, when the read was over. True when the thread was
 * scheduled once since we left it, was not asleep when we came back, and ran for longer than the read took: so it stopped
 * running before the read. */
bool same_core_ran_only_before(const struct pause *p, const struct os_thread *t, const struct sched_stats *after,
                               uint64_t now);
/* True when we left it on our core, where we still are. */
bool same_core_was_left(const struct pauser *ps, const struct os_thread *t);

/* ptrace as the first choice. */
int ptrace_begin_first(struct pauser *ps, struct os_thread *t, struct pause *p);

#endif
