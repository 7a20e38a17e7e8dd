/*
 * Writes an output file atomically: the file is complete, or unchanged.
 *
 *     r = output_file_open("out.svg", &file, &note);        // before sampling: checks that the file can be written
 *     r = output_file_write(file, write_svg, &arg, &note);  // temporary file in the same directory, fsync, rename
 *     file = output_file_close(file);
 *
 * `-`, /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N mean that descriptor. A character device, a FIFO with a
 * reader and an existing empty file are written in place; the last because programs create a temporary file, keep it
 * open and pass us its path. Everything else is replaced by rename. Symlinks are never followed.
 */
#ifndef OUT_OUTPUT_FILE_H
#define OUT_OUTPUT_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

struct output_file;

/* Leaves no file behind. Returns 0, or ERR_OUTPUT, ERR_DISK or ERR_NOMEM with `note` filled. */
int output_file_open(const char *path, struct output_file **ret, struct err_note *note);

/* Sets the owner of files created from now on, for users who run us through sudo. */
void output_file_set_owner(struct output_file *file, uid_t uid, gid_t gid);

/*
 * Calls `fill` to write the whole content; a second time if the file cannot be renamed and must be overwritten.
 * Returns 0; what `fill` returned, if negative, with `note` unchanged; ERR_DISK if writing failed; ERR_OUTPUT if the
 * file could not be created or renamed. On failure, a file that was to be replaced is unchanged. May be called
 * repeatedly: a file gets the new content instead of the old, a pipe or terminal gets it after the old.
 */
int output_file_write(struct output_file *file, int (*fill)(FILE *out, void *arg), void *arg, struct err_note *note);

/* The path as given. */
const char *output_file_path(const struct output_file *file);

/* True if the output goes to our standard output. Messages must not go there then. */
bool output_file_is_stdout(const struct output_file *file);

/* Accepts NULL; returns NULL. */
struct output_file *output_file_close(struct output_file *file);

/*
 * Makes a name such as "python-2026-11-15T04:00:00.svg", in local time. Uses the last component of `base`, the path of
 * a program or a PID, with unsafe characters replaced. `extension` has no dot.
 */
void output_file_default_name(char *buf, size_t n, const char *base, const char *extension, time_t now);

#endif
