/*
 * Selects what a profile or a dump shows: stacks by their frames, threads by their names, and only the program's own frames.
 * Filters a finished profile, so sampling costs the same with and without a filter, and every command has the same rules. See
 * docs/decisions/0016-filter-when-writing.md.
 *
 *     struct filter *f = filter_new(&(struct filter_options){.include = {1, {"requests"}}, .only_mine = true});
 *     filter_profile(f, p, false, &shown, &counts);
 *     format->write(shown, &options, out);
 *     shown = profile_free(shown);
 *     f = filter_free(f);
 */
#ifndef PROFILE_FILTER_H
#define PROFILE_FILTER_H

#include "profile/profile.h"

#define FILTER_MAX_PATTERNS 32 /* of each kind */

struct filter_patterns {
    size_t n;
    const char *items[FILTER_MAX_PATTERNS];
};

struct filter_options {
    struct filter_patterns include; /* keep only stacks with a frame that matches one of them */
    struct filter_patterns exclude; /* drop stacks with a frame that matches one of them */
    struct filter_patterns thread;  /* keep only threads whose name or ID matches one of them */
    /* Fold the frames of libraries into those that call them. A frame that matches `include` is not a library's. A stack of
     * library frames only becomes its outermost frame, apart from those that start every thread. */
    bool only_mine;
    double min_percent; /* fold calls below this share of the result into their callers */
};

/* What a filter did to a profile. Times are nanoseconds, or samples: see profile_options. */
struct filter_counts {
    uint64_t total, samples;           /* before */
    uint64_t kept_total, kept_samples; /* after */
    uint64_t threads_total;            /* of the threads that match */
    uint64_t library_total;            /* with only_mine: in stacks without a frame of the program */
    size_t n_mine;                     /* with only_mine: functions of the program: 0, 1 or more */
    bool has_threads, has_full_paths;  /* the profile has roots for threads; some file names are full */
};

struct filter;

struct filter *filter_new(const struct filter_options *options); /* NULL if out of memory */
struct filter *filter_free(struct filter *f);                    /* accepts NULL, returns NULL */

/* True if nothing is to be filtered. */
bool filter_is_empty(const struct filter_options *options);

/* A filtered copy of `p`. It borrows what `p` does, but not `p` itself. To filter by thread, `p` must have roots for threads;
 * without `keep_threads` the copy has none. Returns 0 or ERR_NOMEM. */
int filter_profile(struct filter *f, const struct profile *p, bool keep_threads, struct profile **ret,
                   struct filter_counts *counts);

/* The same for one stack, without min_percent: moves the frames that stay to the front of `frames`, which are those of the trace,
 * and sets *ret_n to their number. Returns 1 if the stack is kept, 0 if not, or ERR_NOMEM. */
int filter_frames(struct filter *f, const struct trace *trace, struct frame *frames, size_t *ret_n);

/* The first pattern that has matched no thread, file or function so far; NULL if there is none. *ret_flag becomes the name of its
 * option: "include". */
const char *filter_unused(const struct filter *f, const char **ret_flag);

#endif
