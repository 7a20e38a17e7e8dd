/*
 * Root without CAP_SYS_PTRACE may not read the processes of others, while their own user may: so root acts as that
 * user for as long as it reads, and is root again when it writes files. See docs/decisions/0009-become-the-user.md.
 *
 *     struct become *b = become_user_of(pid);    // NULL: there is no need, or no way
 *     become_begin(b);
 *     … read …
 *     become_end(b);
 */
#ifndef TARGET_BECOME_H
#define TARGET_BECOME_H

#include <sys/types.h>

struct become;

/* NULL unless we are root without CAP_SYS_PTRACE and the process belongs to another user. */
struct become *become_user_of(pid_t pid);
struct become *become_free(struct become *b);

/* Both accept NULL, which stands for ourselves. */
void become_begin(struct become *b);
void become_end(struct become *b);

#endif
