/*
 * Functions with stack frames of every shape, for test_cfi_real.c and test_unwind.c: none, saved registers, a size
 * known only at run time, a realigned stack, a function that does not return, a .cold part.
 */
#include <alloca.h>
#include <stdlib.h>
#include <string.h>

int frames_outer(int (*call)(int), int x);
int frames_leaf(int x);
int frames_many(int (*call)(int), int x);
int frames_dynamic(int (*call)(int), int x);
int frames_aligned(int (*call)(int), int x);
int frames_cold(int (*call)(int), int x);

int frames_leaf(int x)
{
    return x * 3 + 1;
}

int frames_many(int (*call)(int), int x)
{
    int a = call(x), b = call(x + 1), c = call(x + 2), d = call(x + 3), e = call(x + 4), f = call(x + 5);

    return a ^ b << 1 ^ c << 2 ^ d << 3 ^ e << 4 ^ f << 5 ^ call(a + b + c + d + e + f);
}

int frames_dynamic(int (*call)(int), int x)
{
    char *room = alloca((size_t)x + 64);

    memset(room, x, (size_t)x + 64);
    return call(room[x]) + 1;
}

int frames_aligned(int (*call)(int), int x)
{
    _Alignas(64) volatile char room[128] = {0};

    room[x & 127] = 1;
    return call(room[3]) + room[4];
}

static __attribute__((cold, noinline, noreturn)) void fail(int (*call)(int))
{
    call(-1);
    abort();
}

int frames_cold(int (*call)(int), int x)
{
    if (__builtin_expect(x < 0, 0))
        fail(call);
    return call(x) + 2;
}

int frames_outer(int (*call)(int), int x)
{
    return frames_many(call, x) + frames_dynamic(call, x) + frames_aligned(call, x) + frames_cold(call, x) +
           frames_leaf(x);
}
