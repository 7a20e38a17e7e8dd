/*
 * Who called us through sudo. A program that we start for them runs as them, and what we write belongs to them.
 *
 *     struct caller c;
 *     if (caller_find(&c)) {               // we are root, SUDO_UID and SUDO_GID tell of somebody else
 *         … in a child: caller_become(&c); execvp(…);
 *         caller_free(&c);
 *     }
 */
#ifndef TARGET_CALLER_H
#define TARGET_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct caller {
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* supplementary ones */
    size_t n_groups;
    char *name, *home; /* NULL when unknown */
};

/* False: nobody else, or what is told of them makes no sense. */
bool caller_find(struct caller *ret);
void caller_free(struct caller *c);

/* For good, with HOME, USER and LOGNAME. 0, or errno: then the process is not to go on. */
int caller_become(const struct caller *c);

#endif
