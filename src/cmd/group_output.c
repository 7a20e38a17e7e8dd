/*
 * The output of `group` and of `dump --group`.
 */
#include "cmd/group_output.h"

#include "cmd/color.h"
#include "out/output_file.h"

#include <time.h>

struct picture {
    const struct options *o;
    const struct format *format;
    struct profile *profile;
    char title[64];
};

static int fill(FILE *out, void *arg)
{
    struct picture *p = arg;

    return p->format->write(p->profile,
                            &(struct out_options){.title = p->title,
                                                  .exporter = args_version(p->o),
                                                  .full_filenames = p->o->full_filenames,
                                                  .show_lines = true,
                                                  .remark = "one sample is one thread of a process"},
                            out);
}

static int write_file(struct picture *p, struct error_text *text)
{
    struct output_file *file = NULL;
    struct err_note note = {0};
    char name[512];
    int r;

    output_file_default_name(name, sizeof(name), "groups", p->format->extension, time(NULL));
    r = output_file_open(p->o->output ? p->o->output : name, NULL, &file, &note);
    if (r == 0)
        r = output_file_write(file, fill, p, &note);
    r = error_text_explain(text, r, &note.facts);
    if (r == 0 && !output_file_is_stdout(file))
        fprintf(stderr, "%sWrote %s to '%s'.\n", args_prefix(p->o), p->format->wrote, output_file_path(file));
    output_file_close(file);
    return r;
}

/* The picture has no place for the processes that could not be read. */
static int write_picture(const struct options *o, struct groups *g, const struct groups_output *output,
                         struct error_text *text)
{
    const struct format *by_path = o->output ? format_by_path(o->output) : NULL;
    struct picture p = {.o = o, .format = o->format ? o->format : by_path ? by_path : format_by_name("flamegraph")};
    struct groups_picture *keep = NULL;
    int r = groups_draw(g, p.format->timeline, &p.profile, &keep);

    snprintf(p.title, sizeof(p.title), "%zu process%s", g->n_present, g->n_present == 1 ? "" : "es");
    if (r == 0)
        r = write_file(&p, text);
    if (r == 0 && output->all_unread) {
        fputs("Note: ", stderr);
        groups_put_unread(output, stderr);
        fputs(".\n", stderr);
    }
    profile_free(p.profile);
    groups_picture_free(keep);
    return r;
}

int group_output_write(const struct options *o, struct groups *g, const struct groups_output *output,
                       struct error_text *text)
{
    struct dump_options options = {.full_filenames = o->full_filenames,
                                   .color = !o->as_py_spy && color_is_wanted(stdout)};
    struct groups_output with = *output;
    int r;

    with.options = &options;
    if (o->output || o->format)
        r = write_picture(o, g, &with, text);
    else
        r = o->json ? groups_write_json(g, &with, stdout) : groups_write_text(g, &with, stdout);
    if (r == 0 && g->cut)
        fprintf(stderr,
                "Note: left out the inner frames of %zu stacks: they are too deep, or there are too many of them.\n",
                g->cut);
    return r;
}
