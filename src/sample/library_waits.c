/*
 * Names of functions that wait for a GPU or for other ranks: ADD A LIBRARY HERE.
 */
#include "sample/library_waits.h"

#include <string.h>

#define FRAMES_SEEN 24 /* innermost frames, C++ included */

/* `name` ends with '*': the beginning of a name. `file`: the end of the file of a Python function; NULL: a native function. */
static const struct library_row {
    enum awaited_kind kind;
    const char *name, *file;
} rows[] = {
    {AWAITED_GPU, "cudaDeviceSynchronize", NULL},
    {AWAITED_GPU, "cudaStreamSynchronize*", NULL},
    {AWAITED_GPU, "cudaEventSynchronize", NULL},
    {AWAITED_GPU, "cudaStreamWaitEvent*", NULL},
    {AWAITED_GPU, "cudaMemcpy*", NULL},
    {AWAITED_GPU, "cuCtxSynchronize*", NULL},
    {AWAITED_GPU, "cuStreamSynchronize*", NULL},
    {AWAITED_GPU, "cuEventSynchronize", NULL},
    {AWAITED_GPU, "cuMemcpy*", NULL},
    {AWAITED_GPU, "hipDeviceSynchronize", NULL},
    {AWAITED_GPU, "hipStreamSynchronize*", NULL},
    {AWAITED_GPU, "hipEventSynchronize", NULL},
    {AWAITED_GPU, "synchronize", "torch/cuda/__init__.py"},
    {AWAITED_GPU, "synchronize", "torch/cuda/streams.py"},
    {AWAITED_COLLECTIVE, "ncclAllReduce", NULL},
    {AWAITED_COLLECTIVE, "ncclAllGather", NULL},
    {AWAITED_COLLECTIVE, "ncclBroadcast", NULL},
    {AWAITED_COLLECTIVE, "ncclReduce*", NULL},
    {AWAITED_COLLECTIVE, "ncclSend", NULL},
    {AWAITED_COLLECTIVE, "ncclRecv", NULL},
    {AWAITED_COLLECTIVE, "ncclGroupEnd", NULL},
    {AWAITED_COLLECTIVE, "ncclCommInit*", NULL},
    {AWAITED_COLLECTIVE, "gloo::allreduce*", NULL},
    {AWAITED_COLLECTIVE, "gloo::allgather*", NULL},
    {AWAITED_COLLECTIVE, "gloo::alltoall*", NULL},
    {AWAITED_COLLECTIVE, "gloo::barrier*", NULL},
    {AWAITED_COLLECTIVE, "gloo::broadcast*", NULL},
    {AWAITED_COLLECTIVE, "gloo::gather*", NULL},
    {AWAITED_COLLECTIVE, "gloo::reduce*", NULL},
    {AWAITED_COLLECTIVE, "gloo::scatter*", NULL},
    {AWAITED_COLLECTIVE, "MPI_Barrier", NULL},
    {AWAITED_COLLECTIVE, "MPI_All*", NULL},
    {AWAITED_COLLECTIVE, "MPI_Bcast", NULL},
    {AWAITED_COLLECTIVE, "MPI_Reduce*", NULL},
    {AWAITED_COLLECTIVE, "MPI_Gather*", NULL},
    {AWAITED_COLLECTIVE, "MPI_Scatter*", NULL},
    {AWAITED_COLLECTIVE, "MPI_Recv", NULL},
    {AWAITED_COLLECTIVE, "MPI_Send", NULL},
    {AWAITED_COLLECTIVE, "MPI_Sendrecv*", NULL},
    {AWAITED_COLLECTIVE, "MPI_Wait*", NULL},
    {AWAITED_COLLECTIVE, "all_reduce*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "all_gather*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "all_to_all*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "barrier", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "monitored_barrier", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "broadcast*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "gather*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "recv*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "reduce*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "scatter*", "torch/distributed/distributed_c10d.py"},
    {AWAITED_COLLECTIVE, "send*", "torch/distributed/distributed_c10d.py"},
};

static bool has_name(const char *name, const char *pattern)
{
    size_t n = strlen(pattern);

    return pattern[n - 1] == '*' ? strncmp(name, pattern, n - 1) == 0 : strcmp(name, pattern) == 0;
}

static bool is_in_file(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);

    return n > k && path[n - k - 1] == '/' && strcmp(path + n - k, end) == 0;
}

/* A C++ function has arguments after its name, and one of a shared library a version. */
static bool is_row(const struct func *func, const struct library_row *row)
{
    char name[128];
    size_t len = strcspn(func->name, "(<@");

    if ((row->file == NULL) != (func->module != NULL))
        return false;
    if (len >= sizeof(name))
        return false;
    memcpy(name, func->name, len);
    name[len] = '\0';
    return has_name(name, row->name) && (!row->file || is_in_file(func->filename, row->file));
}

bool library_wait_is_weaker(const struct awaited_object *object)
{
    return object->owner.known ||
           (object->certain &&
            (object->kind == AWAITED_LOCK || object->kind == AWAITED_RLOCK || object->kind == AWAITED_IMPORT_LOCK ||
             object->kind == AWAITED_SHARED_LOCK || object->kind == AWAITED_THREAD));
}

/* The outermost collective counts, since it is what the program called; one that waits for its GPU is a collective. */
bool library_wait_find(const struct frame *frames, size_t n, struct awaited_object *ret)
{
    bool found = false;

    for (size_t i = 0; i < n && i < FRAMES_SEEN; i++) {
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            if (!is_row(frames[i].func, &rows[k]) || (found && rows[k].kind != AWAITED_COLLECTIVE))
                continue;
            *ret = (struct awaited_object){.kind = rows[k].kind, .certain = true, .operation = frames[i].func->name};
            found = true;
            break;
        }
    }
    return found;
}
