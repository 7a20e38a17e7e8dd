/*
 * Groups the threads of many processes by their stacks. Pure: traces in, sections out.
 *
 *     struct groups *g = groups_new();
 *     groups_add_member(g, &(struct group_member){.pid = 12, .rank = 3, .rank_variable = "RANK"}, &member);
 *     groups_add_thread(g, member, &trace, NULL);
 *     groups_finish(g);
 *     for (size_t i = 0; i < g->n_sections; i++)
 *         groups_view(g, i, g->rounds, &view);      // the prefix tree of a section, in order of display
 *     g = groups_free(g);
 *
 * A section has the threads that are compared with each other: those with the same role in processes of the same kind. Two frames are
 * equal if function, file and line are.
 */
#ifndef PROFILE_GROUPS_H
#define PROFILE_GROUPS_H

#include "base/hash_table.h"
#include "sample/trace.h"

#define GROUPS_MAX_NODES   4000000 /* distinct (parent, frame); a stack that needs more is cut */
#define GROUPS_MAX_THREADS 2000000 /* of all rounds */
#define GROUPS_MAX_MEMBERS 1000000
#define GROUPS_MAX_ROUNDS  1000
#define GROUPS_TEXT_MAX    4096 /* bytes of a name; the rest is cut off */

/* What a process is, and so which others it is compared with. */
enum group_kind {
    GROUP_RANK,
    GROUP_CHILD, /* a descendant of a rank that inherited its number, such as a worker of a data loader */
    GROUP_RAY,
    GROUP_DASK,
    GROUP_PROCESS,
};

/* A process. Strings are copied. */
struct group_member {
    const char *host;   /* NULL: unknown */
    const char *source; /* the file that it is from; NULL: a running process */
    pid_t pid;
    pid_t parent; /* 0: unknown */
    const char *command;
    int64_t rank;
    const char *rank_variable; /* where the rank is from: "RANK"; NULL: it has none */
    /* Results of groups_finish. */
    enum group_kind kind;
    uint32_t level; /* of GROUP_PROCESS: how many of its ancestors are members */
    const char *
        name; /* of a Ray worker, its task or actor: "ray::Trainer"; of a Dask worker, its name; "resource tracker"; NULL: none */
};

struct group_frame {
    struct func func;
    int line;
};

/* A frame called from node `parent`, which has a lower index. Node 0 is the root. */
struct group_node {
    uint32_t parent;
    uint32_t frame;
    uint32_t depth;
};

enum group_state { GROUP_IDLE, GROUP_WAITS_FOR_GIL, GROUP_ACTIVE, GROUP_ACTIVE_GIL, GROUP_STATES };

/* A thread in one round. */
struct group_thread {
    uint32_t member;
    uint32_t section;
    uint32_t node; /* of its innermost frame */
    uint32_t round;
    uint64_t id; /* the same in each round */
    const char *role;
    bool is_main;
    bool has_runs;
    uint64_t runs;   /* how often the kernel has put it on a CPU, */
    uint64_t run_ns; /* and for how long */
    enum group_state state;
};

struct group_section {
    enum group_kind kind;
    uint32_t level;   /* a parent and its children are not compared */
    const char *name; /* what the members have in common: "ray::Trainer"; NULL: nothing */
    const char *role; /* of the threads: "MainThread", "ThreadPoolExecutor-N_N" */
    bool is_main;
    uint32_t first, n;  /* its threads, sorted by round, member and ID */
    uint32_t n_threads; /* in the last round */
    uint32_t n_members;
};

struct groups {
    struct group_member *members;
    size_t n_members, cap_members;
    struct group_thread *threads;
    size_t n_threads, cap_threads;
    struct group_node *nodes;
    size_t n_nodes, cap_nodes;
    struct group_frame *frames;
    size_t n_frames, cap_frames;
    struct group_section *sections; /* main threads first, then the largest */
    size_t n_sections, cap_sections;
    uint32_t rounds;  /* the last round, from 1; 0: there is none */
    size_t cut;       /* stacks that lack inner frames */
    size_t n_hosts;   /* more than 1: a PID alone may be ambiguous */
    size_t n_present; /* members with a thread in the last round */
    struct groups_index *index;
};

/* What is known of a thread beyond its trace. */
struct group_run {
    bool known;
    uint64_t count; /* how often the kernel has put it on a CPU, */
    uint64_t ns;    /* and for how long */
};

struct groups *groups_new(void); /* NULL if out of memory */
struct groups *groups_free(struct groups *g);

/* Begins the next round; the first member begins the first one. */
void groups_next_round(struct groups *g);
/* Removes the threads of the current round and returns to the one before, which there must be. */
void groups_drop_round(struct groups *g);

/* Finds or adds a process; host, source, PID and rank identify it, because containers may share the host's name. A running
 * process is known by its PID alone. 0, ERR_NOMEM or ERR_BOUNDS. */
int groups_add_member(struct groups *g, const struct group_member *member, uint32_t *ret);

/* Adds a thread of the current round. `run` may be NULL. 0, ERR_NOMEM or ERR_BOUNDS. */
int groups_add_thread(struct groups *g, uint32_t member, const struct trace *trace, const struct group_run *run);

/* True if its threads should be in the same place: one of each process. Those of a pool do different work. */
bool groups_is_comparable(const struct group_section *s);

/* Decides what each member is, and makes the sections. 0 or ERR_NOMEM. */
int groups_finish(struct groups *g);

/* A node of the prefix tree of a section. */
struct group_step {
    uint32_t node;
    uint32_t up;         /* the step of its caller; the root is its own */
    uint32_t n_children; /* steps that it calls */
    uint32_t first, n;   /* threads that have it in their stack: positions in group_view.threads */
    uint32_t self;       /* the first of them, whose innermost frame it is */
};

/* Callers come before callees, and larger groups before smaller ones. Step 0 is the root, which has no frame. */
struct group_view {
    struct group_step *steps;
    size_t n_steps;
    const struct group_thread **threads;
    size_t n_threads;
};

/* The threads of a section in a round, from 1. 0 or ERR_NOMEM. */
int groups_view(struct groups *g, size_t section, uint32_t round, struct group_view *ret);
void group_view_free(struct group_view *view);

/* Only of a section that groups_is_comparable: the step that at least two thirds of the threads share, and no deeper one does: those that are not in it are elsewhere. 0: all are
 * in the same place, they have no place in common, or there are fewer than three. */
uint32_t group_view_common(const struct group_view *view);

/* Where a thread is: the innermost frame of its stack, and the innermost one that is in no library. If that cannot be known, because
 * there are no full paths, the second is the outermost frame that is not in the stack of node `other`, too. It may be the same as
 * the first one, or NULL; both are NULL for node 0. */
struct group_place {
    const struct group_frame *frame, *own;
};
struct group_place groups_place(const struct groups *g, uint32_t node, uint32_t other);

/* What the threads of a section did between the rounds. */
enum group_move {
    GROUP_MOVED,       /* the stacks differ */
    GROUP_SAME_STACK,  /* the same stack in each round */
    GROUP_DID_NOT_RUN, /* the same, and the kernel has not run it in between */
    GROUP_MISSED,      /* not seen in each round */
    GROUP_MOVES
};

struct group_history {
    const struct group_thread *thread; /* in the last round in which it was seen */
    enum group_move move;
    uint32_t n_elsewhere; /* rounds in which it was elsewhere than most, if that can be compared */
};

/* One for each thread of a section. The caller frees *ret. 0 or ERR_NOMEM. */
int groups_history(struct groups *g, size_t section, struct group_history **ret, size_t *ret_n);

#endif
