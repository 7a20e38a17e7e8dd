/*
 * Writes an SVG flame graph with the root on top. It is complete without its script, which adds search and zoom, and
 * adapts the graph to small screens. Without the script, the viewBox scales the graph to its place in a page.
 *
 * The output is well-formed XML: all text is escaped, and no string from the target gets into the script or into an
 * attribute. Positions are percentages, so the graph follows the width of the window. If a frame is shown, so are its
 * callers.
 */
#include "base/err.h"
#include "base/text.h"
#include "base/utf8.h"
#include "out/assets.h"
#include "out/format.h"
#include "profile/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FLAME_WIDTH    1200
#define FLAME_MARGIN   10
#define FLAME_INNER    (FLAME_WIDTH - 2 * FLAME_MARGIN)
#define FLAME_TOP      84  /* height of the header */
#define FLAME_ROW      18  /* ROW in flamegraph.js */
#define FLAME_CHAR     7.3 /* width of a character in a 12-pixel font; slightly too large, so text never overflows */
#define FLAME_TITLE    600 /* maximum columns of a frame's name in its tooltip */
#define FLAME_BYTES    3400000 /* maximum size of all frames in the file */
#define FLAME_OVERHEAD 210     /* maximum bytes of a frame besides its name */

#define FLAME_REMARK_ROWS    8   /* height of a graph without samples, which shows the remark */
#define FLAME_REMARK_COLUMNS 110 /* of a line of the remark */

struct flame {
    const struct profile *p;
    const struct out_options *options;
    struct tree *tree;
    char **names;     /* by frame: its text, without control characters but not escaped for XML */
    bool *shown;      /* by node of the tree */
    uint64_t *cursor; /* by depth: where the next frame starts, in samples or ns */
    uint32_t rows;
    size_t omitted; /* frames left out to limit the size of the file */
    FILE *out;
};

/* Fill colours: 15 hues of equal lightness with four tints each. The file selects the hue, the function the tint. */
static const uint32_t flame_colours[][4] = {
    {0xf5a5a4, 0xfab2b0, 0xffbebd, 0xef9c9b}, {0xf2aa8c, 0xf7b69a, 0xfcc2a9, 0xeca181},
    {0xe7b27a, 0xedbd8b, 0xf2c89c, 0xe0aa6e}, {0xd4bc75, 0xdbc687, 0xe2d099, 0xcdb468},
    {0xbac67e, 0xc4cf8f, 0xced89f, 0xb2be72}, {0x9dcd93, 0xaad5a1, 0xb8deaf, 0x94c689},
    {0x81d1ad, 0x92d9b9, 0xa3e1c4, 0x75caa5}, {0x6ed2c9, 0x83dad1, 0x97e1da, 0x5fcbc2},
    {0x6dcee1, 0x82d6e7, 0x96dfee, 0x5fc7db}, {0x7fc8f3, 0x91d0f7, 0xa2d9fc, 0x73c0ed},
    {0x9abffb, 0xa7c9ff, 0xb5d2ff, 0x90b7f6}, {0xb6b6f9, 0xc0c0fd, 0xcacbff, 0xaeadf4},
    {0xcfaeed, 0xd7b9f2, 0xdfc4f8, 0xc7a5e7}, {0xe2a7d9, 0xe9b3e0, 0xefbfe7, 0xdc9ed2},
    {0xf0a4c0, 0xf5b1c9, 0xfabdd2, 0xe99bb8},
};

#define FLAME_GREY 0xd3d7dfu /* "all", processes, threads */

/* FNV-1a. Must not change: a function has the same colour in all recordings, so that they can be compared. */
static uint32_t flame_hash(const char *s)
{
    uint32_t h = 2166136261u;

    for (; *s != '\0'; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h ^ h >> 15;
}

static uint32_t flame_colour(const struct profile_frame *frame)
{
    size_t hues = sizeof(flame_colours) / sizeof(flame_colours[0]);

    if (frame == NULL || frame->label != NULL)
        return FLAME_GREY;
    return flame_colours[flame_hash(frame->func->short_filename) % hues][flame_hash(frame->func->name) % 4];
}

static bool flame_is_xml(uint32_t cp)
{
    return cp == '\t' || cp == '\n' || cp == '\r' || (cp >= 0x20 && cp != 0xfffe && cp != 0xffff);
}

/* Writes the first `len` bytes of `s` as XML text. */
static void flame_xml(FILE *out, const char *s, size_t len)
{
    const char *end = s + len;
    uint32_t cp;
    size_t n;

    for (; s < end && (n = utf8_next(s, &cp)) > 0; s += n) {
        if (cp == '&')
            fputs("&amp;", out);
        else if (cp == '<')
            fputs("&lt;", out);
        else if (cp == '>')
            fputs("&gt;", out);
        else if (cp == '"')
            fputs("&quot;", out);
        else if (cp == UTF8_REPLACEMENT || !flame_is_xml(cp))
            fputs("\xef\xbf\xbd", out);
        else
            fwrite(s, 1, n, out);
    }
}

/* Writes as much of `s` as fits in `columns`, with an ellipsis if it is truncated. */
static void flame_xml_fit(FILE *out, const char *s, size_t columns)
{
    size_t len = text_fit(s, columns);

    if (s[len] == '\0') {
        flame_xml(out, s, len);
        return;
    }
    flame_xml(out, s, text_fit(s, columns - 1));
    fputs("\xe2\x80\xa6", out);
}

static void flame_xml_safe_fit(FILE *out, const char *s, size_t columns)
{
    char *safe = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&safe, &len);

    if (mem == NULL)
        return;
    text_print_safe(mem, s);
    if (fclose(mem) == 0)
        flame_xml_fit(out, safe, columns);
    free(safe);
}

/* 1234567 -> 1,234,567 */
static const char *flame_count(char text[32], uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, n), to = 0;

    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            text[to++] = ',';
        text[to++] = digits[i];
    }
    text[to] = '\0';
    return text;
}

/* The text of a node's frame; NULL if out of memory. */
static const char *flame_name(struct flame *f, uint32_t node)
{
    uint32_t frame = f->tree->nodes[node].frame;
    size_t len = 0;
    FILE *mem;

    if (node == 0)
        return "all";
    if (f->names[frame] != NULL)
        return f->names[frame];
    mem = open_memstream(&f->names[frame], &len);
    if (mem == NULL)
        return NULL;
    format_frame(&f->p->frames[frame], f->options, mem);
    if (fclose(mem) != 0) {
        free(f->names[frame]);
        f->names[frame] = NULL;
    }
    return f->names[frame];
}

/* Widest first, then callers first, so that every prefix of the order contains the callers of its frames. */
static int flame_compare(const void *a, const void *b, void *arg)
{
    const struct tree_node *nodes = arg;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const struct tree_node *x = &nodes[i], *y = &nodes[k];

    if (x->total != y->total)
        return x->total > y->total ? -1 : 1;
    if (x->depth != y->depth)
        return x->depth < y->depth ? -1 : 1;
    return (i > k) - (i < k);
}

/* Columns of text that fit in a node's rectangle; 0 if fewer than 3. */
static size_t flame_columns(const struct flame *f, const struct tree_node *node)
{
    double columns = ((double)node->total / (double)f->p->total * FLAME_INNER - 6) / FLAME_CHAR;

    return columns < 3 ? 0 : (size_t)columns;
}

/* An upper bound for the bytes of a node in the file. */
static size_t flame_cost(const struct flame *f, const struct tree_node *node, const char *name)
{
    size_t len = text_fit(name, FLAME_TITLE), room = flame_columns(f, node), bytes = FLAME_OVERHEAD + len;

    for (size_t i = 0; i < len; i++)
        bytes += strchr("&<>\"", name[i]) != NULL ? 5 : 0; /* &quot; */
    return room == 0 ? bytes : 2 * bytes;
}

/* Selects the frames to show: the widest ones that are at least a pixel wide, until the file is full. */
static int flame_choose(struct flame *f)
{
    uint32_t *order = calloc(f->tree->n_nodes, sizeof(*order));
    size_t n = 0, n_shown = 0, bytes = 0;
    int r = 0;

    if (order == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < f->tree->n_nodes; i++)
        if (f->tree->nodes[i].total >= f->p->total / FLAME_INNER && f->tree->nodes[i].total > 0)
            order[n++] = (uint32_t)i;
    qsort_r(order, n, sizeof(*order), flame_compare, f->tree->nodes);
    f->shown[0] = true;
    f->rows = 1;
    for (; n_shown < n; n_shown++) {
        const struct tree_node *node = &f->tree->nodes[order[n_shown]];
        const char *name = flame_name(f, order[n_shown]);

        if (name == NULL) {
            r = ERR_NOMEM;
            break;
        }
        bytes += flame_cost(f, node, name);
        if (bytes > FLAME_BYTES)
            break;
        f->shown[order[n_shown]] = true;
        if (node->depth >= f->rows)
            f->rows = node->depth + 1;
    }
    f->omitted = n - n_shown;
    free(order);
    return r;
}

/* "1,234 samples", "1 sample", "12.3 s" */
static void flame_write_value(const struct flame *f, uint64_t value)
{
    double seconds = (double)value / 1e9;
    char count[32];

    if (f->p->options.measure == NULL)
        fprintf(f->out, value == 1 ? "%s sample" : "%s samples", flame_count(count, value));
    else
        fprintf(f->out, "%.*f s", seconds < 1 ? 3 : seconds < 100 ? 2 : 0, seconds);
}

/* The title has the format of other flame graph programs, so what the frame spent itself is in an attribute. */
static void flame_write_self(const struct flame *f, uint64_t self)
{
    if (self == 0)
        return;
    fputs(" data-self=\"", f->out);
    flame_write_value(f, self);
    fprintf(f->out, ", %.2f%%\"", 100.0 * (double)self / (double)f->p->total);
}

static void flame_write_frame(struct flame *f, uint32_t id)
{
    const struct tree_node *node = &f->tree->nodes[id];
    double all = (double)f->p->total, x = 100.0 * (double)f->cursor[node->depth] / all;
    double width = 100.0 * (double)node->total / all;
    size_t columns = flame_columns(f, node);
    unsigned y = node->depth * FLAME_ROW;
    const char *name = flame_name(f, id);

    fputs("<g class=\"f\"", f->out);
    flame_write_self(f, node->self);
    fputs("><title>", f->out);
    flame_xml_fit(f->out, name, FLAME_TITLE);
    fputs(" (", f->out);
    flame_write_value(f, node->total);
    fprintf(f->out, id == 0 ? ", %.0f%%)</title>" : ", %.2f%%)</title>", width);
    fprintf(f->out, "<rect x=\"%.5f%%\" y=\"%u\" width=\"%.5f%%\" height=\"%d\" fill=\"#%06" PRIx32 "\"/>", x, y, width,
            FLAME_ROW - 1, flame_colour(id == 0 ? NULL : &f->p->frames[node->frame]));
    if (columns > 0) {
        fprintf(f->out, "<text x=\"%.5f%%\" dx=\"4\" y=\"%u\">", x, y + 13);
        flame_xml_fit(f->out, name, columns);
        fputs("</text>", f->out);
    }
    fputs("</g>\n", f->out);
}

/* A graph without samples: the root alone, and the remark below it, wrapped at blanks. */
static void flame_write_remark(struct flame *f)
{
    const char *s = f->options->remark;

    fprintf(f->out, "<svg class=\"frames\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\">\n", FLAME_MARGIN, FLAME_TOP,
            FLAME_INNER, FLAME_REMARK_ROWS * FLAME_ROW);
    fprintf(f->out,
            "<g class=\"f\"><title>all (0 samples, 100%%)</title><rect x=\"0%%\" y=\"0\" width=\"100%%\" height=\"%d\" "
            "fill=\"#%06x\"/><text x=\"0%%\" dx=\"4\" y=\"13\">all</text></g>\n",
            FLAME_ROW - 1, FLAME_GREY);
    for (int row = 2; row < FLAME_REMARK_ROWS && *s != '\0'; row++) {
        size_t len = text_fit(s, FLAME_REMARK_COLUMNS), end = len;

        while (s[len] != '\0' && end > 0 && s[end] != ' ')
            end--;
        len = end > 0 ? end : len;
        fprintf(f->out, "<text class=\"remark\" x=\"4\" y=\"%d\">", row * FLAME_ROW + 13);
        flame_xml(f->out, s, len);
        fputs("</text>\n", f->out);
        s += len;
        s += strspn(s, " ");
    }
    fputs("</svg>\n", f->out);
}

static void flame_write_frames(struct flame *f)
{
    uint32_t id = 0;

    fprintf(f->out, "<svg class=\"frames\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%zu\">\n", FLAME_MARGIN, FLAME_TOP,
            FLAME_INNER, (size_t)f->rows * FLAME_ROW);
    do {
        uint32_t depth = f->tree->nodes[id].depth;

        if (f->shown[id]) {
            flame_write_frame(f, id);
            f->cursor[depth + 1] = f->cursor[depth];
        }
        f->cursor[depth] += f->tree->nodes[id].total;
        id = tree_next(f->tree, id, f->shown[id]);
    } while (id != 0);
    fputs("</svg>\n", f->out);
}

static void flame_write_subtitle(struct flame *f)
{
    char count[32];

    flame_write_value(f, f->p->total);
    if (f->p->options.measure != NULL)
        fprintf(f->out, " of %s", f->p->options.measure);
    if (f->p->duration_ns > 0)
        fprintf(f->out, " in %.1f s", (double)f->p->duration_ns / 1e9);
    if (f->p->options.measure != NULL)
        fprintf(f->out, " \xc2\xb7 %s sample%s", flame_count(count, f->p->samples), f->p->samples == 1 ? "" : "s");
    if (f->omitted > 0)
        fprintf(f->out, " \xc2\xb7 %s smallest or deepest frames omitted", flame_count(count, f->omitted));
    if (f->options->remark != NULL && f->p->samples > 0) {
        fputs(" \xc2\xb7 ", f->out);
        flame_xml_safe_fit(f->out, f->options->remark, FLAME_REMARK_COLUMNS);
    }
}

static void flame_write_head(struct flame *f)
{
    fprintf(f->out, "<g class=\"head\"><rect class=\"back\" width=\"100%%\" height=\"%d\" fill=\"#fff\"/>\n",
            FLAME_TOP - 6);
    fprintf(f->out, "<text class=\"title\" x=\"%d\" y=\"28\">", FLAME_MARGIN);
    flame_xml_safe_fit(f->out, f->options->title ? f->options->title : "", 84);
    fprintf(f->out, "</text>\n<text class=\"sub\" x=\"%d\" y=\"48\">", FLAME_MARGIN);
    flame_write_subtitle(f);
    fputs("</text>\n</g>\n", f->out);
}

static void flame_write_svg(struct flame *f)
{
    size_t height = FLAME_TOP + (size_t)f->rows * FLAME_ROW + FLAME_MARGIN;

    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n"
          "<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd\">\n",
          f->out);
    fprintf(
        f->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%d\" height=\"%zu\" viewBox=\"0 0 %d %zu\" "
        "role=\"graphics-document\" aria-label=\"Flame graph\">\n",
        FLAME_WIDTH, height, FLAME_WIDTH, height);
    fputs("<title>", f->out);
    flame_xml_safe_fit(f->out, f->options->title ? f->options->title : "flame graph", FLAME_TITLE);
    fputs("</title>\n<style><![CDATA[\n", f->out);
    fwrite(asset_flamegraph_css, 1, asset_flamegraph_css_len, f->out);
    fputs("]]></style>\n<rect class=\"back\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", f->out);
    if (f->p->samples == 0)
        flame_write_remark(f);
    else
        flame_write_frames(f);
    flame_write_head(f);
    fputs("<script><![CDATA[\n", f->out);
    fwrite(asset_flamegraph_js, 1, asset_flamegraph_js_len, f->out);
    fputs("]]></script>\n</svg>\n", f->out);
}

static void flame_release(struct flame *f)
{
    for (size_t i = 0; f->names != NULL && i < f->p->n_frames; i++)
        free(f->names[i]);
    free(f->names);
    free(f->shown);
    free(f->cursor);
    tree_free(f->tree);
}

static int flamegraph_write(const struct profile *p, const struct out_options *options, FILE *out)
{
    struct flame f = {.p = p, .options = options, .out = out};
    int r = ERR_NOMEM;

    if (p->samples == 0 && options->remark == NULL)
        return ERR_NO_SAMPLES;
    if (p->samples == 0) {
        f.rows = FLAME_REMARK_ROWS;
        flame_write_svg(&f);
        return 0;
    }
    f.tree = tree_new(p, options->full_filenames, options->show_lines);
    f.names = calloc(p->n_frames + 1, sizeof(*f.names));
    if (f.tree != NULL) {
        f.shown = calloc(f.tree->n_nodes, sizeof(*f.shown));
        f.cursor = calloc((size_t)f.tree->max_depth + 2, sizeof(*f.cursor));
    }
    if (f.names != NULL && f.shown != NULL && f.cursor != NULL)
        r = flame_choose(&f);
    if (r == 0)
        flame_write_svg(&f);
    flame_release(&f);
    return r;
}

const struct format format_flamegraph = {
    .name = "flamegraph",
    .extension = "svg",
    .wrote = "flamegraph data",
    .look = "Open it in a browser: %s",
    .write = flamegraph_write,
};
