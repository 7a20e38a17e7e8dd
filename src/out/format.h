/*
 * Output formats of `record`. ADD A FORMAT HERE: a file out/NAME.c that defines a `const struct format`, and a line in
 * the table in format.c. See docs/add-a-format.md.
 */
#ifndef OUT_FORMAT_H
#define OUT_FORMAT_H

#include "profile/profile.h"

#include <stdio.h>

struct out_options {
    const char *title;    /* the command line that was profiled */
    const char *exporter; /* "spyglass 0.1.0" or "py-spy 0.4.3 (spyglass …)" */
    bool full_filenames;
    bool gaps; /* show when a thread was not seen, in formats with a time axis; false for py-spy */
    bool
        each_sample; /* speedscope has one entry per sample, and `col`, as py-spy's files do; else equal ones share one */
    bool show_lines;    /* false with --nolineno */
    const char *remark; /* a note for the reader, such as what was filtered or why there are no samples; NULL: none */
};

struct format {
    const char *name;      /* the argument of -f: "speedscope" */
    const char *extension; /* of the default file name: "json" */
    const char *wrote;     /* for the message `Wrote speedscope file to`: "speedscope file" */
    const char *look;      /* a line on how to view the file; %s is its path */
    bool timeline;         /* needs profile_options.timeline */
    /* Writes to `out`. The caller checks ferror(out). Returns 0, ERR_NO_SAMPLES or another error. */
    int (*write)(const struct profile *p, const struct out_options *options, FILE *out);
};

/* Finds a format by name, ignoring case; NULL if there is none. */
const struct format *format_by_name(const char *name);
/* Finds a format by the extension of `path`; NULL if there is none. ".json" means speedscope, ".trace.json"
 * chrometrace. */
const struct format *format_by_path(const char *path);
/* True if `path` has an extension that belongs to no format. A number, as in "run.2" or "python3.11", is no extension. */
bool format_is_unknown(const char *path);
/* The extensions by index, ".svg" first, and their formats; NULL after the last. */
const char *format_ending(size_t i, const struct format **ret);
/* All formats, terminated by NULL. */
const struct format *const *format_all(void);

/* Prints the text of a frame: "leaf (b.py:4)"; "leaf (b.py)" if the line is unknown or not wanted; "leaf" if the file
 * is unknown too; the label of a synthetic root. */
void format_frame(const struct profile_frame *frame, const struct out_options *options, FILE *out);

#endif
