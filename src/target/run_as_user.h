/*
 * Root without CAP_SYS_PTRACE, as in a container, may not read processes of other users, but those users
 * may. spyglass switches to that user while it reads, and back to root to write files. See
 * docs/decisions/0009-root-reads-as-target-user.md.
 */
#ifndef TARGET_RUN_AS_USER_H
#define TARGET_RUN_AS_USER_H

#include <sys/types.h>

struct run_as_user;

/* NULL unless we are root without CAP_SYS_PTRACE and the process belongs to another user. */
struct run_as_user *run_as_user_of(pid_t pid);
struct run_as_user *run_as_user_free(struct run_as_user *u);

/* Both accept NULL and then do nothing. */
void run_as_user_begin(struct run_as_user *u);
void run_as_user_end(struct run_as_user *u);

#endif
