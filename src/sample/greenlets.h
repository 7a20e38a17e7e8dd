/*
 * Reads the greenlets of a process, with their stacks.
 */
#ifndef SAMPLE_GREENLETS_H
#define SAMPLE_GREENLETS_H

#include "sample/process.h"
#include "sample/task_set.h"

/* After process_sample(), which lists the threads: adds the greenlets of each thread to `set`, which has no others. A process that has not
 * imported greenlet has none. 0 or ERR_NOMEM. */
int process_greenlets(struct process *p, struct task_set *set);

#endif
