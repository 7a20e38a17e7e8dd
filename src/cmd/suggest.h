/*
 * "Did you mean": a word that was not understood and the words that would have been -> the closest.
 *
 *     struct suggest g = {.word = "recrod"};
 *     suggest_try(&g, "record");
 *     suggest_try(&g, "dump");                    // g.best "record", g.all "record, dump"
 */
#ifndef CMD_SUGGEST_H
#define CMD_SUGGEST_H

#include <stddef.h>

/* Words longer than this are never compared. */
enum { SUGGEST_WORD_MAX = 32 };

struct suggest {
    const char *word;
    const char *best; /* NULL: nothing is close */
    size_t cost;
    char all[256]; /* what was tried, for a list */
};

void suggest_try(struct suggest *s, const char *candidate);

#endif
