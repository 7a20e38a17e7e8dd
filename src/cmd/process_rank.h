/*
 * The number of a process in its job, from its environment.
 */
#ifndef CMD_PROCESS_RANK_H
#define CMD_PROCESS_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_rank {
    int64_t rank;
    const char *variable; /* "RANK"; NULL: no rank */
};

/* The environment is that at the start of the program: what it has set itself is not there. */
struct process_rank process_rank_read(pid_t pid);

/* From an environment as /proc has it: each variable ends with NUL. */
struct process_rank process_rank_parse(const char *environ, size_t len);

#endif
