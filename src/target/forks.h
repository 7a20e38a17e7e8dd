/*
 * Every fork and exec on the machine, as the kernel tells it: with the parent, even if that ended before anyone could look
 * (cn_proc). Only in the first pid and user namespace, on Linux 6.6 and newer; elsewhere births.h must do.
 *
 *     struct forks f;
 *     if (forks_open(&f))
 *         while ((r = forks_next(&f, &event)) > 0)
 *             …
 */
#ifndef TARGET_FORKS_H
#define TARGET_FORKS_H

#include <stdbool.h>
#include <sys/types.h>

struct forks {
    int fd; /* -1: it is not told here */
};

struct forks_event {
    pid_t parent; /* 0: `pid` has executed a program */
    pid_t pid;
};

/* False, with `fd` -1, where it cannot be had. */
bool forks_open(struct forks *f);
void forks_close(struct forks *f);

/* 1 and an event; 0 when there is no more; ERR_BOUNDS when some were lost: there were too many. */
int forks_next(struct forks *f, struct forks_event *ret);

#endif
