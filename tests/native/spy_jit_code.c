/* The code that spy_jit.c loads into memory and registers. It refers to nothing outside of .text. */
#define STALE 12

__attribute__((noinline)) static int jit_inner(const char *line, int (*wait)(const char *), void *stale)
{
    void *volatile frame[STALE];
    int result;

    for (int i = 0; i < STALE; i++)
        frame[i] = stale;
    result = wait(line);
    return result + (frame[result & 7] == stale);
}

int jit_outer(const char *line, int (*wait)(const char *), void *stale)
{
    void *volatile frame[STALE];
    int result;

    for (int i = 0; i < STALE; i++)
        frame[i] = stale;
    result = jit_inner(line, wait, stale);
    return result + (frame[result & 7] == stale);
}
