/*
 * /proc/PID/task/TID/stat, schedstat, sched and syscall: state, CPU and run count of a thread, and what it waits for.
 */
#include "target/task.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "target/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_file(const struct task *t, const char *name)
{
    char path[96];

    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)t->pid, (int)t->tid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void task_open(struct task *t, pid_t pid, pid_t tid)
{
    *t = (struct task){.pid = pid, .tid = tid, TASK_NO_FILES};
    t->stat_fd = descriptors_keep(open_file(t, "stat"));
    t->schedstat_fd = descriptors_keep(open_file(t, "schedstat"));
    if (t->schedstat_fd < 0)
        log_often(LOG_LEVEL_DEBUG, "threads", 0, "tid %d: schedstat: %s", (int)tid, strerror(errno));
}

void task_close(struct task *t)
{
    if (t->stat_fd >= 0)
        close(t->stat_fd);
    if (t->schedstat_fd >= 0)
        close(t->schedstat_fd);
    if (t->syscall_fd >= 0)
        close(t->syscall_fd);
    if (t->sched_fd >= 0)
        close(t->sched_fd);
    t->stat_fd = t->schedstat_fd = t->syscall_fd = t->sched_fd = -1;
}

static ssize_t read_file(const struct task *t, int fd, const char *name, char *buf, size_t size)
{
    ssize_t got;

    if (fd >= 0)
        return pread(fd, buf, size, 0);
    fd = open_file(t, name);
    if (fd < 0)
        return -1;
    got = read(fd, buf, size);
    close(fd);
    return got;
}

static const char *skip_fields(const char *p, int n)
{
    while (n-- > 0 && p)
        p = (p = strchr(p, ' ')) ? p + 1 : NULL;
    return p;
}

/* Faster than sscanf, which shows at ten thousand samples per second. */
static uint64_t parse_number(const char **p)
{
    uint64_t value = 0;

    for (; **p >= '0' && **p <= '9'; (*p)++)
        value = value * 10 + (uint64_t)(**p - '0');
    return value;
}

int task_look(struct task *t, struct task_look *ret)
{
    char buf[1024];
    const char *p, *stack, *cpu;
    uint64_t start;
    ssize_t got = read_file(t, t->stat_fd, "stat", buf, sizeof(buf) - 1);

    if (got <= 0)
        return ERR_NO_PROCESS;
    buf[got] = '\0';
    p = strrchr(buf, ')');
    if (!p || p[1] != ' ' || !p[2])
        return ERR_NO_PROCESS;
    *ret = (struct task_look){.state = p[2], .cpu = -1};
    /* The state is field 3, the start of the stack field 28, the CPU field 39, and the real-time priority, 0 for
     * other threads, field 40: proc(5). */
    stack = skip_fields(p + 2, 25);
    cpu = stack ? skip_fields(stack, 11) : NULL;
    if (cpu)
        ret->cpu = (int)parse_number(&cpu);
    ret->is_realtime = cpu && cpu[0] == ' ' && cpu[1] >= '1' && cpu[1] <= '9';
    if (!stack)
        return 0;
    /* exec places the stack at a new random address. */
    start = parse_number(&stack);
    if (!t->stack)
        t->stack = start;
    t->execed |= start && start != t->stack;
    return t->execed ? ERR_NO_PROCESS : 0;
}

int task_sched_stats(struct task *t, struct sched_stats *ret)
{
    char buf[128];
    const char *p = buf;
    ssize_t got = read_file(t, t->schedstat_fd, "schedstat", buf, sizeof(buf) - 1);
    struct sched_stats stats;

    if (got <= 0)
        return ERR_UNSUPPORTED;
    buf[got] = '\0';
    stats.run_ns = parse_number(&p);
    p = skip_fields(p, 1);
    stats.wait_ns = p ? parse_number(&p) : 0;
    p = p ? skip_fields(p, 1) : NULL;
    stats.run_count = p ? parse_number(&p) : 0;
    if (!stats.run_count)
        return ERR_UNSUPPORTED;
    *ret = stats;
    return 0;
}

/* The digits of the line "NAME : VALUE"; of a decimal fraction, without the point. False if there is no such line. */
static bool sched_number(const char *text, const char *name, uint64_t *ret)
{
    const char *p = strstr(text, name);

    p = p ? strchr(p, ':') : NULL;
    if (!p)
        return false;
    p += 1 + strspn(p + 1, " ");
    *ret = parse_number(&p);
    if (*p == '.') {
        p++;
        *ret = *ret * NS_PER_MS + parse_number(&p);
    }
    return true;
}

/* "se.exec_start : 1234.567890", in ms with six decimals, and "nr_switches : 12". */
int task_last_run(struct task *t, struct task_run *ret)
{
    char buf[4096]; /* kernel.sched_schedstats adds many lines */
    ssize_t got;

    if (t->sched_fd < 0)
        t->sched_fd = descriptors_keep(open_file(t, "sched"));
    got = read_file(t, t->sched_fd, "sched", buf, sizeof(buf) - 1);
    if (got <= 0)
        return ERR_UNSUPPORTED;
    buf[got] = '\0';
    return sched_number(buf, "\nse.exec_start ", &ret->charged_ns) &&
                   sched_number(buf, "\nnr_switches ", &ret->switches)
               ? 0
               : ERR_UNSUPPORTED;
}

/* "NR ARG1 … ARG6 SP PC"; "-1 SP PC" outside of a system call, as in a page fault; or "running": proc_pid_syscall(5). */
int task_syscall_text(struct task *t, char *buf, size_t size)
{
    ssize_t got;

    if (t->syscall_fd < 0)
        t->syscall_fd = descriptors_keep(open_file(t, "syscall"));
    got = read_file(t, t->syscall_fd, "syscall", buf, size - 1);
    if (got <= 0)
        return ERR_UNSUPPORTED;
    buf[got] = '\0';
    return 0;
}

int task_waits_at(struct task *t, uint64_t *ret_sp, uint64_t *ret_pc)
{
    char buf[256];
    const char *last;
    uint64_t sp, pc;

    if (task_syscall_text(t, buf, sizeof(buf)) < 0)
        return ERR_UNSUPPORTED;
    last = skip_fields(buf, strncmp(buf, "-1 ", 3) == 0 ? 1 : 7);
    if (!last || sscanf(last, "%" SCNx64 " %" SCNx64, &sp, &pc) != 2)
        return ERR_UNSUPPORTED;
    *ret_sp = sp;
    *ret_pc = pc;
    return 0;
}

/* restart_syscall(2) resumes a futex call with a timeout that a signal or ptrace has interrupted. The registers still
 * contain the arguments. */
int task_sleeps_on(struct task *t, uint64_t *ret_futex, uint64_t *ret_sp)
{
    char buf[256];
    const char *last;
    uint64_t futex, sp;
    long number;

    if (task_syscall_text(t, buf, sizeof(buf)) < 0)
        return ERR_UNSUPPORTED;
    if (strncmp(buf, "running", 7) == 0)
        return ERR_TORN;
    last = skip_fields(buf, 7);
    if (!last || sscanf(buf, "%ld %" SCNx64, &number, &futex) != 2 || sscanf(last, "%" SCNx64, &sp) != 1 ||
        (number != SYS_futex && number != SYS_restart_syscall))
        return ERR_UNSUPPORTED;
    *ret_futex = futex;
    *ret_sp = sp;
    return 0;
}
