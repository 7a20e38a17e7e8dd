/*
 * Lines of folded stacks; the first byte selects the root, and whether a filter is applied. Accepted lines must appear in the
 * output, in each format. A filter keeps what it says that it keeps.
 */
#include "base/err.h"
#include "fuzz.h"
#include "out/format.h"
#include "profile/filter.h"
#include "profile/folded.h"

#include <stdlib.h>
#include <string.h>

static void write_all(const struct profile *p)
{
    struct out_options options = {.title = "", .exporter = "spyglass", .show_lines = true};

    for (const struct format *const *f = format_all(); *f; f++) {
        char *text = NULL;
        size_t len = 0;
        FILE *mem = open_memstream(&text, &len);
        int r = mem ? (*f)->write(p, &options, mem) : ERR_NOMEM;

        if (mem)
            fclose(mem);
        if (r < 0 && !(r == ERR_NO_SAMPLES && p->samples == 0))
            abort();
        free(text);
    }
}

static void add_lines(struct folded *f, const char *root, const char *s, size_t len)
{
    const char *why;

    while (len > 0) {
        const char *end = memchr(s, '\n', len);
        size_t n = end ? (size_t)(end - s) : len;

        folded_add(f, root, s, n, &why);
        s += end ? n + 1 : n;
        len -= end ? n + 1 : n;
    }
}

static void write_filtered(const struct profile *p)
{
    struct filter_options options = {
        .exclude = {2, {"*a*b*", "c"}}, .include = {2, {"*.py", "main"}}, .only_mine = true, .min_percent = 3};
    struct filter *f = filter_new(&options);
    struct filter_counts counts;
    struct profile *shown = NULL;
    uint64_t total = 0;

    if (f && filter_profile(f, p, true, &shown, &counts) == 0) {
        for (size_t i = 0; i < shown->n_nodes; i++)
            total += shown->nodes[i].self;
        if (total != counts.kept_total || counts.total != p->total || total > p->total)
            abort();
        write_all(shown);
    }
    profile_free(shown);
    filter_free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const roots[] = {"", "node 1", "node 1;worker 3", ";"};
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10000000, .timeline = true});
    struct folded *f = p ? folded_new(p) : NULL;

    if (f && size > 0) {
        add_lines(f, roots[data[0] % 4], (const char *)data + 1, size - 1);
        write_all(p);
        if (data[0] & 0x80)
            write_filtered(p);
    }
    profile_free(p);
    folded_free(f);
    return 0;
}
