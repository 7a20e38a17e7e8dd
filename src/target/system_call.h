/*
 * The system call that a thread sleeps in: its name, its arguments, and which of them is a descriptor or a time limit.
 */
#ifndef TARGET_SYSTEM_CALL_H
#define TARGET_SYSTEM_CALL_H

#include "target/mem.h"
#include "target/task.h"

#include <stdbool.h>
#include <stdint.h>

enum call_class {
    CALL_OTHER,
    CALL_LOCK,
    CALL_SLEEP,
    CALL_EVENTS,
    CALL_IO,
    CALL_DISK,
    CALL_CHILD,
};

/* How a call takes its time limit. */
enum call_limit {
    LIMIT_NONE,
    LIMIT_MS,       /* an int, negative: none */
    LIMIT_TIMESPEC, /* the address of a struct timespec, 0: none */
    LIMIT_TIMEVAL,  /* the same, of a struct timeval */
    LIMIT_SLEEP,    /* clock_nanosleep: relative, or TIMER_ABSTIME */
    LIMIT_FUTEX,    /* relative or absolute, depending on the operation */
};

/* Argument numbers count from 0; -1: the call has no such argument. */
struct call_row {
    long number;
    const char *name;
    enum call_class class;
    int fd;
    enum call_limit limit;
    int limit_arg;
};

#define CALL_ARGS 6

struct system_call {
    const struct call_row *row; /* NULL: not in the table */
    long number;
    uint64_t args[CALL_ARGS];
    uint64_t sp;
};

/* ERR_TORN if the thread is awake; ERR_UNSUPPORTED if we may not know: this needs the same permission as reading the memory. */
int system_call_read(struct task *t, struct system_call *ret);
/* Parses the text of /proc/PID/task/TID/syscall. */
int system_call_parse(const char *text, struct system_call *ret);

/* The class of the call. select() with no descriptors is CALL_SLEEP: time.sleep() before Python 3.11. */
enum call_class system_call_class(const struct system_call *call);

struct time_limit {
    bool is_absolute;
    int clock;   /* of an absolute limit: CLOCK_MONOTONIC or CLOCK_REALTIME */
    uint64_t ns; /* the point in time, or the whole duration */
};

/* False if the call has no limit, or if it cannot be read. */
bool system_call_limit(const struct system_call *call, struct mem *mem, struct time_limit *ret);

#endif
