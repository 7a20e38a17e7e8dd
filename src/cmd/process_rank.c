/*
 * Environment variables of launchers -> the rank of a process; and the Python process that it descends from.
 */
#include "cmd/process_rank.h"

#include "cmd/list.h"
#include "target/proc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define ENVIRON_MAX   ((size_t)1 << 20)
#define MAX_DIGITS    9
#define ANCESTORS_MAX 64

/* ADD A LAUNCHER HERE. The first one that is set counts: a job of torchrun within a job of Slurm has the variables of both. LOCAL_RANK
 * is the number on one machine only. */
static const char *const variables[] = {
    "RANK",                 /* torchrun, DeepSpeed, Lightning */
    "OMPI_COMM_WORLD_RANK", /* Open MPI */
    "PMIX_RANK",            /* PMIx: Open MPI 5, Slurm with --mpi=pmix */
    "PMI_RANK",             /* MPICH, Intel MPI */
    "MV2_COMM_WORLD_RANK",  /* MVAPICH2 */
    "PALS_RANKID",          /* HPE Cray */
    "FLUX_TASK_RANK",       /* Flux */
    "HOROVOD_RANK",         /* Horovod with Gloo */
    "JAX_PROCESS_ID",       /* JAX */
    "SLURM_PROCID",         /* Slurm */
    "LOCAL_RANK",
};

static bool parse_rank(const char *value, size_t len, int64_t *ret)
{
    int64_t rank = 0;

    if (!len || len > MAX_DIGITS)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)value[i]))
            return false;
        rank = rank * 10 + (value[i] - '0');
    }
    *ret = rank;
    return true;
}

struct process_rank process_rank_parse(const char *environ, size_t len)
{
    struct process_rank found = {0};
    size_t n_better = sizeof(variables) / sizeof(variables[0]); /* those that may still replace what was found */

    for (size_t at = 0, n; at < len; at += n + 1) {
        const char *text = environ + at;

        n = strnlen(text, len - at);
        for (size_t i = 0; i < n_better; i++) {
            size_t name = strlen(variables[i]);

            if (n > name && text[name] == '=' && memcmp(text, variables[i], name) == 0 &&
                parse_rank(text + name + 1, n - name - 1, &found.rank)) {
                found.variable = variables[i];
                n_better = i;
            }
        }
    }
    return found;
}

struct process_rank process_rank_read(pid_t pid)
{
    struct process_rank found = {0};
    char *text;
    size_t len;

    if (proc_read_memory_file(pid, "environ", ENVIRON_MAX, &text, &len) < 0)
        return found;
    found = process_rank_parse(text, len);
    free(text);
    return found;
}

/* `program` is that of the process whose ancestor it is: a server that embeds Python forks its workers. */
static bool may_be_python(pid_t pid, const char *program)
{
    char *path = NULL;
    const char *slash;
    bool found;

    if (list_looks_like_python(pid))
        return true;
    if (proc_exe_read(pid, &path) < 0)
        return false;
    slash = strrchr(path, '/');
    found = strncmp(slash ? slash + 1 : path, "python", 6) == 0 || (program && strcmp(path, program) == 0);
    free(path);
    return found;
}

pid_t process_python_parent(pid_t pid)
{
    struct proc_stat st = {0};
    char *program = NULL;
    pid_t found = 0;

    if (proc_exe_read(pid, &program) < 0)
        program = NULL;
    for (int i = 0; i < ANCESTORS_MAX && !found && proc_stat_read(pid, 0, &st) == 0 && st.parent > 0; i++) {
        pid = st.parent;
        if (may_be_python(pid, program))
            found = pid;
    }
    free(program);
    return found;
}
