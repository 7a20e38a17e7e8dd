/*
 * Collects members and threads: a prefix tree of all stacks, each distinct frame once. groups_finish makes the sections; group_view.c
 * looks at one of them.
 */
#include "profile/groups.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "profile/groups_private.h"
#include "profile/library.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define ROLE_MAX     80
#define MAIN_ROLE    "MainThread"
#define UNNAMED_ROLE "thread without a name"
#define UNPLACED     UINT32_MAX

struct groups *groups_new(void)
{
    struct groups *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->index = calloc(1, sizeof(*g->index));
    if (g->index)
        g->index->texts = intern_new();
    if (!g->index || !g->index->texts || grow_array((void **)&g->nodes, &g->cap_nodes, 1, sizeof(*g->nodes)) < 0)
        return groups_free(g);
    g->n_nodes = 1;
    return g;
}

struct groups *groups_free(struct groups *g)
{
    if (!g)
        return NULL;
    if (g->index) {
        intern_free(g->index->texts);
        hash_table_free(&g->index->members);
        hash_table_free(&g->index->pids);
        hash_table_free(&g->index->nodes);
        hash_table_free(&g->index->frames);
        free(g->index->work);
        free(g->index);
    }
    free(g->members);
    free(g->threads);
    free(g->nodes);
    free(g->frames);
    free(g->sections);
    free(g);
    return NULL;
}

void groups_next_round(struct groups *g)
{
    g->rounds++;
}

void groups_drop_round(struct groups *g)
{
    while (g->n_threads && g->threads[g->n_threads - 1].round == g->rounds)
        g->n_threads--;
    g->rounds--;
}

/* ---- members ---- */

int groups_keep_text(struct groups *g, const char *s, size_t len, const char **to)
{
    if (len > GROUPS_TEXT_MAX)
        for (len = GROUPS_TEXT_MAX; len > 0 && ((unsigned char)s[len] & 0xc0) == 0x80;)
            len--; /* not in the middle of a character */
    *to = intern_bytes(g->index->texts, s, len);
    if (!*to)
        return ERR_NOMEM;
    return intern_is_full(*to) ? ERR_BOUNDS : 0;
}

/* A copy in *to; NULL stays NULL. */
static int copy_text(struct groups *g, const char *s, const char **to)
{
    *to = NULL;
    return s ? groups_keep_text(g, s, strlen(s), to) : 0;
}

static uint64_t pid_hash(const struct group_member *m)
{
    return hash_mix(hash_mix((uintptr_t)m->host, (uintptr_t)m->source), (uint64_t)m->pid);
}

static uint64_t member_hash(const struct group_member *m)
{
    return m->rank_variable ? hash_mix(hash_mix(pid_hash(m), (uintptr_t)m->rank_variable), (uint64_t)m->rank)
                            : pid_hash(m);
}

static bool is_same_pid(const struct group_member *a, const struct group_member *b)
{
    return a->pid == b->pid && a->host == b->host && a->source == b->source;
}

static bool is_same_rank(const struct group_member *a, const struct group_member *b)
{
    return a->rank_variable == b->rank_variable && (!a->rank_variable || a->rank == b->rank);
}

/* The member with this PID and rank; HASH_TABLE_NONE: there is none. */
static uint32_t find_member(const struct groups *g, const struct group_member *key)
{
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&g->index->members, member_hash(key), &step)) != HASH_TABLE_NONE)
        if (is_same_pid(&g->members[at], key) && is_same_rank(&g->members[at], key))
            break;
    return at;
}

/* The first member with this PID, whatever its rank. */
static uint32_t find_pid(const struct groups *g, const struct group_member *key)
{
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&g->index->pids, pid_hash(key), &step)) != HASH_TABLE_NONE)
        if (is_same_pid(&g->members[at], key))
            break;
    return at;
}

const struct group_member *groups_parent(const struct groups *g, const struct group_member *m)
{
    struct group_member key = *m;
    uint32_t at;

    key.pid = m->parent;
    at = m->parent ? find_member(g, &key) : HASH_TABLE_NONE;
    if (m->parent && at == HASH_TABLE_NONE)
        at = find_pid(g, &key);
    return at == HASH_TABLE_NONE ? NULL : &g->members[at];
}

int groups_add_member(struct groups *g, const struct group_member *member, uint32_t *ret)
{
    struct group_member m = *member;
    uint32_t at;
    int r = copy_text(g, member->host, &m.host);

    if (r == 0)
        r = copy_text(g, member->source, &m.source);
    if (r == 0)
        r = copy_text(g, member->rank_variable, &m.rank_variable);
    if (r < 0)
        return r;
    at = m.host || m.source ? find_member(g, &m) : find_pid(g, &m);
    if (at != HASH_TABLE_NONE) {
        *ret = at;
        return 0;
    }
    if (g->n_members == GROUPS_MAX_MEMBERS)
        return ERR_BOUNDS;
    r = copy_text(g, member->command ? member->command : "", &m.command);
    if (r == 0)
        r = hash_table_reserve(&g->index->pids, 1);
    if (r == 0)
        r = hash_table_reserve_item(&g->index->members, (void **)&g->members, &g->cap_members, g->n_members, sizeof(m));
    if (r < 0)
        return r;
    hash_table_add(&g->index->members, member_hash(&m), (uint32_t)g->n_members);
    if (find_pid(g, &m) == HASH_TABLE_NONE)
        hash_table_add(&g->index->pids, pid_hash(&m), (uint32_t)g->n_members);
    *ret = (uint32_t)g->n_members;
    g->members[g->n_members++] = m;
    return 0;
}

/* ---- stacks ---- */

static int find_frame(struct groups *g, const struct frame *frame, uint32_t *ret)
{
    const char *short_filename = frame->func->short_filename ? frame->func->short_filename : frame->func->filename;
    struct group_frame f = {.line = frame->line};
    size_t step = 0;
    uint64_t hash;
    uint32_t at;
    int r = copy_text(g, frame->func->name ? frame->func->name : "?", &f.func.name);

    if (r == 0)
        r = copy_text(g, frame->func->filename ? frame->func->filename : "", &f.func.filename);
    if (r == 0)
        r = copy_text(g, short_filename ? short_filename : "", &f.func.short_filename);
    if (r == 0)
        r = copy_text(g, frame->func->module, &f.func.module);
    if (r < 0)
        return r;
    hash = hash_mix(hash_mix((uintptr_t)f.func.name, (uintptr_t)f.func.short_filename), (uint64_t)f.line);
    while ((at = hash_table_next(&g->index->frames, hash, &step)) != HASH_TABLE_NONE) {
        const struct group_frame *x = &g->frames[at];

        /* Not the full path: the same program may be in different directories of different machines. */
        if (x->line == f.line && x->func.name == f.func.name && x->func.short_filename == f.func.short_filename) {
            *ret = at;
            return 0;
        }
    }
    r = hash_table_reserve_item(&g->index->frames, (void **)&g->frames, &g->cap_frames, g->n_frames, sizeof(f));
    if (r < 0)
        return r;
    hash_table_add(&g->index->frames, hash, (uint32_t)g->n_frames);
    *ret = (uint32_t)g->n_frames;
    g->frames[g->n_frames++] = f;
    return 0;
}

/* 0, ERR_NOMEM, or ERR_BOUNDS if there are too many nodes. */
static int find_node(struct groups *g, uint32_t parent, uint32_t frame, uint32_t *ret)
{
    uint64_t hash = hash_mix(parent, frame);
    size_t step = 0;
    uint32_t at;
    int r;

    while ((at = hash_table_next(&g->index->nodes, hash, &step)) != HASH_TABLE_NONE)
        if (g->nodes[at].parent == parent && g->nodes[at].frame == frame) {
            *ret = at;
            return 0;
        }
    if (g->n_nodes == GROUPS_MAX_NODES)
        return ERR_BOUNDS;
    r = hash_table_reserve_item(&g->index->nodes, (void **)&g->nodes, &g->cap_nodes, g->n_nodes, sizeof(*g->nodes));
    if (r < 0)
        return r;
    hash_table_add(&g->index->nodes, hash, (uint32_t)g->n_nodes);
    *ret = (uint32_t)g->n_nodes;
    g->nodes[g->n_nodes++] = (struct group_node){.parent = parent, .frame = frame, .depth = g->nodes[parent].depth + 1};
    return 0;
}

/* From the outermost frame to the innermost. */
static int find_stack(struct groups *g, const struct trace *trace, uint32_t *ret)
{
    uint32_t node = 0, frame;
    int r = 0;

    for (size_t i = trace->n_frames; i-- > 0 && r == 0;) {
        r = find_frame(g, &trace->frames[i], &frame);
        if (r < 0)
            return r;
        r = find_node(g, node, frame, &node);
    }
    g->cut += r == ERR_BOUNDS;
    *ret = node;
    return r == ERR_BOUNDS ? 0 : r;
}

/* ---- threads ---- */

/* Thread names differ by numbers: each becomes N, so that equal threads of different processes have one role. */
static void write_role(const char *name, char role[ROLE_MAX])
{
    size_t n = 0;

    while (*name && n + 1 < ROLE_MAX) {
        bool digit = isdigit((unsigned char)*name);

        role[n++] = digit ? 'N' : *name;
        do
            name++;
        while (digit && isdigit((unsigned char)*name));
    }
    while (*name && n > 0 && ((unsigned char)role[n - 1] & 0xc0) == 0x80)
        n--; /* not in the middle of a character */
    if (*name && n > 0 && (unsigned char)role[n - 1] >= 0xc0)
        n--;
    role[n] = '\0';
}

int groups_add_thread(struct groups *g, uint32_t member, const struct trace *trace, const struct group_run *run)
{
    pid_t pid = g->members[member].pid;
    bool is_main = (trace->os_thread_id > 0 && trace->os_thread_id == pid) ||
                   (trace->thread_name && strcmp(trace->thread_name, MAIN_ROLE) == 0);
    struct group_thread t = {.member = member,
                             .section = UNPLACED,
                             .round = g->rounds ? g->rounds : 1,
                             .id = trace->os_thread_id > 0 ? (uint64_t)trace->os_thread_id : trace->thread_id,
                             .is_main = is_main,
                             .has_runs = run && run->known,
                             .runs = run ? run->count : 0,
                             .run_ns = run ? run->ns : 0,
                             .state = trace->waits_for_gil ? GROUP_WAITS_FOR_GIL
                                      : !trace->active     ? GROUP_IDLE
                                      : trace->owns_gil    ? GROUP_ACTIVE_GIL
                                                           : GROUP_ACTIVE};
    char role[ROLE_MAX] = MAIN_ROLE;
    int r;

    if (g->n_threads == GROUPS_MAX_THREADS)
        return ERR_BOUNDS;
    if (!is_main)
        write_role(trace->thread_name ? trace->thread_name : UNNAMED_ROLE, role);
    r = copy_text(g, role, &t.role);
    if (r == 0)
        r = find_stack(g, trace, &t.node);
    if (r == 0)
        r = grow_array((void **)&g->threads, &g->cap_threads, g->n_threads + 1, sizeof(t));
    if (r < 0)
        return r;
    g->rounds = t.round;
    g->threads[g->n_threads++] = t;
    return 0;
}

/* ---- sections ---- */

static int find_section(struct groups *g, struct hash_table *table, const struct group_thread *t, uint32_t *ret)
{
    const struct group_member *m = &g->members[t->member];
    struct group_section s = {
        .kind = m->kind, .level = m->level, .name = m->kind == GROUP_DASK ? NULL : m->name, .role = t->role};
    uint64_t hash = hash_mix(hash_mix(hash_mix(s.kind, s.level), (uintptr_t)s.name), (uintptr_t)s.role);
    size_t step = 0;
    uint32_t at;
    int r;

    while ((at = hash_table_next(table, hash, &step)) != HASH_TABLE_NONE)
        if (g->sections[at].kind == s.kind && g->sections[at].level == s.level && g->sections[at].name == s.name &&
            g->sections[at].role == s.role) {
            *ret = at;
            return 0;
        }
    s.is_main = t->is_main;
    s.first = (uint32_t)g->n_sections; /* its place, until they are sorted */
    r = hash_table_reserve_item(table, (void **)&g->sections, &g->cap_sections, g->n_sections, sizeof(s));
    if (r < 0)
        return r;
    hash_table_add(table, hash, (uint32_t)g->n_sections);
    *ret = (uint32_t)g->n_sections;
    g->sections[g->n_sections++] = s;
    return 0;
}

static int compare_sections(const void *a, const void *b)
{
    const struct group_section *x = a, *y = b;

    if (x->is_main != y->is_main)
        return y->is_main - x->is_main;
    if (x->n_threads != y->n_threads)
        return x->n_threads < y->n_threads ? 1 : -1;
    if (x->kind != y->kind)
        return (int)x->kind - (int)y->kind;
    return (x->first > y->first) - (x->first < y->first);
}

static int compare_threads(const void *a, const void *b)
{
    const struct group_thread *x = a, *y = b;

    if (x->section != y->section)
        return x->section < y->section ? -1 : 1;
    if (x->round != y->round)
        return x->round < y->round ? -1 : 1;
    if (x->member != y->member)
        return x->member < y->member ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Sorts the sections, then the threads by them. */
static int sort_sections(struct groups *g)
{
    uint32_t *place = calloc(g->n_sections + 1, sizeof(*place));

    if (!place)
        return ERR_NOMEM;
    if (g->n_sections)
        qsort(g->sections, g->n_sections, sizeof(*g->sections), compare_sections);
    for (size_t i = 0; i < g->n_sections; i++)
        place[g->sections[i].first] = (uint32_t)i;
    for (size_t i = 0; i < g->n_threads; i++)
        g->threads[i].section = place[g->threads[i].section];
    free(place);
    if (g->n_threads)
        qsort(g->threads, g->n_threads, sizeof(*g->threads), compare_threads);
    for (size_t i = g->n_threads; i-- > 0;) {
        struct group_thread *t = &g->threads[i];
        struct group_section *s = &g->sections[t->section];
        bool last = i + 1 == g->n_threads || t[1].section != t->section || t[1].round != t->round;

        s->first = (uint32_t)i;
        s->n++;
        s->n_members += t->round == g->rounds && (last || t[1].member != t->member);
    }
    return 0;
}

static int count_present(struct groups *g)
{
    bool *seen = calloc(g->n_members + 1, sizeof(*seen));

    if (!seen)
        return ERR_NOMEM;
    for (size_t i = 0; i < g->n_threads; i++)
        if (g->threads[i].round == g->rounds && !seen[g->threads[i].member]) {
            seen[g->threads[i].member] = true;
            g->n_present++;
        }
    free(seen);
    return 0;
}

int groups_finish(struct groups *g)
{
    struct hash_table table = {0};
    int r = groups_classify(g);

    for (size_t i = 0; i < g->n_threads && r == 0; i++) {
        r = find_section(g, &table, &g->threads[i], &g->threads[i].section);
        if (r == 0)
            g->sections[g->threads[i].section].n_threads += g->threads[i].round == g->rounds;
    }
    hash_table_free(&table);
    if (r == 0)
        r = sort_sections(g);
    if (r == 0)
        r = count_present(g);
    if (r == 0 && !(g->index->work = calloc(g->n_nodes, sizeof(*g->index->work))))
        r = ERR_NOMEM;
    return r;
}

/* The outermost frame of `node` that is not in the stack of `other`; 0: none. */
static uint32_t first_apart(const struct groups *g, uint32_t node, uint32_t other)
{
    uint32_t apart = 0;

    while (g->nodes[other].depth > g->nodes[node].depth)
        other = g->nodes[other].parent;
    while (node != other) {
        apart = node;
        if (g->nodes[other].depth == g->nodes[node].depth)
            other = g->nodes[other].parent;
        node = g->nodes[node].parent;
    }
    return apart;
}

struct group_place groups_place(const struct groups *g, uint32_t node, uint32_t other)
{
    struct group_place place = {0};
    uint32_t apart = first_apart(g, node, other);

    for (uint32_t at = node; at != 0 && !place.own; at = g->nodes[at].parent) {
        const struct group_frame *f = &g->frames[g->nodes[at].frame];

        if (!place.frame)
            place.frame = f;
        if (*f->func.filename != '/')
            break;
        if (library_owner(&f->func) == LIBRARY_NOT)
            place.own = f;
    }
    if (!place.own && apart)
        place.own = &g->frames[g->nodes[apart].frame];
    return place;
}
