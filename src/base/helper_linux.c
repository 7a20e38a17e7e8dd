/*
 * Starts helper processes, calls them, and abandons those that hang.
 */
#include "base/helper_private.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HELPERS      4   /* one per user that we act as (target/run_as_user.h) */
#define SLICE_MS     100 /* how often to look at a helper that has not answered yet */
#define STUCK_SLICES 20  /* two seconds without progress */
#define BLOCKED_MAX  300 /* thirty seconds in all: a file system that answers one byte at a time */
#define ANSWER_MAX   ((size_t)1 << 30)
#define LOSSES_MAX   32
#define FIRST_BYTES  8192 /* most answers are shorter */
#define LOCAL_TRIES  3    /* a local file system counts as dead only after this many failures */
#define GROUPS_MAX   256

#define PROCESS_RETRY_NS (10 * NS_PER_S)
#define END_NS           (2 * NS_PER_S)
#define END_LEAST_NS     (100 * NS_PER_MS) /* even after the deadline */
#define END_SLEEP_NS     100000

struct helper {
    pid_t pid; /* 0: none */
    int fd, log_fd;
    uint64_t identity; /* the user that it runs as */
    uint64_t generation;
    uint64_t used; /* for eviction */
};

/* The exception to "no mutable globals": every layer opens files, and passing the helper down would change every signature. */
static struct {
    struct helper items[HELPERS];
    struct helper_shared *shared;
    uint64_t generations, calls;
    pid_t abandoned[HELPERS * 4]; /* killed, but maybe not dead yet */
    struct helper_loss losses[LOSSES_MAX];
    size_t n_losses;
    unsigned local_failures;
    uint64_t cpu_ns; /* of helpers that have ended */
    long max_rss_kib;
    bool cannot_fork;
    cpu_set_t cpus; /* that we may use, before we pin ourselves to one of them */
    bool has_cpus;
    uint64_t own_ids; /* user and group, at the first call */
    bool ids_known;
} state;

/* ---- starting and ending ---- */

/* Whom we act as: 1 for ourselves. */
static uint64_t own_identity(void)
{
    uint64_t ids = (uint64_t)geteuid() << 32 | getegid();
    gid_t groups[GROUPS_MAX];
    int n;

    if (!state.ids_known)
        state.own_ids = ids;
    state.ids_known = true;
    if (ids == state.own_ids)
        return 1;
    n = getgroups(GROUPS_MAX, groups);
    return hash_mix(hash_bytes((const char *)groups, n > 0 ? (size_t)n * sizeof(groups[0]) : 0), ids) | 2;
}

/* False if it has not ended yet. */
static bool reap(pid_t pid)
{
    struct rusage usage;

    /* __WALL: its end sends no signal, so that nobody else waits for it. */
    if (wait4(pid, NULL, __WALL | WNOHANG, &usage) != pid)
        return false;
    state.cpu_ns += (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000 +
                    (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
    if (usage.ru_maxrss > state.max_rss_kib)
        state.max_rss_kib = usage.ru_maxrss;
    for (size_t i = 0; i < sizeof(state.abandoned) / sizeof(state.abandoned[0]); i++)
        if (state.abandoned[i] == pid)
            state.abandoned[i] = 0;
    return true;
}

static void abandon(struct helper *h)
{
    size_t slot = state.generations % (sizeof(state.abandoned) / sizeof(state.abandoned[0]));

    if (!h->pid)
        return;
    kill(h->pid, SIGKILL);
    close(h->fd);
    if (h->log_fd >= 0)
        close(h->log_fd);
    state.abandoned[slot] = h->pid;
    reap(h->pid);
    *h = (struct helper){0};
}

static void reap_abandoned(void)
{
    for (size_t i = 0; i < sizeof(state.abandoned) / sizeof(state.abandoned[0]); i++)
        if (state.abandoned[i])
            reap(state.abandoned[i]);
}

/* An idle helper ends at once, unless a file that it has open is on a file system that has died meanwhile. */
void helper_end(void)
{
    uint64_t ns = deadline_cap(END_NS), end = clock_now_ns() + (ns > END_LEAST_NS ? ns : END_LEAST_NS);

    for (size_t i = 0; i < HELPERS; i++) {
        pid_t pid = state.items[i].pid;

        if (!pid)
            continue;
        abandon(&state.items[i]);
        while (helper_is(pid) && !reap(pid) && clock_now_ns() < end)
            nanosleep(&(struct timespec){.tv_nsec = END_SLEEP_NS}, NULL);
    }
    reap_abandoned();
}

/* Like fork, but the end of the child sends no signal, and only a wait with __WALL finds it. */
static pid_t fork_quietly(void)
{
    return (pid_t)syscall(SYS_clone, 0UL, 0UL, 0UL, 0UL, 0UL);
}

static bool prepare(void)
{
    void *at;

    if (state.shared)
        return true;
    state.has_cpus = sched_getaffinity(0, sizeof(state.cpus), &state.cpus) == 0;
    at = mmap(NULL, sizeof(*state.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    state.shared = at == MAP_FAILED ? NULL : at;
    return state.shared != NULL;
}

static bool start(struct helper *h, uint64_t identity)
{
    int sockets[2], logs[2] = {-1, -1};
    pid_t pid;

    reap_abandoned();
    if (!prepare() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
        return false;
    if (log_is_on(LOG_LEVEL_WARNING) && pipe2(logs, O_CLOEXEC | O_NONBLOCK) < 0)
        logs[0] = logs[1] = -1;
    pid = fork_quietly();
    if (pid == 0 && state.has_cpus)
        sched_setaffinity(0, sizeof(state.cpus), &state.cpus);
    if (pid == 0)
        helper_serve(sockets[1], logs[1], state.shared);
    close(sockets[1]);
    if (logs[1] >= 0)
        close(logs[1]);
    if (pid < 0) {
        state.cannot_fork = errno != ENOMEM;
        close(sockets[0]);
        if (logs[0] >= 0)
            close(logs[0]);
        return false;
    }
    *h = (struct helper){
        .pid = pid, .fd = sockets[0], .log_fd = logs[0], .identity = identity, .generation = ++state.generations};
    log_debug("helper", "started helper process %d", (int)pid);
    return true;
}

/* The helper that runs as the user that we act as now; replaces the one that was not used for longest. NULL if it cannot be
 * started. */
static struct helper *get(void)
{
    uint64_t identity = own_identity();
    struct helper *oldest = &state.items[0];

    for (size_t i = 0; i < HELPERS; i++) {
        struct helper *h = &state.items[i];

        if (h->pid && h->identity == identity) {
            h->used = ++state.calls;
            return h;
        }
        if (!h->pid || (oldest->pid && h->used < oldest->used))
            oldest = h;
    }
    abandon(oldest);
    if (!start(oldest, identity))
        return NULL;
    oldest->used = ++state.calls;
    return oldest;
}

bool helper_is(pid_t pid)
{
    for (size_t i = 0; i < HELPERS; i++)
        if (state.items[i].pid == pid)
            return true;
    for (size_t i = 0; i < sizeof(state.abandoned) / sizeof(state.abandoned[0]); i++)
        if (state.abandoned[i] == pid)
            return true;
    return false;
}

uint64_t helper_generation(void)
{
    const struct helper *h;

    if (state.cannot_fork || helper_is_inside())
        return UINT64_MAX;
    h = get();
    return h ? h->generation : state.cannot_fork ? UINT64_MAX : 0;
}

/* ---- waiting ---- */

struct progress {
    unsigned long long run_ns, wait_ns, runs;
    char state;
};

static size_t read_file(pid_t pid, const char *name, char *buf, size_t room)
{
    char path[64];
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    got = fd < 0 ? -1 : read(fd, buf, room - 1);
    if (fd >= 0)
        close(fd);
    buf[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

static struct progress progress_of(pid_t pid)
{
    struct progress p = {0};
    char text[512];
    const char *end;

    if (read_file(pid, "schedstat", text, sizeof(text)))
        sscanf(text, "%llu %llu %llu", &p.run_ns, &p.wait_ns, &p.runs);
    if (read_file(pid, "stat", text, sizeof(text)) && (end = strrchr(text, ')')) && end[1] == ' ')
        p.state = end[2];
    return p;
}

/* It could run, or is stopped together with us. */
static bool is_blocked(const struct progress *p)
{
    return p->state != 'R' && p->state != 'T' && p->state != 't';
}

/* Waits for a slice of time. False if nothing came. */
static bool poll_slice(int fd)
{
    uint64_t end = clock_now_ns() + deadline_cap(SLICE_MS * NS_PER_MS), now;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while ((now = clock_now_ns()) < end) {
        int n = poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1);

        if (n > 0)
            return true;
        if (n == 0)
            break;
    }
    return false;
}

static bool is_late(const struct helper_about *about)
{
    return about->names ? deadline_passed_for_names() : deadline_passed();
}

/* Waits until the helper has written something. Returns 0, HELPER_STUCK or HELPER_LATE. Counts slices, not time, since we may not
 * run either. */
static int wait_readable(const struct helper *h, const struct helper_about *about, unsigned *blocked)
{
    struct progress last = {0};

    for (unsigned still = 0; still < STUCK_SLICES && *blocked < BLOCKED_MAX;) {
        struct progress now;

        if (poll_slice(h->fd))
            return 0;
        if (is_late(about))
            return HELPER_LATE;
        now = progress_of(state.shared->note.proc_pid);
        still = now.state && is_blocked(&now) && now.runs == last.runs && now.run_ns == last.run_ns ? still + 1 : 0;
        *blocked += is_blocked(&now) && now.run_ns - last.run_ns < SLICE_MS * NS_PER_MS / 2;
        last = now;
    }
    return HELPER_STUCK;
}

/* Receives at least `least` bytes, at most `room`. Returns their number, HELPER_STUCK, HELPER_LATE or HELPER_DIED. */
static ssize_t receive(const struct helper *h, const struct helper_about *about, void *buf, size_t least, size_t room,
                       unsigned *blocked)
{
    size_t done = 0;

    while (done < least) {
        int waited = wait_readable(h, about, blocked);
        ssize_t n;

        if (waited < 0)
            return waited;
        n = recv(h->fd, (char *)buf + done, room - done, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return HELPER_DIED;
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}

bool helper_send(int fd, struct iovec parts[2])
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

    while (parts[0].iov_len || parts[1].iov_len) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return false;
        for (int i = 0; i < 2 && n > 0; i++) {
            size_t part = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;

            parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            n -= (ssize_t)part;
        }
    }
    return true;
}

static bool transmit(const struct helper *h, const struct helper_request *request, const struct pack *in)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)request, sizeof(*request)}, {in->bytes, in->len}};

    return helper_send(h->fd, parts);
}

static void pass_on_log(const struct helper *h)
{
    char text[LOG_LINE_MAX];
    ssize_t n;

    while (h->log_fd >= 0 && (n = read(h->log_fd, text, sizeof(text))) > 0)
        log_pass_on(text, (size_t)n);
}

/* ---- what is lost ---- */

bool helper_skips_device(uint64_t device)
{
    for (uint32_t i = 0; device && state.shared && i < state.shared->n_dead; i++)
        if (state.shared->dead[i].device == device)
            return true;
    return false;
}

/* A process whose memory did not answer a moment ago does not answer now. */
static bool skips_process(pid_t pid)
{
    for (size_t i = 0; i < state.n_losses; i++)
        if (state.losses[i].kind == HELPER_LOST_PROCESS && state.losses[i].pid == pid)
            return clock_now_ns() - state.losses[i].since_ns < PROCESS_RETRY_NS;
    return false;
}

size_t helper_losses(const struct helper_loss **ret)
{
    *ret = state.losses;
    return state.n_losses;
}

static void add_loss(enum helper_loss_kind kind, const struct helper_about *about, const char *point)
{
    struct helper_loss *loss = &state.losses[state.n_losses];

    for (size_t i = 0; i < state.n_losses; i++)
        if (state.losses[i].kind == kind &&
            (kind == HELPER_LOST_PROCESS ? state.losses[i].pid == about->pid
             : kind == HELPER_LOST_FILES ? strcmp(state.losses[i].point, point) == 0
                                         : strcmp(state.losses[i].path, about->path) == 0)) {
            state.losses[i].since_ns = clock_now_ns();
            return;
        }
    if (state.n_losses == LOSSES_MAX)
        return;
    *loss = (struct helper_loss){.kind = kind, .pid = about->pid, .since_ns = clock_now_ns()};
    snprintf(loss->path, sizeof(loss->path), "%s", about->path ? about->path : "");
    snprintf(loss->point, sizeof(loss->point), "%s", point);
    state.n_losses++;
}

/* Finds the file system that the helper waits for, and skips it from now on. A stall of a local one, or of one that is mounted
 * nowhere any more (umount -l), may be an accident. */
static void give_up_mount(const struct helper_about *about)
{
    struct helper_shared *shared = state.shared;
    const char *path = shared->note.path[0] ? shared->note.path : NULL;
    struct mount m = {.device = shared->note.device, .is_local = true};
    bool found =
        mounts_find(about->pid, shared->note.device, path, &m) || mounts_find(0, shared->note.device, path, &m);

    log_warning("helper", "%s does not answer: device %llx, path %s, mounted at %s", about->path,
                (unsigned long long)shared->note.device, shared->note.path, found ? m.point : "an unknown place");
    add_loss(HELPER_LOST_FILES, about, found ? m.point : "");
    if (!m.device || (m.is_local && ++state.local_failures < LOCAL_TRIES) || shared->n_dead == HELPER_DEAD_MAX)
        return;
    shared->dead[shared->n_dead] = (struct helper_dead){.view = shared->note.view, .device = m.device};
    snprintf(shared->dead[shared->n_dead].point, MOUNTS_POINT_ROOM, "%s", m.point);
    shared->n_dead++;
}

static void give_up_process(const struct helper_about *about)
{
    log_warning("helper", "the memory of pid %d does not answer", (int)about->pid);
    add_loss(HELPER_LOST_PROCESS, about, "");
}

/* ---- calling ---- */

static int call(struct helper *h, helper_function f, const struct pack *in, const struct helper_about *about,
                struct helper_answer *ret)
{
    struct helper_request request = {.run = f, .device = about->device, .len = in->len};
    struct {
        struct helper_reply reply;
        unsigned char bytes[FIRST_BYTES];
    } first;
    unsigned blocked = 0;
    ssize_t got;

    state.shared->note.proc_pid = 0;
    got = transmit(h, &request, in) ? receive(h, about, &first, sizeof(first.reply), sizeof(first), &blocked)
                                    : HELPER_DIED;
    if (got < 0)
        return (int)got;
    got -= (ssize_t)sizeof(first.reply);
    if (first.reply.len > ANSWER_MAX || (size_t)got > first.reply.len)
        return HELPER_DIED;
    ret->bytes = malloc(first.reply.len + 1);
    if (!ret->bytes)
        return HELPER_DIED;
    memcpy(ret->bytes, first.bytes, (size_t)got);
    ret->out = (struct unpack){.at = ret->bytes, .left = first.reply.len};
    got = receive(h, about, ret->bytes + got, first.reply.len - (size_t)got, first.reply.len - (size_t)got, &blocked);
    return got < 0 ? (int)got : first.reply.result;
}

/* Without a helper: we cannot fork, or we are the helper. */
static int call_here(helper_function f, const struct pack *in, struct helper_answer *ret)
{
    struct pack out = {0};
    int r = f(&(struct unpack){.at = in->bytes, .left = in->len}, &out);

    if (r == 0 && out.failed)
        r = ERR_NOMEM;
    ret->bytes = out.bytes;
    ret->out = (struct unpack){.at = out.bytes, .left = out.len};
    return r;
}

int helper_call(helper_function f, const struct pack *in, const struct helper_about *about, struct helper_answer *ret)
{
    struct helper_answer answer = {0};
    struct helper *h = NULL;
    int r = 0;

    if (ret)
        *ret = (struct helper_answer){0};
    if (in->failed)
        return ERR_NOMEM;
    if (!helper_is_inside() && (helper_skips_device(about->device) || (!about->path && skips_process(about->pid))))
        return HELPER_STUCK;
    if (!helper_is_inside() && is_late(about)) {
        if (about->path)
            add_loss(HELPER_LOST_TIME, about, "");
        return HELPER_LATE;
    }
    if (!helper_is_inside() && !state.cannot_fork)
        h = get(); /* may find out that we cannot fork */
    if (h) {
        r = call(h, f, in, about, &answer);
        pass_on_log(h);
    } else {
        r = helper_is_inside() || state.cannot_fork ? call_here(f, in, &answer) : HELPER_DIED;
    }
    if (r == HELPER_STUCK && about->path)
        give_up_mount(about);
    else if (r == HELPER_STUCK)
        give_up_process(about);
    if (r == HELPER_DIED && about->path)
        add_loss(HELPER_LOST_SYMBOLS, about, "");
    if (r == HELPER_LATE && about->path)
        add_loss(HELPER_LOST_TIME, about, "");
    if (h && (r == HELPER_STUCK || r == HELPER_DIED || r == HELPER_LATE))
        abandon(h);
    if (r == 0 && ret)
        *ret = answer;
    else
        helper_answer_free(&answer);
    return r;
}

void helper_answer_free(struct helper_answer *a)
{
    free(a->bytes);
    *a = (struct helper_answer){0};
}

/* ---- cost ---- */

uint64_t helper_cpu_ns(void)
{
    uint64_t sum = state.cpu_ns;

    for (size_t i = 0; i < HELPERS; i++)
        if (state.items[i].pid)
            sum += progress_of(state.items[i].pid).run_ns;
    return sum;
}

long helper_max_rss_kib(void)
{
    long max = state.max_rss_kib, rss;
    char text[4096];
    const char *at;

    for (size_t i = 0; i < HELPERS; i++)
        if (state.items[i].pid && read_file(state.items[i].pid, "status", text, sizeof(text)) &&
            (at = strstr(text, "VmHWM:")) && sscanf(at, "VmHWM: %ld", &rss) == 1 && rss > max)
            max = rss;
    return max;
}
