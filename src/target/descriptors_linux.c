/*
 * RLIMIT_NOFILE.
 */
#include "target/descriptors.h"

#include <sys/resource.h>
#include <unistd.h>

#define RESERVED 64

void descriptors_raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The kernel hands out the lowest free number, so a high number means that few are left. */
int descriptors_keep(int fd)
{
    struct rlimit limit;

    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd + RESERVED < limit.rlim_cur)
        return fd;
    close(fd);
    return -1;
}
