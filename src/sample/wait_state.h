/*
 * What a thread that is off the CPU waits for.
 */
#ifndef SAMPLE_WAIT_STATE_H
#define SAMPLE_WAIT_STATE_H

#include "sample/trace.h"
#include "target/system_call.h"

enum trace_state wait_state_of(const struct system_call *call);

/* `kernel_state` is the state letter of /proc/PID/stat: S, D, T, … */
enum trace_state wait_state_read(struct task *task, char kernel_state);

#endif
