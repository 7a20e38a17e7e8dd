/* The cost of waking up, and nothing else: wake PID RATE
 *
 * Sleeps and wakes RATE times a second on the CPU that the process runs on, until Ctrl-C. A sampler that reads its
 * target from there cannot cost the target less. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static volatile sig_atomic_t ended;

static void on_signal(int sig)
{
    ended = sig;
}

/* The CPU that it last ran on: field 39 of its stat file. */
static int core_of(const char *pid)
{
    char path[64], text[1024], *p;
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    file = fopen(path, "r");
    if (!file)
        return -1;
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    p = strrchr(text, ')');
    for (int i = 0; p && i < 37; i++)
        p = strchr(p + 1, ' ');
    return p ? atoi(p) : -1;
}

static void go(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct timespec due;
    long rate = argc == 3 ? atol(argv[2]) : 0, n = 0;

    if (rate < 1 || core_of(argv[1]) < 0)
        return 2;
    sigaction(SIGINT, &action, NULL);
    prctl(PR_SET_TIMERSLACK, 1);
    puts("Sampling process");
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (; !ended; n++) {
        int core = n % 50 == 0 ? core_of(argv[1]) : -1;

        if (core >= 0)
            go(core);
        due.tv_nsec += 1000000000 / rate;
        if (due.tv_nsec >= 1000000000) {
            due.tv_nsec -= 1000000000;
            due.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
    }
    printf("Samples: %ld Errors: 0\n", n);
    return 0;
}
