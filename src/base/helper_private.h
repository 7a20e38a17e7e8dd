/*
 * Shared by the two sides of the helper process: helper_linux.c calls it, helper_inside_linux.c runs in it.
 */
#ifndef BASE_HELPER_PRIVATE_H
#define BASE_HELPER_PRIVATE_H

#include "base/helper.h"
#include "base/mounts.h"

#include <sys/uio.h>

#define HELPER_DEAD_MAX  64
#define HELPER_PATH_ROOM 4096

/* A file system that does not answer. The same device can be mounted at other places in other views. */
struct helper_dead {
    uint64_t view, device;
    char point[MOUNTS_POINT_ROOM];
};

/* In memory that we share with the helper. We read the note after the helper got stuck. */
struct helper_shared {
    struct {
        pid_t proc_pid; /* of the helper, in /proc, which may show another PID namespace than ours; 0 if unknown */
        uint64_t view, device;
        char path[HELPER_PATH_ROOM];
    } note;
    struct helper_dead dead[HELPER_DEAD_MAX]; /* written by us only */
    uint32_t n_dead;
};

struct helper_request {
    helper_function run;
    uint64_t device;
    size_t len; /* bytes that follow */
};

struct helper_reply {
    int result;
    size_t len;
};

/* Sends both parts, and changes them. False if the other side is gone. */
bool helper_send(int fd, struct iovec parts[2]);

/* Serves requests until the socket is closed; never returns. */
_Noreturn void helper_serve(int fd, int log_fd, struct helper_shared *shared);

#endif
