/*
 * The processes that were born since one last asked, whoever's children they are. A look costs one small read while
 * nothing is born, and after that as much as there are births; the number of processes there are does not matter.
 *
 *     new_pids_open(&b);
 *     …
 *     r = new_pids_read(&b);                 // b.items: pids, and ids of threads among them
 *     new_pids_retry(&b, i);               // items[i] cannot be seen: it is told again the next times
 */
#ifndef TREE_NEW_PIDS_H
#define TREE_NEW_PIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define NEW_PIDS_LATE_MAX 256

struct new_pids_pending {
    pid_t pid;
    int tries; /* how often it is told still */
};

struct new_pids {
    int fd;     /* /proc/loadavg, which tells the newest pid; -1: all of /proc is listed at each look */
    pid_t last; /* the newest pid at the last look */
    pid_t *items;
    size_t n, cap;
    size_t n_again; /* so many of them, the first, are told again */
    pid_t *listed;  /* without `fd`: all there were at the last look, in order */
    size_t n_listed;
    struct new_pids_pending late[NEW_PIDS_LATE_MAX];
    size_t n_late;
};

/* What is born from now on will be told. */
int new_pids_open(struct new_pids *b);
/* The same without the newest pid, as where the kernel's word cannot be had. */
int new_pids_open_listing(struct new_pids *b);
void new_pids_close(struct new_pids *b);

/* Fills `items`. 0, ERR_NOMEM or ERR_IO. */
int new_pids_read(struct new_pids *b);

/* A pid is given out shortly before its process can be seen: items[i] is to be told again, a few times. */
void new_pids_retry(struct new_pids *b, size_t i);

#endif
