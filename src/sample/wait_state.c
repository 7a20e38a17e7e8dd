/*
 * System call -> what it waits for.
 */
#include "sample/wait_state.h"

static const enum trace_state states[] = {
    [CALL_OTHER] = TRACE_BLOCKED,           [CALL_LOCK] = TRACE_WAITING_FOR_LOCK,
    [CALL_SLEEP] = TRACE_SLEEPING,          [CALL_EVENTS] = TRACE_WAITING_FOR_EVENTS,
    [CALL_IO] = TRACE_WAITING_FOR_IO,       [CALL_DISK] = TRACE_WAITING_FOR_DISK,
    [CALL_CHILD] = TRACE_WAITING_FOR_CHILD,
};

enum trace_state wait_state_of(const struct system_call *call)
{
    return states[system_call_class(call)];
}

enum trace_state wait_state_read(struct task *task, char kernel_state)
{
    struct system_call call;

    if (kernel_state == 'D')
        return TRACE_WAITING_FOR_DISK;
    if (kernel_state == 'T' || kernel_state == 't')
        return TRACE_STOPPED;
    return system_call_read(task, &call) == 0 ? wait_state_of(&call) : TRACE_BLOCKED;
}
