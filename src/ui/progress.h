/*
 * The progress line of record, redrawn in place on a terminal.
 */
#ifndef UI_PROGRESS_H
#define UI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress;

struct progress_counts {
    uint64_t samples;
    uint64_t errors;
    double rate_held;  /* samples per second so far; 0: not known yet */
    double rate_asked; /* samples per second */
    double elapsed;    /* seconds */
    double duration;   /* seconds; 0: unlimited */
};

/* Returns NULL if `fd` is not a usable terminal, if `hidden`, or if out of memory. All functions below accept NULL. */
struct progress *progress_new(int fd, bool hidden);

/* Redraws the line if the last redraw was at least 100 ms ago. `now_ns` is monotonic. */
void progress_update(struct progress *pr, const struct progress_counts *counts, uint64_t now_ns);

/* Erases the line, to print a message. The next update redraws it. */
void progress_erase(struct progress *pr);

/* Erases the line and frees `pr`. Returns NULL. */
struct progress *progress_free(struct progress *pr);

/* Formats the line: ASCII, at most `width` columns and `n` - 1 bytes. Returns its length. */
size_t progress_line(char *buf, size_t n, const struct progress_counts *counts, size_t width);

#endif
