/*
 * Why a process may not be read, and the line to paste that changes it.
 */
#ifndef TARGET_ACCESS_H
#define TARGET_ACCESS_H

#include "base/err.h"
#include "target/mem.h"
#include "target/proc.h"

/* True when the target's memory can be read at all. */
bool access_can_read(struct mem *m, const struct proc_maps *maps);

/* Fills `note` with the cause that is found; returns ERR_PERMISSION. */
int access_explain(pid_t pid, struct err_note *note);

/* Fills `note` with what the process is, for the message that it is not Python. */
void access_describe(pid_t pid, struct err_note *note);

/* True when the process began so short a time ago that it may yet become something else. */
bool access_is_starting(pid_t pid);

#endif
