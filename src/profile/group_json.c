/*
 * Reads what `dump --json` writes: an array with an object for each thread. `spyglass ray dump --json` wraps such threads in workers.
 * Several documents may follow each other, so that files can be concatenated.
 */
#include "base/err.h"
#include "base/json_read.h"
#include "profile/group_files.h"
#include "profile/groups_private.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define TITLE_MAX 512

/* What is read of a thread. Strings are interned. */
struct json_thread {
    struct group_member member;
    struct trace trace;
    const char *state;
    pid_t parent; /* the nearest one that looks like Python; 0: the file does not say */
};

/* What a worker of `spyglass ray dump --json` says about all of its threads. */
struct json_worker {
    const char *host;
    const char *name; /* "ray::Trainer.step" */
    int64_t pid;
};

struct json_file {
    struct group_file *f;
    struct json_reader r;
    struct group_stack stack;
    const struct json_worker *worker; /* NULL: none */
    int error;                        /* ERR_NOMEM or ERR_BOUNDS; ends the reading */
};

static bool is(const char *key, const char *name)
{
    return strcmp(key, name) == 0;
}

/* Reads a string into *to; keeps *to if it is none. */
static void take_text(struct json_file *j, const char **to)
{
    const char *s;

    if (!json_read_string(&j->r, &s))
        return;
    j->error = groups_keep_text(j->f->groups, s, strlen(s), to);
}

static bool take_bool(struct json_file *j)
{
    bool value = false;

    return json_read_bool(&j->r, &value) && value;
}

/* A number from 0 to `max`, or `other`. */
static int64_t take_number(struct json_file *j, int64_t max, int64_t other)
{
    int64_t value;

    return json_read_integer(&j->r, &value) && value >= 0 && value <= max ? value : other;
}

static void take_frame(struct json_file *j)
{
    struct func func = {.name = "?", .filename = "", .short_filename = NULL};
    const char *key;
    int64_t line = 0;

    if (!json_read_open(&j->r, '{'))
        return;
    while (!j->error && json_read_key(&j->r, &key))
        if (is(key, "name"))
            take_text(j, &func.name);
        else if (is(key, "filename"))
            take_text(j, &func.filename);
        else if (is(key, "short_filename"))
            take_text(j, &func.short_filename);
        else if (is(key, "module"))
            take_text(j, &func.module);
        else if (is(key, "line"))
            line = take_number(j, INT_MAX, 0);
        else
            json_read_skip(&j->r);
    if (!func.short_filename)
        func.short_filename = func.filename;
    if (!j->error && !j->r.why)
        j->error = group_stack_push(&j->stack, &func, (int)line);
}

static void take_frames(struct json_file *j)
{
    group_stack_clear(&j->stack);
    if (!json_read_open(&j->r, '['))
        return;
    while (!j->error && json_read_item(&j->r))
        take_frame(j);
}

/* The process, with its parents nested in it. Only the first parent matters. */
static void take_process(struct json_file *j, struct json_thread *t, bool is_parent)
{
    const char *key;

    if (!json_read_open(&j->r, '{'))
        return;
    while (!j->error && json_read_key(&j->r, &key))
        if (is_parent && is(key, "pid"))
            t->member.parent = (pid_t)take_number(j, INT_MAX, 0);
        else if (!is_parent && is(key, "parent"))
            take_process(j, t, true);
        else if (!is_parent && is(key, "command_line"))
            take_text(j, &t->member.command);
        else
            json_read_skip(&j->r);
}

static void take_thread_field(struct json_file *j, const char *key, struct json_thread *t)
{
    if (is(key, "pid"))
        t->member.pid = (pid_t)take_number(j, INT_MAX, t->member.pid);
    else if (is(key, "hostname"))
        take_text(j, &t->member.host);
    else if (is(key, "rank"))
        t->member.rank = take_number(j, INT64_MAX, -1);
    else if (is(key, "rank_from"))
        take_text(j, &t->member.rank_variable);
    else if (is(key, "parent_pid"))
        t->parent = (pid_t)take_number(j, INT_MAX, 0);
    else if (is(key, "thread_id"))
        t->trace.thread_id = (uint64_t)take_number(j, INT64_MAX, 0);
    else if (is(key, "os_thread_id"))
        t->trace.os_thread_id = (pid_t)take_number(j, INT_MAX, 0);
    else if (is(key, j->worker ? "name" : "thread_name"))
        take_text(j, &t->trace.thread_name);
    else if (is(key, "state"))
        take_text(j, &t->state);
    else if (is(key, "active"))
        t->trace.active = take_bool(j);
    else if (is(key, "owns_gil"))
        t->trace.owns_gil = take_bool(j);
    else if (is(key, "waits_for_gil"))
        t->trace.waits_for_gil = take_bool(j);
    else if (is(key, j->worker ? "process" : "process_info"))
        take_process(j, t, false);
    else if (is(key, "frames"))
        take_frames(j);
    else
        json_read_skip(&j->r);
}

static void add_thread(struct json_file *j, struct json_thread *t)
{
    uint32_t member;

    if (t->member.rank < 0)
        t->member.rank_variable = NULL;
    else if (!t->member.rank_variable)
        t->member.rank_variable = "rank";
    if (t->parent)
        t->member.parent = t->parent;
    if (!t->member.host) /* the file tells its processes apart from those of others */
        t->member.source = j->f->name;
    t->trace.waits_for_gil |= t->state && is(t->state, "waiting for the GIL");
    j->error = groups_add_member(j->f->groups, &t->member, &member);
    if (j->error == 0)
        j->error = group_stack_add(&j->stack, j->f, member, &t->trace);
}

/* An object that is a thread: one without frames is not. */
static void take_thread(struct json_file *j)
{
    struct json_thread t = {.member = {.rank = -1}};
    bool has_frames = false;
    const char *key;

    if (!json_read_open(&j->r, '{'))
        return;
    if (j->worker)
        t.member = (struct group_member){
            .rank = -1, .host = j->worker->host, .command = j->worker->name, .pid = (pid_t)j->worker->pid};
    while (!j->error && json_read_key(&j->r, &key)) {
        has_frames |= is(key, "frames") && json_read_peek(&j->r) == '[';
        take_thread_field(j, key, &t);
    }
    if (!j->error && !j->r.why && has_frames)
        add_thread(j, &t);
}

static void take_threads(struct json_file *j)
{
    if (!json_read_open(&j->r, '['))
        return;
    while (!j->error && json_read_item(&j->r))
        take_thread(j);
}

/* Ray's own title for its process, so that the worker has the same name as one that is read on its machine. */
static void take_title(struct json_file *j, struct json_worker *w)
{
    const char *title = NULL;
    char command[TITLE_MAX];

    take_text(j, &title);
    if (!title)
        return;
    snprintf(command, sizeof(command), "ray::%s", title);
    j->error = groups_keep_text(j->f->groups, command, strlen(command), &w->name);
}

/* What describes a worker comes before its threads, as `spyglass ray dump --json` writes it. */
static void take_worker(struct json_file *j)
{
    struct json_worker w = {0};
    const char *key;

    if (!json_read_open(&j->r, '{'))
        return;
    j->worker = &w;
    while (!j->error && json_read_key(&j->r, &key))
        if (is(key, "hostname"))
            take_text(j, &w.host);
        else if (is(key, "title"))
            take_title(j, &w);
        else if (is(key, "pid"))
            w.pid = take_number(j, INT_MAX, 0);
        else if (is(key, "threads"))
            take_threads(j);
        else
            json_read_skip(&j->r);
    j->worker = NULL;
}

static void take_workers(struct json_file *j)
{
    const char *key;

    if (!json_read_open(&j->r, '{'))
        return;
    while (!j->error && json_read_key(&j->r, &key)) {
        if (!is(key, "workers")) {
            json_read_skip(&j->r);
            continue;
        }
        if (json_read_open(&j->r, '['))
            while (!j->error && json_read_item(&j->r))
                take_worker(j);
    }
}

static size_t line_of(const char *text, size_t at)
{
    size_t line = 1;

    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}

int group_file_read_json(struct group_file *f, const char *text, size_t len)
{
    struct json_file j = {.f = f, .r = {.s = text, .len = len}};
    size_t before = f->n_threads;
    char c;

    while (!j.error && (c = json_read_peek(&j.r)) != '\0') {
        if (c == '[')
            take_threads(&j);
        else if (c == '{')
            take_workers(&j);
        else
            j.r.why = "not JSON";
    }
    if (!j.error && !json_read_end(&j.r)) {
        f->why = j.r.why;
        f->line = line_of(text, j.r.at < len ? j.r.at : len);
        j.error = ERR_DUMP;
    } else if (!j.error && f->n_threads == before) {
        f->why = "no thread has frames: expected the output of `dump --json`";
        j.error = ERR_DUMP;
    }
    json_read_free(&j.r);
    group_stack_free(&j.stack);
    return j.error;
}
