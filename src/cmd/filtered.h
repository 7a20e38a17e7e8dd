/*
 * The part of a profile that the filter flags select, and what record and merge say about it.
 */
#ifndef CMD_FILTERED_H
#define CMD_FILTERED_H

#include "cmd/args.h"

/* All zeros at first; filtered_free. */
struct filtered {
    struct profile *shown; /* the profile itself without filter flags, else `copy` */
    struct profile *copy;
    struct filter *filter;
    struct filter_counts counts;
    char remark[2 * sizeof(struct error_text)]; /* for the file; "" if it shows the whole profile */
    struct error_text text;                     /* why nothing matches */
};

/* Filters the profile by the flags in `o`. May be called again when it has changed. Returns 0 or ERR_NOMEM. */
int filtered_update(struct filtered *x, const struct options *o, struct profile *p);
void filtered_free(struct filtered *x);

/* A remark for the file: what it shows, or why it is empty; NULL if it shows the whole profile. */
const char *filtered_remark(const struct filtered *x);

/* Prints how much the filter has kept and which patterns match nothing. If it has kept nothing, says why and what there is. */
void filtered_say(const struct filtered *x, const struct options *o, FILE *messages);

/* Raw profiles may lack what a filter needs. 0, or ERR_USAGE with `text` filled. */
int filtered_check_merge(const struct filtered *x, const struct options *o, struct error_text *text);

/* The same for the threads of a dump. All zeros at first; filtered_dump_free. */
struct filtered_dump {
    struct filter *filter; /* NULL: no filter flags */
    size_t n_threads, n_kept;
    char threads[512]; /* names of those that were dropped */
};

int filtered_dump_open(struct filtered_dump *x, const struct options *o); /* 0 or ERR_NOMEM */
void filtered_dump_free(struct filtered_dump *x);

/* Filters the frames of a trace, in a copy of them. 1: the thread is kept, with *ret_n frames; 0: it is not; ERR_NOMEM. */
int filtered_dump_frames(struct filtered_dump *x, const struct trace *trace, struct frame *frames, size_t *ret_n);

/* After the last thread: prints a note on a pattern that matches nothing. Returns 0, or ERR_ALL_FILTERED with `text` filled if no
 * thread was kept. */
int filtered_dump_check(const struct filtered_dump *x, const struct options *o, struct error_text *text);

#endif
