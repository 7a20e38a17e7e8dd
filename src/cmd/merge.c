/*
 * merge: combines raw profiles into one file in any of record's formats, each profile under its own root.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/filtered.h"
#include "cmd/report.h"
#include "out/output_file.h"
#include "profile/folded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 16)

struct merge {
    const struct options *o;
    const struct format *format;
    struct profile *profile;
    struct folded *folded;
    struct filtered filtered; /* what the file shows of the profile */
    struct output_file *place;
    FILE *messages;
    char title[sizeof(struct text_safe)];
    bool stdin_taken;
    struct error_text *text;
};

/* An input file. The first `used` bytes of `buf` are not parsed yet. */
struct source {
    int fd;
    const char *path; /* as given */
    char *root;       /* valid UTF-8 */
    char *buf;
    size_t used, cap;
    uint64_t line; /* number of the last parsed line, from 1 */
};

__attribute__((format(printf, 2, 3))) static void say(struct merge *m, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    report_line(m->messages, m->o, fmt, args);
    va_end(args);
}

/* ---- reading ---- */

static int fail_line(struct merge *m, const struct source *s, const char *why)
{
    return error_text_what(m->text, ERR_PROFILE, "%s, line %llu: %s", text_safe(s->path).s, (unsigned long long)s->line,
                           why);
}

static int take_line(struct merge *m, struct source *s, const char *line, size_t len)
{
    const char *why = NULL;
    int r;

    s->line++;
    r = folded_add(m->folded, s->root, line, len, &why);
    return r == ERR_PROFILE ? fail_line(m, s, why) : r;
}

/* Parses all complete lines in the buffer. */
static int take_lines(struct merge *m, struct source *s)
{
    size_t from = 0;
    char *end;
    int r = 0;

    while (r == 0 && (end = memchr(s->buf + from, '\n', s->used - from)) != NULL) {
        r = take_line(m, s, s->buf + from, (size_t)(end - s->buf) - from);
        from = (size_t)(end - s->buf) + 1;
    }
    memmove(s->buf, s->buf + from, s->used - from);
    s->used -= from;
    return r;
}

static int make_room(struct merge *m, struct source *s)
{
    char *bigger;

    if (s->cap - s->used >= CHUNK)
        return 0;
    if (s->used > FOLDED_MAX_LINE) {
        s->line++;
        return fail_line(m, s, "the line is too long");
    }
    bigger = realloc(s->buf, 2 * s->cap + CHUNK);
    if (bigger == NULL)
        return ERR_NOMEM;
    s->buf = bigger;
    s->cap = 2 * s->cap + CHUNK;
    return 0;
}

static int read_source(struct merge *m, struct source *s)
{
    ssize_t n;
    int r;

    do {
        size_t old;

        r = make_room(m, s);
        if (r < 0)
            return r;
        old = s->used;
        n = read(s->fd, s->buf + s->used, s->cap - s->used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_text_what(m->text, ERR_PROFILE, "%s: %s", text_safe(s->path).s, strerror(errno));
        s->used += (size_t)n;
        if (memchr(s->buf + old, '\n', (size_t)n) != NULL)
            r = take_lines(m, s);
    } while (r == 0 && n != 0);
    return r == 0 && s->used > 0 ? take_line(m, s, s->buf, s->used) : r;
}

/* ---- arguments ---- */

/* "ROOT=FILE". A root may contain '=', so split at the last one. An argument that names a file has no root. */
static int split_word(struct merge *m, const char *word, struct source *s)
{
    const char *equals = strrchr(word, '=');
    size_t n, levels = 1;

    if (equals == NULL || access(word, F_OK) == 0)
        equals = NULL;
    s->path = equals != NULL ? equals + 1 : word;
    n = equals != NULL ? (size_t)(equals - word) : 0;
    for (size_t i = 0; i < n; i++)
        levels += word[i] == ';';
    if (levels > FOLDED_MAX_LEVELS)
        return error_text_what(m->text, ERR_USAGE, "a root can have at most %d levels", FOLDED_MAX_LEVELS);
    s->root = calloc(3 * n + 1, 1);
    if (s->root == NULL)
        return ERR_NOMEM;
    utf8_clean(word, n, s->root);
    return 0;
}

static int open_source(struct merge *m, struct source *s)
{
    struct stat st;

    if (strcmp(s->path, "-") == 0) {
        if (m->stdin_taken)
            return error_text_what(m->text, ERR_USAGE, "standard input (-) can only be read once");
        m->stdin_taken = true;
        s->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    } else {
        s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    }
    if (s->fd < 0)
        return error_text_what(m->text, ERR_PROFILE, "%s: %s", text_safe(s->path).s, strerror(errno));
    if (fstat(s->fd, &st) == 0 && S_ISDIR(st.st_mode))
        return error_text_what(m->text, ERR_PROFILE, "%s: is a directory", text_safe(s->path).s);
    return 0;
}

static int merge_word(const char *word, void *arg)
{
    struct merge *m = arg;
    struct source s = {.fd = -1};
    int r = split_word(m, word, &s);

    if (r == 0)
        r = open_source(m, &s);
    if (r == 0)
        r = read_source(m, &s);
    log_info("merge", "%s: %llu lines: %s", s.path ? s.path : word, (unsigned long long)s.line,
             r < 0 ? err_name(r) : "read");
    if (s.fd >= 0)
        close(s.fd);
    free(s.root);
    free(s.buf);
    return r;
}

/* ---- writing ---- */

/* Why the result is empty: what record wrote about that, if anything. */
static const char *empty_remark(const struct merge *m)
{
    const char *remark = folded_remark(m->folded);

    return remark ? remark : "No stack counts found: the input contains no stacks";
}

static int fill(FILE *out, void *arg)
{
    struct merge *m = arg;
    struct out_options options = {
        .title = m->title, .exporter = args_version(m->o), .show_lines = true, .remark = filtered_remark(&m->filtered)};
    int r;

    if (!m->profile->samples)
        options.remark = folded_remark(m->folded);
    r = m->format->write(m->filtered.shown, &options, out);
    if (r == ERR_NO_SAMPLES) { /* this format needs a remark */
        options.remark = empty_remark(m);
        r = m->format->write(m->filtered.shown, &options, out);
    }
    return r;
}

static int open_place(struct merge *m)
{
    char name[512];
    struct err_note note = {0};

    output_file_default_name(name, sizeof(name), "merged", m->format->extension, time(NULL));
    return error_text_explain(m->text, output_file_open(m->o->output ? m->o->output : name, NULL, &m->place, &note),
                              &note.facts);
}

static int prepare(struct merge *m)
{
    const struct options *o = m->o;
    const struct format *by_path = o->output ? format_by_path(o->output) : NULL;
    struct profile_options options = {.interval_ns = (uint64_t)((double)NS_PER_S / o->rate)};
    int r;

    m->format = o->format ? o->format : by_path ? by_path : format_by_name("flamegraph");
    options.timeline = m->format->timeline;
    if (o->title)
        snprintf(m->title, sizeof(m->title), "%s", text_safe(o->title).s);
    else
        snprintf(m->title, sizeof(m->title), "%zu profile%s", o->n_files, o->n_files == 1 ? "" : "s");
    r = open_place(m);
    if (r < 0)
        return r;
    m->messages = report_stream(o, output_file_is_stdout(m->place));
    m->profile = profile_new(&options);
    m->folded = m->profile ? folded_new(m->profile) : NULL;
    return m->folded ? 0 : ERR_NOMEM;
}

static int write_result(struct merge *m)
{
    struct profile *p = m->profile;
    const char *at = m->format->look ? strstr(m->format->look, "%s") : NULL;
    struct err_note note = {0};
    int r = filtered_update(&m->filtered, m->o, p);

    if (r == 0)
        r = filtered_check_merge(&m->filtered, m->o, m->text);
    if (r == 0)
        r = error_text_explain(m->text, output_file_write(m->place, fill, m, &note), &note.facts);
    log_info("output", "%s to %s: %s", m->format->name, output_file_path(m->place), r < 0 ? err_name(r) : "written");
    if (r < 0)
        return r;
    if (p->pruned)
        say(m, "The profile exceeded its memory limit: folded %llu of the rarest calls into their callers (pruned).",
            (unsigned long long)p->pruned);
    if (p->coarsened)
        say(m, "The stacks exceeded their memory limit: merged adjacent ones %llu time(s).",
            (unsigned long long)p->coarsened);
    filtered_say(&m->filtered, m->o, m->messages);
    say(m, "Wrote %s to '%s'. Samples: %llu", m->format->wrote, output_file_path(m->place),
        (unsigned long long)m->filtered.shown->samples);
    if (!p->samples)
        say(m, "%s", empty_remark(m));
    if (m->format->look && !at && !output_file_is_stdout(m->place))
        say(m, "%s", m->format->look);
    if (at && !output_file_is_stdout(m->place))
        say(m, "%.*s%s%s", (int)(at - m->format->look), m->format->look, output_file_path(m->place), at + 2);
    return 0;
}

int cmd_merge(const struct options *o)
{
    struct error_text text = {0};
    struct merge m = {.o = o, .text = &text, .messages = stderr};
    int r = prepare(&m);

    if (r == 0)
        r = args_each_file(o, merge_word, &m);
    if (r == 0)
        r = write_result(&m);
    filtered_free(&m.filtered);
    profile_free(m.profile);
    folded_free(m.folded);
    output_file_close(m.place);
    return r < 0 ? error_text_print(stderr, r, &text) : 0;
}
