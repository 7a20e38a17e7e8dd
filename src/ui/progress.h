/*
 * The progress line of record: counters -> one line on a terminal, redrawn in place. Nothing at all
 * where the descriptor is not a terminal or the line is hidden.
 *
 *     struct progress *pr = progress_new(STDERR_FILENO, o->hide_progress);
 *     progress_update(pr, &counts, now_ns);       // each sample; draws at most ten times a second
 *     pr = progress_free(pr);                     // erases the line
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
    double rate_held;  /* samples a second so far; 0: not known yet */
    double rate_asked; /* samples a second */
    double elapsed;    /* seconds */
    double duration;   /* seconds; 0: unlimited */
};

/* NULL when nothing will ever be shown (or memory is out): all functions below accept NULL. */
struct progress *progress_new(int fd, bool hidden);

/* Draws when the last drawing is at least 100 ms old. `now_ns` is monotonic. */
void progress_update(struct progress *pr, const struct progress_counts *counts, uint64_t now_ns);

/* Takes the line off the screen, before a message; the next update draws it anew. */
void progress_erase(struct progress *pr);

/* Erases; returns NULL. */
struct progress *progress_free(struct progress *pr);

/* The text of the line, at most `width` columns and `n` - 1 bytes of ASCII; returns its length. */
size_t progress_line(char *buf, size_t n, const struct progress_counts *counts, size_t width);

#endif
