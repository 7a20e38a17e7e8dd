/*
 * The table of output formats, and the text of a frame. ADD A FORMAT HERE: declare it and add it to the table.
 */
#include "out/format.h"

#include "base/text.h"

#include <string.h>
#include <strings.h>

extern const struct format format_flamegraph, format_raw, format_speedscope, format_chrometrace;

static const struct format *const format_table[] = {
    &format_flamegraph, &format_raw, &format_speedscope, &format_chrometrace, NULL,
};

/* Longer extensions first: ".trace.json" also ends in ".json". */
static const struct {
    const char *ending;
    const struct format *format;
} format_endings[] = {
    {".svg", &format_flamegraph},
    {".trace.json", &format_chrometrace},
    {".chrometrace.json", &format_chrometrace},
    {".json", &format_speedscope},
    {".txt", &format_raw},
    {".raw", &format_raw},
    {".folded", &format_raw},
    {".collapsed", &format_raw},
};

const struct format *const *format_all(void)
{
    return format_table;
}

const struct format *format_by_name(const char *name)
{
    for (size_t i = 0; format_table[i] != NULL; i++)
        if (strcasecmp(format_table[i]->name, name) == 0)
            return format_table[i];
    return NULL;
}

const struct format *format_by_path(const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < sizeof(format_endings) / sizeof(format_endings[0]); i++) {
        size_t n = strlen(format_endings[i].ending);

        if (len >= n && strcasecmp(path + len - n, format_endings[i].ending) == 0)
            return format_endings[i].format;
    }
    return NULL;
}

bool format_is_unknown(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');

    return dot && dot != name && strpbrk(dot, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") &&
           !format_by_path(path);
}

const char *format_ending(size_t i, const struct format **ret)
{
    if (i >= sizeof(format_endings) / sizeof(format_endings[0]))
        return NULL;
    *ret = format_endings[i].format;
    return format_endings[i].ending;
}

void format_frame(const struct profile_frame *frame, const struct out_options *options, FILE *out)
{
    if (frame->label != NULL) {
        text_print_safe(out, frame->label);
        return;
    }
    text_print_safe(out, frame->func->name);
    if (*frame->func->filename == '\0' && frame->line <= 0)
        return; /* from collapsed stacks of another profiler, which have names only */
    fputs(" (", out);
    text_print_safe(out, options->full_filenames ? frame->func->filename : frame->func->short_filename);
    if (options->show_lines && frame->line > 0)
        fprintf(out, ":%d", frame->line);
    putc(')', out);
}
