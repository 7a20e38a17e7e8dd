/*
 * File and line -> text. The functions named run_… run in the helper process.
 */
#include "sample/source_lines.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "sample/process_private.h"
#include "target/caps.h"
#include "target/core_file.h"
#include "target/proc.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The target chooses the names of the files, and how many there are. */
#define FILE_BYTES_MAX ((off_t)16 * 1024 * 1024)
#define ALL_BYTES_MAX  ((uint64_t)256 * 1024 * 1024)
#define FILES_MAX      8192
#define CHUNK          65536
#define GROUPS_MAX     1024
/* The start of a process is known to 10 ms, and a file's time comes from another clock. */
#define SLACK_NS NS_PER_S

/* ---- in the helper: opening the file ---- */

/* A relative path means the working directory, which may have changed since. A path in debug info is not relative to it. */
static bool full_path(const struct files *f, const char *file, bool native, char *ret, size_t size)
{
    char link[64], dir[4096];
    ssize_t len;
    int n;

    if (file[0] == '/') {
        n = snprintf(ret, size, "%s", file);
        return n > 0 && (size_t)n < size;
    }
    if (native || !f->pid)
        return false;
    snprintf(link, sizeof(link), "/proc/%d/cwd", (int)proc_live_thread(f->pid));
    len = readlink(link, dir, sizeof(dir) - 1);
    if (len <= 0)
        return false;
    n = snprintf(ret, size, "%.*s/%s", (int)len, dir, file);
    return n > 0 && (size_t)n < size;
}

static size_t read_groups(pid_t pid, gid_t *ret)
{
    char *text, *end;
    const char *p;
    size_t len, n = 0;

    if (proc_read_file(pid, 0, "status", &text, &len) < 0)
        return 0;
    for (p = proc_status_field(text, "Groups"); n < GROUPS_MAX; p = end) {
        p += strspn(p, " \t");
        if (*p < '0' || *p > '9')
            break;
        ret[n++] = (gid_t)strtoul(p, &end, 10);
    }
    free(text);
    return n;
}

/* run_as_user keeps root's capabilities. */
static int open_without_override(const struct files *f, const char *path)
{
    uint64_t permitted = caps_permitted(), effective = caps_effective();
    int fd;

    if (!(effective & CAPS_DAC))
        return files_open(f, path);
    if (caps_set(permitted, effective & ~CAPS_DAC) < 0)
        return -1;
    fd = files_open(f, path);
    caps_set(permitted, effective);
    return fd;
}

/* Root opens the file with the rights of the target's user: the target, which chooses the name, must not make us show a file
 * that it cannot read itself. The helper has one thread, so nothing else happens with these ids. */
static int open_as_target(const struct files *f, const char *path)
{
    gid_t own[GROUPS_MAX], groups[GROUPS_MAX];
    struct proc_status st;
    int n_own, fd = -1;

    if (geteuid() != 0)
        return open_without_override(f, path);
    if (!f->pid)
        return files_open(f, path);
    if (proc_status_read(f->pid, 0, &st) < 0)
        return -1;
    if (st.uid_effective == 0)
        return files_open(f, path);
    n_own = getgroups(GROUPS_MAX, own);
    if (n_own < 0 || setgroups(read_groups(f->pid, groups), groups) < 0)
        return -1;
    setfsgid(st.gid_effective);
    setfsuid(st.uid_effective); /* also drops the capabilities that concern files */
    if (setfsuid((uid_t)-1) == (int)st.uid_effective && setfsgid((gid_t)-1) == (int)st.gid_effective)
        fd = files_open(f, path);
    setfsuid(geteuid());
    setfsgid(getegid());
    if (setgroups((size_t)n_own, own) < 0)
        _exit(EXIT_FAILURE);
    return fd;
}

/* ---- in the helper: reading lines ---- */

struct wanted {
    uint64_t *lines; /* in ascending order */
    size_t n, next;
    struct pack *out;
};

static bool unpack_wanted(struct unpack *in, struct wanted *ret)
{
    size_t len;
    const void *lines = unpack_bytes(in, &len);

    if (!lines || !len)
        return false;
    ret->n = len / sizeof(*ret->lines);
    ret->lines = malloc(len);
    if (ret->lines)
        memcpy(ret->lines, lines, len);
    return ret->lines != NULL;
}

struct line_reader {
    uint64_t line; /* the current one, from 1 on */
    char text[SOURCE_LINE_MAX];
    size_t len;
    bool cut, after_cr;
};

static size_t trim(const char *text, size_t len)
{
    while (len && strchr(" \t\f\v", text[len - 1]))
        len--;
    return len;
}

static void pack_line(struct line_reader *r, struct pack *out)
{
    char clean[SOURCE_LINE_MAX * 3 + sizeof("...")];
    size_t skip = r->line == 1 && r->len >= 3 && memcmp(r->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, len = r->len;

    while (r->cut && len > skip && ((unsigned char)r->text[len - 1] & 0xc0) == 0x80) /* do not cut a character */
        len--;
    if (r->cut && len > skip && (unsigned char)r->text[len - 1] >= 0xc0)
        len--;
    if (!r->cut)
        len = trim(r->text, len);
    len = len > skip ? utf8_clean(r->text + skip, len - skip, clean) : 0;
    snprintf(clean + len, sizeof(clean) - len, "%s", r->cut ? "..." : "");
    pack_text(out, clean);
}

static void end_line(struct line_reader *r, struct wanted *w)
{
    if (w->next < w->n && w->lines[w->next] == r->line) {
        pack_line(r, w->out);
        w->next++;
    }
    r->line++;
    r->len = 0;
    r->cut = false;
}

/* Lines end as in Python: with \n, \r\n or \r. */
static void add_bytes(struct line_reader *r, const char *bytes, size_t n, struct wanted *w)
{
    for (size_t i = 0; i < n && w->next < w->n; i++) {
        char c = bytes[i];

        if (c == '\n' && r->after_cr) {
            r->after_cr = false;
            continue;
        }
        r->after_cr = c == '\r';
        if (c == '\n' || c == '\r')
            end_line(r, w);
        else if (w->lines[w->next] != r->line)
            continue;
        else if (r->len < sizeof(r->text))
            r->text[r->len++] = c;
        else
            r->cut = true;
    }
}

/* Returns how many bytes were read. */
static uint64_t read_lines(int fd, off_t size, struct wanted *w)
{
    struct line_reader r = {.line = 1};
    char chunk[CHUNK];
    off_t at = 0;

    while (at < size && w->next < w->n) {
        ssize_t got = pread(fd, chunk, sizeof(chunk), at);

        if (got <= 0)
            break;
        add_bytes(&r, chunk, (size_t)got, w);
        at += got;
    }
    if (r.len)
        end_line(&r, w); /* the last line has no newline */
    return (uint64_t)at;
}

static uint64_t time_of(const struct timespec *t)
{
    return t->tv_sec > 0 ? (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec : 0;
}

/* Packs what the open file contains. Files in /proc have size 0; to read one may block. */
static int pack_file(int fd, uint64_t newest_ns, struct wanted *w, struct pack *out)
{
    struct pack lines = {0};
    struct stat st;
    bool changed;

    if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > FILE_BYTES_MAX)
        return ERR_READ;
    changed = newest_ns && time_of(&st.st_mtim) > newest_ns;
    w->out = &lines;
    pack_number(out, changed);
    pack_number(out, changed ? 0 : read_lines(fd, st.st_size, w));
    pack_bytes(out, lines.bytes, lines.len);
    out->failed |= lines.failed;
    pack_free(&lines);
    return 0;
}

static int run_source(struct unpack *in, struct pack *out)
{
    struct files files;
    struct wanted w = {0};
    char path[8192];
    const char *file;
    uint64_t newest_ns;
    bool native;
    int fd = -1, r = ERR_READ;

    files_unpack(in, &files);
    file = unpack_text(in);
    native = unpack_number(in);
    newest_ns = unpack_number(in);
    if (file && unpack_wanted(in, &w) && full_path(&files, file, native, path, sizeof(path)))
        fd = open_as_target(&files, path);
    if (fd >= 0) {
        r = pack_file(fd, newest_ns, &w, out);
        close(fd);
    }
    free(w.lines);
    files_close(&files);
    return r;
}

/* ---- here ---- */

/* The time of the newest file that the process can have loaded, as a file's time; 0: unknown. A core file is as old as itself. */
static uint64_t newest_file_ns(const struct process *p)
{
    uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK), now_ticks = proc_clock_ticks(), age_ns;
    struct timespec now;
    struct stat st;

    if (p->core)
        return stat(p->core->path, &st) == 0 ? time_of(&st.st_mtim) + SLACK_NS : 0;
    clock_gettime(CLOCK_REALTIME, &now);
    age_ns = now_ticks > p->start_time ? (now_ticks - p->start_time) * (NS_PER_S / ticks) : 0;
    return time_of(&now) > age_ns ? time_of(&now) - age_ns + SLACK_NS : 0;
}

/* Reads the `n` lines of one file. Returns how many bytes of it were read. */
static uint64_t read_file(const struct process *p, struct source_line *items, size_t n, uint64_t newest_ns)
{
    struct helper_about about = files_about(p->files, items->file);
    struct helper_answer answer;
    struct pack in = {0}, lines = {0};
    struct unpack texts = {0};
    uint64_t bytes;
    bool changed;

    about.names = true;
    for (size_t i = 0; i < n; i++)
        if (!i || items[i].line != items[i - 1].line)
            pack_number(&lines, (uint64_t)items[i].line);
    files_pack(&in, p->files);
    pack_text(&in, items->file);
    pack_number(&in, items->native);
    pack_number(&in, newest_ns);
    pack_bytes(&in, lines.bytes, lines.len);
    in.failed |= lines.failed;
    if (in.failed || helper_call(run_source, &in, &about, &answer) != 0)
        answer = (struct helper_answer){0};
    changed = unpack_number(&answer.out);
    bytes = unpack_number(&answer.out);
    texts.at = unpack_bytes(&answer.out, &texts.left);
    for (size_t i = 0; i < n; i++) {
        const char *text = NULL;

        if (i && items[i].line == items[i - 1].line)
            items[i].to->text = items[i - 1].to->text;
        else if (texts.left && (text = unpack_text(&texts)) != NULL)
            items[i].to->text = intern_str(p->sampler->names, text);
        items[i].changed = changed;
    }
    log_debug("source", "%s: %s, %llu bytes read for %zu lines", items->file,
              changed        ? "changed since the process started"
              : answer.bytes ? "read"
                             : "not read",
              (unsigned long long)bytes, n);
    helper_answer_free(&answer);
    pack_free(&lines);
    pack_free(&in);
    return bytes;
}

static int compare_lines(const void *a, const void *b)
{
    const struct source_line *x = a, *y = b;

    if (x->file != y->file)
        return (uintptr_t)x->file < (uintptr_t)y->file ? -1 : 1;
    if (x->native != y->native)
        return x->native ? 1 : -1;
    return (x->line > y->line) - (x->line < y->line);
}

static bool is_same_file(const struct source_line *a, const struct source_line *b)
{
    return a->file == b->file && a->native == b->native;
}

void source_lines_read(struct process *p, struct source_line *items, size_t n)
{
    uint64_t newest_ns = newest_file_ns(p), bytes = 0;
    size_t end;

    qsort(items, n, sizeof(*items), compare_lines);
    run_as_user_begin(p->user);
    for (size_t i = 0, files = 0; i < n && files < FILES_MAX && bytes < ALL_BYTES_MAX; i = end, files++) {
        for (end = i + 1; end < n && is_same_file(&items[i], &items[end]);)
            end++;
        bytes += read_file(p, items + i, end - i, newest_ns);
    }
    run_as_user_end(p->user);
}
