/*
 * The processes that were born since one last asked, whoever's children they are. A look costs one small read while
 * nothing is born, and after that as much as there are births; the number of processes there are does not matter.
 *
 *     births_open(&b);
 *     …
 *     r = births_look(&b);                 // b.items: pids, and ids of threads among them
 *     births_not_yet(&b, i);               // items[i] cannot be seen: it is told again the next times
 */
#ifndef TARGET_BIRTHS_H
#define TARGET_BIRTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define BIRTHS_LATE_MAX 256

struct births_late {
    pid_t pid;
    int tries; /* how often it is told still */
};

struct births {
    int fd;     /* /proc/loadavg, which tells the newest pid; -1: all of /proc is listed at each look */
    pid_t last; /* the newest pid at the last look */
    pid_t *items;
    size_t n, cap;
    size_t n_again; /* so many of them, the first, are told again */
    pid_t *listed;  /* without `fd`: all there were at the last look, in order */
    size_t n_listed;
    struct births_late late[BIRTHS_LATE_MAX];
    size_t n_late;
};

/* What is born from now on will be told. */
int births_open(struct births *b);
/* The same without the newest pid, as where the kernel's word cannot be had. */
int births_open_listing(struct births *b);
void births_close(struct births *b);

/* Fills `items`. 0, ERR_NOMEM or ERR_IO. */
int births_look(struct births *b);

/* A pid is given out shortly before its process can be seen: items[i] is to be told again, a few times. */
void births_not_yet(struct births *b, size_t i);

#endif
