/*
 * System call and arguments -> what the thread waits for.
 */
#include "sample/wait_reason.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/grow.h"
#include "base/utf8.h"
#include "sample/process_private.h"
#include "sample/wait_state.h"
#include "target/open_file.h"
#include "target/proc.h"
#include "target/system_call.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SEARCH_NS        (100 * NS_PER_MS) /* for the other ends of pipes and sockets */
#define FILES_MAX        256               /* described per process */
#define COUNTERPARTS_MAX 64                /* processes at the other end */
#define SELECT_FDS_MAX   1024
#define F_OFD_WAIT       38 /* F_OFD_SETLKW */
#define P_PIDFD_         3

/* ---- while the thread sleeps ---- */

static void add_fd(struct wait_reason *w, int fd)
{
    if (w->n_files < AWAITED_FILES_MAX)
        w->files[w->n_files].fd = fd;
    w->n_files++;
}

/* poll(fds, n, …) and ppoll. */
static void add_polled(struct wait_reason *w, struct mem *mem, addr_t at, uint64_t n)
{
    struct pollfd fds[AWAITED_FILES_MAX];
    size_t some = n < AWAITED_FILES_MAX ? (size_t)n : AWAITED_FILES_MAX;

    if (n > INT32_MAX || mem_read(mem, at, fds, some * sizeof(fds[0])) < 0)
        return;
    for (size_t i = 0; i < some; i++)
        if (fds[i].fd >= 0) /* else poll() ignores it */
            add_fd(w, fds[i].fd);
    if (w->n_files == AWAITED_FILES_MAX)
        w->n_files += (size_t)n - some;
}

/* select(n, read, write, except, …) and pselect6. */
static void add_selected(struct wait_reason *w, struct mem *mem, const uint64_t *args)
{
    uint64_t sets[3][SELECT_FDS_MAX / 64] = {{0}};
    size_t n = args[0] < SELECT_FDS_MAX ? (size_t)args[0] : SELECT_FDS_MAX;

    for (int i = 0; i < 3; i++)
        if (args[1 + i] && mem_read(mem, args[1 + i], sets[i], (n + 63) / 64 * 8) < 0)
            return;
    for (size_t fd = 0; fd < n; fd++)
        if ((sets[0][fd / 64] | sets[1][fd / 64] | sets[2][fd / 64]) >> fd % 64 & 1)
            add_fd(w, (int)fd);
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static void add_files(struct wait_reason *w, struct mem *mem, const struct system_call *call)
{
    static const char *const polls[] = {"poll", "ppoll", NULL}, *const selects[] = {"select", "pselect6", NULL};

    if (is_one_of(call->row->name, polls))
        add_polled(w, mem, call->args[0], call->args[1]);
    else if (is_one_of(call->row->name, selects))
        add_selected(w, mem, call->args);
    else if (call->row->fd >= 0)
        add_fd(w, (int)call->args[call->row->fd]);
}

/* Stores the ID that the thread waits for, in its own PID namespace, or -1 for any child. */
static void add_child(struct wait_reason *w, const struct system_call *call)
{
    int id = (int)call->args[0];

    if (strcmp(call->row->name, "waitid") == 0)
        id = call->args[0] == P_PID ? (int)call->args[1] : -1;
    w->processes[0].pid = id > 0 ? id : -1;
    w->n_processes = 1;
}

static void add_limit(struct wait_reason *w, const struct time_limit *limit, bool same_clock)
{
    struct timespec now;
    uint64_t now_ns;

    if (!limit->is_absolute) {
        w->has_limit = true;
        w->limit_ns = limit->ns;
        return;
    }
    if (!same_clock || clock_gettime(limit->clock, &now) < 0)
        return;
    now_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    w->has_left = true;
    w->left_ns = limit->ns > now_ns ? limit->ns - now_ns : 0;
}

static const char *kernel_function(struct process *p, pid_t tid)
{
    char *text;
    const char *name = NULL;
    size_t len;

    if (proc_read_file(p->pid, tid, "wchan", &text, &len) < 0)
        return NULL;
    if (*text && strcmp(text, "0") != 0)
        name = intern_str(p->sampler->names, text);
    free(text);
    return name;
}

void wait_reason_prepare(struct process *p, struct sampled_thread *th)
{
    if (system_call_read(&th->os.task, &p->call) < 0)
        p->call.row = NULL;
}

/* After a stop by ptrace, the kernel goes on with a call that has a time limit as restart_syscall(2). The registers still contain the
 * arguments. */
static bool is_restarted(const struct system_call *call, const struct system_call *before)
{
    return strcmp(call->row->name, "restart_syscall") == 0 && before->row && before->sp == call->sp &&
           memcmp(before->args, call->args, sizeof(call->args)) == 0;
}

/* Stopped by a signal, or by another tracer than spyglass. */
static bool read_stop(struct process *p, struct sampled_thread *th, struct wait_reason *w)
{
    struct proc_status st;
    struct task_look look;

    if (task_look(&th->os.task, &look) < 0 || (look.state != 'T' && look.state != 't'))
        return false;
    w->state = TRACE_STOPPED;
    if (look.state == 'T')
        return true;
    if (proc_status_read(p->pid, th->os.tid, &st) < 0 || !st.tracer || st.tracer == getpid())
        return false;
    w->processes[0] = (struct awaited_process){.pid = st.tracer};
    w->n_processes = 1;
    return true;
}

bool wait_reason_read(struct process *p, struct sampled_thread *th, char kernel_state, struct wait_reason *ret)
{
    struct system_call call;
    struct time_limit limit;
    enum call_class class;

    *ret = (struct wait_reason){.state = th->last.state};
    if (!th->os.tid || kernel_state == 'R')
        return false;
    if (kernel_state == 'T' || kernel_state == 't')
        return read_stop(p, th, ret);
    if (kernel_state == 'D')
        ret->kernel_function = kernel_function(p, th->os.tid);
    if (system_call_read(&th->os.task, &call) < 0)
        return ret->kernel_function != NULL;
    if (!call.row)
        return true;
    if (is_restarted(&call, &p->call)) {
        call.row = p->call.row;
        ret->state = wait_state_of(&call);
    }
    ret->call = call.row->name;
    if (strcmp(ret->call, "futex") == 0)
        ret->futex = call.args[0];
    class = system_call_class(&call);
    if (system_call_limit(&call, p->mem, &limit))
        add_limit(ret, &limit, proc_same_namespace(p->pid, "time"));
    if (class == CALL_CHILD)
        add_child(ret, &call);
    else if (class != CALL_SLEEP)
        add_files(ret, p->mem, &call);
    return true;
}

/* ---- afterwards ---- */

/* `text` is one of the fields of a struct open_file. */
static const char *keep(struct process *p, const char *text)
{
    char clean[3 * sizeof(((struct open_file *)0)->name)];

    return *text ? intern_bytes(p->sampler->names, clean, utf8_clean(text, strlen(text), clean)) : NULL;
}

static const char *command_of(struct process *p, pid_t pid)
{
    const char *kept;
    char *command;

    if (proc_command_read(pid, &command) < 0)
        return NULL;
    kept = intern_str(p->sampler->names, command);
    free(command);
    return kept;
}

static bool all_are_stopped(pid_t pid)
{
    bool stopped = true;
    pid_t *tids;
    size_t n;

    if (proc_tasks_read(pid, &tids, &n) < 0)
        return false;
    for (size_t i = 0; i < n && stopped; i++) {
        struct proc_stat st;

        stopped = proc_stat_read(pid, tids[i], &st) == 0 && (st.state == 'T' || st.state == 't');
    }
    free(tids);
    return stopped && n;
}

static void describe_process(struct process *p, struct awaited_process *a)
{
    struct proc_status status;
    struct proc_stat st;

    if (proc_stat_read(a->pid, 0, &st) == 0)
        a->state = st.state;
    a->command = command_of(p, a->pid);
    if (a->state != 'T' && a->state != 't')
        return;
    a->is_stopped = all_are_stopped(a->pid);
    if (a->state != 't' || proc_status_read(a->pid, 0, &status) < 0 || !status.tracer)
        return;
    a->is_stopped &= status.tracer != getpid();
    a->tracer = status.tracer;
    a->tracer_command = command_of(p, a->tracer);
}

static bool has_one_thread(pid_t pid)
{
    pid_t *tids;
    size_t n = 0;

    if (proc_tasks_read(pid, &tids, &n) < 0)
        return false;
    free(tids);
    return n == 1;
}

/* What a process does that one of our threads waits for, and whether it waits for us in turn. */
struct counterpart {
    struct awaited_process *process;
    struct task task;
    struct sched_stats stats; /* before the call was read */
};

static bool is_transfer(const char *call)
{
    static const char *const calls[] = {"read",    "readv",  "write",   "writev", "recvfrom",
                                        "recvmsg", "sendto", "sendmsg", NULL};

    return call && is_one_of(call, calls);
}

/* Reads the call of its main thread. True if that is a transfer, whose file is then described. */
static bool read_counterpart(struct counterpart *c, struct open_file *ret)
{
    struct awaited_process *a = c->process;
    struct system_call call;

    if (task_sched_stats(&c->task, &c->stats) < 0 || system_call_read(&c->task, &call) < 0 || !call.row)
        return false;
    a->call = call.row->name;
    if (!is_transfer(a->call))
        return false;
    *ret = (struct open_file){.fd = (int)call.args[call.row->fd]};
    open_files_read(a->pid, ret, 1);
    return ret->kind == OPEN_FILE_PIPE || ret->kind == OPEN_FILE_SOCKET;
}

/* The process that keeps this thread waiting, if it is the only one and the thread waits for nothing else. */
static struct awaited_process *only_process(struct wait_reason *w)
{
    static const char *const children[] = {"wait4", "waitid", NULL};

    if (w->call && is_one_of(w->call, children) && w->n_processes == 1)
        return &w->processes[0];
    if (is_transfer(w->call) && w->n_files == 1 && w->files[0].only_other && w->files[0].others[0].pid > 0)
        return &w->files[0].others[0];
    return NULL;
}

static void find_counterparts(struct process *p, struct wait_reason **waits, size_t n)
{
    struct counterpart found[COUNTERPARTS_MAX];
    struct open_file files[COUNTERPARTS_MAX] = {0};
    uint64_t end = clock_cpu_ns() + SEARCH_NS;
    size_t n_found = 0;
    bool complete;

    for (size_t i = 0; i < n && n_found < COUNTERPARTS_MAX && clock_cpu_ns() < end; i++) {
        struct counterpart *c = &found[n_found];

        *c = (struct counterpart){.process = only_process(waits[i]), .task = {TASK_NO_FILES}};
        if (!c->process || c->process->pid == p->pid)
            continue;
        task_open(&c->task, c->process->pid, c->process->pid);
        if (read_counterpart(c, &files[n_found]))
            n_found++;
        else
            task_close(&c->task);
    }
    complete = n_found && open_files_find_others(p->pid, files, n_found, SEARCH_NS);
    for (size_t i = 0; i < n_found; i++) {
        struct awaited_process *a = found[i].process;
        struct sched_stats stats;

        a->awaits_us = complete && files[i].n_others == 1 && files[i].others[0] == p->pid &&
                       task_sched_stats(&found[i].task, &stats) == 0 && sched_stats_equal(&stats, &found[i].stats);
        a->is_pipe = files[i].kind == OPEN_FILE_PIPE;
        a->both_single = a->awaits_us && has_one_thread(a->pid) && has_one_thread(p->pid);
        task_close(&found[i].task);
    }
}

/* The direct children with this ID in their own PID namespace, or all of them. */
static void find_children(struct process *p, struct wait_reason *w)
{
    pid_t wanted = w->processes[0].pid, *pids;
    struct proc_status st;
    size_t n;

    w->n_processes = 0;
    if (proc_children_read(p->pid, &pids, &n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (wanted > 0 && (proc_status_read(pids[i], 0, &st) < 0 || (st.ns_pid ? st.ns_pid : pids[i]) != wanted))
            continue;
        if (w->n_processes < AWAITED_PROCESSES_MAX) {
            w->processes[w->n_processes] = (struct awaited_process){.pid = pids[i]};
            describe_process(p, &w->processes[w->n_processes]);
        }
        w->n_processes++;
    }
    free(pids);
}

static void find_holder(struct process *p, struct wait_reason *w)
{
    pid_t pid = open_file_lock_holder(p->pid);

    if (!pid)
        return;
    w->processes[0] = (struct awaited_process){.pid = pid};
    w->n_processes = 1;
    describe_process(p, &w->processes[0]);
}

/* Adds the descriptors that epoll watches behind the epoll descriptor itself. */
static void find_watched(struct process *p, struct wait_reason *w)
{
    int fds[AWAITED_FILES_MAX - 1];
    size_t n = open_file_watched(p->pid, w->files[0].fd, fds, AWAITED_FILES_MAX - 1);

    for (size_t i = 0; i < n && i < AWAITED_FILES_MAX - 1; i++)
        w->files[1 + i].fd = fds[i];
    w->n_files = 1 + n;
}

static const char *kind_of(struct process *p, const struct open_file *f)
{
    switch (f->kind) {
    case OPEN_FILE_PATH:
        return "file";
    case OPEN_FILE_PIPE:
        return "pipe";
    case OPEN_FILE_SOCKET:
        return f->protocol ? f->protocol : "socket";
    case OPEN_FILE_KERNEL:
        return keep(p, f->name);
    case OPEN_FILE_UNKNOWN:
        break;
    }
    return NULL;
}

static void describe_file(struct process *p, const struct open_file *f, bool complete, struct awaited_file *ret)
{
    *ret = (struct awaited_file){.fd = f->fd,
                                 .kind = kind_of(p, f),
                                 .name = f->kind == OPEN_FILE_KERNEL ? NULL : keep(p, f->name),
                                 .state = f->state,
                                 .local = keep(p, f->local),
                                 .peer = keep(p, f->peer),
                                 .n_others = f->n_others,
                                 .no_others = complete && f->kind == OPEN_FILE_PIPE && !f->n_others,
                                 .only_other = complete && f->n_others == 1};
    for (size_t i = 0; i < f->n_others && i < AWAITED_OTHERS_MAX; i++) {
        ret->others[i].pid = f->others[i];
        describe_process(p, &ret->others[i]);
    }
}

static size_t n_listed(const struct wait_reason *w)
{
    return w->n_files < AWAITED_FILES_MAX ? w->n_files : AWAITED_FILES_MAX;
}

void wait_reasons_describe(struct process *p, struct wait_reason **waits, size_t n)
{
    static const char *const locks[] = {"flock", "fcntl", NULL};
    static const char *const epolls[] = {"epoll_wait", "epoll_pwait", "epoll_pwait2", NULL};
    static const char *const children[] = {"wait4", "waitid", NULL};
    struct open_file *files = NULL;
    size_t n_files = 0, cap = 0, at = 0;
    bool complete;

    if (deadline_passed())
        return;
    run_as_user_begin(p->user);
    for (size_t i = 0; i < n; i++) {
        struct wait_reason *w = waits[i];

        if (w->call && is_one_of(w->call, children))
            find_children(p, w);
        else if (w->call && is_one_of(w->call, locks))
            find_holder(p, w);
        else if (w->call && is_one_of(w->call, epolls) && w->n_files)
            find_watched(p, w);
        else if (w->state == TRACE_STOPPED && w->n_processes)
            describe_process(p, &w->processes[0]);
        for (size_t k = 0; k < n_listed(w) && n_files < FILES_MAX; k++) {
            if (grow_array((void **)&files, &cap, n_files + 1, sizeof(*files)) < 0)
                break;
            files[n_files++].fd = w->files[k].fd;
        }
    }
    open_files_read(p->pid, files, n_files);
    complete = open_files_find_others(p->pid, files, n_files, SEARCH_NS);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_listed(waits[i]) && at < n_files; k++)
            describe_file(p, &files[at++], complete, &waits[i]->files[k]);
    find_counterparts(p, waits, n);
    run_as_user_end(p->user);
    free(files);
}
