/*
 * Writes collapsed stacks, one line per distinct stack, root first:
 *
 *     <module> (a.py:6);f (a.py:3) 99
 *
 * Lines are unambiguous: frames contain no ';' and no control characters, and the last blank precedes the count. A
 * remark is a line with a count of 0: [all 200 stacks were idle] 0
 */
#include "base/err.h"
#include "base/grow.h"
#include "base/text.h"
#include "out/format.h"
#include "profile/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The current line. ends[d] is the position after the frame at depth d. */
struct raw_line {
    char *text;
    size_t cap;
    size_t *ends;
};

/* FNV-1a: without a seed, so that the same profile gives the same file. */
static uint64_t raw_hash(const char *s, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325ull;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)s[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

/* The number of samples that the time of a line corresponds to. Whether it is rounded up depends on the hash of the line: so
 * the sums of many lines are right, and a line of a snapshot does not vanish later. The line of a profile that has less than one
 * sample may: see raw_write. */
static uint64_t raw_count(const struct profile *p, const struct raw_line *line, size_t end, uint64_t value)
{
    uint64_t interval = p->options.interval_ns;

    return p->options.measure == NULL ? value : (value + raw_hash(line->text, end) % interval) / interval;
}

static void raw_clean(char *s, size_t len)
{
    for (char *p = s; (p = memchr(p, ';', len - (size_t)(p - s))) != NULL;)
        *p = ':';
}

/* The text of a frame, cached in texts[frame]. NULL if out of memory. */
static const char *raw_frame(const struct profile *p, uint32_t frame, const struct out_options *options, char **texts)
{
    size_t len = 0;
    FILE *mem;

    if (texts[frame] != NULL)
        return texts[frame];
    mem = open_memstream(&texts[frame], &len);
    if (mem == NULL)
        return NULL;
    format_frame(&p->frames[frame], options, mem);
    if (fclose(mem) != 0) {
        free(texts[frame]);
        texts[frame] = NULL;
        return NULL;
    }
    raw_clean(texts[frame], len);
    return texts[frame];
}

static int raw_line_put(struct raw_line *line, uint32_t depth, const char *text)
{
    size_t start = line->ends[depth - 1], len = strlen(text);

    if (grow_array((void **)&line->text, &line->cap, start + len + 1, 1) < 0)
        return ERR_NOMEM;
    if (start > 0)
        line->text[start++] = ';';
    memcpy(line->text + start, text, len);
    line->ends[depth] = start + len;
    return 0;
}

/* The stack with the most time; 0 if there is none. */
static uint32_t raw_heaviest(const struct tree *tree)
{
    uint32_t best = 0;

    for (uint32_t i = tree_next(tree, 0, true); i != 0; i = tree_next(tree, i, true))
        if (tree->nodes[i].self > 0 && (best == 0 || tree->nodes[i].self > tree->nodes[best].self))
            best = i;
    return best;
}

/* Writes the stack `kept` even if its count is 0. Sets `*wrote` if it writes a line. */
static int raw_write_tree(const struct profile *p, const struct tree *tree, const struct out_options *options,
                          struct raw_line *line, char **texts, uint32_t kept, bool *wrote, FILE *out)
{
    uint64_t count = raw_count(p, line, 0, tree->nodes[0].self);

    *wrote = count > 0;
    if (count > 0) /* pruning removed whole stacks */
        fprintf(out, "[rare calls] %" PRIu64 "\n", count);
    for (uint32_t i = tree_next(tree, 0, true); i != 0; i = tree_next(tree, i, true)) {
        const struct tree_node *node = &tree->nodes[i];
        const char *text = raw_frame(p, node->frame, options, texts);

        if (text == NULL || raw_line_put(line, node->depth, text) < 0)
            return ERR_NOMEM;
        count = raw_count(p, line, line->ends[node->depth], node->self);
        if (count == 0 && i == kept)
            count = 1;
        if (count == 0)
            continue;
        *wrote = true;
        fwrite(line->text, 1, line->ends[node->depth], out);
        fprintf(out, " %" PRIu64 "\n", count);
    }
    return 0;
}

/* A count of 0 does not affect programs that read the format; the text is for people. */
static void raw_write_remark(const char *remark, FILE *out)
{
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    if (mem == NULL)
        return;
    text_print_safe(mem, remark);
    if (fclose(mem) == 0) {
        raw_clean(text, len);
        fprintf(out, "[%s] 0\n", text);
    }
    free(text);
}

static int raw_write(const struct profile *p, const struct out_options *options, FILE *out)
{
    struct tree *tree = tree_new(p, options->full_filenames, options->show_lines);
    char **texts = calloc(p->n_frames + 1, sizeof(*texts));
    struct raw_line line = {0};
    bool wrote = false;
    int r = ERR_NOMEM;

    if (tree != NULL)
        line.ends = calloc((size_t)tree->max_depth + 1, sizeof(*line.ends));
    if (tree != NULL && texts != NULL && line.ends != NULL)
        r = raw_write_tree(p, tree, options, &line, texts, 0, &wrote, out);
    /* With so little time that all counts are 0, write one stack: an empty file would mean that there were none. */
    if (r == 0 && !wrote)
        r = raw_write_tree(p, tree, options, &line, texts, raw_heaviest(tree), &wrote, out);
    if (r == 0 && options->remark != NULL)
        raw_write_remark(options->remark, out);
    for (size_t i = 0; texts != NULL && i < p->n_frames; i++)
        free(texts[i]);
    free(texts);
    free(line.text);
    free(line.ends);
    tree_free(tree);
    return r;
}

const struct format format_raw = {
    .name = "raw",
    .extension = "txt",
    .wrote = "raw flamegraph data",
    .look = "Collapsed stacks: one line per stack, for flamegraph.pl, speedscope and others",
    .write = raw_write,
};
