/*
 * Reads collapsed ("folded") stacks into a profile: one line per distinct stack, root first, followed by a count, as
 * written by `record -f raw` and other profilers. Input is untrusted: this limits line length, depth, counts and the
 * number of names.
 *
 *     struct folded *f = folded_new(p);
 *     folded_add(f, "node 1", line, strlen(line), &why);    // "<module> (a.py:6);f (a.py:3) 99"
 *     format->write(p, &options, out);
 *     f = folded_free(f);                                   // last, because it owns the names in p
 *
 * "f (a.py:3)" is function f in a.py, line 3. Leading frames without a file, such as `process 1:"cmd"` or "node 2",
 * are synthetic roots. Each distinct sequence of roots becomes a thread of the profile. Collapsed stacks have no
 * times, so a thread's samples are laid out one after another.
 */
#ifndef PROFILE_FOLDED_H
#define PROFILE_FOLDED_H

#include "profile/profile.h"

#define FOLDED_MAX_LINE   ((size_t)64 << 20) /* bytes */
#define FOLDED_MAX_DEPTH  400000
#define FOLDED_MAX_ROOTS  10000  /* distinct sequences of roots; beyond that, roots become ordinary frames */
#define FOLDED_MAX_LEVELS 64     /* roots of one stack */
#define FOLDED_MAX_NAMES  500000 /* distinct frames; beyond that, new ones become "[too many names]" */

struct folded;

/* `p` must be empty. Returns NULL if out of memory. */
struct folded *folded_new(struct profile *p);
struct folded *folded_free(struct folded *f); /* accepts NULL, returns NULL */

/*
 * Adds a line (without its newline) below `root`, which holds levels separated by ';', or "" for none. Ignores an empty
 * line. Returns 0, ERR_NOMEM, or ERR_PROFILE with the reason in `*ret_why`.
 */
int folded_add(struct folded *f, const char *root, const char *line, size_t len, const char **ret_why);

/* The first remark in the input, such as why a recording is empty: the text of a line `[text] 0`. NULL if there is none. */
const char *folded_remark(const struct folded *f);

#endif
