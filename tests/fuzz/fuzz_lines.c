/*
 * Line tables: the first byte selects the kind, the next four are the first line, the rest is the table.
 */
#include "fuzz.h"
#include "python/lines.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct line_table *t, int first_line)
{
    static const int64_t at[] = {INT64_MIN, -1, 0, 2, 1000, UINT32_MAX, INT64_MAX};

    for (size_t i = 1; i < t->n; i++)
        if (t->rows[i - 1].start >= t->rows[i].start || t->rows[i].line < 0)
            abort();
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        lines_find(t, at[i], first_line);
}

static void check_positions(const struct position_table *t)
{
    static const int64_t at[] = {INT64_MIN, -1, 0, 2, 1000, UINT32_MAX, INT64_MAX};

    for (size_t i = 0; i < t->n; i++) {
        const struct position *p = &t->rows[i].position;

        if ((i && t->rows[i - 1].start >= t->rows[i].start) || p->line < 0 || p->column < -1 || p->end_column < -1 ||
            (p->end_line ? p->end_line < p->line || p->column < 0 || p->end_column < 0 : p->column != -1))
            abort();
    }
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        struct position found;

        positions_find(t, at[i], &found);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct line_table t;
    struct position_table positions;
    int first_line;

    if (size < 5)
        return 0;
    memcpy(&first_line, data + 1, sizeof(first_line));
    lines_decode((enum line_kind)(data[0] % 4), data + 5, size - 5, first_line, &t);
    check(&t, first_line);
    lines_free(&t);
    positions_decode((enum line_kind)(data[0] % 4), data + 5, size - 5, first_line, &positions);
    check_positions(&positions);
    positions_free(&positions);
    return 0;
}
