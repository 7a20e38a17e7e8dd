/*
 * Writes an output file atomically: the file is complete, or unchanged.
 *
 *     r = output_file_open("out.svg", NULL, &file, &note);  // before sampling: checks that the file can be written
 *     r = output_file_write(file, write_svg, &arg, &note);  // temporary file in the same directory, fsync, rename
 *     file = output_file_close(file);
 *
 * `-`, /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N mean that descriptor. A character device, a FIFO with a
 * reader and an existing empty file are written in place; the last because programs create a temporary file, keep it
 * open and pass us its path. Everything else is replaced by rename, and keeps its mode and owner. Symlinks are never
 * followed. A FIFO or a terminal must belong to us or to root, and what is kept in a sticky directory to us or to the owner
 * of the directory.
 */
#ifndef OUT_OUTPUT_FILE_H
#define OUT_OUTPUT_FILE_H

#include "base/err.h"
#include "out/output_sink.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

struct output_file;

struct output_owner {
    uid_t uid;
    gid_t gid;
};

/* Leaves no file behind. `owner` is the user who runs us through sudo, to whom new files will belong; NULL: ourselves. Returns
 * 0, or ERR_OUTPUT, ERR_DISK or ERR_NOMEM with `note` filled. */
int output_file_open(const char *path, const struct output_owner *owner, struct output_file **ret,
                     struct err_note *note);

/* Decides how long to wait for a reader that does not read. Without it, output_file_write waits for ever. */
void output_file_on_stall(struct output_file *file, output_sink_stalled stalled, void *arg);

/*
 * Calls `fill` to write the whole content; again if the file cannot be linked or renamed and needs another method.
 * Returns 0; what `fill` returned, if negative, with `note` unchanged; ERR_DISK if writing failed; ERR_INTERRUPTED if the
 * reader stalled; ERR_OUTPUT if the file could not be created or renamed. On failure, a file that was to be replaced is unchanged. May be called
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
