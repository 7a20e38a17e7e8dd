/*
 * /proc/PID/task/TID/{stat,schedstat} -> state and number of turns. Called for each thread and sample.
 */
#include "target/task.h"

#include "base/err.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_file(const struct task *t, const char *name)
{
    char path[96];

    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)t->pid, (int)t->tid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void task_open(struct task *t, pid_t pid, pid_t tid)
{
    *t = (struct task){.pid = pid, .tid = tid};
    t->stat_fd = open_file(t, "stat");
    t->sched_fd = open_file(t, "schedstat");
}

void task_close(struct task *t)
{
    if (t->stat_fd >= 0)
        close(t->stat_fd);
    if (t->sched_fd >= 0)
        close(t->sched_fd);
    t->stat_fd = t->sched_fd = -1;
}

static ssize_t read_start(const struct task *t, int fd, const char *name, char *buf, size_t size)
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

int task_state(struct task *t, char *ret_state)
{
    char buf[256], *p;
    ssize_t got = read_start(t, t->stat_fd, "stat", buf, sizeof(buf) - 1);

    if (got <= 0)
        return ERR_NO_PROCESS;
    buf[got] = '\0';
    p = strrchr(buf, ')');
    if (!p || p[1] != ' ' || !p[2])
        return ERR_NO_PROCESS;
    *ret_state = p[2];
    return 0;
}

int task_turns(struct task *t, uint64_t *ret_turns)
{
    char buf[128];
    unsigned long long turns;
    ssize_t got = read_start(t, t->sched_fd, "schedstat", buf, sizeof(buf) - 1);

    if (got <= 0)
        return ERR_UNSUPPORTED;
    buf[got] = '\0';
    if (sscanf(buf, "%*u %*u %llu", &turns) != 1 || turns == 0)
        return ERR_UNSUPPORTED;
    *ret_turns = turns;
    return 0;
}
