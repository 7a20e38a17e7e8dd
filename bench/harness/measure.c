/* Runs a program and reports what it cost: measure FD PROGRAM [ARGUMENT]...
 *
 * Writes "pid N" to the descriptor FD, then, when the program has exited, "end WALL_NS USER_US SYSTEM_US PEAK_KB
 * STATUS", including children that it waited for. The peak memory that the kernel reports for a program is never
 * below that of the process that started it, so the starter must be this small. Signals that end the program are
 * left to the program; the program dies with us. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long micros(struct timeval t)
{
    return t.tv_sec * 1000000LL + t.tv_usec;
}

static void become(int fd, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    close(fd);
    execvp(argv[0], argv);
    perror(argv[0]);
    _exit(127);
}

int main(int argc, char **argv)
{
    struct rusage use;
    long long start;
    pid_t pid;
    int fd, status;

    if (argc < 3)
        return 2;
    fd = atoi(argv[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    start = now_ns();
    pid = fork();
    if (pid == 0)
        become(fd, argv + 2);
    if (pid < 0)
        return 1;
    dprintf(fd, "pid %d\n", (int)pid);
    while (wait4(pid, &status, 0, &use) < 0)
        if (errno != EINTR)
            return 1;
    dprintf(fd, "end %lld %lld %lld %ld %d\n", now_ns() - start, micros(use.ru_utime), micros(use.ru_stime),
            use.ru_maxrss, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 0;
}
