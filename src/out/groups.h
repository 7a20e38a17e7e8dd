/*
 * Groups of equal stacks (profile/groups.h) as text for a terminal, as JSON, and as a profile that the flame graph and other formats
 * can draw.
 */
#ifndef OUT_GROUPS_H
#define OUT_GROUPS_H

#include "out/dump.h"
#include "profile/groups.h"
#include "profile/profile.h"

/* A process that could not be read. */
struct groups_unread {
    pid_t pid;
    const char *why;
};

struct groups_output {
    const struct dump_options *options; /* full_filenames and color */
    double every;                       /* seconds between the rounds */
    const struct groups_unread *unread; /* the first of them */
    size_t n_unread;                    /* in `unread` */
    size_t all_unread;
};

/* `g` is finished. 0 or ERR_NOMEM. */
int groups_write_text(struct groups *g, const struct groups_output *output, FILE *out);
int groups_write_json(struct groups *g, const struct groups_output *output, FILE *out);

/* "2 could not be read: pid 12 (not Python), pid 13 (...)" */
void groups_put_unread(const struct groups_output *output, FILE *out);

/* A sample for each thread of the last round, below a root for each section. The innermost frame of each stack names the
 * processes. *keep owns what *ret refers to: free the profile, then `keep` with groups_picture_free. 0 or ERR_NOMEM. */
struct groups_picture;
int groups_draw(struct groups *g, bool timeline, struct profile **ret, struct groups_picture **keep);
struct groups_picture *groups_picture_free(struct groups_picture *p);

#endif
