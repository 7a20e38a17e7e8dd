/*
 * Keeps the table of threads up to date. An update is cheap unless threads start, end or get a name.
 */
#include "sample/thread_table.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "base/utf8.h"
#include "target/core_file.h"
#include "target/proc.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_AGE_NS (5 * NS_PER_S)
#define MAX_WANTED   8 /* if more names are missing, read all */
/* A thread sets its name when it first runs. Look for missing names again after this time, then after ten times as
 * long, and so on. Threads created by C code never get a name. */
#define NAMES_RETRY_NS  (10 * NS_PER_MS)
#define NAMES_TRIES     3
#define MAX_KERNEL_NAME 64
#define LEFT_MIN        64

/* Threads that have no name yet. */
struct unnamed_threads {
    uint64_t ids[MAX_WANTED]; /* pthread_t */
    size_t n;
    bool is_new; /* at least one thread was not listed before */
};

/* Forgets threads that have ended. */
static void drop_ended(struct thread_table *t, pid_t pid)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->n_left; i++) {
        struct proc_stat st;

        if (proc_stat_read(pid, t->left[i].tid, &st) == 0 && st.start_time == t->left[i].start_time)
            t->left[kept++] = t->left[i];
    }
    t->n_left = kept;
}

/* Remembers how much of a thread's time has been attributed, in case it calls Python again. Best effort. */
static void leave_thread(struct thread_table *t, const struct sampled_thread *th, pid_t pid)
{
    if (!t->since_ticks || !th->os.tid || th->ended)
        return;
    if (t->n_left == t->cap_left && t->n_left >= LEFT_MIN)
        drop_ended(t, pid);
    if (grow_array((void **)&t->left, &t->cap_left, t->n_left + 1, sizeof(*t->left)) == 0)
        t->left[t->n_left++] = (struct left_thread){th->os.tid, th->start_time, th->time};
}

static bool find_left(struct thread_table *t, struct sampled_thread *th)
{
    for (size_t i = 0; i < t->n_left; i++)
        if (t->left[i].tid == th->os.tid && t->left[i].start_time == th->start_time) {
            th->time = t->left[i].time;
            th->time.is_new = th->time.was_elsewhere = true;
            t->left[i] = t->left[--t->n_left];
            return true;
        }
    return false;
}

static void thread_begin_time(struct thread_table *t, struct sampled_thread *th, pid_t pid)
{
    struct proc_stat st;

    if (!t->since_ticks || !th->os.tid || proc_stat_read(pid, th->os.tid, &st) < 0)
        return;
    th->start_time = st.start_time;
    if (!find_left(t, th))
        thread_time_begin(&th->time, &th->os.task, st.start_time >= t->since_ticks, clock_now_ns());
}

static int compare_tids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

bool tid_list_has(const struct tid_list *l, pid_t tid)
{
    return l->n && bsearch(&tid, l->items, l->n, sizeof(tid), compare_tids);
}

int thread_table_tids(const struct thread_table *t, struct tid_list *ret)
{
    free(ret->items);
    *ret = (struct tid_list){.items = calloc(t->n + 1, sizeof(pid_t))};
    if (!ret->items)
        return ERR_NOMEM;
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].os.tid)
            ret->items[ret->n++] = t->items[i].os.tid;
    ret->complete = ret->n == t->n;
    qsort(ret->items, ret->n, sizeof(pid_t), compare_tids);
    return 0;
}

/* The name may contain any bytes. */
const char *thread_kernel_name(struct intern *names, pid_t pid, pid_t tid)
{
    char *text = NULL, clean[3 * MAX_KERNEL_NAME];
    const char *name = NULL;
    size_t len = 0;

    if (proc_read_file(pid, tid, "comm", &text, &len) == 0) {
        len -= len && text[len - 1] == '\n';
        if (len > MAX_KERNEL_NAME)
            len = MAX_KERNEL_NAME;
        name = intern_bytes(names, clean, utf8_clean(text, len, clean));
    }
    free(text);
    return name;
}

/* Frees what a slot owns. */
static void thread_drop(struct sampled_thread *th)
{
    os_thread_close(&th->os);
    frames_state_free(&th->frames);
    read_plan_free(&th->plan);
}

void thread_table_free(struct thread_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        thread_drop(&t->items[i]);
    free(t->items);
    hash_table_free(&t->by_tstate);
    free(t->names.items);
    free(t->tids);
    free(t->left);
    *t = (struct thread_table){.core = t->core, .kernel_names = t->kernel_names, .since_ticks = t->since_ticks};
}

struct sampled_thread *thread_table_find(struct thread_table *t, addr_t tstate)
{
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&t->by_tstate, hash_mix(0, tstate), &step)) != HASH_TABLE_NONE)
        if (t->items[at].tstate == tstate)
            return &t->items[at];
    return NULL;
}

/* The entry of a thread; a new one, for which there is room, is empty. */
static struct sampled_thread *table_entry(struct thread_table *t, addr_t tstate)
{
    struct sampled_thread *k = thread_table_find(t, tstate);

    if (!k) {
        k = &t->items[t->n];
        *k = (struct sampled_thread){0};
        hash_table_add(&t->by_tstate, hash_mix(0, tstate), (uint32_t)t->n++);
    }
    return k;
}

/* Forgets the threads that were not seen in this round. */
static void table_drop_unseen(struct thread_table *t, pid_t pid)
{
    size_t kept = 0;

    hash_table_clear(&t->by_tstate);
    for (size_t i = 0; i < t->n; i++) {
        if (t->items[i].seen != t->round) {
            leave_thread(t, &t->items[i], pid);
            thread_drop(&t->items[i]);
            continue;
        }
        if (kept != i)
            t->items[kept] = t->items[i];
        hash_table_add(&t->by_tstate, hash_mix(0, t->items[kept].tstate), (uint32_t)kept);
        kept++;
    }
    t->n = kept;
}

/* Reads all thread ids, in the target's pid namespace and in ours. */
static int read_tids(struct thread_table *t, pid_t pid, bool in_pid_ns)
{
    pid_t *tids;
    size_t n;
    int r = proc_tasks_read(pid, &tids, &n);

    t->n_tids = 0;
    t->tids_round = t->round;
    if (r < 0)
        return r;
    r = grow_array((void **)&t->tids, &t->cap_tids, n, sizeof(*t->tids));
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct proc_status st = {.ns_pid = tids[i]};

        if (!in_pid_ns || proc_status_read(pid, tids[i], &st) == 0)
            t->tids[t->n_tids++] = (struct tid_pair){st.ns_pid, tids[i]};
    }
    free(tids);
    return r;
}

static void search_tid_offset(struct thread_table *t, const struct python *py, pid_t pid, bool in_pid_ns,
                              const struct py_threads *threads)
{
    pid_t *inner;

    t->tid_searched = true;
    t->tid_offset = NO;
    if (read_tids(t, pid, in_pid_ns) < 0 || !(inner = calloc(t->n_tids + 1, sizeof(*inner))))
        return;
    for (size_t i = 0; i < t->n_tids; i++)
        inner[i] = t->tids[i].inner;
    t->tid_offset = threads_find_tid_offset(py, threads, inner, t->n_tids);
    log_debug("threads", "pid %d: kernel thread IDs are at offset %d of pthread_t", (int)pid, t->tid_offset);
    free(inner);
}

/* Reads the ids again, at most once per round, when `inner` is not among them. */
static pid_t tid_in_our_ns(struct thread_table *t, pid_t pid, pid_t inner)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < t->n_tids; i++)
            if (t->tids[i].inner == inner)
                return t->tids[i].outer;
        if (t->tids_round == t->round || read_tids(t, pid, true) < 0)
            break;
    }
    return 0;
}

/* The kernel's thread id in our pid namespace; 0 when unknown. */
static pid_t tid_of(struct thread_table *t, const struct python *py, pid_t pid, bool in_pid_ns,
                    const struct py_threads *threads, const struct py_thread *thread)
{
    uint64_t inner = thread->native_id;

    if (py->layout.ts_native_id == NO) {
        if (!t->tid_searched)
            search_tid_offset(t, py, pid, in_pid_ns, threads);
        inner = (uint64_t)threads_read_tid(py, thread->thread_id, t->tid_offset);
    }
    if (!inner || inner > INT32_MAX)
        return 0;
    return in_pid_ns ? tid_in_our_ns(t, pid, (pid_t)inner) : (pid_t)inner;
}

/*
 * A process that C code has forked, as uWSGI does, has its parent's tid in native_id, because Python does not know of the
 * fork. Only one thread survives a fork, and its tid is the pid. glibc stores that tid in the thread's struct pthread. If the
 * field does not match (another C library), Python and the kernel must both list exactly one thread.
 */
static pid_t tid_after_fork(struct thread_table *t, const struct python *py, pid_t pid, bool in_pid_ns,
                            const struct py_threads *threads, const struct py_thread *thread)
{
    pid_t tid = threads_read_glibc_tid(py, thread->thread_id);

    if (tid && in_pid_ns)
        tid = tid_in_our_ns(t, pid, tid);
    if (tid != pid && (threads->n > 1 || read_tids(t, pid, in_pid_ns) < 0 || t->n_tids > 1))
        return 0;
    return pid;
}

static bool is_same_thread(const struct sampled_thread *th, const struct py_thread *thread)
{
    return th->tstate && !th->ended && th->thread_id == thread->thread_id && th->native_id == thread->native_id &&
           th->interp == thread->interp;
}

/* In a core file, FS points to the thread control block, whose address is the pthread_t. */
static void thread_init_dead(struct sampled_thread *th, const struct core_file *core)
{
    const struct core_thread *thread = core_file_thread_by_base(core, th->thread_id);

    if (!thread && th->native_id && th->native_id <= INT32_MAX)
        thread = core_file_thread(core, (pid_t)th->native_id);
    th->os.dead = true;
    th->os.task = (struct task){TASK_NO_FILES};
    th->os.tid = thread ? thread->tid : 0;
    th->os.was_running = thread && core_file_was_active(core, thread);
}

static void thread_init(struct sampled_thread *th, pid_t pid, pid_t tid, const struct py_thread *thread)
{
    thread_drop(th);
    *th = (struct sampled_thread){.tstate = thread->tstate,
                                  .interp = thread->interp,
                                  .thread_id = thread->thread_id,
                                  .native_id = thread->native_id,
                                  .os.tid = tid};
    th->frames.interp = thread->interp;
    th->frames.thread_id = thread->thread_id;
    if (!tid)
        return;
    task_open(&th->os.task, pid, tid);
    if (th->os.task.stat_fd < 0) { /* no such thread, or out of file descriptors */
        struct task_look look;

        if (task_look(&th->os.task, &look) < 0) {
            task_close(&th->os.task);
            th->os.tid = 0;
        }
    }
}

bool thread_table_needs_update(const struct thread_table *t, uint64_t now)
{
    return t->names_retry_ns && now >= t->names_retry_ns;
}

static uint64_t names_wait_ns(const struct thread_table *t)
{
    uint64_t wait_ns = NAMES_RETRY_NS;

    for (unsigned i = 0; i < t->name_tries; i++)
        wait_ns *= 10;
    return wait_ns;
}

/* The main thread's is that of the process. */
static void read_kernel_name(const struct thread_table *t, pid_t pid, struct sampled_thread *th)
{
    const char *before = th->kernel_name;

    if (!t->kernel_names || !th->os.tid || th->os.tid == pid)
        return;
    th->kernel_name = thread_kernel_name(t->kernel_names, pid, th->os.tid);
    if (log_is_on(LOG_LEVEL_DEBUG) && th->kernel_name && th->kernel_name != before)
        log_changed(LOG_LEVEL_DEBUG, "threads", th->tstate, th->os.tid, "tid %d: named %s by the kernel",
                    (int)th->os.tid, th->kernel_name);
}

static int read_names(struct thread_table *t, const struct python *py, pid_t pid, const struct py_threads *threads,
                      const struct unnamed_threads *unnamed)
{
    uint64_t begin = clock_now_ns(), begin_cpu = clock_cpu_ns();
    bool expired = begin - t->names_read_ns > NAMES_AGE_NS, all = expired || unnamed->n > MAX_WANTED;
    addr_t last = 0;
    int r = 0;

    if (!expired && !unnamed->is_new && !thread_table_needs_update(t, begin))
        return 0;
    t->names.n = 0;
    t->names.wanted = all ? NULL : unnamed->ids;
    t->names.n_wanted = unnamed->n < MAX_WANTED ? unnamed->n : MAX_WANTED;
    t->name_tries = unnamed->is_new ? 0 : t->name_tries;
    t->names_retry_ns = 0;
    for (size_t i = 0; r == 0 && i < threads->n; i++) {
        /* Spend at most a second of CPU time, however many interpreters the target claims to have. */
        if (threads->items[i].interp != last && clock_cpu_ns() - begin_cpu < NS_PER_S)
            r = names_read(py, threads->items[i].interp, &t->names);
        last = threads->items[i].interp;
    }
    if (t->names.n)
        names_sort(&t->names);
    for (size_t i = 0; i < threads->n; i++) {
        struct sampled_thread *th = thread_table_find(t, threads->items[i].tstate);
        const char *name = names_find(&t->names, threads->items[i].interp, threads->items[i].thread_id);

        if (log_is_on(LOG_LEVEL_DEBUG) && th && name && th->name != name)
            log_changed(LOG_LEVEL_DEBUG, "threads", th->tstate, th->os.tid, "tid %d: named %s", (int)th->os.tid, name);
        if (th && name)
            th->name = name;
        if (th && !th->name)
            read_kernel_name(t, pid, th);
        if (th && !th->name && t->name_tries < NAMES_TRIES)
            t->names_retry_ns = begin + names_wait_ns(t);
    }
    t->name_tries++;
    t->names.wanted = NULL;
    t->names_read_ns = all ? clock_now_ns() : t->names_read_ns;
    return r;
}

int thread_table_update(struct thread_table *t, const struct python *py, pid_t pid, const struct py_threads *threads)
{
    bool in_pid_ns = false, status_read = false;
    struct unnamed_threads unnamed = {0};
    int r;

    t->round++;
    log_changed(LOG_LEVEL_DEBUG, "threads", pid, threads->n, "pid %d: %zu Python threads", (int)pid, threads->n);
    r = hash_table_reserve(&t->by_tstate, threads->n);
    if (r == 0)
        r = grow_array((void **)&t->items, &t->cap, t->n + threads->n, sizeof(*t->items));
    for (size_t i = 0; r == 0 && i < threads->n; i++) {
        const struct py_thread *thread = &threads->items[i];
        struct sampled_thread *th = table_entry(t, thread->tstate);

        /* A thread state without a live kernel thread may belong to a child that was just forked. */
        if (!is_same_thread(th, thread) || !th->os.tid) {
            bool same = is_same_thread(th, thread), was_sampled = same && th->was_sampled;
            const char *name = same ? th->name : NULL;
            struct proc_status st;

            if (!status_read && !t->core && proc_status_read(pid, 0, &st) == 0)
                in_pid_ns = st.in_pid_ns;
            status_read = true;
            unnamed.is_new |= !same;
            thread_init(th, pid, t->core ? 0 : tid_of(t, py, pid, in_pid_ns, threads, thread), thread);
            if (!th->os.tid && !t->core && thread->native_id)
                thread_init(th, pid, tid_after_fork(t, py, pid, in_pid_ns, threads, thread), thread);
            thread_begin_time(t, th, pid);
            th->was_sampled = was_sampled;
            th->name = name;
            if (t->core)
                thread_init_dead(th, t->core);
            log_changed(LOG_LEVEL_DEBUG, "threads", th->tstate, th->os.tid,
                        "tid %d: thread state %#llx, interpreter %#llx, pthread_t %#llx", (int)th->os.tid,
                        (unsigned long long)th->tstate, (unsigned long long)th->interp,
                        (unsigned long long)th->thread_id);
        }
        th->seen = t->round;
        if (!th->name && unnamed.n++ < MAX_WANTED)
            unnamed.ids[unnamed.n - 1] = thread->thread_id;
    }
    if (r == 0 && t->n > threads->n)
        table_drop_unseen(t, pid);
    return r == 0 ? read_names(t, py, pid, threads, &unnamed) : r;
}
