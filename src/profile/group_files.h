/*
 * Dumps of other machines -> members and threads of groups: what `dump --json` and `dump` of spyglass and of py-spy print. The input is
 * untrusted: depth and the number of frames are bounded, and strings become valid UTF-8.
 *
 *     struct group_file f = {.groups = g, .name = "node1.json"};
 *     r = group_file_read(&f, text, len);
 */
#ifndef PROFILE_GROUP_FILES_H
#define PROFILE_GROUP_FILES_H

#include "profile/groups.h"

#define GROUP_FILE_MAX_FRAMES 262144 /* of a stack; inner frames beyond that are left out */

struct group_file {
    struct groups *groups;
    const char *name; /* tells apart processes whose host is unknown */
    /* Results. */
    size_t n_threads;
    const char *why; /* of ERR_DUMP: what is wrong */
    size_t line;     /* where; 0: unknown */
};

/* Adds all threads of a file. 0, ERR_NOMEM, ERR_BOUNDS (too many threads, processes or names), or ERR_DUMP: the file is no dump, or broken. */
int group_file_read(struct group_file *f, const char *text, size_t len);

/* The two kinds of files. */
int group_file_read_json(struct group_file *f, const char *text, size_t len);
int group_file_read_text(struct group_file *f, const char *text, size_t len);

/* A stack that is being read, innermost frame first. All zeros is empty. */
struct group_stack {
    struct frame *frames;
    struct func *funcs; /* of `frames`, until group_stack_add links them */
    size_t n, cap_frames, cap_funcs;
    size_t omitted;
};

/* Begins another stack. */
void group_stack_clear(struct group_stack *s);
/* Adds a frame. The strings must be interned. 0 or ERR_NOMEM. */
int group_stack_push(struct group_stack *s, const struct func *func, int line);
/* Adds a thread that has this stack; fills in the frames of `trace`. */
int group_stack_add(struct group_stack *s, struct group_file *f, uint32_t member, struct trace *trace);
void group_stack_free(struct group_stack *s);

#endif
