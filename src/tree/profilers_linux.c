/*
 * Matches the program name and the command line of a process against a list of profilers.
 */
#include "tree/profilers.h"

#include "target/proc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define COMMAND_MAX 65536

/* Programs that read other processes. Profilers that run the program in their own process (memray, scalene) do not
 * belong here. */
static const char *const names[] = {"spyglass", "py-spy", "austin", "austinp", "pystack"};
/* Python modules that do the same, as arguments of `python -m`. */
static const char *const modules[] = {"spyglass", "py_spy", "austin", "pystack", "profiling.sampling", "asyncio.tools"};

static bool is_among(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_profiler_program(const char *path)
{
    return is_among(base_name(path), names, sizeof(names) / sizeof(names[0]));
}

/* The argument after `at`, or `end`. */
static const char *next_argument(const char *at, const char *end)
{
    at += strlen(at) + 1;
    return at < end ? at : end;
}

/* `python [FLAGS] /usr/bin/pystack …` or `python -m pystack …`; each argument is NUL-terminated. */
static bool is_profiler_command(const char *args, size_t len)
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
    return at < end && is_profiler_program(at);
}

void profilers_announce(bool as_py_spy)
{
    prctl(PR_SET_NAME, as_py_spy ? "py-spy" : "spyglass");
}

bool profilers_match(pid_t pid)
{
    char *exe, *text;
    size_t len;
    bool match, is_python;

    if (pid == getpid())
        return true;
    if (proc_exe_read(pid, &exe) < 0) {
        /* The kernel hides the program of another user's process, but not its name. */
        if (proc_read_file(pid, 0, "comm", &text, &len) < 0)
            return false;
        text[strcspn(text, "\n")] = '\0';
        match = is_profiler_program(text);
        free(text);
        return match;
    }
    match = is_profiler_program(exe);
    is_python = strncmp(base_name(exe), "python", 6) == 0;
    free(exe);
    if (match || !is_python || proc_read_memory_file(pid, "cmdline", COMMAND_MAX, &text, &len) < 0)
        return match;
    match = len > 0 && is_profiler_command(text, len);
    free(text);
    return match;
}
