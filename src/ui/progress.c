/*
 * The progress line of record. record calls progress_update at every sample; between two redraws that costs one
 * comparison. Never blocks: if the terminal is not ready, skips the redraw.
 */
#include "ui/progress.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DRAW_EVERY_NS = 100000000, LINE_MAX_BYTES = 256, WIDTH_UNKNOWN = 80 };

struct progress {
    int fd;
    bool drawn; /* the line is on the screen */
    uint64_t next_ns;
};

static bool is_usable_terminal(int fd)
{
    const char *term = secure_getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

struct progress *progress_new(int fd, bool hidden)
{
    if (hidden || !is_usable_terminal(fd))
        return NULL;
    struct progress *pr = calloc(1, sizeof(*pr));
    if (pr)
        pr->fd = fd;
    return pr;
}

/* A background job must not write over the foreground program. */
static bool may_draw(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    pid_t foreground = tcgetpgrp(fd);

    return (foreground < 0 || foreground == getpgrp()) && poll(&p, 1, 0) == 1 && (p.revents & POLLOUT);
}

static size_t terminal_width(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : WIDTH_UNKNOWN;
}

static bool put(int fd, const char *text, size_t n)
{
    return write(fd, text, n) == (ssize_t)n;
}

void progress_update(struct progress *pr, const struct progress_counts *counts, uint64_t now_ns)
{
    char line[LINE_MAX_BYTES + 8] = "\r";
    size_t n = 1;

    if (!pr || now_ns < pr->next_ns)
        return;
    pr->next_ns = now_ns + DRAW_EVERY_NS;
    if (!may_draw(pr->fd))
        return;
    /* Leave the last column free: some terminals wrap as soon as it is filled. */
    n += progress_line(line + n, LINE_MAX_BYTES, counts, terminal_width(pr->fd) - 1);
    memcpy(line + n, "\033[K", 3);
    pr->drawn |= put(pr->fd, line, n + 3);
}

void progress_erase(struct progress *pr)
{
    if (!pr || !pr->drawn)
        return;
    pr->drawn = false;
    pr->next_ns = 0;
    put(pr->fd, "\r\033[K", 4);
}

struct progress *progress_free(struct progress *pr)
{
    progress_erase(pr);
    free(pr);
    return NULL;
}

/* ---- the text ---- */

/* "59.3s" below a minute, then "1:02:03". */
static void format_time(char *buf, size_t n, double seconds)
{
    seconds = seconds > 0 ? seconds : 0; /* also handles NaN */
    seconds = seconds < 1e12 ? seconds : 1e12;
    uint64_t whole = (uint64_t)seconds;

    if (seconds < 59.95)
        snprintf(buf, n, "%.1fs", seconds);
    else if (whole < 3600)
        snprintf(buf, n, "%" PRIu64 ":%02" PRIu64, whole / 60, whole % 60);
    else
        snprintf(buf, n, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, whole / 3600, whole / 60 % 60, whole % 60);
}

static void format_rate(char *buf, size_t n, const struct progress_counts *c)
{
    if (c->rate_held > 0)
        snprintf(buf, n, "%.*f of %g Hz", c->rate_held < 10 ? 1 : 0, c->rate_held, c->rate_asked);
    else
        snprintf(buf, n, "%g Hz", c->rate_asked);
}

size_t progress_line(char *buf, size_t n, const struct progress_counts *counts, size_t width)
{
    char elapsed[32], duration[32], rate[64], part[4][96];
    size_t used = 0, limit = n > 0 && width < n - 1 ? width : n - (n > 0);

    format_time(elapsed, sizeof(elapsed), counts->elapsed);
    format_time(duration, sizeof(duration), counts->duration);
    format_rate(rate, sizeof(rate), counts);
    snprintf(part[0], sizeof(part[0]), "%s%s%s", elapsed, counts->duration > 0 ? " of " : "",
             counts->duration > 0 ? duration : "");
    snprintf(part[1], sizeof(part[1]), "%" PRIu64 " samples", counts->samples);
    snprintf(part[2], sizeof(part[2]), "%" PRIu64 " errors", counts->errors);
    snprintf(part[3], sizeof(part[3]), "%s", rate);
    if (n > 0)
        buf[0] = '\0';
    /* Only whole parts, the most important first: a truncated number would be wrong. */
    for (size_t i = 0; i < 4; i++) {
        size_t need = strlen(part[i]) + (i ? 3 : 0);
        if (used + need > limit)
            break;
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? " | " : "", part[i]);
    }
    return used;
}
