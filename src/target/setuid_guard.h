/*
 * Confines the privileges of spyglass when it is installed setuid root or with file capabilities. They
 * serve one purpose: reading a process of the calling user despite Yama. Everything else happens as the
 * caller. See docs/decisions/0010-setuid.md.
 */
#ifndef TARGET_SETUID_GUARD_H
#define TARGET_SETUID_GUARD_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/* True if exec gave us privileges that the caller does not have. */
bool setuid_guard_active(void);

/* Becomes the caller for good and keeps only CAP_SYS_PTRACE, permitted but not effective. Does nothing if we are not
 * privileged. ERR_PERMISSION: the privileges could not be dropped; the caller must exit. */
int setuid_guard_drop_privileges(struct err_note *note);

/* Opens /proc/PID/mem of a process that belongs to the caller; -1 with errno EPERM for any other process. */
int setuid_guard_open_mem(pid_t pid);

/* PTRACE_SEIZE with CAP_SYS_PTRACE. False, with errno set, if it is refused. Once the thread has stopped, call
 * setuid_guard_is_own() before you read anything from it. */
bool setuid_guard_seize(pid_t tid);

/* True if the process or thread has only the caller's ids, no capabilities, and is dumpable. */
bool setuid_guard_is_own(pid_t pid);

#endif
