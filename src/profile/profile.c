/*
 * Builds the call tree: one node for each distinct (parent, frame).
 *
 * A parent's index is always lower than its children's, so one backwards loop sums the whole tree and nothing recurses,
 * however deep a stack is. Running out of memory may leave nodes without samples, but never a broken tree.
 */
#include "profile/profile.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "profile/fold.h"
#include "profile/process_label.h"
#include "profile/profile_private.h"
#include "profile/prune.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLD_SHARE 4 /* keep one part in this many of max_threads; as many again may be merged threads */

int profile_child(struct profile *p, uint32_t parent, uint32_t frame, uint32_t *ret_node)
{
    struct profile_index *index = p->index;
    uint64_t hash = hash_mix(parent, frame);
    uint32_t id;
    size_t step = 0;
    int r;

    while ((id = hash_table_next(&index->nodes, hash, &step)) != HASH_TABLE_NONE)
        if (p->nodes[id].parent == parent && p->nodes[id].frame == frame) {
            *ret_node = id;
            return 0;
        }
    r = hash_table_reserve_item(&index->nodes, (void **)&p->nodes, &index->cap_nodes, p->n_nodes, sizeof(*p->nodes));
    if (r < 0)
        return r;
    id = (uint32_t)p->n_nodes++;
    p->nodes[id] = (struct profile_node){.parent = parent, .frame = frame};
    hash_table_add(&index->nodes, hash, id);
    *ret_node = id;
    return 0;
}

int profile_frame_append(struct profile *p, const struct profile_frame *frame, uint64_t hash, bool findable,
                         uint32_t *ret_frame)
{
    struct profile_index *index = p->index;
    struct hash_table *table = findable ? &index->frames : NULL;
    int r = hash_table_reserve_item(table, (void **)&p->frames, &index->cap_frames, p->n_frames, sizeof(*p->frames));

    if (r < 0)
        return r;
    p->frames[p->n_frames] = *frame;
    *ret_frame = (uint32_t)p->n_frames++;
    if (table != NULL)
        hash_table_add(table, hash, *ret_frame);
    return 0;
}

uint64_t profile_frame_hash(const struct profile_frame *frame)
{
    if (frame->process != NULL)
        return hash_mix((uintptr_t)frame->process->command, (uint32_t)frame->process->pid);
    return hash_mix((uintptr_t)frame->func, (uint32_t)frame->line);
}

static int profile_frame_intern(struct profile *p, const struct func *func, int line, uint32_t *ret_frame)
{
    struct profile_frame frame = {.func = func, .line = line};
    uint64_t hash = profile_frame_hash(&frame);
    uint32_t id;
    size_t step = 0;

    while ((id = hash_table_next(&p->index->frames, hash, &step)) != HASH_TABLE_NONE)
        if (p->frames[id].func == func && p->frames[id].line == line) {
            *ret_frame = id;
            return 0;
        }
    return profile_frame_append(p, &frame, hash, true, ret_frame);
}

static int profile_frame_process(struct profile *p, const struct proc_info *process, uint32_t *ret_frame)
{
    struct profile_frame frame = {.process = process};
    uint64_t hash = profile_frame_hash(&frame);
    uint32_t id;
    char *command;
    size_t step = 0;
    int r;

    while ((id = hash_table_next(&p->index->frames, hash, &step)) != HASH_TABLE_NONE) {
        const struct proc_info *seen = p->frames[id].process;

        if (seen != NULL && seen->pid == process->pid && seen->command == process->command) {
            *ret_frame = id;
            return 0;
        }
    }
    command = process_label(process->command ? process->command : "");
    if (command == NULL)
        return ERR_NOMEM;
    r = asprintf(&frame.label, "process %d:\"%s\"", (int)process->pid, command);
    free(command);
    if (r < 0)
        return ERR_NOMEM;
    r = profile_frame_append(p, &frame, hash, true, ret_frame);
    if (r < 0)
        free(frame.label);
    return r;
}

static char *profile_thread_label(const struct profile_thread *t)
{
    const char *colon = t->name ? ": " : "", *name = t->name ? t->name : "";
    char *label = NULL;
    int n;

    if (t->os_thread_id > 0)
        n = asprintf(&label, "thread (%d)%s%s", (int)t->os_thread_id, colon, name);
    else
        n = asprintf(&label, "thread (0x%" PRIX64 ")%s%s", t->thread_id, colon, name);
    return n < 0 ? NULL : label;
}

/* Descends through the roots of the process and its ancestors, outermost first. */
static int profile_root_processes(struct profile *p, const struct proc_info *process, uint32_t *node)
{
    const struct proc_info *chain[PROFILE_MAX_ANCESTORS];
    uint32_t frame = 0;
    size_t n = 0;
    int r = 0;

    for (; process != NULL && n < PROFILE_MAX_ANCESTORS; process = process->parent_info)
        chain[n++] = process;
    while (n-- > 0 && r == 0) {
        r = profile_frame_process(p, chain[n], &frame);
        if (r == 0)
            r = profile_child(p, *node, frame, node);
    }
    return r;
}

static int profile_root_thread(struct profile *p, struct profile_thread *t)
{
    struct profile_frame frame = {.label = profile_thread_label(t)};
    int r;

    if (frame.label == NULL)
        return ERR_NOMEM;
    r = profile_frame_append(p, &frame, 0, false, &t->frame);
    if (r < 0) {
        free(frame.label);
        return r;
    }
    return profile_child(p, t->root, t->frame, &t->root);
}

static int profile_thread_add(struct profile *p, const struct trace *trace, uint64_t hash, uint32_t *ret_id)
{
    struct profile_thread thread = {.process = trace->process,
                                    .thread_id = trace->thread_id,
                                    .os_thread_id = trace->os_thread_id,
                                    .name = trace->thread_name,
                                    .is_kernel_name = trace->is_kernel_name};
    struct profile_index *index = p->index;
    int r;

    r = hash_table_reserve_item(&index->threads, (void **)&p->threads, &index->cap_threads, p->n_threads,
                                sizeof(thread));
    if (r == 0 && p->options.processes)
        r = profile_root_processes(p, trace->process, &thread.root);
    if (r == 0 && p->options.threads)
        r = profile_root_thread(p, &thread);
    if (r < 0)
        return r;
    p->threads[p->n_threads] = thread;
    *ret_id = (uint32_t)p->n_threads++;
    hash_table_add(&index->threads, hash, *ret_id);
    return 0;
}

/* Programs often name a thread after it has started, so its root shows the latest name. A thread that C code started may
 * have a name in Python only while it calls Python. */
static int profile_thread_rename(struct profile *p, struct profile_thread *t, const struct trace *trace)
{
    const char *old = t->name, *name = trace->thread_name;
    char *label;

    if (name == NULL || name == old || (old != NULL && trace->is_kernel_name && !t->is_kernel_name))
        return 0;
    t->name = name;
    t->is_kernel_name = trace->is_kernel_name;
    if (!p->options.threads)
        return 0;
    label = profile_thread_label(t);
    if (label == NULL) {
        t->name = old;
        return ERR_NOMEM;
    }
    free(p->frames[t->frame].label);
    p->frames[t->frame].label = label;
    return 0;
}

/* The pthread_t identifies a thread only if its kernel thread is unknown: a thread that runs no Python has none. */
uint64_t profile_thread_hash(const struct profile_thread *t)
{
    uint64_t ids = (uint64_t)(uint32_t)t->process->pid << 32 | (uint32_t)t->os_thread_id;

    return hash_mix(ids, t->os_thread_id ? 0 : t->thread_id);
}

static int profile_thread_find(struct profile *p, const struct trace *trace, struct profile_thread **ret_thread)
{
    uint64_t hash = profile_thread_hash(&(struct profile_thread){
        .process = trace->process, .os_thread_id = trace->os_thread_id, .thread_id = trace->thread_id});
    uint32_t id;
    size_t step = 0;
    int r;

    while ((id = hash_table_next(&p->index->threads, hash, &step)) != HASH_TABLE_NONE) {
        struct profile_thread *t = &p->threads[id];

        if (!t->is_other && t->process->pid == trace->process->pid && t->process->command == trace->process->command &&
            t->os_thread_id == trace->os_thread_id && (t->os_thread_id || t->thread_id == trace->thread_id))
            break;
    }
    if (id == HASH_TABLE_NONE) {
        r = profile_thread_add(p, trace, hash, &id);
        if (r < 0)
            return r;
    }
    *ret_thread = &p->threads[id];
    return profile_thread_rename(p, *ret_thread, trace);
}

static uint64_t profile_weight(const struct profile *p, const struct trace *trace)
{
    return trace->weight_ns > 0 ? trace->weight_ns : p->options.interval_ns;
}

static bool is_unbroken(const struct profile *p, const struct profile_span *last, const struct trace *trace,
                        uint64_t time_ns)
{
    if (trace->order != TRACE_BY_TIME)
        return trace->order == TRACE_FOLLOWS;
    return time_ns <= last->end_ns + p->options.interval_ns / 2;
}

static int profile_span_add(struct profile *p, struct profile_thread *t, uint32_t node, const struct trace *trace,
                            uint64_t time_ns)
{
    struct profile_span *last = t->n_spans > 0 ? &t->spans[t->n_spans - 1] : NULL;
    uint64_t interval = p->options.interval_ns, weight = profile_weight(p, trace);
    bool unbroken = last != NULL && is_unbroken(p, last, trace, time_ns);

    if (unbroken && time_ns > last->end_ns)
        last->end_ns = time_ns;
    if (unbroken && last->node == node && last->count < UINT32_MAX) {
        last->count++;
        last->weight_ns += weight;
        last->end_ns = time_ns + interval > last->end_ns ? time_ns + interval : last->end_ns;
        return 0;
    }
    if (last != NULL && time_ns < last->end_ns)
        last->end_ns = time_ns > last->time_ns ? time_ns : last->time_ns;
    if (last != NULL && time_ns < last->time_ns)
        time_ns = last->time_ns; /* the formats require that time never decreases */
    if (grow_array((void **)&t->spans, &t->cap_spans, t->n_spans + 1, sizeof(*t->spans)) < 0)
        return ERR_NOMEM;
    t->spans[t->n_spans++] = (struct profile_span){time_ns, time_ns + interval, weight, node, 1};
    p->n_spans++;
    return 0;
}

static int profile_line(const struct profile *p, const struct frame *frame)
{
    if (p->options.no_lines)
        return 0;
    return p->options.by_function ? frame->func->first_line : frame->line;
}

/* Descends from `*node` through the trace's frames. A frame repeated by recursion is looked up only once. */
static int profile_descend(struct profile *p, const struct trace *trace, uint32_t *node)
{
    const struct func *func = NULL;
    uint32_t frame = 0;
    int line = 0, r;

    for (size_t i = trace->n_frames; i-- > 0;) {
        const struct frame *f = &trace->frames[i];

        if (f->func != func || profile_line(p, f) != line) {
            func = f->func;
            line = profile_line(p, f);
            r = profile_frame_intern(p, func, line, &frame);
            if (r < 0)
                return r;
        }
        r = profile_child(p, *node, frame, node);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Merges spans of each thread in pairs. Halves the number of spans; keeps the number of samples. */
static void profile_coarsen(struct profile *p)
{
    p->n_spans = 0;
    for (size_t i = 0; i < p->n_threads; i++) {
        struct profile_thread *t = &p->threads[i];
        size_t n = 0;

        for (size_t k = 0; k < t->n_spans; k += 2, n++) {
            struct profile_span span = t->spans[k];

            if (k + 1 < t->n_spans) {
                const struct profile_span *next = &t->spans[k + 1];

                span.node = next->count > span.count ? next->node : span.node;
                span.count += next->count;
                span.weight_ns += next->weight_ns;
                span.end_ns = next->end_ns;
            }
            t->spans[n] = span;
        }
        t->n_spans = n;
        p->n_spans += n;
    }
    p->coarsened++;
}

static bool has_too_many_nodes(const struct profile *p)
{
    return p->n_nodes > (p->options.max_nodes ? p->options.max_nodes : PROFILE_MAX_NODES);
}

static bool has_too_many_spans(const struct profile *p)
{
    return p->n_spans > (p->options.max_spans ? p->options.max_spans : PROFILE_MAX_SPANS);
}

static size_t max_threads(const struct profile *p)
{
    return p->options.max_threads ? p->options.max_threads : PROFILE_MAX_THREADS;
}

bool profile_is_full(const struct profile *p)
{
    return has_too_many_nodes(p) || has_too_many_spans(p) || p->n_threads > max_threads(p);
}

int profile_enforce_tree_limits(struct profile *p)
{
    if (has_too_many_spans(p))
        profile_coarsen(p);
    return has_too_many_nodes(p) ? prune_rarest(p) : 0;
}

int profile_enforce_limits(struct profile *p)
{
    int r = profile_enforce_tree_limits(p);

    return r < 0 || p->n_threads <= max_threads(p) ? r : fold_threads(p, max_threads(p) / FOLD_SHARE);
}

int profile_shrink(struct profile *p)
{
    profile_coarsen(p);
    return prune_rarest(p);
}

const struct known_keys *profile_known_keys(const struct profile *p)
{
    return &p->index->keys;
}

static int profile_find_node(struct profile *p, const struct trace *trace, uint32_t root, uint32_t *ret_node)
{
    struct profile_index *index = p->index;
    size_t slot = trace->key % KNOWN_KEYS;
    uint32_t node = root;
    int r;

    if (trace->frames == NULL) {
        if (!known_keys_have(&index->keys, trace->key))
            return ERR_INTERNAL;
        *ret_node = index->key_nodes[slot];
        return 0;
    }
    r = profile_descend(p, trace, &node);
    if (r < 0)
        return r;
    if (trace->key != 0) {
        index->keys.slots[slot] = trace->key;
        index->key_nodes[slot] = node;
    }
    *ret_node = node;
    return 0;
}

#define STATE(text)                                                                                                    \
    {                                                                                                                  \
        .name = (text), .filename = "", .short_filename = ""                                                           \
    }

static const struct func profile_states[TRACE_STATES] = {
    [TRACE_RUNNING] = STATE("[running]"),
    [TRACE_WAITING_FOR_CORE] = STATE("[waiting for a core]"),
    [TRACE_WAITING_FOR_GIL] = STATE("[waiting for the GIL]"),
    [TRACE_WAITING_FOR_DISK] = STATE("[waiting for the disk]"),
    [TRACE_SLEEPING] = STATE("[sleeping]"),
    [TRACE_WAITING_FOR_LOCK] = STATE("[waiting for a lock]"),
    [TRACE_WAITING_FOR_EVENTS] = STATE("[waiting for events]"),
    [TRACE_WAITING_FOR_IO] = STATE("[waiting for I/O]"),
    [TRACE_WAITING_FOR_CHILD] = STATE("[waiting for a child process]"),
    [TRACE_STOPPED] = STATE("[stopped]"),
    [TRACE_BLOCKED] = STATE("[blocked in another system call]"),
    [TRACE_TASK_READY] = STATE("[waiting for the event loop]"),
    [TRACE_TASK_AWAITS_TASK] = STATE("[waiting for a task]"),
    [TRACE_TASK_AWAITS_EVENT] = STATE("[waiting for an event]"),
    [TRACE_TASK_AWAITS_QUEUE] = STATE("[waiting for a queue]"),
    [TRACE_TASK_AWAITS_THREAD] = STATE("[waiting for a thread]"),
    [TRACE_TASK_AWAITS_FUTURE] = STATE("[waiting for a future]"),
    [TRACE_TASK_WAITS] = STATE("[waiting]"),
};

/* The state as if it were a function that the innermost frame has called. */
static int profile_state_child(struct profile *p, enum trace_state state, uint32_t *node)
{
    uint32_t frame;
    int r = profile_frame_intern(p, &profile_states[state], 0, &frame);

    return r < 0 ? r : profile_child(p, *node, frame, node);
}

int profile_add_unattributed(struct profile *p, uint64_t ns)
{
    static const struct func unattributed = STATE("[unattributed CPU time]");
    uint32_t frame, node;
    int r = profile_frame_intern(p, &unattributed, 0, &frame);

    if (r == 0)
        r = profile_child(p, 0, frame, &node);
    if (r < 0)
        return r;
    p->nodes[node].self += ns;
    p->total += ns;
    return 0;
}

int profile_add(struct profile *p, const struct trace *trace, uint64_t time_ns)
{
    uint64_t value = p->options.measure != NULL ? profile_weight(p, trace) : 1;
    struct profile_thread *thread;
    uint32_t node;
    int r;

    if (trace->n_frames == 0)
        return 0;
    r = profile_thread_find(p, trace, &thread);
    if (r < 0)
        return r;
    r = profile_find_node(p, trace, thread->root, &node);
    if (r == 0 && p->options.by_state)
        r = profile_state_child(p, trace->state, &node);
    if (r == 0 && p->options.timeline)
        r = profile_span_add(p, thread, node, trace, time_ns);
    if (r < 0)
        return r;
    p->nodes[node].self += value;
    p->nodes[node].samples++;
    thread->total += value;
    p->total += value;
    p->samples++;
    return 0;
}

static int compare_addresses(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct proc_info *const *)a,
              y = (uintptr_t) * (const struct proc_info *const *)b;

    return (x > y) - (x < y);
}

int profile_list_processes(const struct profile *p, const struct proc_info ***ret, size_t *ret_n)
{
    const struct proc_info **list = calloc(p->n_threads + p->n_frames + 1, sizeof(struct proc_info *));
    size_t n = 0;

    if (list == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < p->n_threads; i++)
        list[n++] = p->threads[i].process;
    for (size_t i = 0; i < p->n_frames; i++)
        if (p->frames[i].process != NULL)
            list[n++] = p->frames[i].process;
    qsort(list, n, sizeof(*list), compare_addresses);
    *ret = list;
    *ret_n = n;
    return 0;
}

struct profile *profile_new(const struct profile_options *options)
{
    struct profile *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return NULL;
    p->options = *options;
    p->index = calloc(1, sizeof(*p->index));
    if (p->index == NULL || grow_array((void **)&p->nodes, &p->index->cap_nodes, 1, sizeof(*p->nodes)) < 0)
        return profile_free(p);
    p->nodes[0] = (struct profile_node){.frame = HASH_TABLE_NONE};
    p->n_nodes = 1;
    return p;
}

struct profile *profile_free(struct profile *p)
{
    if (p == NULL)
        return NULL;
    for (size_t i = 0; i < p->n_frames; i++)
        free(p->frames[i].label);
    for (size_t i = 0; i < p->n_threads; i++)
        free(p->threads[i].spans);
    if (p->index != NULL) {
        hash_table_free(&p->index->nodes);
        hash_table_free(&p->index->frames);
        hash_table_free(&p->index->threads);
    }
    free(p->index);
    free(p->nodes);
    free(p->frames);
    free(p->threads);
    free(p);
    return NULL;
}

int profile_path_fill(struct profile_path *path, const struct profile *p, uint32_t node)
{
    size_t n = 0;

    for (uint32_t i = node; i != 0 && p->frames[p->nodes[i].frame].label == NULL; i = p->nodes[i].parent)
        n++;
    if (n > path->cap && grow_array((void **)&path->nodes, &path->cap, n, sizeof(*path->nodes)) < 0)
        return ERR_NOMEM;
    path->n = n;
    for (uint32_t i = node; n > 0; i = p->nodes[i].parent)
        path->nodes[--n] = i;
    return 0;
}

void profile_path_free(struct profile_path *path)
{
    free(path->nodes);
    *path = (struct profile_path){0};
}
