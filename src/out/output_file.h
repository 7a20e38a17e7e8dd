/*
 * The place of a recording: a path -> a file that is whole or was never touched. Called by cmd/record
 * before sampling (output_file_open proves that writing will work) and at each snapshot and the end.
 *
 *     struct output_file *pl;
 *     r = output_file_open("out.svg", &pl, &note);      // creates nothing that stays
 *     …sample…
 *     r = output_file_write(pl, write_svg, &arg, &note);  // temporary beside it, fsync, rename
 *     pl = output_file_close(pl);
 *
 * `-`, /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N are that descriptor. A character device, a
 * FIFO with a reader and an existing empty file are written in place (callers hand over temporary
 * files that they hold open). All else is replaced by rename; a symlink is never followed.
 */
#ifndef OUT_OUTPUT_FILE_H
#define OUT_OUTPUT_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

struct output_file;

/* 0, or ERR_OUTPUT, ERR_NOMEM with `note` filled. */
int output_file_open(const char *path, struct output_file **ret, struct err_note *note);

/* What is created from now on belongs to this user and group: of one who called us through sudo. */
void output_file_set_owner(struct output_file *pl, uid_t uid, gid_t gid);

/*
 * Lets `fill` write the whole content (twice, if the first way fails); may be called several times. Returns what `fill` returned when
 * that is negative (`note` untouched), ERR_DISK when writing failed, ERR_OUTPUT when the file could
 * not be put in its place. After a failure a file that was to be replaced is as it was.
 * A pipe or terminal gets one content after the other.
 */
int output_file_write(struct output_file *pl, int (*fill)(FILE *out, void *arg), void *arg, struct err_note *note);

/* The path as given. */
const char *output_file_path(const struct output_file *pl);

/* The content goes to this process's own standard output: messages must go elsewhere. */
bool output_file_is_stdout(const struct output_file *pl);

/* Accepts NULL; returns NULL. */
struct output_file *output_file_close(struct output_file *pl);

/*
 * "python-2026-11-15T04:00:00.svg", in the current directory: `base` is a program's path or a pid, of
 * which the last part is kept and made safe. Local time. `extension` is without its dot.
 */
void output_file_default_name(char *buf, size_t n, const char *base, const char *extension, time_t now);

#endif
