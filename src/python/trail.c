/*
 * Frame -> the next one outward, the last time. Called by frames.c for stacks whose frames are where the last stack had
 * none: read one by one, a deep one takes longer than the thread stays in it.
 */
#include "python/trail.h"

#include "base/err.h"
#include "base/hash.h"

#include <stdlib.h>

#define STEPS 2048 /* a power of two */
#define TRIES 4    /* places where a step may be; when all are taken, it takes the first */
#define LEAST 16   /* frames, for which it is worth the memory */

struct step {
    addr_t from, to;
};

struct trail {
    struct step steps[STEPS];
};

/* The step from there, or a free one, or the one that gives way to it. */
static size_t place_of(const struct trail *t, addr_t from)
{
    size_t first = hash_mix(0, from) & (STEPS - 1);

    for (size_t i = 0; i < TRIES; i++) {
        size_t at = (first + i) & (STEPS - 1);

        if (t->steps[at].from == from || !t->steps[at].from)
            return at;
    }
    return first;
}

void trail_free(struct trail *t)
{
    free(t);
}

int trail_note(struct trail **t, const addr_t *frames, size_t n)
{
    if (!*t && n < LEAST)
        return 0;
    if (!*t)
        *t = calloc(1, sizeof(**t));
    if (!*t)
        return ERR_NOMEM;
    for (size_t i = 0; i + 1 < n; i++)
        (*t)->steps[place_of(*t, frames[i])] = (struct step){frames[i], frames[i + 1]};
    return 0;
}

size_t trail_follow(const struct trail *t, addr_t from, addr_t *ret, size_t max)
{
    size_t n = 0;

    while (t && from && n < max) {
        const struct step *step = &t->steps[place_of(t, from)];

        if (step->from != from)
            break;
        ret[n++] = from = step->to;
    }
    return n;
}
