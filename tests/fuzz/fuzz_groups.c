/*
 * Files of `group`: dumps as JSON and as text. Whatever is read can be grouped and written in every way; each thread is in one group.
 */
#include "base/err.h"
#include "base/json_read.h"
#include "fuzz.h"
#include "out/format.h"
#include "out/groups.h"
#include "profile/group_files.h"

#include <stdlib.h>

static void check_views(struct groups *g)
{
    size_t threads = 0;

    for (size_t i = 0; i < g->n_sections; i++)
        for (uint32_t round = 1; round <= g->rounds; round++) {
            struct group_view view;
            size_t self = 0;

            if (groups_view(g, i, round, &view) < 0)
                abort();
            for (size_t k = 0; k < view.n_steps; k++) {
                const struct group_step *s = &view.steps[k];

                self += s->self;
                if (s->self > s->n || s->first + s->n > view.n_threads || (k && s->up >= k))
                    abort();
            }
            if (self != view.n_threads || group_view_common(&view) >= view.n_steps)
                abort();
            threads += view.n_threads;
            group_view_free(&view);
        }
    if (threads != g->n_threads)
        abort();
}

static void write_text(struct groups *g, bool json)
{
    struct dump_options options = {.color = true};
    struct groups_output output = {.options = &options, .every = 5};
    struct json_reader r = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    if (!mem || (json ? groups_write_json : groups_write_text)(g, &output, mem) < 0 || fclose(mem) != 0)
        abort();
    if (json) {
        r.s = text;
        r.len = len;
        json_read_skip(&r);
        if (!json_read_end(&r))
            abort();
        json_read_free(&r);
    }
    free(text);
}

static void draw(struct groups *g)
{
    struct groups_picture *keep = NULL;
    struct profile *p = NULL;
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    if (!mem || groups_draw(g, false, &p, &keep) < 0 ||
        format_by_name("flamegraph")->write(p, &(struct out_options){.title = "", .exporter = "", .remark = ""}, mem) <
            0)
        abort();
    fclose(mem);
    free(text);
    profile_free(p);
    groups_picture_free(keep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct groups *g = groups_new();
    struct group_file f = {.groups = g, .name = "a"};
    size_t half = size > 1 && data[0] & 1 ? size / 2 : size; /* one file, or two rounds */

    if (!g || size == 0)
        return groups_free(g) != NULL;
    group_file_read(&f, (const char *)data + 1, half - 1);
    if (half < size) {
        groups_next_round(g);
        group_file_read(&f, (const char *)data + half, size - half);
    }
    if (g->n_threads) {
        if (groups_finish(g) < 0)
            abort();
        check_views(g);
        write_text(g, false);
        write_text(g, true);
        draw(g);
    }
    groups_free(g);
    return 0;
}
