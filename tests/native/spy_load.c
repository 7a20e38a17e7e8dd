/*
 * A library that is loaded and unloaded during a recording, built twice: as NAME one and as NAME two. The files differ
 * in names alone, so that both fit the same address.
 *
 *     one_run(0.01)        one_run > one_outer > one_inner, for that much CPU time
 */
#include <time.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define FRAME       __attribute__((noipa))

static volatile int after = 1;

static FRAME int JOIN(NAME, _inner)(double seconds)
{
    volatile unsigned long count = 0;
    struct timespec now, begin;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < 5000; i++)
            count++;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9 < seconds);
    return (int)count;
}

static FRAME int JOIN(NAME, _outer)(double seconds)
{
    return JOIN(NAME, _inner)(seconds) + after;
}

int JOIN(NAME, _run)(double seconds)
{
    return JOIN(NAME, _outer)(seconds) + after;
}
