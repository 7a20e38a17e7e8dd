/*
 * The frames of a task, as the output needs them.
 */
#ifndef SAMPLE_TASK_FRAMES_H
#define SAMPLE_TASK_FRAMES_H

#include "python/tasks.h"
#include "sample/process_private.h"

/* Copies the frames of the task that was read last, outermost first, while its thread is still paused. Everything is in one allocation,
 * which the caller frees. `*locals_bytes` is the size of all values so far: there is a limit. NULL if out of memory. */
const struct frame *task_frames_copy(struct process *p, const struct tasks *t, size_t *locals_bytes);

#endif
