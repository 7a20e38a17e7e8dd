/*
 * Reads the tasks of a process: in slices, each of them while the loop's thread is paused or asleep.
 */
#ifndef SAMPLE_TASKS_H
#define SAMPLE_TASKS_H

#include "sample/process.h"
#include "sample/task_set.h"

/* After process_sample(), which lists the threads. Replaces the contents of `ret`. Without tasks the set is empty. 0 or ERR_NOMEM. */
int process_tasks(struct process *p, struct task_set *ret);

void task_set_free(struct task_set *set);

#endif
