/*
 * Reads what `dump` prints for people, as far as it has the form of a process, a thread or a frame; other lines are skipped:
 *
 *     Process 12: python3 train.py
 *     Thread 12 (idle): "MainThread"
 *         load (train.py:3)
 */
#include "base/err.h"
#include "base/grow.h"
#include "base/utf8.h"
#include "profile/group_files.h"
#include "profile/groups_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define INDENT   4 /* of a frame */
#define PID_MAX_ INT32_MAX

/* A part of the text, without a newline; not NUL-terminated. */
struct part {
    const char *s;
    size_t len;
};

struct text_file {
    struct group_file *f;
    struct group_stack stack;
    struct group_member member;
    struct trace trace; /* of the thread that is being read */
    bool in_process, in_thread;
    char *clean;
    size_t cap_clean;
};

static bool begins(struct part p, const char *word)
{
    size_t n = strlen(word);

    return p.len >= n && memcmp(p.s, word, n) == 0;
}

static struct part rest_of(struct part p, size_t n)
{
    return (struct part){p.s + n, p.len - n};
}

/* An interned copy in *to, as valid UTF-8. */
static int keep(struct text_file *t, struct part p, const char **to)
{
    if (p.len > GROUPS_TEXT_MAX + 1)
        p.len = GROUPS_TEXT_MAX + 1;
    if (grow_array((void **)&t->clean, &t->cap_clean, 3 * p.len + 1, 1) < 0)
        return ERR_NOMEM;
    return groups_keep_text(t->f->groups, t->clean, utf8_clean(p.s, p.len, t->clean), to);
}

/* Cuts a number off the front: decimal, or hexadecimal with 0x. False if there is none. */
static bool cut_number(struct part *p, uint64_t *ret)
{
    bool hex = begins(*p, "0x");
    size_t n = hex ? 2 : 0, from = n;
    uint64_t value = 0;

    while (n < p->len && n - from < 16 && (hex ? isxdigit((unsigned char)p->s[n]) : isdigit((unsigned char)p->s[n]))) {
        char c = p->s[n++];

        value = value * (hex ? 16 : 10) + (uint64_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (n == from)
        return false;
    *p = rest_of(*p, n);
    *ret = value;
    return true;
}

/* Adds the thread that ends here. */
static int end_thread(struct text_file *t)
{
    uint32_t member;
    int r;

    if (!t->in_thread)
        return 0;
    t->in_thread = false;
    r = groups_add_member(t->f->groups, &t->member, &member);
    return r == 0 ? group_stack_add(&t->stack, t->f, member, &t->trace) : r;
}

/* "Process 12: command" */
static int take_process(struct text_file *t, struct part p)
{
    const char *command;
    uint64_t pid;
    int r;

    if (!cut_number(&p, &pid) || pid > PID_MAX_ || !begins(p, ": "))
        return 0;
    r = keep(t, rest_of(p, 2), &command);
    if (r < 0)
        return r;
    t->member = (struct group_member){.source = t->f->name, .pid = (pid_t)pid, .command = command};
    t->in_process = true;
    return 0;
}

/* "12: command" */
static void take_parent(struct text_file *t, struct part p)
{
    uint64_t pid;

    if (cut_number(&p, &pid) && pid <= PID_MAX_)
        t->member.parent = (pid_t)pid;
}

/* `12 (idle): "name"`, or `0x7f (active+gil)`. spyglass prints the kernel's ID in decimal, older versions of py-spy only the address. */
static int take_thread(struct text_file *t, struct part p)
{
    bool hex = begins(p, "0x");
    struct trace trace = {0};
    uint64_t id;
    int r;

    if (!cut_number(&p, &id) || !begins(p, " ("))
        return 0;
    if (!hex && id > 0 && id <= PID_MAX_)
        trace.os_thread_id = (pid_t)id;
    else
        trace.thread_id = id;
    p = rest_of(p, 2);
    trace.active = begins(p, "active");
    trace.owns_gil = begins(p, "active+gil");
    trace.waits_for_gil = begins(p, "waiting for the GIL");
    while (p.len > 0 && p.s[0] != ')')
        p = rest_of(p, 1);
    if (begins(p, "): \"") && p.len > 5 && p.s[p.len - 1] == '"') {
        r = keep(t, (struct part){p.s + 4, p.len - 5}, &trace.thread_name);
        if (r < 0)
            return r;
    }
    t->trace = trace;
    t->in_thread = true;
    group_stack_clear(&t->stack);
    return 0;
}

/* Cuts ":12" off the end of a location. */
static int cut_line(struct part *p)
{
    size_t n = p->len;
    int64_t line = 0, unit = 1;

    while (n > 0 && p->len - n < 9 && isdigit((unsigned char)p->s[n - 1])) {
        line += (p->s[--n] - '0') * unit;
        unit *= 10;
    }
    if (n == p->len || n < 2 || p->s[n - 1] != ':')
        return 0;
    p->len = n - 1;
    return (int)line;
}

/* "name (file.py:3)". Names and files may contain parentheses: the last '(' after a blank whose partner ends the line. */
static int take_frame(struct text_file *t, struct part p)
{
    struct func func = {0};
    struct part file;
    size_t depth = 0, at = p.len;
    int line, r;

    if (p.len < 4 || p.s[p.len - 1] != ')')
        return 0;
    while (at-- > 1) {
        depth += p.s[at] == ')';
        depth -= p.s[at] == '(';
        if (depth == 0)
            break;
    }
    if (depth != 0 || at < 2 || p.s[at - 1] != ' ')
        return 0;
    file = (struct part){p.s + at + 1, p.len - at - 2};
    line = cut_line(&file);
    r = keep(t, (struct part){p.s, at - 1}, &func.name);
    if (r == 0)
        r = keep(t, file, &func.filename);
    func.short_filename = func.filename;
    return r == 0 ? group_stack_push(&t->stack, &func, line) : r;
}

static int take_line(struct text_file *t, struct part p)
{
    size_t indent = 0;
    int r;

    while (p.len > 0 && p.s[p.len - 1] == '\r')
        p.len--;
    while (indent < p.len && p.s[indent] == ' ')
        indent++;
    if (indent == INDENT && t->in_thread)
        return take_frame(t, rest_of(p, INDENT));
    if (indent > 0) /* variables, source lines, what the thread waits for */
        return 0;
    r = end_thread(t);
    if (r == 0 && begins(p, "Parent Process ") && t->in_process)
        take_parent(t, rest_of(p, 15));
    else if (r == 0 && begins(p, "Process "))
        r = take_process(t, rest_of(p, 8));
    else if (r == 0 && begins(p, "Thread ") && t->in_process)
        r = take_thread(t, rest_of(p, 7));
    return r;
}

int group_file_read_text(struct group_file *f, const char *text, size_t len)
{
    struct text_file t = {.f = f};
    size_t before = f->n_threads, from = 0;
    int r = 0;

    while (from < len && r == 0) {
        const char *end = memchr(text + from, '\n', len - from);
        size_t n = end ? (size_t)(end - text) - from : len - from;

        r = take_line(&t, (struct part){text + from, n});
        from += n + 1;
    }
    if (r == 0)
        r = end_thread(&t);
    if (r == 0 && f->n_threads == before) {
        f->why = "no thread found: expected the output of `dump` or `dump --json`";
        r = ERR_DUMP;
    }
    group_stack_free(&t.stack);
    free(t.clean);
    return r;
}
