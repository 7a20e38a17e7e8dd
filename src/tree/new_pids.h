/*
 * Finds the processes that were created since the last call, whoever their parents are. A call costs one
 * small read if there are none, and otherwise time proportional to their number, not to the number of
 * processes.
 */
#ifndef TREE_NEW_PIDS_H
#define TREE_NEW_PIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define NEW_PIDS_PENDING_MAX 256

struct new_pids_pending {
    pid_t pid;
    int tries; /* how many more times it is reported */
};

struct new_pids {
    int fd;     /* /proc/loadavg, whose last field is the newest pid; -1: list /proc at each call */
    pid_t last; /* the newest pid at the last call */
    pid_t *items;
    size_t n, cap;
    size_t n_repeated; /* the first n_repeated items are repeats */
    pid_t *listed;     /* without `fd`: all pids at the last call, sorted */
    size_t n_listed;
    struct new_pids_pending pending[NEW_PIDS_PENDING_MAX];
    size_t n_pending;
};

/* Starts reporting processes that are created from now on. */
int new_pids_open(struct new_pids *np);
/* The same by listing /proc, as if /proc/loadavg were not usable. */
int new_pids_open_listing(struct new_pids *np);
void new_pids_close(struct new_pids *np);

/* Fills in `items`: pids, and thread ids among them. 0, ERR_NOMEM or ERR_IO. */
int new_pids_read(struct new_pids *np);

/* Call it if items[i] is not visible in /proc yet: the kernel allocates a pid shortly before the process becomes
 * visible. The next few calls of new_pids_read() report it again. */
void new_pids_retry(struct new_pids *np, size_t i);

#endif
