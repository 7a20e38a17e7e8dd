/*
 * dump --group: collects the threads of all processes instead of printing them.
 *
 *     struct dump_group *group = dump_group_new(o);
 *     for each round, for each process: dump_group_add(group, traces, n, &text);
 *     dump_group_next_round(group, o);                // between two rounds
 *     r = dump_group_write(group, o, &text);
 *     group = dump_group_free(group);
 */
#ifndef CMD_DUMP_GROUP_H
#define CMD_DUMP_GROUP_H

#include "cmd/args.h"
#include "sample/trace.h"

struct dump_group;

struct dump_group *dump_group_new(const struct options *o); /* NULL if out of memory */
struct dump_group *dump_group_free(struct dump_group *group);

/* Adds the threads of one process. 0, ERR_NOMEM, or ERR_UNSUPPORTED with `text` filled: there are too many. */
int dump_group_add(struct dump_group *group, const struct trace *traces, size_t n, struct error_text *text);

/* Counts a process that could not be read. */
void dump_group_leave_out(struct dump_group *group, pid_t pid, const char *why);
/* The same from a line of selection.h; prints other lines as notes, and all of them if `group` is NULL. */
void dump_group_say(const char *line, void *group);

/* Waits until the next round begins, and begins it. */
void dump_group_next_round(struct dump_group *group, const struct options *o);

/* Drops the last round, which failed with `error`, and says so. Returns 0. */
int dump_group_stop(struct dump_group *group, int error, struct error_text *text);

/* Prints the groups. 0, or an error with `text` filled. */
int dump_group_write(struct dump_group *group, const struct options *o, struct error_text *text);

/* What `dump --json` says about the place of a process in a job; `hostname` must live as long as `info`. */
void dump_group_describe(struct proc_info *info, const char *hostname);

#endif
