/*
 * Rights that are the file's, not the caller's: spyglass installed setuid root, or with file capabilities. They serve
 * for one thing only: to read a process of the caller's own that Yama keeps apart. All else is done as the caller.
 * See docs/decisions/0010-setuid.md.
 *
 *     r = setuid_guard_settle(&note);              // first of all: from here on we are the caller
 *     fd = setuid_guard_open_mem(pid);             // /proc/PID/mem of a process of the caller's own, or -1
 */
#ifndef TARGET_SETUID_GUARD_H
#define TARGET_SETUID_GUARD_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/* True when exec gave us rights that the caller does not have. */
bool setuid_guard_active(void);

/* Becomes the caller for good; of the rights only CAP_SYS_PTRACE is kept, and that not in effect. Does nothing when no
 * rights are lent. ERR_PERMISSION: they could not be given up, and we must not go on. */
int setuid_guard_settle(struct err_note *note);

/* The memory of a process that belongs to the caller and hides nothing from him; -1 with errno EPERM for any other. */
int setuid_guard_open_mem(pid_t pid);

/* PTRACE_SEIZE with the lent right. False, with errno, when it is refused. Before anything is read of the thread that
 * was seized, setuid_guard_is_own must be asked, when it has stopped. */
bool setuid_guard_seize(pid_t tid);

/* True when the process, or thread, has the caller's ids and no others, no capability, and may be dumped. */
bool setuid_guard_is_own(pid_t pid);

#endif
