/*
 * "Did you mean": finds the candidate closest to an unknown word.
 *
 *     struct suggest g = {.word = "recrod"};
 *     suggest_try(&g, "record");
 *     suggest_try(&g, "dump");                    // g.best "record", g.all "record, dump"
 */
#ifndef CMD_SUGGEST_H
#define CMD_SUGGEST_H

#include <stddef.h>

/* Longer words never match. */
enum { SUGGEST_WORD_MAX = 32 };

struct suggest {
    const char *word;
    const char *best; /* NULL: no close match */
    size_t cost;
    char all[256]; /* all candidates, separated by ", " */
};

void suggest_try(struct suggest *s, const char *candidate);

#endif
