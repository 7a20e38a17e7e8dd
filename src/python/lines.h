/*
 * Line tables -> rows, pure: bytes in, numbers out (Objects/lnotab_notes.txt, Objects/locations.md).
 */
#ifndef PYTHON_LINES_H
#define PYTHON_LINES_H

#include "python/layout.h"

/* From `start` on (in bytes of bytecode) the line is `line`; 0 where the instruction has none. */
struct line_row {
    uint32_t start;
    int32_t line;
};

struct line_table {
    struct line_row *rows; /* sorted by start; the first starts at 0 */
    size_t n, cap;
};

/* 0, ERR_NOMEM, or ERR_BOUNDS when the bytes end in the middle of an entry (the rows so far are kept). */
int lines_decode(enum line_kind kind, const unsigned char *bytes, size_t len, int first_line, struct line_table *ret);
void lines_free(struct line_table *table);

/* The line at byte offset `at`; a negative offset is before the first instruction: `first_line`. */
int lines_find(const struct line_table *table, int64_t at, int first_line);

#endif
