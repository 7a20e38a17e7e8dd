/*
 * The table of record's formats: profile -> bytes. ADD A FORMAT HERE: one file out/NAME.c that
 * defines a `const struct format`, one line in the table in format.c (docs/add-a-format.md).
 */
#ifndef OUT_FORMAT_H
#define OUT_FORMAT_H

#include "profile/profile.h"

#include <stdio.h>

struct out_options {
    const char *title;    /* the command line that was profiled */
    const char *exporter; /* "spyglass 0.1.0" or "py-spy 0.4.3 (spyglass …)" */
    bool full_filenames;
    bool show_lines;    /* false with --nolineno */
    const char *remark; /* what a reader must know: that nothing ran, and why; NULL for nothing */
};

struct format {
    const char *name;      /* "speedscope", as -f takes it */
    const char *extension; /* "json": the extension of the default file name */
    const char *wrote;     /* "speedscope file": the words of the message `Wrote speedscope file to` */
    const char *look;      /* one line on how to look at it; %s is the file's path */
    bool timeline;         /* wants profile_options.timeline */
    /* Writes to `out`, whose errors the caller checks with ferror. 0, ERR_NO_SAMPLES or another error. */
    int (*write)(const struct profile *p, const struct out_options *options, FILE *out);
};

/* By name in any case, or NULL. */
const struct format *format_by_name(const char *name);
/* By the extension of `path` (".svg", ".json" -> speedscope, ".txt"/".raw"/".folded"/".collapsed" -> raw), or NULL. */
const struct format *format_by_path(const char *path);
/* All of them, ended by NULL. */
const struct format *const *format_all(void);

/* "leaf (b.py:4)", "leaf (b.py)" when there is no line or they are off, "leaf" when there is no file either, the label
 * of a made-up root. */
void format_frame(const struct profile_frame *frame, const struct out_options *options, FILE *out);

#endif
