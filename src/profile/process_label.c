/*
 * Shortens command lines.
 */
#include "profile/process_label.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

/* Writes a group with its brackets. */
static void put_group(FILE *out, const char *group, size_t len)
{
    if (len - 2 > PROCESS_LABEL_GROUP)
        fprintf(out, "%c...%c", group[0], group[len - 1]);
    else
        fwrite(group, 1, len, out);
}

/* Brackets of any kind match each other. A bracket that is never closed starts no group. */
static void put_short(FILE *out, const char *s)
{
    const char *group = s;
    size_t depth = 0;

    for (; *s; s++) {
        if (is_one_of(*s, "([{") && depth++ == 0)
            group = s;
        if (depth == 0)
            fputc(*s, out);
        else if (is_one_of(*s, ")]}") && --depth == 0)
            put_group(out, group, (size_t)(s - group) + 1);
    }
    if (depth > 0)
        fputs(group, out);
}

char *process_label(const char *command)
{
    char *label = NULL;
    size_t len = 0, fit;
    FILE *out = open_memstream(&label, &len);

    if (!out)
        return NULL;
    put_short(out, command);
    if (fclose(out) != 0) {
        free(label);
        return NULL;
    }
    fit = text_fit(label, PROCESS_LABEL_COLUMNS - 3);
    if (text_fit(label, PROCESS_LABEL_COLUMNS) < len && fit + 4 <= len + 1)
        memcpy(label + fit, "...", 4);
    return label;
}
