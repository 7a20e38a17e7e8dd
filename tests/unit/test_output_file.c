/*
 * The output file of a recording: each kind of path, each failure, and that no stray file remains. Tests that need
 * another user or a mount run in a child process, and only as root.
 */
#include "out/output_file.h"

#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* Paths below are relative to the test's own directory. */
static char work[PATH_MAX];

struct text {
    const char *text;
    size_t times;
    int result;
};

static int fill_text(FILE *out, void *arg)
{
    const struct text *t = arg;

    for (size_t i = 0; i < t->times; i++)
        fputs(t->text, out);
    return t->result;
}

static int put(struct output_file *pl, const char *text, struct err_note *note)
{
    return output_file_write(pl, fill_text, &(struct text){text, 1, 0}, note);
}

static int put_big(struct output_file *pl, struct err_note *note)
{
    return output_file_write(pl, fill_text, &(struct text){"0123456789abcdef", 1 << 16, 0}, note);
}

static void make_file(const char *path, const char *content)
{
    FILE *f = fopen(path, "w");

    if (!CHECK(f != NULL))
        exit(1);
    fputs(content, f);
    fclose(f);
}

static const char *read_file(const char *path)
{
    static char buf[256];
    FILE *f = fopen(path, "r");

    if (!f)
        return NULL;
    buf[fread(buf, 1, sizeof(buf) - 1, f)] = '\0';
    fclose(f);
    return buf;
}

static ino_t inode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_ino : 0;
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_mode : 0;
}

/* The number of entries in a directory. */
static int count_names(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n - 2;
}

/* Creates a fresh directory for one test and changes to it. */
static void enter(const char *name)
{
    CHECK_INT(chdir(work), 0);
    CHECK_INT(mkdir(name, 0777), 0);
    CHECK_INT(chdir(name), 0);
}

static struct output_file *open_ok(const char *path)
{
    struct err_note note = {0};
    struct output_file *pl = NULL;

    if (!CHECK_INT(output_file_open(path, NULL, &pl, &note), 0))
        fprintf(stderr, "    of '%s': reason %d\n", path, note.facts.reason);
    return pl;
}

/* Every refusal names the path. */
static void check_refused(const char *path, enum err_reason reason, int error)
{
    struct err_note note = {0};
    struct output_file *pl = (struct output_file *)1;

    CHECK_INT(output_file_open(path, NULL, &pl, &note), ERR_OUTPUT);
    CHECK(pl == (struct output_file *)1);
    if (reason == REASON_NONE) /* any */
        return;
    CHECK_INT(note.facts.reason, reason);
    CHECK_INT(note.facts.error, error);
    CHECK_STR(note.facts.path, path);
}

/* ---- files ---- */

static void test_new_file(void)
{
    enter("new");
    mode_t mask = umask(027);
    struct output_file *pl = open_ok("a.svg");

    CHECK_INT(count_names("."), 0);
    CHECK_STR(output_file_path(pl), "a.svg");
    CHECK(!output_file_is_stdout(pl));
    CHECK_INT(put(pl, "one", NULL), 0);
    CHECK_STR(read_file("a.svg"), "one");
    CHECK_INT(mode_of("a.svg") & 07777, 0640);
    CHECK_INT(put(pl, "2", NULL), 0);
    CHECK_STR(read_file("a.svg"), "2");
    CHECK_INT(count_names("."), 1);
    CHECK(output_file_close(pl) == NULL);
    CHECK(output_file_close(NULL) == NULL);
    umask(mask);
}

static void test_unused(void)
{
    enter("unused");
    output_file_close(open_ok("a.svg"));
    CHECK_INT(count_names("."), 0);
}

static void test_replaces(void)
{
    enter("replaces");
    make_file("a", "older");
    int held = open("a", O_RDONLY | O_CLOEXEC);
    struct output_file *pl = open_ok("./a");
    char buf[8] = "";

    CHECK_INT(put(pl, "new", NULL), 0);
    CHECK_STR(read_file("a"), "new");
    CHECK_INT(read(held, buf, sizeof(buf)), 5); /* a reader that has the old one open sees all of it */
    close(held);
    output_file_close(pl);
    CHECK_INT(count_names("."), 1);
}

static void test_fill_fails(void)
{
    struct err_note note = {.facts.number = 42};

    enter("fill");
    make_file("old", "older");
    struct output_file *pl = open_ok("new"), *old = open_ok("old");
    struct text bad = {"x", 100000, ERR_NO_SAMPLES};

    CHECK_INT(output_file_write(pl, fill_text, &bad, &note), ERR_NO_SAMPLES);
    CHECK_INT(output_file_write(old, fill_text, &bad, &note), ERR_NO_SAMPLES);
    CHECK(note.facts.reason == REASON_NONE && note.facts.number == 42); /* not touched */
    CHECK_STR(read_file("old"), "older");
    CHECK_INT(count_names("."), 1);
    output_file_close(pl);
    output_file_close(old);
}

static void test_empty_file_keeps_inode(void)
{
    enter("empty");
    make_file("a", "");
    ino_t inode = inode_of("a");
    int held = open("a", O_RDONLY | O_CLOEXEC);
    struct output_file *pl = open_ok("a");
    char buf[16] = "";

    CHECK_INT(put(pl, "a longer one", NULL), 0);
    CHECK_INT(read(held, buf, sizeof(buf)), 12);
    CHECK_INT(put(pl, "short", NULL), 0);
    CHECK_STR(read_file("a"), "short");
    CHECK(inode_of("a") == inode);
    /* A write callback that fails before it writes leaves the last snapshot. */
    CHECK_INT(output_file_write(pl, fill_text, &(struct text){"", 1, ERR_NO_SAMPLES}, NULL), ERR_NO_SAMPLES);
    CHECK_STR(read_file("a"), "short");
    /* One that fails in the middle leaves nothing, not half a file. */
    CHECK_INT(output_file_write(pl, fill_text, &(struct text){"xxxxxxxx", 100000, ERR_IO}, NULL), ERR_IO);
    CHECK_STR(read_file("a"), "");
    CHECK_INT(count_names("."), 1);
    close(held);
    output_file_close(pl);
}

static void test_empty_file_changes_hands(void)
{
    enter("hands");
    make_file("a", "");
    struct output_file *pl = open_ok("a");
    make_file("a", "somebody's");
    ino_t inode = inode_of("a");
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file("a"), "ours");
    CHECK(inode_of("a") != inode);
    output_file_close(pl);

    make_file("b", "");
    make_file("victim", "precious");
    pl = open_ok("b");
    CHECK_INT(unlink("b") + symlink("victim", "b"), 0);
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file("victim"), "precious");
    CHECK(S_ISREG(mode_of("b")));
    CHECK_STR(read_file("b"), "ours");
    output_file_close(pl);

    make_file("c", "");
    pl = open_ok("c");
    unlink("c");
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file("c"), "ours");
    output_file_close(pl);
}

static void test_hard_link_is_left(void)
{
    enter("hard");
    make_file("other", "");
    CHECK_INT(link("other", "a"), 0);
    struct output_file *pl = open_ok("a");
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file("other"), "");
    CHECK_STR(read_file("a"), "ours");
    output_file_close(pl);
}

static void test_symlink(void)
{
    static const char *const targets[] = {"full", "empty", "nowhere", "/dev/null", "."};

    enter("symlink");
    make_file("full", "precious");
    make_file("empty", "");
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        CHECK_INT(symlink(targets[i], "a"), 0);
        struct output_file *pl = open_ok("a");
        CHECK_INT(put(pl, "ours", NULL), 0);
        CHECK(S_ISREG(mode_of("a")));
        CHECK_STR(read_file("a"), "ours");
        output_file_close(pl);
        unlink("a");
    }
    CHECK_STR(read_file("full"), "precious");
    CHECK_STR(read_file("empty"), "");
    CHECK_INT(access("nowhere", F_OK), -1);
    CHECK_INT(count_names("."), 2);
}

static void test_refused(void)
{
    char name[300];
    struct err_note note = {0};
    struct output_file *pl;
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    enter("refused");
    CHECK_INT(mkdir("dir", 0777), 0);
    make_file("file", "x");
    CHECK_INT(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
    check_refused("", REASON_OUTPUT_NO_NAME, 0);
    check_refused("dir", REASON_OUTPUT_IS_DIRECTORY, 0);
    check_refused("dir/", REASON_OUTPUT_IS_DIRECTORY, 0);
    check_refused(".", REASON_OUTPUT_IS_DIRECTORY, 0);
    check_refused("/", REASON_OUTPUT_IS_DIRECTORY, 0);
    check_refused("no/such/a.svg", REASON_OUTPUT_NO_DIRECTORY, ENOENT);
    check_refused("file/a.svg", REASON_OUTPUT_BAD_DIRECTORY, ENOTDIR);
    check_refused("socket", REASON_OUTPUT_NOT_REGULAR, 0);
    check_refused("/proc/a.svg", REASON_NONE, 0);
    check_refused("\033[31m\xc2\x9bm\xff/a", REASON_OUTPUT_NO_DIRECTORY, ENOENT);
    check_refused("\xc3\xa9t\xc3\xa9/a", REASON_OUTPUT_NO_DIRECTORY, ENOENT);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    check_refused(name, REASON_NONE, 0);
    CHECK_INT(output_file_open("no/a", NULL, &pl, &note), ERR_OUTPUT);
    CHECK_STR(note.facts.other, "no");
    CHECK_INT(output_file_open("no/a", NULL, &pl, NULL), ERR_OUTPUT);
    CHECK_INT(count_names("."), 3);
    close(sock);
}

static void test_longest_name(void)
{
    char name[256];

    enter("longest");
    memset(name, 'n', sizeof(name) - 1);
    name[255] = '\0';
    struct output_file *pl = open_ok(name);
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file(name), "ours");
    output_file_close(pl);
}

static void test_directory_comes_and_goes(void)
{
    struct err_note note = {0};

    enter("goes");
    CHECK_INT(mkdir("d", 0777), 0);
    struct output_file *pl = open_ok("d/a");
    CHECK_INT(rmdir("d"), 0);
    CHECK_INT(put(pl, "ours", &note), ERR_OUTPUT);
    CHECK(note.facts.reason == REASON_OUTPUT_OPEN && note.facts.error == ENOENT);
    CHECK_INT(mkdir("d", 0777), 0);
    CHECK_INT(put(pl, "ours", &note), 0);
    CHECK_STR(read_file("d/a"), "ours");
    /* A directory at the path of the file: refused at the end, and no stray temporary file. */
    CHECK_INT(unlink("d/a") + mkdir("d/a", 0777), 0);
    CHECK_INT(put(pl, "ours", &note), ERR_OUTPUT);
    CHECK_INT(count_names("d"), 1);
    output_file_close(pl);
}

/* ---- streams ---- */

static void test_fifo(void)
{
    struct err_note note = {0};
    struct output_file *pl;
    char buf[16] = "";

    enter("fifo");
    CHECK_INT(mkfifo("f", 0666), 0);
    CHECK_INT(output_file_open("f", NULL, &pl, &note), ERR_OUTPUT);
    CHECK_INT(note.facts.reason, REASON_OUTPUT_NO_READER);
    int reader = open("f", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    pl = open_ok("f");
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_INT(read(reader, buf, sizeof(buf)), 4);
    close(reader);
    CHECK_INT(put(pl, "ours", &note), ERR_DISK);
    CHECK(note.facts.reason == REASON_WRITE_NO_READER && note.facts.error == EPIPE);
    CHECK(S_ISFIFO(mode_of("f")));
    output_file_close(pl);
}

/* More than a pipe holds, to a slow reader. */
static void test_fifo_slow_reader(void)
{
    enter("slow");
    CHECK_INT(mkfifo("f", 0666), 0);
    int reader = open("f", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct output_file *pl = open_ok("f");
    pid_t child = fork();

    if (child == 0) {
        _exit(put_big(pl, NULL) == 0 ? 0 : 1);
    }
    output_file_close(pl);
    fcntl(reader, F_SETFL, 0);
    static char buf[5000];
    size_t total = 0;
    ssize_t n;
    while ((n = read(reader, buf, sizeof(buf))) > 0)
        total += (size_t)n;
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    CHECK_INT(total, 16 << 16);
    close(reader);
}

static void test_devices(void)
{
    struct err_note note = {0};
    struct output_file *pl = open_ok("/dev/null");

    CHECK_INT(put_big(pl, NULL), 0);
    CHECK(S_ISCHR(mode_of("/dev/null")));
    output_file_close(pl);
    pl = open_ok("/dev/full");
    CHECK_INT(put(pl, "ours", &note), ERR_DISK);
    CHECK(note.facts.reason == REASON_WRITE_IN_PLACE && note.facts.error == ENOSPC);
    output_file_close(pl);
}

static void test_descriptors(void)
{
    static const char *const folders[] = {"/dev/fd", "/proc/self/fd"};
    char path[32], buf[16];
    int ends[2];

    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
        snprintf(path, sizeof(path), "%s/%d", folders[i], ends[1]);
        struct output_file *pl = open_ok(path);
        CHECK_STR(output_file_path(pl), path);
        CHECK(!output_file_is_stdout(pl));
        CHECK_INT(put(pl, "one", NULL) + put(pl, "two", NULL), 0);
        CHECK_INT(read(ends[0], buf, sizeof(buf)), 6);
        output_file_close(pl);
        snprintf(path, sizeof(path), "%s/%d", folders[i], ends[0]);
        check_refused(path, REASON_NONE, 0);
        close(ends[0]);
        close(ends[1]);
    }
    check_refused("/dev/fd/987654", REASON_OUTPUT_FD_CLOSED, 0);
}

/* Standard output is a file: the final result replaces a snapshot; what others wrote stays. */
static void test_redirected(void)
{
    static const char *const names[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    static const int flags[] = {O_TRUNC, O_TRUNC | O_APPEND};

    enter("redirected");
    int saved = fcntl(1, F_DUPFD_CLOEXEC, 3);
    for (size_t i = 0; i < 8; i++) {
        fflush(stdout);
        int fd = open("out", O_RDWR | O_CREAT | O_CLOEXEC | flags[i % 2], 0666);
        dup2(fd, 1);
        CHECK_INT(write(1, "head ", 5), 5);
        struct output_file *pl = open_ok(names[i / 2]);
        CHECK(output_file_is_stdout(pl));
        CHECK_INT(put(pl, "the first", NULL), 0);
        CHECK_INT(put(pl, "second", NULL), 0);
        CHECK_STR(read_file("out"), "head second");
        CHECK_INT(write(1, " other ", 7), 7);
        CHECK_INT(put(pl, "third", NULL), 0);
        CHECK_STR(read_file("out"), "head second other third");
        output_file_close(pl);
        close(fd);
        dup2(saved, 1);
    }
    close(saved);
}

static void test_closed_pipe(void)
{
    struct err_note note = {0};
    char path[32];
    int ends[2];

    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    snprintf(path, sizeof(path), "/dev/fd/%d", ends[1]);
    struct output_file *pl = open_ok(path);
    close(ends[0]);
    CHECK_INT(put_big(pl, &note), ERR_DISK);
    CHECK(note.facts.reason == REASON_WRITE_NO_READER && note.facts.error == EPIPE);
    output_file_close(pl);
    close(ends[1]);
}

/* ---- a reader that does not read ---- */

static bool give_up_later(void *arg, uint64_t waited_ns)
{
    int *calls = arg;

    (void)waited_ns;
    return ++*calls == 3;
}

/* Nothing is lost before we give up, and what the pipe has taken is counted. */
static void check_stalls(struct output_file *pl)
{
    struct err_note note = {0};
    int calls = 0;

    output_file_on_stall(pl, give_up_later, &calls);
    CHECK_INT(put_big(pl, &note), ERR_INTERRUPTED);
    CHECK_INT(calls, 3);
    CHECK_INT(note.facts.reason, REASON_WRITE_STALLED);
    CHECK(note.facts.number > 0 && note.facts.number < 16 << 16);
    output_file_close(pl);
}

static void test_stalled_fifo(void)
{
    enter("stalled");
    CHECK_INT(mkfifo("f", 0666), 0);
    int reader = open("f", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    check_stalls(open_ok("f"));
    close(reader);
}

/* The flags of an inherited descriptor belong to others, too: it stays in blocking mode. */
static void check_inherited_stalls(int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    check_stalls(open_ok(path));
    CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK));
}

static int stalled_pipe[2];

/* Another user may not open the pipe a second time. */
static void part_stalled_pipe(void)
{
    check_inherited_stalls(stalled_pipe[1]);
}

static void run_in_child(void (*part)(void), bool as_nobody, bool own_mounts);

static void test_stalled_descriptors(void)
{
    int ends[2];

    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    check_inherited_stalls(ends[1]);
    close(ends[0]);
    close(ends[1]);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    check_inherited_stalls(ends[1]);
    close(ends[0]);
    close(ends[1]);
    CHECK_INT(pipe2(stalled_pipe, O_CLOEXEC), 0);
    run_in_child(part_stalled_pipe, true, false);
    close(stalled_pipe[0]);
    close(stalled_pipe[1]);
}

/* ---- in a child process ---- */

/* Runs `part` in a child process, as nobody or in a private mount namespace. */
static void run_in_child(void (*part)(void), bool as_nobody, bool own_mounts)
{
    int status = -1;

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        test_now.failed = 0;
        if (own_mounts && (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
            _exit(77);
        if (as_nobody && geteuid() == 0 &&
            (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
            _exit(77);
        part();
        _exit(test_now.failed ? 1 : 0);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("no right to");
    else
        CHECK_INT(status, 0);
}

static void part_file_limit(void)
{
    struct err_note note = {0};
    struct rlimit limit = {4096, 4096};

    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct output_file *pl = open_ok("old"), *empty = open_ok("empty");
    CHECK_INT(put_big(pl, &note), ERR_DISK);
    CHECK(note.facts.reason == REASON_WRITE && note.facts.error == EFBIG);
    CHECK_STR(read_file("old"), "older");
    CHECK_INT(put_big(empty, &note), ERR_DISK);
    CHECK_STR(read_file("empty"), "");
    CHECK_INT(count_names("."), 2);
}

static void test_file_limit(void)
{
    enter("limit");
    make_file("old", "older");
    make_file("empty", "");
    run_in_child(part_file_limit, false, false);
}

static void part_disk_full(void)
{
    struct err_note note = {0};

    if (mount("none", ".", "tmpfs", 0, "size=64k") < 0 || chdir(work) < 0 || chdir("full") < 0)
        _exit(77);
    make_file("old", "older");
    make_file("empty", "");
    struct output_file *pl = open_ok("old"), *fresh = open_ok("fresh"), *empty = open_ok("empty");
    CHECK_INT(put_big(pl, &note), ERR_DISK);
    CHECK(note.facts.reason == REASON_WRITE && note.facts.error == ENOSPC);
    CHECK_STR(note.facts.path, "old");
    CHECK_STR(read_file("old"), "older");
    CHECK_INT(put_big(fresh, &note), ERR_DISK);
    CHECK_INT(put_big(empty, &note), ERR_DISK);
    CHECK_STR(read_file("empty"), "");
    CHECK_INT(count_names("."), 2);
    CHECK_INT(put(pl, "small", &note), 0);
    CHECK_STR(read_file("old"), "small");
}

static void part_bound_file(void)
{
    make_file("outside", "older");
    make_file("a", "older");
    if (mount("outside", "a", NULL, MS_BIND, NULL) < 0)
        _exit(77);
    struct output_file *pl = open_ok("a");
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file("a"), "ours");
    CHECK_STR(read_file("outside"), "ours");
    CHECK_INT(put(pl, "2", NULL), 0);
    CHECK_STR(read_file("outside"), "2");
    CHECK_INT(count_names("."), 2);
    output_file_close(pl);
}

static void part_read_only_disk(void)
{
    if (mount("none", ".", "tmpfs", MS_RDONLY, NULL) < 0 || chdir(work) < 0 || chdir("rodisk") < 0)
        _exit(77);
    check_refused("a", REASON_OUTPUT_BAD_DIRECTORY, EROFS);
}

static void test_mounts(void)
{
    if (geteuid() != 0) {
        test_skip("not root");
        return;
    }
    enter("full");
    run_in_child(part_disk_full, false, true);
    enter("bound");
    run_in_child(part_bound_file, false, true);
    enter("rodisk");
    run_in_child(part_read_only_disk, false, true);
}

static void part_read_only_dir(void)
{
    struct output_file *pl = open_ok("a");

    CHECK_INT(put(pl, "ours, longer", NULL), 0);
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file("a"), "ours");
    output_file_close(pl);
    check_refused("new", REASON_OUTPUT_BAD_DIRECTORY, EACCES);
    check_refused("locked", REASON_OUTPUT_BAD_DIRECTORY, EACCES);
    check_refused("hidden/x/a", REASON_OUTPUT_BAD_DIRECTORY, EACCES);
}

static void test_read_only_dir(void)
{
    enter("readonly");
    make_file("a", "older");
    make_file("locked", "older");
    CHECK_INT(mkdir("hidden", 0777) + mkdir("hidden/x", 0777), 0);
    CHECK_INT(chmod("a", 0666) + chmod("locked", 0444) + chmod("hidden", 0) + chmod(".", 0555), 0);
    run_in_child(part_read_only_dir, true, false);
    CHECK_INT(chmod(".", 0755) + chmod("hidden", 0755), 0);
}

static void part_unlisted_dir(void)
{
    struct output_file *pl = open_ok("d/a");

    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK_STR(read_file("d/a"), "ours");
    output_file_close(pl);
}

static void test_unlisted_dir(void)
{
    enter("unlisted");
    CHECK_INT(mkdir("d", 0777), 0);
    CHECK_INT(chmod("d", 0333), 0);
    run_in_child(part_unlisted_dir, true, false);
    CHECK_INT(chmod("d", 0755), 0);
}

static void part_foreign_file(void)
{
    check_refused("theirs", REASON_OUTPUT_NOT_OWN, 0);
    struct output_file *pl = open_ok("mine");
    CHECK_INT(put(pl, "ours", NULL), 0);
    output_file_close(pl);
}

/* A directory like /tmp. */
static void test_sticky_dir(void)
{
    if (geteuid() != 0) {
        test_skip("not root");
        return;
    }
    enter("sticky");
    CHECK_INT(chmod(".", 01777), 0);
    make_file("theirs", "older");
    make_file("planted", "");
    CHECK_INT(chown("theirs", 1, 1) + chown("planted", 1, 1), 0);
    run_in_child(part_foreign_file, true, false);
    CHECK_STR(read_file("mine"), "ours");
    ino_t inode = inode_of("planted");
    struct output_file *pl = open_ok("planted");
    CHECK_INT(put(pl, "ours", NULL), 0);
    CHECK(inode_of("planted") != inode);
    output_file_close(pl);
}

static void part_others_streams(void)
{
    check_refused("theirs", REASON_OUTPUT_NOT_OWN, 0);
    output_file_close(open_ok("roots"));
    output_file_close(open_ok("nobodys"));
}

static int read_end(const char *path)
{
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* The profile must not go to a user who has put a FIFO or a terminal there. */
static void test_others_streams(void)
{
    const struct output_owner caller = {1, 1};
    struct output_file *pl = NULL;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64] = "", pipe_name[32];
    int ends[2], readers[3];

    if (geteuid() != 0) {
        test_skip("not root");
        return;
    }
    enter("streams");
    CHECK_INT(chmod(".", 01777), 0);
    CHECK_INT(mkfifo("theirs", 0666) + mkfifo("roots", 0666) + mkfifo("nobodys", 0666), 0);
    CHECK_INT(chmod("theirs", 0666) + chmod("roots", 0666) + chmod("nobodys", 0666), 0);
    CHECK_INT(chown("theirs", 1, 1) + chown("nobodys", NOBODY, NOBODY), 0);
    readers[0] = read_end("theirs");
    readers[1] = read_end("roots");
    readers[2] = read_end("nobodys");
    check_refused("theirs", REASON_OUTPUT_NOT_OWN, 0);
    output_file_close(open_ok("roots"));
    CHECK_INT(output_file_open("theirs", &caller, &pl, NULL), 0); /* root by sudo */
    pl = output_file_close(pl);
    run_in_child(part_others_streams, true, false);
    /* An open descriptor is what the caller chose. */
    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    CHECK_INT(fchown(ends[1], 1, 1), 0);
    snprintf(pipe_name, sizeof(pipe_name), "/dev/fd/%d", ends[1]);
    output_file_close(open_ok(pipe_name));
    if (grantpt(terminal) == 0 && unlockpt(terminal) == 0 && ptsname_r(terminal, name, sizeof(name)) == 0) {
        output_file_close(open_ok(name));
        CHECK_INT(chown(name, 1, 1), 0);
        check_refused(name, REASON_OUTPUT_NOT_OWN, 0);
    }
    for (size_t i = 0; i < 3; i++)
        close(readers[i]);
    close(ends[0]);
    close(ends[1]);
    close(terminal);
}

/* ---- mode and owner ---- */

static uid_t owner_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_uid : (uid_t)-1;
}

static void put_and_close(struct output_file *pl)
{
    CHECK_INT(put(pl, "ours", NULL), 0);
    output_file_close(pl);
}

static void test_mode_is_kept(void)
{
    enter("mode");
    make_file("secret", "older");
    make_file("shared", "older");
    CHECK_INT(chmod("secret", 0600) + chmod("shared", 0664), 0);
    put_and_close(open_ok("secret"));
    put_and_close(open_ok("shared"));
    CHECK_STR(read_file("secret"), "ours");
    CHECK_INT(mode_of("secret") & 07777, 0600);
    CHECK_INT(mode_of("shared") & 07777, 0664);
}

/* Only where the one who owns the file could not have put it there for us to fill. */
static void test_owner_is_kept(void)
{
    const struct output_owner caller = {1, 1};
    struct output_file *pl = NULL;

    if (geteuid() != 0) {
        test_skip("not root");
        return;
    }
    enter("owner");
    make_file("theirs", "older");
    make_file("roots", "older");
    CHECK_INT(chmod("theirs", 0600) + chmod("roots", 0600) + chown("theirs", 1, 1), 0);
    put_and_close(open_ok("theirs"));
    CHECK_INT(owner_of("theirs"), 1);
    CHECK_INT(mode_of("theirs") & 07777, 0600);
    CHECK_INT(output_file_open("roots", &caller, &pl, NULL), 0);
    put_and_close(pl);
    CHECK_INT(owner_of("roots"), 0);
    CHECK_INT(chmod(".", 01777), 0);
    CHECK_INT(output_file_open("theirs", &caller, &pl, NULL), 0);
    put_and_close(pl);
    CHECK_INT(owner_of("theirs"), 1);
    make_file("planted", "older");
    CHECK_INT(chmod("planted", 0666) + chown("planted", 1, 1), 0);
    put_and_close(open_ok("planted"));
    CHECK_INT(owner_of("planted"), 0);
    CHECK_INT(mode_of("planted") & 07777, 0644);
    CHECK_INT(output_file_open("new", &caller, &pl, NULL), 0);
    put_and_close(pl);
    CHECK_INT(owner_of("new"), 1);
}

/* ---- temporary files ---- */

static int fill_and_die(FILE *out, void *arg)
{
    (void)arg;
    fputs("half", out);
    fflush(out);
    raise(SIGKILL);
    return 0;
}

static void test_killed_while_writing(void)
{
    enter("killed");
    int probe = open(".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600), status = 0;
    if (probe < 0) {
        test_skip("no O_TMPFILE here");
        return;
    }
    close(probe);
    make_file("old", "older");
    pid_t child = fork();
    if (child == 0) {
        output_file_write(open_ok("new"), fill_and_die, NULL, NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    child = fork();
    if (child == 0) {
        output_file_write(open_ok("old"), fill_and_die, NULL, NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(count_names("."), 1);
    CHECK_STR(read_file("old"), "older");
}

/* Makes one system call fail if all bits of `mask` are set in its argument `n`. */
static bool refuse_call(long call, unsigned n, unsigned mask, unsigned error)
{
    struct sock_filter steps[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (unsigned)call},
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)(offsetof(struct seccomp_data, args) + 8 * (size_t)n)},
        {BPF_ALU | BPF_AND | BPF_K, 0, 0, mask},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, mask},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {sizeof(steps) / sizeof(steps[0]), steps};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void check_fallback(void)
{
    make_file("old", "older");
    CHECK_INT(chmod("old", 0600), 0);
    struct output_file *old = open_ok("old"), *fresh = open_ok("fresh");
    for (int i = 0; i < 2; i++) {
        CHECK_INT(put(old, "ours", NULL) + put(fresh, "ours", NULL), 0);
        CHECK_STR(read_file("old"), "ours");
        CHECK_STR(read_file("fresh"), "ours");
    }
    CHECK_INT(mode_of("old") & 07777, 0600);
    CHECK_INT(mode_of("fresh") & 07777, 0644);
    CHECK_INT(count_names("."), 2);
}

static void part_no_tmpfile(void)
{
    if (!refuse_call(SYS_openat, 2, O_TMPFILE, EOPNOTSUPP))
        _exit(77);
    check_fallback();
}

static void part_no_link(void)
{
    if (!refuse_call(SYS_linkat, 0, 0, EPERM))
        _exit(77);
    check_fallback();
}

static void test_without_tmpfile(void)
{
    enter("notmpfile");
    run_in_child(part_no_tmpfile, false, false);
    enter("nolink");
    run_in_child(part_no_link, false, false);
}

/* ---- names ---- */

static void test_default_name(void)
{
    static const struct {
        const char *base, *extension, *want;
    } rows[] = {
        {"1234", "svg", "1234-2026-11-15T040000.svg"},
        {"/usr/bin/python3.11", "json", "python3.11-2026-11-15T040000.json"},
        {"../../etc/.passwd", "txt", "_passwd-2026-11-15T040000.txt"},
        {"-rf", "svg", "_rf-2026-11-15T040000.svg"},
        {"a b\n\033[1m;$(x)\xc3\xa9", "svg", "a_b___1m___x___-2026-11-15T040000.svg"},
        {"", "svg", "profile-2026-11-15T040000.svg"},
        {"dir/", "svg", "profile-2026-11-15T040000.svg"},
    };
    char buf[256], base[300];

    setenv("TZ", "UTC", 1);
    tzset();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        output_file_default_name(buf, sizeof(buf), rows[i].base, rows[i].extension, 1794715200);
        CHECK_STR(buf, rows[i].want);
    }
    memset(base, 'b', sizeof(base) - 1);
    base[sizeof(base) - 1] = '\0';
    output_file_default_name(buf, sizeof(buf), base, "svg", 1794715200);
    CHECK_INT(strlen(buf), 63 + 1 + 17 + 4);
}

static void remove_work(void)
{
    char command[PATH_MAX + 16];

    CHECK_INT(chdir("/"), 0);
    snprintf(command, sizeof(command), "rm -rf '%s'", work);
    CHECK_INT(system(command), 0);
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");

    test_start(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    snprintf(work, sizeof(work), "%s/test_output_file.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(work) || chmod(work, 0755) < 0)
        return 1;
    int fds = count_names("/proc/self/fd");
    TEST_RUN(test_new_file);
    TEST_RUN(test_unused);
    TEST_RUN(test_replaces);
    TEST_RUN(test_fill_fails);
    TEST_RUN(test_empty_file_keeps_inode);
    TEST_RUN(test_empty_file_changes_hands);
    TEST_RUN(test_hard_link_is_left);
    TEST_RUN(test_symlink);
    TEST_RUN(test_refused);
    TEST_RUN(test_longest_name);
    TEST_RUN(test_directory_comes_and_goes);
    TEST_RUN(test_fifo);
    TEST_RUN(test_fifo_slow_reader);
    TEST_RUN(test_devices);
    TEST_RUN(test_descriptors);
    TEST_RUN(test_redirected);
    TEST_RUN(test_closed_pipe);
    TEST_RUN(test_stalled_fifo);
    TEST_RUN(test_stalled_descriptors);
    TEST_RUN(test_file_limit);
    TEST_RUN(test_mounts);
    TEST_RUN(test_read_only_dir);
    TEST_RUN(test_unlisted_dir);
    TEST_RUN(test_sticky_dir);
    TEST_RUN(test_others_streams);
    TEST_RUN(test_mode_is_kept);
    TEST_RUN(test_owner_is_kept);
    TEST_RUN(test_killed_while_writing);
    TEST_RUN(test_without_tmpfile);
    TEST_RUN(test_default_name);
    CHECK_INT(count_names("/proc/self/fd"), fds);
    remove_work();
    return test_finish("test_output_file");
}
