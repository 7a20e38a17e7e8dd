/*
 * Finds the closest match for a misspelled word, by edit distance. Words have a maximum length; nothing is allocated.
 */
#include "cmd/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance, ignoring case: insertions, deletions, substitutions and swaps of adjacent letters. */
static size_t distance(const char *a, const char *b)
{
    size_t d[SUGGEST_WORD_MAX + 1][SUGGEST_WORD_MAX + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > SUGGEST_WORD_MAX || m > SUGGEST_WORD_MAX)
        return SUGGEST_WORD_MAX;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t change = tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]);
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = min3(d[i][j], d[i - 2][j - 2] + 1, SUGGEST_WORD_MAX);
        }
    }
    return d[n][m];
}

void suggest_try(struct suggest *s, const char *candidate)
{
    size_t n = strlen(s->word);
    size_t used = strlen(s->all);
    size_t cost = distance(s->word, candidate);

    snprintf(s->all + used, sizeof(s->all) - used, "%s%s", used ? ", " : "", candidate);
    /* A prefix counts as close: --sub for --subprocesses. */
    if (n >= 3 && strncasecmp(s->word, candidate, n) == 0)
        cost = 1;
    /* Accept one wrong letter in three; with more, suggestions are random. */
    if (cost <= (n + 1) / 3 && (!s->best || cost < s->cost)) {
        s->best = candidate;
        s->cost = cost;
    }
}
