/*
 * A process and its descendants. Called by cmd/dump once and by the loop now and then.
 */
#include "sample/family.h"

#include "base/clock.h"
#include "base/grow.h"
#include "target/access.h"
#include "target/proc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PROCESSES 65536
#define RETRY_NS      (20 * NS_PER_MS)

void family_free(struct family *t)
{
    for (size_t i = 0; i < t->n; i++)
        process_free(t->items[i].process);
    free(t->items);
    t->items = NULL;
    t->n = t->cap = 0;
}

static struct family_entry *entry_find(const struct family *t, pid_t pid)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].pid == pid)
            return &t->items[i];
    return NULL;
}

static bool entry_alive(const struct family_entry *e)
{
    struct proc_stat st;

    if (e->process)
        return process_alive(e->process);
    return proc_stat_read(e->pid, 0, &st) == 0 && st.start_time == e->start_time && st.state != 'Z' && st.state != 'X';
}

const struct proc_info *family_entry_info(const struct family_entry *e)
{
    return e->process ? process_info(e->process) : e->info;
}

static void link_parent(struct family *t, struct family_entry *e)
{
    const struct family_entry *parent = e->parent ? entry_find(t, e->parent) : NULL;
    const struct proc_info *info = parent ? family_entry_info(parent) : NULL;

    if (e->process)
        process_set_parent(e->process, info);
    else if (e->info) {
        e->info->parent = e->parent;
        e->info->parent_info = info;
    }
}

/* A process that is not Python still has a place in the tree. */
static int fill_info(struct family *t, struct family_entry *e)
{
    char *command = NULL;

    if (e->info)
        return 0;
    e->info = sampler_keep(t->sampler, sizeof(*e->info));
    if (!e->info)
        return ERR_NOMEM;
    proc_command_read(e->pid, &command);
    e->info->pid = e->pid;
    e->info->command = command ? intern_str(t->sampler->names, command) : "";
    e->info->executable = e->info->version_suffix = "";
    free(command);
    return e->info->command ? 0 : ERR_NOMEM;
}

/* May the process still become a Python that can be read? */
static bool may_change(const struct family_entry *e, int r)
{
    if (r == ERR_STARTING || r == ERR_READ || r == ERR_TORN)
        return true;
    return r == ERR_NOT_PYTHON && access_is_starting(e->pid);
}

static int entry_attach(struct family *t, struct family_entry *e, uint64_t patience_ns, struct err_note *note)
{
    int r = process_attach(t->sampler, e->pid, patience_ns, &e->process, note);

    if (r < 0) {
        e->given_up = !may_change(e, r);
        e->error = r;
        e->retry_ns = clock_now_ns() + RETRY_NS;
        if (fill_info(t, e) < 0)
            return ERR_NOMEM;
    }
    link_parent(t, e);
    return r;
}

static int entry_add(struct family *t, pid_t pid, pid_t parent, uint64_t patience_ns, struct err_note *note)
{
    struct proc_stat st;
    int r = proc_stat_read(pid, 0, &st);

    if (r < 0)
        return r == ERR_NO_PROCESS ? err_note_what(note, r, "no process has the pid %d", (int)pid) : r;
    if (t->n == MAX_PROCESSES)
        return ERR_BOUNDS;
    if (grow_array((void **)&t->items, &t->cap, t->n + 1, sizeof(*t->items)) < 0)
        return ERR_NOMEM;
    t->items[t->n] = (struct family_entry){.pid = pid, .parent = parent, .start_time = st.start_time};
    return entry_attach(t, &t->items[t->n++], patience_ns, note);
}

int family_add(struct family *t, pid_t pid, uint64_t patience_ns, bool must_be_python, struct err_note *note)
{
    int r = entry_add(t, pid, 0, patience_ns, note);

    if (!must_be_python && (r == ERR_NOT_PYTHON || r == ERR_STARTING))
        return 0;
    return r;
}

/* Profilers at work on the same tree are not part of the program: ours, and others of that name. */
static bool is_profiler(pid_t pid)
{
    char *exe;
    const char *name;
    bool yes;

    if (pid == getpid())
        return true;
    if (proc_exe_read(pid, &exe) < 0)
        return false;
    name = strrchr(exe, '/') ? strrchr(exe, '/') + 1 : exe;
    yes = strcmp(name, "py-spy") == 0 || strcmp(name, "spyglass") == 0 || strcmp(name, "austin") == 0;
    free(exe);
    return yes;
}

static int add_children(struct family *t, pid_t parent, uint64_t patience_ns)
{
    pid_t *pids;
    size_t n;
    int r = 0;

    if (proc_children_read(parent, &pids, &n) < 0)
        return 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (entry_find(t, pids[i]) || is_profiler(pids[i]))
            continue;
        r = entry_add(t, pids[i], parent, patience_ns, NULL);
        if (r != ERR_NOMEM)
            r = 0;
    }
    free(pids);
    return r;
}

/* Entries whose process has gone make room: a pid may come again. */
static void drop_dead(struct family *t)
{
    size_t kept = 1;

    for (size_t i = 1; i < t->n; i++) {
        if (entry_alive(&t->items[i]))
            t->items[kept++] = t->items[i];
        else
            process_free(t->items[i].process);
    }
    if (t->n)
        t->n = kept;
}

int family_refresh(struct family *t, uint64_t patience_ns)
{
    int r = 0;

    if (t->subprocesses)
        drop_dead(t);
    for (size_t i = 0; i < t->n && r == 0; i++) {
        if (!t->items[i].process && !t->items[i].given_up && clock_now_ns() >= t->items[i].retry_ns)
            r = entry_attach(t, &t->items[i], patience_ns, NULL);
        r = r == ERR_NOMEM ? r : 0;
        if (r == 0 && t->subprocesses) /* the new ones are looked at in this same loop */
            r = add_children(t, t->items[i].pid, patience_ns);
    }
    return r;
}

bool family_root_alive(const struct family *t)
{
    return t->n && entry_alive(&t->items[0]);
}

int family_sample(struct family *t, process_sink sink, void *arg)
{
    size_t left = 0;
    int r = 0;

    for (size_t i = 0; i < t->n && r == 0; i++) {
        struct family_entry *e = &t->items[i];

        if (!e->process) {
            left += !e->given_up;
            continue;
        }
        r = process_sample(e->process, sink, arg);
        left += r != ERR_GONE;
        if (r < 0 && r != ERR_GONE && r != ERR_NOMEM)
            sampler_count_error(t->sampler, r);
        if (r != ERR_NOMEM && r <= 0)
            r = 0;
    }
    return r ? r : left ? 0 : ERR_GONE;
}
