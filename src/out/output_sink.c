/*
 * Writes to a descriptor, and polls it while it takes no data.
 */
#include "out/output_sink.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_MS 100 /* a signal that comes just before poll() is noticed this much later */

/* True once the descriptor takes data, or has failed and the next write says how. */
static bool wait_writable(struct output_sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    uint64_t begin = clock_now_ns();
    int r = poll(&p, 1, 0);

    while (r == 0 || (r < 0 && errno == EINTR)) {
        if (s->stalled && s->stalled(s->arg, clock_now_ns() - begin)) {
            s->error = ECANCELED;
            return false;
        }
        r = poll(&p, 1, POLL_MS);
    }
    if (r < 0)
        s->error = errno;
    return r > 0;
}

static ssize_t write_some(const struct output_sink *s, const char *buf, size_t n)
{
    return s->is_socket ? send(s->fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL) : write(s->fd, buf, n);
}

/* A pipe that is writable has room for PIPE_BUF bytes. */
static ssize_t sink_write(void *cookie, const char *buf, size_t n)
{
    struct output_sink *s = cookie;
    size_t done = 0;

    while (done < n && !s->error) {
        size_t part = s->may_block && n - done > PIPE_BUF ? PIPE_BUF : n - done;
        ssize_t r;

        if (s->may_block && !wait_writable(s))
            break;
        r = write_some(s, buf + done, part);
        if (r > 0)
            done += (size_t)r;
        else if (r < 0 && errno == EAGAIN)
            wait_writable(s);
        else if (r < 0 && errno != EINTR)
            s->error = errno;
        else if (r == 0)
            s->error = EIO;
    }
    s->written += done;
    return s->error ? 0 : (ssize_t)done; /* fopencookie: 0 means error */
}

FILE *output_sink_open(struct output_sink *s)
{
    struct stat st;
    FILE *out;

    if (fstat(s->fd, &st) == 0) {
        s->is_socket = S_ISSOCK(st.st_mode);
        s->may_block = (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) && !(fcntl(s->fd, F_GETFL) & O_NONBLOCK);
    }
    out = fopencookie(s, "w", (cookie_io_functions_t){.write = sink_write});
    if (out)
        setvbuf(out, NULL, _IOFBF, 1 << 16);
    return out;
}

int output_sink_unshare(int fd)
{
    struct stat st;
    char path[32];
    int again;

    if (fstat(fd, &st) < 0 || !(S_ISFIFO(st.st_mode) || isatty(fd)))
        return fd;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (again < 0)
        return fd;
    close(fd);
    return again;
}
