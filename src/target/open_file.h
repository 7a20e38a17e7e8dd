/*
 * What the descriptors of a process refer to, and which processes have the other end of its pipes and sockets. None of this opens
 * the files themselves, so a file system that does not answer cannot block it.
 */
#ifndef TARGET_OPEN_FILE_H
#define TARGET_OPEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum open_file_kind {
    OPEN_FILE_UNKNOWN, /* not open any more, or not readable */
    OPEN_FILE_PATH,    /* a file, directory or device */
    OPEN_FILE_PIPE,
    OPEN_FILE_SOCKET,
    OPEN_FILE_KERNEL, /* an eventfd, epoll, inotify, …: `name` is the kernel's word for it */
};

#define OPEN_FILE_ADDRESS_MAX 80
#define OPEN_FILE_OTHERS_MAX  4

struct open_file {
    int fd; /* set by the caller */
    enum open_file_kind kind;
    bool reads, writes;   /* what it was opened for */
    uint64_t inode;       /* of a pipe or socket */
    char name[512];       /* path; of a Unix socket its path or ""; any bytes but NUL: escape it where it is shown */
    const char *protocol; /* of a socket: "TCP", "UDP", "Unix"; NULL: another or unknown */
    const char *state;    /* "ESTABLISHED", …; NULL: none */
    char local[OPEN_FILE_ADDRESS_MAX], peer[OPEN_FILE_ADDRESS_MAX]; /* "10.0.0.7:5432", "" if there is none */
    uint64_t peer_inode;                                            /* of the other socket, if it is on this machine */
    pid_t others[OPEN_FILE_OTHERS_MAX]; /* processes that have the other end open, this one last */
    size_t n_others;
};

/* Describes the descriptors `files[i].fd` of a process. */
void open_files_read(pid_t pid, struct open_file *files, size_t n);

/* Finds the processes at the other end. Looks at the descriptors of all processes, with `limit_ns` of CPU time at most. False if that
 * was not enough, or if some processes may not be read: then an empty list means nothing. */
bool open_files_find_others(pid_t pid, struct open_file *files, size_t n, uint64_t limit_ns);

/* The process that holds the lock on a file that this one waits for: flock(), lockf() or fcntl(). 0 if unknown, or if its threads wait
 * for several processes. */
pid_t open_file_lock_holder(pid_t pid);

/* The descriptors that an epoll descriptor watches: returns how many, and stores the lowest `max`, sorted. The kernel's own order
 * differs from run to run. */
size_t open_file_watched(pid_t pid, int epoll_fd, int *ret_fds, size_t max);

#endif
