/*
 * /proc/PID/task/TID/syscall: the number of the call, six arguments, stack pointer and program counter.
 */
#include "target/system_call.h"

#include "base/clock.h"
#include "base/err.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#define ROW(call, class, fd, limit, arg)                                                                               \
    {                                                                                                                  \
        SYS_##call, #call, class, fd, limit, arg                                                                       \
    }

/* ADD A SYSTEM CALL HERE. Not every architecture has all of them. */
static const struct call_row rows[] = {
    ROW(futex, CALL_LOCK, -1, LIMIT_FUTEX, 3),
    ROW(flock, CALL_LOCK, 0, LIMIT_NONE, -1),
    ROW(fcntl, CALL_LOCK, 0, LIMIT_NONE, -1),
    ROW(semop, CALL_LOCK, -1, LIMIT_NONE, -1),
    ROW(semtimedop, CALL_LOCK, -1, LIMIT_TIMESPEC, 3),
    ROW(nanosleep, CALL_SLEEP, -1, LIMIT_TIMESPEC, 0),
    ROW(clock_nanosleep, CALL_SLEEP, -1, LIMIT_SLEEP, 2),
#ifdef SYS_poll
    ROW(poll, CALL_EVENTS, -1, LIMIT_MS, 2),
    ROW(select, CALL_EVENTS, -1, LIMIT_TIMEVAL, 4),
    ROW(epoll_wait, CALL_EVENTS, 0, LIMIT_MS, 3),
#endif
    ROW(ppoll, CALL_EVENTS, -1, LIMIT_TIMESPEC, 2),
    ROW(pselect6, CALL_EVENTS, -1, LIMIT_TIMESPEC, 4),
    ROW(epoll_pwait, CALL_EVENTS, 0, LIMIT_MS, 3),
#ifdef SYS_epoll_pwait2
    ROW(epoll_pwait2, CALL_EVENTS, 0, LIMIT_TIMESPEC, 3),
#endif
    ROW(io_getevents, CALL_EVENTS, -1, LIMIT_TIMESPEC, 4),
#ifdef SYS_io_uring_enter
    ROW(io_uring_enter, CALL_EVENTS, 0, LIMIT_NONE, -1),
#endif
    ROW(rt_sigtimedwait, CALL_EVENTS, -1, LIMIT_TIMESPEC, 2),
    ROW(rt_sigsuspend, CALL_EVENTS, -1, LIMIT_NONE, -1),
#ifdef SYS_pause
    ROW(pause, CALL_EVENTS, -1, LIMIT_NONE, -1),
#endif
    ROW(read, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(readv, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(pread64, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(preadv, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(write, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(writev, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(pwrite64, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(pwritev, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(recvfrom, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(recvmsg, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(recvmmsg, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(sendto, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(sendmsg, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(sendfile, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(splice, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(accept, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(accept4, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(connect, CALL_IO, 0, LIMIT_NONE, -1),
    ROW(openat, CALL_IO, -1, LIMIT_NONE, -1),
    ROW(msgrcv, CALL_IO, -1, LIMIT_NONE, -1),
    ROW(msgsnd, CALL_IO, -1, LIMIT_NONE, -1),
    ROW(ioctl, CALL_OTHER, 0, LIMIT_NONE, -1),
    ROW(fsync, CALL_DISK, 0, LIMIT_NONE, -1),
    ROW(fdatasync, CALL_DISK, 0, LIMIT_NONE, -1),
    ROW(sync, CALL_DISK, -1, LIMIT_NONE, -1),
    ROW(restart_syscall, CALL_OTHER, -1, LIMIT_NONE, -1),
    ROW(wait4, CALL_CHILD, -1, LIMIT_NONE, -1),
    ROW(waitid, CALL_CHILD, -1, LIMIT_NONE, -1),
};

int system_call_parse(const char *text, struct system_call *ret)
{
    struct system_call c = {0};

    if (strncmp(text, "running", 7) == 0)
        return ERR_TORN;
    if (sscanf(text, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &c.number,
               &c.args[0], &c.args[1], &c.args[2], &c.args[3], &c.args[4], &c.args[5], &c.sp) != 8)
        return ERR_UNSUPPORTED;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].number == c.number)
            c.row = &rows[i];
    *ret = c;
    return 0;
}

static bool is_named(const struct system_call *call, const char *name)
{
    return call->row && strcmp(call->row->name, name) == 0;
}

enum call_class system_call_class(const struct system_call *call)
{
    if (!call->row)
        return CALL_OTHER;
    if ((is_named(call, "select") || is_named(call, "pselect6")) && (int)call->args[0] == 0)
        return CALL_SLEEP;
    return call->row->class;
}

/* struct timespec and struct timeval are two 64-bit numbers each. */
static bool read_pair(struct mem *mem, addr_t at, uint64_t unit_ns, uint64_t *ret)
{
    int64_t pair[2];

    if (!mem || !at || mem_read(mem, at, pair, sizeof(pair)) < 0)
        return false;
    if (pair[0] < 0 || pair[1] < 0 || pair[0] > INT32_MAX || (uint64_t)pair[1] * unit_ns >= NS_PER_S)
        return false;
    *ret = (uint64_t)pair[0] * NS_PER_S + (uint64_t)pair[1] * unit_ns;
    return true;
}

bool system_call_limit(const struct system_call *call, struct mem *mem, struct time_limit *ret)
{
    struct time_limit limit = {.clock = CLOCK_MONOTONIC};
    uint64_t arg;
    int operation;

    if (!call->row || call->row->limit == LIMIT_NONE)
        return false;
    arg = call->args[call->row->limit_arg];
    switch (call->row->limit) {
    case LIMIT_MS:
        if ((int)arg < 0)
            return false;
        limit.ns = (arg & INT32_MAX) * NS_PER_MS;
        break;
    case LIMIT_TIMEVAL:
        if (!read_pair(mem, arg, NS_PER_US, &limit.ns))
            return false;
        break;
    case LIMIT_SLEEP: /* clock_nanosleep(clock, flags, time, rest) */
        limit.is_absolute = call->args[1] & TIMER_ABSTIME;
        limit.clock = (int)call->args[0] == CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        if (!read_pair(mem, arg, 1, &limit.ns))
            return false;
        if (limit.is_absolute && (int)call->args[0] != CLOCK_REALTIME && (int)call->args[0] != CLOCK_MONOTONIC)
            return false;
        break;
    case LIMIT_FUTEX: /* futex(address, operation, value, time, …) */
        operation = (int)call->args[1] & FUTEX_CMD_MASK;
        limit.is_absolute = operation != FUTEX_WAIT;
        limit.clock = call->args[1] & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        if ((operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET) || !read_pair(mem, arg, 1, &limit.ns))
            return false;
        break;
    default:
        if (!read_pair(mem, arg, 1, &limit.ns))
            return false;
        break;
    }
    *ret = limit;
    return true;
}

int system_call_read(struct task *t, struct system_call *ret)
{
    char text[256];
    int r = task_syscall_text(t, text, sizeof(text));

    return r == 0 ? system_call_parse(text, ret) : r;
}
