/*
 * Who called us through sudo. A program that we start for them runs as them, and what we write belongs to them.
 *
 *     struct sudo_caller c;
 *     if (sudo_caller_find(&c)) {               // we are root, SUDO_UID and SUDO_GID tell of somebody else
 *         … in a child: sudo_caller_switch(&c); execvp(…);
 *         sudo_caller_free(&c);
 *     }
 */
#ifndef TARGET_SUDO_CALLER_H
#define TARGET_SUDO_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sudo_caller {
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* supplementary ones */
    size_t n_groups;
    char *name, *home; /* NULL when unknown */
};

/* False: nobody else, or what is told of them makes no sense. */
bool sudo_caller_find(struct sudo_caller *ret);
void sudo_caller_free(struct sudo_caller *c);

/* For good, with HOME, USER and LOGNAME. 0, or errno: then the process is not to go on. */
int sudo_caller_switch(const struct sudo_caller *c);

#endif
