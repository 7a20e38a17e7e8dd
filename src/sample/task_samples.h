/*
 * record --async all: the tasks that wait, as traces. Each has the frames of the task and, below these, of the tasks that await it, and a
 * state that says what it waits for.
 *
 * Tasks are read at a pace of their own, so that reading them costs 0.5% of a core however many there are. A reading counts for the time
 * since the last one.
 */
#ifndef SAMPLE_TASK_SAMPLES_H
#define SAMPLE_TASK_SAMPLES_H

#include "base/hash_table.h"
#include "sample/process.h"
#include "sample/task_set.h"

/* Tasks with equal stacks. */
struct task_group {
    uint64_t key;  /* equal for equal stacks */
    uint32_t task; /* one of them: its position in the set */
    uint32_t loop;
    enum trace_state state;
    uint64_t n;
};

/* What is known of the tasks of a process. Zeroed at first. */
struct task_samples {
    struct task_set set; /* as it was at the last reading */
    uint32_t *parents;   /* of each task: one that awaits it, or TASK_NO_PARENT */
    uint64_t *keys;      /* of each task: of its stack down to the root */
    uint32_t *path;
    size_t cap_parents, cap_keys, cap_path;
    struct task_group *groups;
    size_t n_groups, cap_groups;
    struct hash_table by_key;
    struct frame *frames; /* of the current trace */
    size_t cap_frames;
    uint64_t read_ns;    /* the last reading; 0: none */
    uint64_t counted_ns; /* the time up to here was counted */
    uint64_t next_ns;    /* the next reading */
    uint64_t cost_ns;    /* the mean CPU time of a reading */
    uint64_t random;
};

#define TASK_NO_PARENT UINT32_MAX

/* Reads the tasks, if it is time to, and passes their stacks to the sink. `gone`: the process has ended, so the last reading counts for
 * the rest. Returns the sink's result, 0 or ERR_NOMEM. */
int task_samples_emit(struct process *p, bool gone, process_sink sink, void *arg);

void task_samples_free(struct task_samples *s);

#endif
