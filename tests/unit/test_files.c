/*
 * Files of a target below its root: with openat2, and with the fallback for kernels that do not have it.
 */
#include "target/files.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A root with all kinds of links: `far` leads out of it unless links are confined. */
static void make_root(char *dir)
{
    strcpy(dir, "root-XXXXXX");
    if (!mkdtemp(dir) || chdir(dir) < 0 || mkdir("usr", 0755) < 0 || mkdir("usr/bin", 0755) < 0)
        exit(1);
    close(open("usr/bin/python3", O_CREAT | O_WRONLY, 0644));
    CHECK(!symlink("usr/bin", "bin") && !symlink("/usr/bin/python3", "absolute") && !symlink("../../..", "usr/up") &&
          !symlink("/etc/passwd", "far") && !symlink("ring", "ring") && !mkfifo("fifo", 0644));
    if (chdir("..") < 0)
        exit(1);
}

static void remove_root(const char *dir)
{
    static const char *const names[] = {"usr/bin/python3", "bin", "absolute", "usr/up", "far", "ring", "fifo"};
    int fd = open(dir, O_PATH | O_CLOEXEC);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlinkat(fd, names[i], 0);
    unlinkat(fd, "usr/bin", AT_REMOVEDIR);
    unlinkat(fd, "usr", AT_REMOVEDIR);
    close(fd);
    rmdir(dir);
}

static bool opens(const struct files *f, const char *path)
{
    int fd = files_open(f, path);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void check_root(const char *dir)
{
    struct files f;
    char long_path[9000], own[8300];

    CHECK_INT(files_open_root(dir, &f, NULL), 0);
    CHECK(opens(&f, "/usr/bin/python3") && opens(&f, "usr/./bin//python3") && opens(&f, "/bin/python3"));
    CHECK(opens(&f, "/absolute") && opens(&f, "/usr/up/usr/bin/python3") && opens(&f, "/../../usr/bin/python3"));
    CHECK(!opens(&f, "/far") && !opens(&f, "/usr/up/etc/passwd") && !opens(&f, "/../../../../../../etc/passwd"));
    CHECK(!opens(&f, "/ring") && !opens(&f, "/fifo") && !opens(&f, "/usr") && !opens(&f, "/none") && !opens(&f, "/"));
    memset(long_path, '/', sizeof(long_path));
    strcpy(long_path + sizeof(long_path) - 16, "usr/bin/python3");
    CHECK(!opens(&f, long_path));
    CHECK(files_exist(&f, "/usr/bin") && !files_exist(&f, "/usr/lib"));
    /* The path as a process outside of the root sees it. */
    snprintf(own, sizeof(own), "%s/usr/bin/python3", f.root_path ? f.root_path : "");
    CHECK(opens(&f, own));
    files_close(&f);
    CHECK(!opens(&f, "/usr/bin/python3"));
    CHECK_INT(files_open_root("none", &f, NULL), ERR_CORE);
}

static bool opens_own(const struct files *f, const char *path)
{
    int fd = files_open_own(f, path);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Links in directories are fine, a link to the file is not; and the file must not be another user's. */
static void check_own(const char *dir)
{
    struct files f;
    char path[64];

    CHECK_INT(files_open_root(dir, &f, NULL), 0);
    f.uid = 12;
    CHECK(opens_own(&f, "/usr/bin/python3") && opens_own(&f, "/bin/python3") && opens_own(&f, "/usr/up/bin/python3"));
    CHECK(!opens_own(&f, "/absolute") && !opens_own(&f, "/far") && !opens_own(&f, "/ring") && !opens_own(&f, "/fifo") &&
          !opens_own(&f, "/usr") && !opens_own(&f, "/none"));
    snprintf(path, sizeof(path), "%s/usr/bin/python3", dir);
    if (chown(path, 12, (gid_t)-1) == 0) {
        CHECK(opens_own(&f, "/usr/bin/python3"));
        f.uid = 13;
        CHECK(!opens_own(&f, "/usr/bin/python3") && opens(&f, "/usr/bin/python3"));
        CHECK(chown(path, 0, (gid_t)-1) == 0 && opens_own(&f, "/usr/bin/python3"));
    }
    files_close(&f);
}

/* openat2 fails as on an old kernel. */
static bool forbid_openat2(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void test_root(void)
{
    char dir[32];
    int status = -1;
    pid_t child;

    make_root(dir);
    check_root(dir);
    check_own(dir);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        unsigned failed = test_now.failed;

        if (CHECK(forbid_openat2())) {
            check_root(dir);
            check_own(dir);
        }
        _exit(test_now.failed != failed);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    remove_root(dir);
}

static void test_exe(void)
{
    struct files f = {.root = -1, .exe_path = strdup("/usr/bin/gone"), .exe_override = "/proc/self/exe"};
    char *exe = NULL;

    CHECK(opens(&f, "/usr/bin/gone") && !opens(&f, "/usr/bin/env"));
    CHECK_INT(files_exe_read(&f, &exe), 0);
    CHECK_STR(exe, "/usr/bin/gone");
    free(exe);
    files_close(&f);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_root);
    TEST_RUN(test_exe);
    return test_finish("test_files");
}
