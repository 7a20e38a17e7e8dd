/*
 * Parses collapsed stacks into the nodes, frames and threads of a profile.
 *
 * Frames with equal text are one frame. profile.c limits the size of the tree; this file limits everything else: names,
 * roots and the length of a line.
 */
#include "profile/folded.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/utf8.h"
#include "profile/profile_private.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS  18
#define MAX_REMARK  4096 /* bytes */
#define MAX_SAMPLES UINT64_C(1000000000000000)

/* The text of a frame or root, and its index in profile->frames. */
struct folded_name {
    const char *text;
    bool is_root;
    uint32_t frame;
    struct func func; /* unused for a root */
};

/* A distinct sequence of roots. It becomes the profile's thread with the same index. */
struct folded_root {
    uint32_t *frames;
    size_t n;
    char *name;
    struct proc_info process;
};

struct folded {
    struct profile *p;
    struct intern *texts;
    struct folded_name **names;
    size_t n_names, cap_names;
    struct hash_table by_text;
    struct folded_root **roots;
    size_t n_roots, cap_roots;
    struct hash_table by_frames;
    char *remark; /* valid UTF-8 */
    char *text;   /* the stack of the current line, as valid UTF-8 */
    size_t cap_text;
    uint32_t *frames; /* of the current line, roots first */
    size_t n_frames, cap_frames;
};

/* A part of a line; not NUL-terminated. */
struct slice {
    const char *s;
    size_t len;
};

/* The parts of "name (file:3)". */
struct location {
    struct slice name, file;
    int line;
};

struct folded *folded_new(struct profile *p)
{
    struct folded *f = calloc(1, sizeof(*f));

    if (f == NULL)
        return NULL;
    f->p = p;
    f->texts = intern_new();
    return f->texts == NULL ? folded_free(f) : f;
}

struct folded *folded_free(struct folded *f)
{
    if (f == NULL)
        return NULL;
    for (size_t i = 0; i < f->n_names; i++)
        free(f->names[i]);
    for (size_t i = 0; i < f->n_roots; i++) {
        free(f->roots[i]->frames);
        free(f->roots[i]->name);
        free(f->roots[i]);
    }
    intern_free(f->texts);
    free(f->names);
    hash_table_free(&f->by_text);
    free(f->roots);
    hash_table_free(&f->by_frames);
    free(f->text);
    free(f->remark);
    free(f->frames);
    free(f);
    return NULL;
}

/* ---- parsing ---- */

/* Cuts the text up to the next ';' off `rest`. Returns false if nothing is left. */
static bool slice_next(struct slice *rest, struct slice *ret)
{
    const char *end;

    if (rest->s == NULL)
        return false;
    end = memchr(rest->s, ';', rest->len);
    *ret = (struct slice){rest->s, end != NULL ? (size_t)(end - rest->s) : rest->len};
    *rest = end != NULL ? (struct slice){end + 1, rest->len - ret->len - 1} : (struct slice){NULL, 0};
    return true;
}

/* Cuts ":3" off the end of "a.py:3" and returns 3; returns 0 if there is no line number. */
static int slice_cut_line(struct slice *file)
{
    size_t digits = 0;
    int line = 0;

    while (digits < file->len && isdigit((unsigned char)file->s[file->len - digits - 1]))
        digits++;
    if (digits == 0 || digits > 9 || digits == file->len || file->s[file->len - digits - 1] != ':' ||
        file->s[file->len - digits] == '0')
        return 0;
    for (size_t i = file->len - digits; i < file->len; i++)
        line = line * 10 + (file->s[i] - '0');
    file->len -= digits + 1;
    return line;
}

/* Splits "name (file:3)". Names and files may contain parentheses, so this matches the last ')' with its '('. */
static bool slice_split_location(struct slice text, struct location *ret)
{
    size_t depth = 0, i = text.len;

    if (text.len < 4 || text.s[text.len - 1] != ')')
        return false;
    while (i-- > 2) {
        depth += text.s[i] == ')';
        depth -= text.s[i] == '(';
        if (depth == 0)
            break;
    }
    if (depth != 0 || text.s[i - 1] != ' ' || i + 2 >= text.len)
        return false;
    ret->name = (struct slice){text.s, i - 1};
    ret->file = (struct slice){text.s + i + 1, text.len - i - 2};
    ret->line = slice_cut_line(&ret->file);
    return ret->file.len > 0;
}

static size_t count_hex_digits(struct slice text, size_t from)
{
    size_t n = 0;

    while (from + n < text.len && isxdigit((unsigned char)text.s[from + n]))
        n++;
    return n;
}

/* True for the roots that `record` inserts: `process 1:"cmd"`, `thread (2)`, `thread (0x7F): name`. */
static bool is_synthetic_root(struct slice text)
{
    size_t n;

    if (text.len > 8 && memcmp(text.s, "process ", 8) == 0) {
        n = 8 + count_hex_digits(text, 8);
        return n > 8 && n + 1 < text.len && text.s[n] == ':' && text.s[n + 1] == '"';
    }
    if (text.len > 8 && memcmp(text.s, "thread (", 8) == 0) {
        size_t from = text.len > 10 && memcmp(text.s + 8, "0x", 2) == 0 ? 10 : 8;

        n = from + count_hex_digits(text, from);
        return n > from && n < text.len && text.s[n] == ')' && (n + 1 == text.len || text.s[n + 1] == ':');
    }
    return false;
}

/* The number of leading frames that are roots: those before the first one with a file. If no frame has a file, another
 * profiler wrote the line, and only the roots that `record` inserts count. */
static size_t count_synthetic_roots(struct slice stack)
{
    size_t n_synthetic = 0, n = 0;
    struct location where;
    struct slice text;

    while (slice_next(&stack, &text)) {
        bool is_synthetic = is_synthetic_root(text);

        if (!is_synthetic && slice_split_location(text, &where))
            return n < FOLDED_MAX_LEVELS ? n : FOLDED_MAX_LEVELS;
        if (stack.s == NULL)
            break; /* the innermost frame is never a root */
        n++;
        if (is_synthetic && n_synthetic == n - 1)
            n_synthetic = n;
    }
    return n_synthetic < FOLDED_MAX_LEVELS ? n_synthetic : FOLDED_MAX_LEVELS;
}

/* Cuts " 99" off the end of the line. Returns NULL, or what is wrong with the line. */
static const char *slice_cut_count(struct slice *line, uint64_t *ret_count)
{
    size_t digits = 0;
    uint64_t count = 0;

    while (digits < line->len && isdigit((unsigned char)line->s[line->len - digits - 1]))
        digits++;
    if (digits == 0 || digits + 2 > line->len || line->s[line->len - digits - 1] != ' ')
        return "expected a stack, a space and a count";
    if (digits > MAX_DIGITS)
        return "the count is too large";
    for (size_t i = line->len - digits; i < line->len; i++)
        count = count * 10 + (uint64_t)(line->s[i] - '0');
    line->len -= digits + 1;
    *ret_count = count;
    return NULL;
}

/* ---- names ---- */

static int name_fill(struct folded *f, struct folded_name *name, struct slice text)
{
    struct profile_frame frame = {.func = &name->func};
    struct location where = {.name = text};
    int r;

    if (name->is_root) {
        frame = (struct profile_frame){.label = strdup(name->text)};
        if (frame.label == NULL)
            return ERR_NOMEM;
    } else {
        const char *file;

        if (!slice_split_location(text, &where))
            where = (struct location){.name = text};
        file = intern_bytes(f->texts, where.file.len > 0 ? where.file.s : "", where.file.len);
        name->func.name = intern_bytes(f->texts, where.name.s, where.name.len);
        if (file == NULL || name->func.name == NULL)
            return ERR_NOMEM;
        name->func.filename = name->func.short_filename = file;
        frame.line = where.line;
    }
    r = profile_frame_append(f->p, &frame, 0, false, &name->frame);
    if (r < 0)
        free(frame.label);
    return r;
}

static int name_add(struct folded *f, struct slice text, bool is_root, uint64_t hash, uint32_t *ret_frame)
{
    struct folded_name *name = calloc(1, sizeof(*name));
    int r = name == NULL ? ERR_NOMEM : 0;

    if (r == 0)
        r = hash_table_reserve_item(&f->by_text, (void **)&f->names, &f->cap_names, f->n_names,
                                    sizeof(struct folded_name *));
    if (r == 0) {
        *name = (struct folded_name){.text = text.s, .is_root = is_root};
        r = name_fill(f, name, text);
    }
    if (r < 0) {
        free(name);
        return r;
    }
    hash_table_add(&f->by_text, hash, (uint32_t)f->n_names);
    f->names[f->n_names++] = name;
    *ret_frame = name->frame;
    return 0;
}

/* Finds or adds the profile's frame for a text. */
static int name_find(struct folded *f, struct slice text, bool is_root, uint32_t *ret_frame)
{
    static const char full[] = "[too many names]", unnamed[] = "?";
    const char *interned;
    size_t step = 0;
    uint64_t hash;
    uint32_t id;

    if (text.len == 0)
        text = (struct slice){unnamed, sizeof(unnamed) - 1};
    if (f->n_names >= FOLDED_MAX_NAMES)
        text = (struct slice){full, sizeof(full) - 1};
    interned = intern_bytes(f->texts, text.s, text.len);
    if (interned == NULL)
        return ERR_NOMEM;
    text = (struct slice){interned, strlen(interned)}; /* differs from `text` if the pool is full */
    hash = hash_mix((uintptr_t)interned, is_root);
    while ((id = hash_table_next(&f->by_text, hash, &step)) != HASH_TABLE_NONE)
        if (f->names[id]->text == interned && f->names[id]->is_root == is_root) {
            *ret_frame = f->names[id]->frame;
            return 0;
        }
    return name_add(f, text, is_root, hash, ret_frame);
}

static int name_push(struct folded *f, struct slice text, bool is_root)
{
    uint32_t frame;
    int r = name_find(f, text, is_root, &frame);

    if (r == 0)
        r = grow_array((void **)&f->frames, &f->cap_frames, f->n_frames + 1, sizeof(*f->frames));
    if (r == 0)
        f->frames[f->n_frames++] = frame;
    return r;
}

/* ---- roots ---- */

static uint64_t roots_hash(const struct folded *f, size_t n)
{
    uint64_t hash = n;

    for (size_t i = 0; i < n; i++)
        hash = hash_mix(hash, f->frames[i]);
    return hash;
}

/* "node 1 / worker 3", or "all" if there is no root. */
static char *root_display_name(const struct folded *f, size_t n)
{
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    if (mem == NULL)
        return NULL;
    if (n == 0)
        fputs("all", mem);
    for (size_t i = 0; i < n; i++)
        fprintf(mem, "%s%s", i > 0 ? " / " : "", f->p->frames[f->frames[i]].label);
    if (fclose(mem) == 0)
        return text;
    free(text);
    return NULL;
}

static int roots_add_thread(struct folded *f, struct folded_root *root)
{
    struct profile_thread thread = {.process = &root->process, .name = root->name};
    int r = grow_array((void **)&f->p->threads, &f->p->index->cap_threads, f->p->n_threads + 1, sizeof(thread));

    for (size_t i = 0; i < root->n && r == 0; i++)
        r = profile_child(f->p, thread.root, root->frames[i], &thread.root);
    if (r == 0)
        f->p->threads[f->p->n_threads++] = thread;
    return r;
}

static int roots_fill(struct folded *f, struct folded_root *root, size_t n)
{
    root->n = n;
    root->frames = calloc(n + 1, sizeof(*root->frames));
    root->name = root_display_name(f, n);
    if (root->frames == NULL || root->name == NULL)
        return ERR_NOMEM;
    if (n > 0)
        memcpy(root->frames, f->frames, n * sizeof(*root->frames));
    root->process = (struct proc_info){.pid = (pid_t)f->n_roots + 1, .command = root->name};
    return roots_add_thread(f, root);
}

static int roots_add(struct folded *f, size_t n, uint64_t hash, uint32_t *ret_id)
{
    struct folded_root *root = calloc(1, sizeof(*root));
    int r = root == NULL ? ERR_NOMEM : 0;

    if (r == 0)
        r = hash_table_reserve_item(&f->by_frames, (void **)&f->roots, &f->cap_roots, f->n_roots,
                                    sizeof(struct folded_root *));
    if (r == 0)
        r = roots_fill(f, root, n);
    if (r < 0) {
        if (root != NULL) {
            free(root->frames);
            free(root->name);
        }
        free(root);
        return r;
    }
    *ret_id = (uint32_t)f->n_roots;
    hash_table_add(&f->by_frames, hash, *ret_id);
    f->roots[f->n_roots++] = root;
    return 0;
}

/* Finds or adds the thread whose roots are the first `n` frames of the current line. */
static int roots_find(struct folded *f, size_t n, uint32_t *ret_id)
{
    uint64_t hash = roots_hash(f, n);
    uint32_t id;
    size_t step = 0;

    while ((id = hash_table_next(&f->by_frames, hash, &step)) != HASH_TABLE_NONE) {
        const struct folded_root *root = f->roots[id];

        if (root->n == n && (n == 0 || memcmp(root->frames, f->frames, n * sizeof(*f->frames)) == 0)) {
            *ret_id = id;
            return 0;
        }
    }
    return roots_add(f, n, hash, ret_id);
}

/* ---- the line ---- */

/* Sets f->frames to the levels of `root` and the frames of `stack`, the first `n_roots` of which are roots too. */
static int read_frames(struct folded *f, const char *root, struct slice stack, size_t n_roots, const char **ret_why)
{
    struct slice prefix = {*root != '\0' ? root : NULL, strlen(root)}, text;
    bool many = f->n_roots >= FOLDED_MAX_ROOTS;
    int r = 0;

    f->n_frames = 0;
    while (r == 0 && slice_next(&prefix, &text))
        r = name_push(f, text, !many);
    for (size_t i = 0; r == 0 && slice_next(&stack, &text); i++) {
        r = name_push(f, text, i < n_roots && !many);
        if (f->n_frames > FOLDED_MAX_DEPTH) {
            *ret_why = "the stack is too deep";
            return ERR_PROFILE;
        }
    }
    return r;
}

static int add_spans(struct profile *p, struct profile_thread *t, uint32_t node, uint64_t count)
{
    uint64_t interval = p->options.interval_ns;

    while (count > 0) {
        uint32_t n = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
        uint64_t begin = t->n_spans > 0 ? t->spans[t->n_spans - 1].end_ns : 0;

        if (grow_array((void **)&t->spans, &t->cap_spans, t->n_spans + 1, sizeof(*t->spans)) < 0)
            return ERR_NOMEM;
        t->spans[t->n_spans++] = (struct profile_span){begin, begin + n * interval, n * interval, node, n};
        p->n_spans++;
        count -= n;
    }
    return 0;
}

/* Adds `count` samples of the stack in f->frames, the first `n_roots` of which are roots. */
static int add_samples(struct folded *f, size_t n_roots, uint64_t count)
{
    struct profile *p = f->p;
    uint32_t thread, node;
    int r = roots_find(f, n_roots, &thread);

    if (r < 0)
        return r;
    node = p->threads[thread].root;
    for (size_t i = n_roots; i < f->n_frames && r == 0; i++)
        r = profile_child(p, node, f->frames[i], &node);
    if (r == 0 && p->options.timeline)
        r = add_spans(p, &p->threads[thread], node, count);
    if (r < 0)
        return r;
    p->nodes[node].self += count;
    p->nodes[node].samples += count;
    p->samples += count;
    p->total += count;
    return profile_enforce_tree_limits(p);
}

static bool too_many_samples(const struct profile *p, uint64_t count)
{
    uint64_t limit = INT64_MAX / (p->options.interval_ns > 0 ? p->options.interval_ns : 1);

    if (limit > MAX_SAMPLES)
        limit = MAX_SAMPLES;
    return count > limit || p->samples > limit - count;
}

/* The number of roots including the levels of `root`. 0 if there are too many threads already. */
static size_t count_levels(const struct folded *f, const char *root, size_t n_roots)
{
    struct slice prefix = {*root != '\0' ? root : NULL, strlen(root)}, text;

    if (f->n_roots >= FOLDED_MAX_ROOTS)
        return 0;
    while (slice_next(&prefix, &text))
        n_roots++;
    return n_roots;
}

/* A remark of `record` is one frame in brackets, without samples. Others are stacks that were not seen. */
static int keep_remark(struct folded *f, struct slice stack)
{
    size_t len = stack.len < MAX_REMARK ? stack.len : MAX_REMARK;

    if (f->remark != NULL || len < 3 || stack.s[0] != '[' || stack.s[stack.len - 1] != ']')
        return 0;
    f->remark = calloc(3 * len + 1, 1);
    if (f->remark == NULL)
        return ERR_NOMEM;
    utf8_clean(stack.s + 1, len - 2, f->remark);
    return 0;
}

const char *folded_remark(const struct folded *f)
{
    return f->remark;
}

int folded_add(struct folded *f, const char *root, const char *line, size_t len, const char **ret_why)
{
    struct slice stack = {line, len};
    uint64_t count = 0;
    size_t n_roots;
    int r;

    if (stack.len > 0 && stack.s[stack.len - 1] == '\r')
        stack.len--;
    if (stack.len == 0)
        return 0;
    *ret_why = stack.len > FOLDED_MAX_LINE ? "the line is too long" : slice_cut_count(&stack, &count);
    if (*ret_why == NULL && too_many_samples(f->p, count))
        *ret_why = "the count is too large";
    if (*ret_why != NULL)
        return ERR_PROFILE;
    if (count == 0)
        return keep_remark(f, stack);
    if (grow_array((void **)&f->text, &f->cap_text, 3 * stack.len + 1, 1) < 0)
        return ERR_NOMEM;
    stack = (struct slice){f->text, utf8_clean(stack.s, stack.len, f->text)};
    n_roots = count_synthetic_roots(stack);
    r = read_frames(f, root, stack, n_roots, ret_why);
    return r < 0 ? r : add_samples(f, count_levels(f, root, n_roots), count);
}
