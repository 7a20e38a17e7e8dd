/*
 * The helper's side: one request after the other.
 */
#include "base/helper_private.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_close_range /* Linux 5.9 */
#define SYS_close_range 436
#endif

/* NULL outside of a helper. A mutable global, since the functions that open files are deep in every layer. */
static struct helper_shared *shared_with;
static pid_t proc_pid;
static bool has_refused;

bool helper_is_inside(void)
{
    return shared_with != NULL;
}

static void set_note(uint64_t view, uint64_t device, const char *path)
{
    shared_with->note.view = view;
    shared_with->note.device = device;
    snprintf(shared_with->note.path, sizeof(shared_with->note.path), "%s", path);
}

static bool refuse(void)
{
    has_refused = true;
    return false;
}

bool helper_enter(uint64_t view, const char *path)
{
    if (!shared_with)
        return true;
    set_note(view, 0, path);
    for (uint32_t i = 0; i < shared_with->n_dead; i++)
        if (shared_with->dead[i].view == view && shared_with->dead[i].point[0] &&
            mounts_contain(shared_with->dead[i].point, path))
            return refuse();
    return true;
}

/* AT_STATX_DONT_SYNC: the kernel answers from what it has, without asking the file system. */
static bool stat_cached(int fd, struct statx *ret)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_MNT_ID, ret) == 0;
}

bool helper_enter_file(int fd)
{
    uint64_t device;
    struct statx st;

    if (!shared_with || !stat_cached(fd, &st))
        return true;
    device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
    shared_with->note.device = device;
    for (uint32_t i = 0; i < shared_with->n_dead; i++)
        if (shared_with->dead[i].device == device)
            return refuse();
    return true;
}

bool helper_has_refused(void)
{
    return has_refused;
}

uint64_t helper_view(int fd)
{
    struct statx st;

    if (!shared_with || !stat_cached(fd, &st))
        return 0;
    return hash_mix(hash_mix(st.stx_mnt_id, st.stx_ino), (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor);
}

static bool receive(int fd, void *buf, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)buf + done, len - done);

        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool transmit(int fd, struct helper_reply *reply, const struct pack *out)
{
    struct iovec parts[2] = {{reply, sizeof(*reply)}, {out->bytes, reply->len}};

    return helper_send(fd, parts);
}

static bool serve_one(int fd)
{
    struct helper_request request;
    struct helper_reply reply = {.result = ERR_NOMEM};
    struct pack out = {0};
    unsigned char *bytes;
    bool sent;

    if (!receive(fd, &request, sizeof(request)))
        return false;
    bytes = malloc(request.len + 1);
    if (!bytes || !receive(fd, bytes, request.len))
        return false;
    shared_with->note.proc_pid = proc_pid;
    set_note(0, request.device, "");
    has_refused = false;
    reply.result = request.run(&(struct unpack){.at = bytes, .left = request.len}, &out);
    if (reply.result == 0 && out.failed)
        reply.result = ERR_NOMEM;
    reply.len = reply.result == 0 ? out.len : 0;
    sent = transmit(fd, &reply, &out);
    free(bytes);
    pack_free(&out);
    return sent;
}

/* For kernels before 5.9. */
static void close_listed(int first)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        int fd = (int)strtol(entry->d_name, NULL, 10);

        if (fd >= first && fd != dirfd(dir))
            close(fd);
    }
    if (dir)
        closedir(dir);
}

/* A helper that hangs must not keep a pipe open that our caller reads to its end. Moves the two descriptors that it needs to 3
 * and 4. */
static void close_others(int *fd, int *log_fd)
{
    int null = open("/dev/null", O_RDWR), first = *log_fd >= 0 ? 5 : 4;
    int high = fcntl(*fd, F_DUPFD, 5), high_log = *log_fd >= 0 ? fcntl(*log_fd, F_DUPFD, 5) : -1;

    for (int i = 0; i <= 2; i++)
        if (null >= 0)
            dup2(null, i);
    if (high < 0 || dup2(high, 3) < 0 || (*log_fd >= 0 && (high_log < 0 || dup2(high_log, 4) < 0)))
        _exit(1);
    *fd = 3;
    *log_fd = *log_fd >= 0 ? 4 : -1;
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0) < 0)
        close_listed(first);
}

/* If memory runs out, the kernel should end the helper, not the target or us. */
static void volunteer_for_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (write(fd, "1000", 4) < 0)
        log_debug("helper", "oom_score_adj: %s", strerror(errno));
    close(fd);
}

/* Signals from the terminal are for our parent. Ctrl-Z as well: our parent may wait for us before it stops. */
static void ignore_signals(void)
{
    sigset_t none;

    static const int ignored[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                                  SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU};

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGXCPU, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static pid_t read_proc_pid(void)
{
    char text[32];
    ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return (pid_t)strtol(text, NULL, 10);
}

_Noreturn void helper_serve(int fd, int log_fd, struct helper_shared *shared)
{
    struct sched_param normal = {.sched_priority = 0};

    shared_with = shared;
    proc_pid = read_proc_pid();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ignore_signals();
    sched_setscheduler(0, SCHED_OTHER, &normal);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    close_others(&fd, &log_fd);
    log_redirect(log_fd);
    volunteer_for_oom_killer();
    while (serve_one(fd))
        ;
    _exit(0);
}
