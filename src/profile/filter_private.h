/*
 * How a filter judges single frames and threads. Private to filter.c and filter_profile.c.
 */
#ifndef PROFILE_FILTER_PRIVATE_H
#define PROFILE_FILTER_PRIVATE_H

#include "profile/filter.h"
#include "profile/library.h"
#include "profile/pattern.h"

struct filter_list {
    struct pattern items[FILTER_MAX_PATTERNS];
    bool used[FILTER_MAX_PATTERNS]; /* has matched something */
    size_t n;
};

struct filter {
    struct filter_list include, exclude, thread;
    bool only_mine;
    double min_percent;
    struct pattern_texts texts;
};

/* What the filter says of a function. */
struct filter_verdict {
    bool included, excluded;
    enum library_owner owner;
};

/* 0 or ERR_NOMEM. */
int filter_judge(struct filter *f, const struct func *func, struct filter_verdict *ret);

/* `id` is the thread ID in decimal. Both may be NULL. */
bool filter_has_thread(struct filter *f, const char *name, const char *id);

/* The part of a stack from its root to some frame, with only_mine. All zeros: its root. */
struct filter_path {
    bool has_mine; /* has a frame of the program */
    bool in_mine;  /* the innermost Python frame is the program's */
    bool has_name; /* some frame stands for the stack if none is the program's, */
    bool starts;   /* but it only starts a thread */
};

enum filter_step {
    FILTER_SHOW,
    FILTER_HIDE,
    FILTER_NAME, /* hide it, but from here on it stands for the stack as long as none is the program's */
};

/* Extends the path by a frame, and says whether it is shown. */
enum filter_step filter_extend(struct filter_path *path, enum library_owner owner);

#endif
