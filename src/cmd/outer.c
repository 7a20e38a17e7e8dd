/*
 * Commands that the Python package implements, such as `spyglass ray`: replaces this process with Python. The package
 * is installed together with this binary, so the Python in the same directory is the right one.
 */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* If the package is missing, Python's own error message does not say what to do. */
static const char outer_code[] = "import sys\n"
                                 "command = sys.argv[1]\n"
                                 "try:\n"
                                 "    from importlib import import_module\n"
                                 "    module = import_module('spyglass.' + command)\n"
                                 "except ImportError as error:\n"
                                 "    sys.exit('Error: %s cannot run `spyglass %s`: %s\\n'\n"
                                 "             'Install the missing package: pip install spyglass %s' % (\n"
                                 "                 sys.executable, command, error, '\"ray[default]\"' if "
                                 "command == 'ray' else command))\n"
                                 "sys.exit(module.main(sys.argv[2:]))\n";

/* Sets `self` to the path of this binary and `buf` to its directory, without a trailing slash; both "" if unknown. */
static void own_directory(char *buf, size_t n, char *self, size_t self_n)
{
    ssize_t len = readlink("/proc/self/exe", self, self_n - 1);

    self[len > 0 ? len : 0] = '\0';
    snprintf(buf, n, "%s", self);
    char *slash = strrchr(buf, '/');
    if (slash)
        *slash = '\0';
    else
        buf[0] = '\0';
}

static char **make_argv(const struct options *o, const char *name)
{
    size_t n = 0;
    char **argv;

    while (o->program[n])
        n++;
    argv = calloc(n + 5, sizeof(*argv));
    if (!argv)
        return NULL;
    argv[1] = "-c";
    argv[2] = (char *)outer_code; /* execv does not modify its arguments */
    argv[3] = (char *)name;
    memcpy(argv + 4, o->program, n * sizeof(*argv));
    return argv;
}

/* Returns only if no Python could be started. */
static void become_python(char **argv, const char *directory)
{
    static const char *const names[] = {"python3", "python"};
    char path[PATH_MAX + 16];

    for (size_t i = 0; directory[0] && i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        argv[0] = path;
        execv(path, argv);
    }
    argv[0] = "python3";
    execvp("python3", argv);
}

int cmd_outer(const struct options *o)
{
    char directory[PATH_MAX], self[PATH_MAX];
    struct err_note note = {0};
    char **argv = make_argv(o, args_command_row(o->command)->name);

    if (!argv)
        return err_print(stderr, ERR_NOMEM, NULL);
    own_directory(directory, sizeof(directory), self, sizeof(self));
    if (self[0])
        setenv("SPYGLASS_BINARY", self, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    become_python(argv, directory);
    err_note_what(&note, ERR_LAUNCH, "python3: %s", strerror(errno));
    err_note_hint(&note,
                  "`%s %s` is part of the Python package: install it with pip in the environment of the cluster's "
                  "programs.",
                  args_name(o), args_command_row(o->command)->name);
    free(argv);
    return err_print(stderr, ERR_LAUNCH, &note);
}
