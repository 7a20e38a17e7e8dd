/*
 * System call -> what it waits for.
 */
#include "sample/wait_state.h"

#include <sys/syscall.h>

/* ADD A SYSTEM CALL HERE. Not every architecture has all of them. */
static const struct {
    long number;
    enum trace_state state;
} calls[] = {
    {SYS_futex, TRACE_WAITING_FOR_LOCK},
    {SYS_flock, TRACE_WAITING_FOR_LOCK},
    {SYS_fcntl, TRACE_WAITING_FOR_LOCK},
    {SYS_semtimedop, TRACE_WAITING_FOR_LOCK},
    {SYS_nanosleep, TRACE_SLEEPING},
    {SYS_clock_nanosleep, TRACE_SLEEPING},
#ifdef SYS_poll
    {SYS_poll, TRACE_WAITING_FOR_EVENTS},
    {SYS_select, TRACE_WAITING_FOR_EVENTS},
    {SYS_epoll_wait, TRACE_WAITING_FOR_EVENTS},
#endif
    {SYS_ppoll, TRACE_WAITING_FOR_EVENTS},
    {SYS_pselect6, TRACE_WAITING_FOR_EVENTS},
    {SYS_epoll_pwait, TRACE_WAITING_FOR_EVENTS},
#ifdef SYS_epoll_pwait2
    {SYS_epoll_pwait2, TRACE_WAITING_FOR_EVENTS},
#endif
    {SYS_io_getevents, TRACE_WAITING_FOR_EVENTS},
#ifdef SYS_io_uring_enter
    {SYS_io_uring_enter, TRACE_WAITING_FOR_EVENTS},
#endif
    {SYS_rt_sigtimedwait, TRACE_WAITING_FOR_EVENTS},
    {SYS_rt_sigsuspend, TRACE_WAITING_FOR_EVENTS},
#ifdef SYS_pause
    {SYS_pause, TRACE_WAITING_FOR_EVENTS},
#endif
    {SYS_read, TRACE_WAITING_FOR_IO},
    {SYS_readv, TRACE_WAITING_FOR_IO},
    {SYS_pread64, TRACE_WAITING_FOR_IO},
    {SYS_write, TRACE_WAITING_FOR_IO},
    {SYS_writev, TRACE_WAITING_FOR_IO},
    {SYS_pwrite64, TRACE_WAITING_FOR_IO},
    {SYS_recvfrom, TRACE_WAITING_FOR_IO},
    {SYS_recvmsg, TRACE_WAITING_FOR_IO},
    {SYS_recvmmsg, TRACE_WAITING_FOR_IO},
    {SYS_sendto, TRACE_WAITING_FOR_IO},
    {SYS_sendmsg, TRACE_WAITING_FOR_IO},
    {SYS_sendfile, TRACE_WAITING_FOR_IO},
    {SYS_splice, TRACE_WAITING_FOR_IO},
    {SYS_accept, TRACE_WAITING_FOR_IO},
    {SYS_accept4, TRACE_WAITING_FOR_IO},
    {SYS_connect, TRACE_WAITING_FOR_IO},
    {SYS_openat, TRACE_WAITING_FOR_IO},
    {SYS_msgrcv, TRACE_WAITING_FOR_IO},
    {SYS_fsync, TRACE_WAITING_FOR_DISK},
    {SYS_fdatasync, TRACE_WAITING_FOR_DISK},
    {SYS_sync, TRACE_WAITING_FOR_DISK},
    {SYS_wait4, TRACE_WAITING_FOR_CHILD},
    {SYS_waitid, TRACE_WAITING_FOR_CHILD},
};

/* time.sleep() before Python 3.11: select() with 0 descriptors. */
static bool is_select(long number)
{
#ifdef SYS_select
    if (number == SYS_select)
        return true;
#endif
    return number == SYS_pselect6;
}

enum trace_state wait_state_read(struct task *task, char kernel_state)
{
    uint64_t argument;
    long number;

    if (kernel_state == 'D')
        return TRACE_WAITING_FOR_DISK;
    if (kernel_state == 'T' || kernel_state == 't')
        return TRACE_STOPPED;
    number = task_syscall(task, &argument);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].number == number)
            return is_select(number) && argument == 0 ? TRACE_SLEEPING : calls[i].state;
    return TRACE_BLOCKED;
}
