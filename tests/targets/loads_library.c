/*
 * Loads a shared library, does not call it, and starts a child that runs the rest of the command line, if there is one: like
 * Apache, whose master loads mod_wsgi and libpython and leaves Python to its children.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (!dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (argc > 2 && fork() == 0) {
        execv(argv[2], argv + 2);
        _exit(127);
    }
    if (argc <= 2) {
        puts("{}");
        fflush(stdout);
    }
    for (;;)
        pause();
}
