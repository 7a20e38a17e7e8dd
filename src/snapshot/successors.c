/*
 * A small hash of links. A new link may displace an old one: a wrong or missing prediction costs a read, nothing else.
 */
#include "snapshot/successors.h"

#include "base/err.h"
#include "base/hash.h"

#include <stdlib.h>

#define LINKS     2048 /* a power of two */
#define PROBES    4
#define MIN_CHAIN 16 /* for shorter ones it is not worth the memory */

struct successors {
    struct {
        addr_t from, to;
    } links[LINKS];
};

/* Where the link from `from` is, or may go. */
static size_t slot_of(const struct successors *s, addr_t from)
{
    size_t first = hash_mix(0, from) & (LINKS - 1);

    for (size_t i = 0; i < PROBES; i++) {
        size_t at = (first + i) & (LINKS - 1);

        if (s->links[at].from == from || !s->links[at].from)
            return at;
    }
    return first;
}

int successors_note(struct successors **s, const addr_t *addrs, size_t n)
{
    if (!*s && n < MIN_CHAIN)
        return 0;
    if (!*s)
        *s = calloc(1, sizeof(**s));
    if (!*s)
        return ERR_NOMEM;
    for (size_t i = 0; i + 1 < n; i++) {
        size_t at = slot_of(*s, addrs[i]);

        (*s)->links[at].from = addrs[i];
        (*s)->links[at].to = addrs[i + 1];
    }
    return 0;
}

size_t successors_follow(const struct successors *s, addr_t from, addr_t *ret, size_t max)
{
    size_t n = 0;

    while (s && from && n < max) {
        size_t at = slot_of(s, from);

        if (s->links[at].from != from)
            break;
        ret[n++] = from = s->links[at].to;
    }
    return n;
}
