/* A signal handler that runs on its own stack, far from all others: its size is unknown from outside. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>

#define SIZE 65536

static volatile unsigned long count;

__attribute__((noinline)) static void handler_spins(void)
{
    for (;;)
        count++;
}

static void handler_outer(int number)
{
    (void)number;
    handler_spins();
    count++;
}

int handler_run(void)
{
    stack_t stack = {.ss_size = SIZE};
    struct sigaction action = {.sa_handler = handler_outer, .sa_flags = SA_ONSTACK};

    stack.ss_sp = mmap((void *)0x200000000000, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR2, &action, NULL);
    return raise(SIGUSR2);
}
