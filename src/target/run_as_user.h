/*
 * Root without CAP_SYS_PTRACE may not read the processes of others, while their own user may: so root acts as that
 * user for as long as it reads, and is root again when it writes files. See docs/decisions/0009-become-the-user.md.
 *
 *     struct run_as_user *b = run_as_user_of(pid);    // NULL: there is no need, or no way
 *     run_as_user_begin(b);
 *     … read …
 *     run_as_user_end(b);
 */
#ifndef TARGET_RUN_AS_USER_H
#define TARGET_RUN_AS_USER_H

#include <sys/types.h>

struct run_as_user;

/* NULL unless we are root without CAP_SYS_PTRACE and the process belongs to another user. */
struct run_as_user *run_as_user_of(pid_t pid);
struct run_as_user *run_as_user_free(struct run_as_user *b);

/* Both accept NULL, which stands for ourselves. */
void run_as_user_begin(struct run_as_user *b);
void run_as_user_end(struct run_as_user *b);

#endif
