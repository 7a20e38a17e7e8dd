/*
 * A process -> is it a profiler at work on the program? Such are not part of what is profiled, though the program or its
 * tools may have started them (dask-pyspy starts one as a child of its target). Called by sample/ for each new process.
 */
#include "target/proc.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Programs that read other processes. One that runs a program inside of itself (memray, scalene) is not among them. */
static const char *const names[] = {"spyglass", "py-spy", "austin", "austinp", "pystack"};
/* Python modules that do so, as `python -m` names them. */
static const char *const modules[] = {"spyglass", "py_spy", "austin", "pystack", "profiling.sampling", "asyncio.tools"};

static bool is_among(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_named(const char *path)
{
    return is_among(last_part(path), names, sizeof(names) / sizeof(names[0]));
}

/* The argument behind `at`, or `end`. */
static const char *next_argument(const char *at, const char *end)
{
    at += strlen(at) + 1;
    return at < end ? at : end;
}

/* `python [FLAGS] /usr/bin/pystack …` or `python -m pystack …`; the arguments end with NUL each. */
static bool runs_profiler(const char *args, size_t len)
{
    const char *end = args + len, *at = next_argument(args, end);

    for (; at < end && *at == '-'; at = next_argument(at, end)) {
        if (strcmp(at, "-c") == 0)
            return false;
        if (strcmp(at, "-m") == 0) {
            at = next_argument(at, end);
            return at < end && is_among(at, modules, sizeof(modules) / sizeof(modules[0]));
        }
        if (strcmp(at, "-W") == 0 || strcmp(at, "-X") == 0)
            at = next_argument(at, end);
        if (at == end)
            return false;
    }
    return at < end && is_named(at);
}

/* Of another user's process the name is told, but not the program. */
static bool is_named_so(pid_t pid)
{
    char *name;
    size_t len;
    bool yes;

    if (proc_read_file(pid, 0, "comm", &name, &len) < 0)
        return false;
    name[strcspn(name, "\n")] = '\0';
    yes = is_named(name);
    free(name);
    return yes;
}

void proc_be_profiler(bool as_py_spy)
{
    prctl(PR_SET_NAME, as_py_spy ? "py-spy" : "spyglass");
}

bool proc_is_profiler(pid_t pid)
{
    char *exe, *args;
    size_t len;
    bool yes, is_python;

    if (pid == getpid())
        return true;
    if (proc_exe_read(pid, &exe) < 0)
        return is_named_so(pid);
    yes = is_named(exe);
    is_python = strncmp(last_part(exe), "python", 6) == 0;
    free(exe);
    if (yes || !is_python || proc_read_file(pid, 0, "cmdline", &args, &len) < 0)
        return yes;
    yes = len > 0 && runs_profiler(args, len);
    free(args);
    return yes;
}
