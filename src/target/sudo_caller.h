/*
 * The user who ran us through sudo. A program that we start runs as that user, and the files that we
 * write belong to them.
 */
#ifndef TARGET_SUDO_CALLER_H
#define TARGET_SUDO_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sudo_caller {
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* supplementary groups */
    size_t n_groups;
    char *name, *home; /* NULL if unknown */
};

/* Reads SUDO_UID and SUDO_GID. False if we are not root, nobody else called us, or the variables make no sense. */
bool sudo_caller_find(struct sudo_caller *ret);
void sudo_caller_free(struct sudo_caller *c);

/* Switches the process to that user for good and sets HOME, USER and LOGNAME. Returns 0 or errno; on failure the
 * process must exit. */
int sudo_caller_switch(const struct sudo_caller *c);

#endif
