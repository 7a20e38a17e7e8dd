/*
 * Folded stacks -> a profile: lines as `record -f raw` and other profilers write them, one distinct stack each, root
 * first, with a count. Called by cmd/merge for every line of every file. Lines are hostile: lengths, depths, counts and
 * the number of names are bounded here.
 *
 *     struct folded *f = folded_new(p);
 *     folded_add(f, "node 1", line, strlen(line), &why);    // "<module> (a.py:6);f (a.py:3) 99"
 *     …let a format write p…
 *     f = folded_free(f);                                   // after its last use: p's names are here
 *
 * "f (a.py:3)" is the function f of a.py at line 3. What stands above the functions and has no file, as `process
 * 1:"cmd"` or "node 2", is a made-up root. Each distinct line of roots is a thread of the profile: without a time line
 * its samples follow each other.
 */
#ifndef PROFILE_FOLDED_H
#define PROFILE_FOLDED_H

#include "profile/profile.h"

#define FOLDED_MAX_LINE   ((size_t)64 << 20) /* bytes */
#define FOLDED_MAX_DEPTH  400000
#define FOLDED_MAX_ROOTS  10000  /* what would be another is an ordinary frame */
#define FOLDED_MAX_LEVELS 64     /* of roots above a stack */
#define FOLDED_MAX_NAMES  500000 /* further ones are "[too many names]" */

struct folded;

/* `p` is empty, and outlives its last use by this. NULL when out of memory. */
struct folded *folded_new(struct profile *p);
struct folded *folded_free(struct folded *f); /* accepts NULL, returns NULL */

/*
 * Adds a line, without its end, below `root`: levels separated by ';', "" for none. An empty line is ignored. 0,
 * ERR_NOMEM, or ERR_PROFILE with what is wrong in `*ret_why`.
 */
int folded_add(struct folded *f, const char *root, const char *line, size_t len, const char **ret_why);

#endif
