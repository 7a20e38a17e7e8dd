/*
 * ray: hands over to the Python package, which runs `spyglass ray`. pip installs the package together with this program,
 * so the Python beside the program comes first.
 */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* { NULL, "-m", "spyglass", "ray", word, ..., NULL }: python/spyglass/__main__.py takes it from there. */
static char **make_argv(const struct options *o)
{
    static char module_flag[] = "-m", package[] = "spyglass", command[] = "ray";
    size_t n = 0;
    char **argv;

    while (o->program[n])
        n++;
    argv = calloc(n + 5, sizeof(*argv));
    if (!argv)
        return NULL;
    argv[1] = module_flag;
    argv[2] = package;
    argv[3] = command;
    memcpy(argv + 4, o->program, n * sizeof(*argv));
    return argv;
}

/* Returns only if there is no Python to start. */
static void exec_python(char **argv, const char *self)
{
    static const char *const names[] = {"python3", "python"};
    static char fallback[] = "python3";
    const char *slash = strrchr(self, '/');
    char path[PATH_MAX + 16];

    for (size_t i = 0; slash && i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - self), self, names[i]);
        argv[0] = path;
        execv(path, argv);
    }
    argv[0] = fallback;
    execvp(fallback, argv);
}

int cmd_ray(const struct options *o)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct error_text text = {0};
    char **argv = make_argv(o);

    if (!argv)
        return error_text_print(stderr, ERR_NOMEM, NULL);
    self[len > 0 ? len : 0] = '\0';
    /* The package samples with this very program, unless the user names another. */
    if (self[0])
        setenv("SPYGLASS_BINARY", self, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    exec_python(argv, self);
    error_text_what(&text, ERR_LAUNCH, "python3: %s", strerror(errno));
    error_text_hint(&text,
                    "`%s ray` is part of the Python package: install it with pip in the environment of the cluster's "
                    "programs.",
                    args_name(o));
    free(argv);
    return error_text_print(stderr, ERR_LAUNCH, &text);
}
