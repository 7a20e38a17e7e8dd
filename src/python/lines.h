/*
 * Decodes line tables into rows. Pure: bytes in, numbers out (Objects/lnotab_notes.txt,
 * Objects/locations.md).
 */
#ifndef PYTHON_LINES_H
#define PYTHON_LINES_H

#include "python/layout.h"

/* The line from byte offset `start` of the bytecode on; 0 if the instruction has no line. */
struct line_row {
    uint32_t start;
    int32_t line;
};

struct line_table {
    struct line_row *rows; /* sorted by start; the first row starts at 0 */
    size_t n, cap;
};

/* The part of the source that an instruction belongs to. Columns are UTF-8 byte offsets, as in co_positions(). */
struct position {
    int32_t line, end_line;     /* 0: unknown */
    int32_t column, end_column; /* -1: unknown, as in a program that runs with -X no_debug_ranges */
};

/* The position from byte offset `start` of the bytecode on. */
struct position_row {
    uint32_t start;
    struct position position;
};

struct position_table {
    struct position_row *rows; /* sorted by start; the first row starts at 0 */
    size_t n, cap;
};

/* 0, ERR_NOMEM, or ERR_BOUNDS if the bytes end within an entry (the rows decoded so far are kept). */
int lines_decode(enum line_kind kind, const unsigned char *bytes, size_t len, int first_line, struct line_table *ret);
void lines_free(struct line_table *table);

/* The line at byte offset `at`. A negative offset is before the first instruction and gives `first_line`. */
int lines_find(const struct line_table *table, int64_t at, int first_line);

/* The same for positions, which only LINES_LOCATIONS has; a table of another kind is left empty. */
int positions_decode(enum line_kind kind, const unsigned char *bytes, size_t len, int first_line,
                     struct position_table *ret);
void positions_free(struct position_table *table);

/* False if the position at byte offset `at` is unknown. */
bool positions_find(const struct position_table *table, int64_t at, struct position *ret);

#endif
