/*
 * ray: runs the Python package, which implements `spyglass ray`. pip installs the package together with this program,
 * so try the Python in the program's directory first.
 */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Python starts in isolated mode (-I). Otherwise it would import modules from the current directory or from directories
 * named in the environment, which is dangerous with `sudo spyglass ray`. This adds what is safe: absolute paths in
 * PYTHONPATH and the user's own site directory, but not under sudo, where they may be another user's; and the packages
 * that pip installed together with the program (--user, --prefix, --target), or python/ of a source tree.
 */
static char bootstrap[] =
    "import importlib.util, os, site, sys\n"
    "def is_safe(path):\n"
    "    return os.path.isabs(path) and os.path.isdir(path) and not os.stat(path).st_mode & 2\n"
    "def offer(path):\n"
    "    if importlib.util.find_spec('spyglass') is None and is_safe(path):\n"
    "        site.addsitedir(path)\n"
    "root, name = os.path.split(sys.argv.pop(1))\n"
    "env = os.environ\n"
    "if not any(word in env for word in ('SUDO_UID', 'DOAS_USER', 'PKEXEC_UID')):\n"
    "    sys.path[:0] = [path for path in env.get('PYTHONPATH', '').split(':') if os.path.isabs(path)]\n"
    "    user = site.getusersitepackages()\n"
    "    if sys.prefix == sys.base_prefix and not env.get('PYTHONNOUSERSITE') and is_safe(user):\n"
    "        if os.stat(user).st_uid == os.geteuid():\n"
    "            site.addsitedir(user)\n"
    "if name == 'bin' and is_safe(root):\n"
    "    offer('%s/lib/python%d.%d/site-packages' % (root, *sys.version_info[:2]))\n"
    "    if os.path.isfile(root + '/spyglass/__main__.py'):\n"
    "        offer(root)\n"
    "elif name == 'build' and is_safe(root):\n"
    "    offer(root + '/python')\n"
    "try:\n"
    "    from spyglass.__main__ import main\n"
    "except ImportError as error:\n"
    "    sys.exit('Error: %s cannot run `spyglass ray`: %s\\nInstall the package with pip in the environment of the '\n"
    "             \"cluster's programs.\" % (ascii(sys.executable)[1:-1], ascii(str(error))[1:-1]))\n"
    "sys.exit(main(sys.argv[1:]))\n";

/* { NULL, "-I", "-c", bootstrap, directory, "ray", word, ..., NULL } */
static char **make_argv(const struct options *o, char *directory)
{
    static char isolated[] = "-I", code[] = "-c", command[] = "ray";
    size_t n = 0;
    char **argv;

    while (o->program[n])
        n++;
    argv = calloc(n + 7, sizeof(*argv));
    if (!argv)
        return NULL;
    argv[1] = isolated;
    argv[2] = code;
    argv[3] = bootstrap;
    argv[4] = directory;
    argv[5] = command;
    memcpy(argv + 6, o->program, n * sizeof(*argv));
    return argv;
}

/* Others may put a python3 into a directory like /tmp. */
static bool is_writable_by_others(const char *directory)
{
    struct stat st;

    return stat(directory, &st) < 0 || st.st_mode & S_IWOTH;
}

/* Returns only if there is none. */
static void exec_in(const char *directory, size_t len, const char *name, char **argv)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%.*s/%s", (int)len, directory, name);
    argv[0] = path;
    execv(path, argv);
}

/* Returns only if there is no Python to start. Relative entries of PATH are skipped. */
static void exec_python(char **argv, const char *directory)
{
    const char *path = secure_getenv("PATH");

    if (directory[0] == '/' && !is_writable_by_others(directory)) {
        exec_in(directory, strlen(directory), "python3", argv);
        exec_in(directory, strlen(directory), "python", argv);
    }
    for (path = path ? path : "/usr/local/bin:/usr/bin:/bin"; *path; path += *path == ':') {
        size_t len = strcspn(path, ":");

        if (*path == '/' && len < PATH_MAX)
            exec_in(path, len, "python3", argv);
        path += len;
    }
}

int cmd_ray(const struct options *o)
{
    char self[PATH_MAX], directory[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct error_text text = {0};
    char **argv = make_argv(o, directory);

    if (!argv)
        return error_text_print(stderr, ERR_NOMEM, NULL);
    self[len > 0 ? len : 0] = '\0';
    snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(self, '/') ? strrchr(self, '/') - self : 0), self);
    /* The package runs this binary to sample, unless the user sets another. */
    if (self[0])
        setenv("SPYGLASS_BINARY", self, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    errno = ENOENT;
    exec_python(argv, directory);
    error_text_what(&text, ERR_LAUNCH, "python3: %s", strerror(errno));
    error_text_hint(&text,
                    "`%s ray` is part of the Python package: install it with pip in the environment of the cluster's "
                    "programs.",
                    args_name(o));
    free(argv);
    return error_text_print(stderr, ERR_LAUNCH, &text);
}
