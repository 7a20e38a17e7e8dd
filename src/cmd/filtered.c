/*
 * Applies the filter flags to profiles and dumps, and words the result.
 */
#include "cmd/filtered.h"

#include "base/text.h"
#include "cmd/report.h"
#include "cmd/suggest.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define HOTTEST       5
#define LIBRARY_SHARE 20 /* mention stacks of libraries only from this part of the total on */

__attribute__((format(printf, 3, 4))) static void add(char *to, size_t size, const char *fmt, ...)
{
    size_t used = strlen(to);
    va_list args;

    va_start(args, fmt);
    vsnprintf(to + used, size - used, fmt, args);
    va_end(args);
}

__attribute__((format(printf, 3, 4))) static void say(FILE *out, const struct options *o, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    report_line(out, o, fmt, args);
    va_end(args);
}

/* ---- the flags as text ---- */

static void add_patterns(char *to, size_t size, const char *flag, const struct filter_patterns *patterns)
{
    for (size_t i = 0; i < patterns->n; i++)
        add(to, size, "%s--%s '%s'", *to ? " " : "", flag, text_safe(patterns->items[i]).s);
}

/* "--include 'json.*' --only-mine" */
struct flags_text {
    char s[400];
};

static struct flags_text flags_text(const struct filter_options *f)
{
    struct flags_text text = {""};
    char all[4096] = "";

    add_patterns(all, sizeof(all), "include", &f->include);
    add_patterns(all, sizeof(all), "exclude", &f->exclude);
    add_patterns(all, sizeof(all), "thread", &f->thread);
    if (f->only_mine)
        add(all, sizeof(all), "%s--only-mine", *all ? " " : "");
    if (f->min_percent > 0)
        add(all, sizeof(all), "%s--min-percent %g", *all ? " " : "", f->min_percent);
    text_copy_safe(text.s, sizeof(text.s), all);
    return text;
}

static bool drops_stacks(const struct filter_options *f)
{
    return f->include.n || f->exclude.n || f->thread.n;
}

/* "12.30 s of CPU time", "493 samples" */
struct amount {
    char s[96];
};

static struct amount amount_of(const struct profile *p, uint64_t value)
{
    struct amount a;

    if (p->options.measure)
        snprintf(a.s, sizeof(a.s), "%.2f s of %s", (double)value / 1e9, p->options.measure);
    else
        snprintf(a.s, sizeof(a.s), "%llu sample%s", (unsigned long long)value, value == 1 ? "" : "s");
    return a;
}

static double percent_kept(const struct filter_counts *c)
{
    return c->total ? 100.0 * (double)c->kept_total / (double)c->total : 0;
}

/* "3.20 s of 12.30 s of CPU time (26.0%)" */
struct share {
    char s[160];
};

static struct share share_of(const struct filtered *x)
{
    const struct filter_counts *c = &x->counts;
    struct share share;
    char kept[32];

    if (x->shown->options.measure)
        snprintf(kept, sizeof(kept), "%.2f s", (double)c->kept_total / 1e9);
    else
        snprintf(kept, sizeof(kept), "%llu", (unsigned long long)c->kept_total);
    snprintf(share.s, sizeof(share.s), "%s of %s (%.1f%%)", kept, amount_of(x->shown, c->total).s, percent_kept(c));
    return share;
}

/* ---- why nothing is left ---- */

static const struct func *hottest(const struct profile *p, uint64_t *selves)
{
    size_t best = p->n_frames;

    for (size_t i = 0; i < p->n_frames; i++)
        if (p->frames[i].func && p->frames[i].func->name[0] != '[' && selves[i] > 0 &&
            (best == p->n_frames || selves[i] > selves[best]))
            best = i;
    if (best == p->n_frames)
        return NULL;
    selves[best] = 0;
    return p->frames[best].func;
}

static bool is_same(const struct func *a, const struct func *b)
{
    return a == b || (strcmp(a->name, b->name) == 0 && strcmp(a->filename, b->filename) == 0);
}

/* Lists the functions with the most self time: "f (a.py), g (b.py)". */
static void list_hottest(const struct profile *p, char *to, size_t size)
{
    uint64_t *selves = calloc(p->n_frames + 1, sizeof(*selves));
    const struct func *found[HOTTEST], *func;
    size_t n = 0;

    for (size_t i = 1; selves && i < p->n_nodes; i++)
        selves[p->nodes[i].frame] += p->nodes[i].self;
    while (selves && n < HOTTEST && (func = hottest(p, selves)) != NULL) {
        bool is_new = true;

        for (size_t i = 0; i < n; i++)
            is_new = is_new && !is_same(found[i], func);
        if (!is_new)
            continue;
        found[n++] = func;
        add(to, size, "%s%s", *to ? ", " : "", text_safe(func->name).s);
        if (*func->short_filename)
            add(to, size, " (%s)", text_safe(func->short_filename).s);
    }
    free(selves);
}

static const char *after_last(const char *s, char c)
{
    const char *at = strrchr(s, c);

    return at ? at + 1 : s;
}

/* A function whose name is close to the pattern; NULL if there is none. */
static const char *close_name(const struct profile *p, const char *pattern)
{
    struct suggest g = {.word = pattern};

    for (size_t i = 0; i < p->n_frames; i++)
        if (p->frames[i].func) {
            suggest_try(&g, p->frames[i].func->name);
            suggest_try(&g, after_last(p->frames[i].func->name, '.'));
        }
    return g.best;
}

/* The name of a thread in the label of its root; NULL for other roots. */
static const char *thread_name(const struct profile_frame *frame)
{
    const char *close;

    if (!frame->label || strncmp(frame->label, "thread (", 8) != 0)
        return NULL;
    close = strstr(frame->label, "): ");
    return close ? close + 3 : frame->label;
}

static void list_threads(const struct profile *p, char *to, size_t size)
{
    for (size_t i = 0; i < p->n_frames; i++) {
        const char *name = thread_name(&p->frames[i]);

        if (name && strlen(to) + strlen(name) + 8 < size)
            add(to, size, "%s%s", *to ? ", " : "", text_safe(name).s);
        else if (name) {
            add(to, size, ", ...");
            return;
        }
    }
}

static void explain_empty(struct filtered *x, const struct options *o, const struct profile *p)
{
    const struct filter_options *f = &o->filter;
    struct flags_text flags = flags_text(f);
    const char *flag = NULL, *unused = filter_unused(x->filter, &flag);
    char list[600] = "";

    if (f->thread.n && !x->counts.threads_total) {
        list_threads(p, list, sizeof(list) / 2);
        error_text_what(&x->text, ERR_NO_SAMPLES, "no thread matches %s", flags.s);
        error_text_hint(&x->text, "The threads are: %s.", list);
        return;
    }
    error_text_what(&x->text, ERR_NO_SAMPLES, "none of the %s passes the filter %s", amount_of(p, x->counts.total).s,
                    flags.s);
    list_hottest(p, list, sizeof(list));
    if (f->include.n && unused && strcmp(flag, "include") == 0 && close_name(p, unused))
        error_text_hint(&x->text, "Did you mean '%s'? The hottest functions are %s.",
                        text_safe(close_name(p, unused)).s, list);
    else if (f->exclude.n && !f->include.n)
        error_text_hint(
            &x->text,
            "--exclude drops every stack that contains a match. To hide the frames of libraries instead, use "
            "--only-mine. The hottest functions are %s.",
            list);
    else
        error_text_hint(&x->text, "The hottest functions are %s.", list);
}

/* ---- profiles ---- */

int filtered_update(struct filtered *x, const struct options *o, struct profile *p)
{
    struct flags_text flags = flags_text(&o->filter);
    bool keep_threads = o->threads || o->command == ARGS_MERGE; /* raw profiles say whether they have roots for them */
    int r;

    x->shown = p;
    x->copy = profile_free(x->copy);
    x->remark[0] = '\0';
    x->text = (struct error_text){0};
    if (filter_is_empty(&o->filter) || !p->samples)
        return 0;
    if (!x->filter)
        x->filter = filter_new(&o->filter);
    r = x->filter ? filter_profile(x->filter, p, keep_threads, &x->copy, &x->counts) : ERR_NOMEM;
    if (r < 0)
        return r;
    x->shown = x->copy;
    if (!x->shown->samples) {
        explain_empty(x, o, p);
        snprintf(x->remark, sizeof(x->remark), "No stack counts found: %s. %s", x->text.what, x->text.hint);
    } else if (drops_stacks(&o->filter)) {
        snprintf(x->remark, sizeof(x->remark), "%.1f%% of %s, filtered by %s", percent_kept(&x->counts),
                 amount_of(p, x->counts.total).s, flags.s);
    } else {
        snprintf(x->remark, sizeof(x->remark), "filtered by %s", flags.s);
    }
    return 0;
}

void filtered_free(struct filtered *x)
{
    profile_free(x->copy);
    filter_free(x->filter);
    *x = (struct filtered){0};
}

const char *filtered_remark(const struct filtered *x)
{
    return x->remark[0] ? x->remark : NULL;
}

/* What the patterns of a flag match. */
static const char *kind_of(const char *flag)
{
    return strcmp(flag, "thread") == 0 ? "thread" : "function, module or file";
}

static void say_only_mine(const struct filtered *x, const struct options *o, FILE *messages)
{
    const struct filter_counts *c = &x->counts;

    if (c->library_total > 0 && c->library_total >= c->kept_total / LIBRARY_SHARE)
        say(messages, o, "%s in stacks without a function of the program: each is shown as one function of a library.",
            amount_of(x->shown, c->library_total).s);
    if (c->n_mine <= 1)
        say(messages, o,
            "The profile has %s function outside of the standard library and installed packages. If the program itself "
            "is "
            "an installed package, add --include PACKAGE.",
            c->n_mine ? "one" : "no");
}

void filtered_say(const struct filtered *x, const struct options *o, FILE *messages)
{
    const char *flag, *unused;

    if (!x->copy)
        return;
    if (!x->shown->samples) {
        say(messages, o, "No stack counts found: %s", x->text.what);
        say(messages, o, "%s", x->text.hint);
        return;
    }
    if (drops_stacks(&o->filter))
        say(messages, o, "The filter kept %s.", share_of(x).s);
    if (o->filter.only_mine)
        say_only_mine(x, o, messages);
    unused = filter_unused(x->filter, &flag);
    if (unused)
        say(messages, o, "No %s matches --%s '%s'.", kind_of(flag), flag, text_safe(unused).s);
}

int filtered_check_merge(const struct filtered *x, const struct options *o, struct error_text *text)
{
    if (!x->copy)
        return 0;
    if (o->filter.thread.n && !x->counts.has_threads) {
        error_text_what(text, ERR_USAGE, "--thread requires profiles with threads");
        error_text_hint(text, "Record them with --threads.");
        return ERR_USAGE;
    }
    if (o->filter.only_mine && !x->counts.has_full_paths) {
        error_text_what(text, ERR_USAGE,
                        "--only-mine requires profiles with full paths: short ones do not tell which files belong to "
                        "libraries");
        error_text_hint(text, "Record them with --full-filenames, or use --only-mine in record.");
        return ERR_USAGE;
    }
    return 0;
}

/* ---- dumps ---- */

int filtered_dump_open(struct filtered_dump *x, const struct options *o)
{
    *x = (struct filtered_dump){0};
    if (!filter_is_empty(&o->filter))
        x->filter = filter_new(&o->filter);
    return x->filter || filter_is_empty(&o->filter) ? 0 : ERR_NOMEM;
}

void filtered_dump_free(struct filtered_dump *x)
{
    x->filter = filter_free(x->filter);
}

static void remember_thread(struct filtered_dump *x, const struct trace *trace)
{
    char name[64];

    if (trace->thread_name)
        text_copy_safe(name, sizeof(name), trace->thread_name);
    else
        snprintf(name, sizeof(name), "%d", (int)trace->os_thread_id);
    if (strlen(x->threads) + strlen(name) + 8 < sizeof(x->threads))
        add(x->threads, sizeof(x->threads), "%s%s", *x->threads ? ", " : "", name);
}

int filtered_dump_frames(struct filtered_dump *x, const struct trace *trace, struct frame *frames, size_t *ret_n)
{
    int r = 1;

    *ret_n = trace->n_frames;
    if (!x->filter)
        return 1;
    r = filter_frames(x->filter, trace, frames, ret_n);
    x->n_threads++;
    x->n_kept += r > 0;
    if (r == 0)
        remember_thread(x, trace);
    return r;
}

int filtered_dump_check(const struct filtered_dump *x, const struct options *o, struct error_text *text)
{
    const char *flag, *unused = x->filter ? filter_unused(x->filter, &flag) : NULL;

    if (x->n_kept && unused)
        fprintf(stderr, "Note: no %s matches --%s '%s'.\n", kind_of(flag), flag, text_safe(unused).s);
    if (x->n_kept || !x->n_threads)
        return 0;
    error_text_what(text, ERR_ALL_FILTERED, "%zu of %zu threads pass the filter %s", x->n_kept, x->n_threads,
                    flags_text(&o->filter).s);
    error_text_hint(text, "The threads are: %s. Without a filter, dump shows all of their stacks.", x->threads);
    return ERR_ALL_FILTERED;
}
