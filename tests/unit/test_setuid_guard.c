/*
 * target/setuid_guard: which address space the opened /proc/PID/mem belongs to, when the process calls exec in the meantime.
 * Needs root: the guard becomes another user, as if spyglass were installed setuid. The two functions of the C library
 * below stand for the setuid bit, and let a test act right after the open.
 */
#include "target/caps.h"
#include "target/setuid_guard.h"
#include "test.h"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define USER   1000
#define SECRET 0x5ec4e75ec4e7

static volatile uint64_t secret;
static bool is_setuid;           /* in the guard */
static void (*after_open)(void); /* once, after "mem" was opened */
static int go[2], gone[2];       /* pipes: the target may call exec; it has done so */

/* A sanitizer calls this before it is ready itself, and before there is `environ`. */
__attribute__((no_sanitize("address", "undefined"))) unsigned long getauxval(unsigned long type)
{
    Elf64_auxv_t aux = {0};
    unsigned long value = 0;
    int fd;

    if (type == AT_SECURE)
        return is_setuid;
    fd = (int)syscall(SYS_open, "/proc/self/auxv", O_RDONLY);
    while (syscall(SYS_read, fd, &aux, sizeof(aux)) == sizeof(aux) && aux.a_type != AT_NULL)
        if (aux.a_type == type)
            value = aux.a_un.a_val;
    syscall(SYS_close, fd);
    return value;
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    int mode, fd;

    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (after_open && strcmp(path, "mem") == 0) {
        void (*act)(void) = after_open;

        after_open = NULL;
        act();
    }
    return fd;
}

static void let_exec(void)
{
    char byte = '\n';

    if (write(go[1], &byte, 1) != 1 || read(gone[0], &byte, 1) != 0) /* its end closes at exec */
        _exit(9);
}

static void become_user(void)
{
    if (setresgid(USER, USER, USER) < 0 || setresuid(USER, USER, USER) < 0)
        _exit(9);
}

/* Waits until it is told to, drops its capabilities and becomes an ordinary program. */
static int wait_and_exec(void *unused)
{
    char byte;

    (void)unused;
    if (read(go[0], &byte, 1) == 1 && caps_set(0, 0) == 0)
        execl("/bin/sleep", "sleep", "1000", NULL);
    _exit(9);
}

/* A process with capabilities, dumpable like one with ambient capabilities, starts a child that shares its memory until exec.
 * Writes the child's pid. */
static void run_capable(int report)
{
    static char stack[1 << 16];
    pid_t child;

    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    become_user();
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    secret = SECRET;
    child = clone(wait_and_exec, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
    close(gone[1]);
    if (child < 0 || write(report, &child, sizeof(child)) != sizeof(child))
        _exit(9);
    for (;;)
        pause();
}

/* A process of the user that becomes a shell, and then another program. */
static void run_own(int report)
{
    char command[96];

    become_user();
    snprintf(command, sizeof(command), "echo >&%d; read x <&%d; exec %d>&- sleep 1000", report, go[0], gone[1]);
    fcntl(go[0], F_SETFD, 0);
    fcntl(gone[1], F_SETFD, 0);
    fcntl(report, F_SETFD, 0);
    execl("/bin/sh", "sh", "-c", command, NULL);
    _exit(9);
}

/* Runs in a process of its own: opens the memory as the setuid program would. */
static int guard_opens(pid_t pid)
{
    if (setresgid(USER, 0, 0) < 0 || setresuid(USER, 0, 0) < 0)
        _exit(9);
    is_setuid = true;
    if (setuid_guard_drop_privileges(NULL) < 0 || !setuid_guard_active())
        _exit(9);
    after_open = let_exec;
    return setuid_guard_open_mem(pid);
}

static bool may_test(void)
{
    if (getuid() != 0 || !(caps_permitted() & CAPS_PTRACE)) {
        test_skip("needs root with CAP_SYS_PTRACE");
        return false;
    }
    return pipe2(go, O_CLOEXEC) == 0 && pipe2(gone, O_CLOEXEC) == 0;
}

static int wait_status(pid_t pid)
{
    int status = -1;

    waitpid(pid, &status, 0);
    return status;
}

static void close_pipes(void)
{
    close(go[0]);
    close(go[1]);
    close(gone[0]);
}

/* The child of the capable process is the user's own when it is checked, but what was opened is its parent's memory. */
static void test_shared_memory(void)
{
    int report[2];
    pid_t capable, guard, child = 0;

    if (!may_test() || pipe2(report, O_CLOEXEC) < 0)
        return;
    fflush(NULL);
    capable = fork();
    if (capable == 0)
        run_capable(report[1]);
    close(gone[1]);
    CHECK(read(report[0], &child, sizeof(child)) == sizeof(child));
    guard = fork();
    if (guard == 0) {
        uint64_t got = 0;
        int fd = guard_opens(child);

        _exit(fd >= 0 && pread(fd, &got, sizeof(got), (off_t)(uintptr_t)&secret) == sizeof(got) && got == SECRET);
    }
    CHECK_INT(wait_status(guard), 0);
    kill(child, SIGKILL);
    kill(capable, SIGKILL);
    wait_status(capable);
    close(report[0]);
    close(report[1]);
    close_pipes();
}

/* The user's own process calls exec right after its memory was opened: open it again. */
static void test_exec(void)
{
    int report[2];
    pid_t target, guard;
    char byte;

    if (!may_test() || pipe2(report, O_CLOEXEC) < 0)
        return;
    fflush(NULL);
    target = fork();
    if (target == 0)
        run_own(report[1]);
    close(gone[1]);
    CHECK(read(report[0], &byte, 1) == 1);
    guard = fork();
    if (guard == 0) {
        unsigned long start = 0;
        char path[64], got[4] = "";
        int fd = guard_opens(target);
        FILE *maps;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)target);
        maps = fopen(path, "re");
        if (!maps || fscanf(maps, "%lx", &start) != 1)
            _exit(8);
        _exit(fd < 0 || pread(fd, got, 4, (off_t)start) != 4 || memcmp(got, "\177ELF", 4) != 0);
    }
    CHECK_INT(wait_status(guard), 0);
    kill(target, SIGKILL);
    wait_status(target);
    close(report[0]);
    close(report[1]);
    close_pipes();
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    CHECK(!setuid_guard_active());
    TEST_RUN(test_shared_memory);
    TEST_RUN(test_exec);
    return test_finish("test_setuid_guard");
}
