/*
 * The place of a process in its job: its number, from its environment, and the Python process above it.
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

/* The nearest ancestor that looks like Python; 0: there is none. A rank may start its helpers with a shell. */
pid_t process_python_parent(pid_t pid);

#endif
