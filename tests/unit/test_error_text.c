/*
 * Error messages: one for each code, one for each reason, and the advice that depends on where spyglass runs.
 */
#include "cmd/error_text.h"
#include "test.h"

#include <elf.h>
#include <errno.h>

/* The first `size` bytes that error_text_print writes; returns its status. */
static int print_error(int code, const struct error_text *text, char *to, size_t size)
{
    FILE *out = tmpfile();
    int status;
    size_t n;

    if (!out)
        abort();
    status = error_text_print(out, code, text);
    rewind(out);
    n = fread(to, 1, size - 1, out);
    to[n] = '\0';
    fclose(out);
    return status;
}

static void test_codes(void)
{
    struct error_text text = {0}, *filled = &text;
    char printed[4096], long_text[2000];

    for (int code = ERR_NOMEM; code < ERR_END_; code++) {
        CHECK_INT(print_error(code, NULL, printed, sizeof(printed)), code == ERR_USAGE ? 2 : 1);
        CHECK(printed[0] != '\0' && printed[strlen(printed) - 1] == '\n');
    }
    CHECK_INT(print_error(12345, NULL, printed, sizeof(printed)), 1);
    CHECK_STR(printed, "Error: Internal error\nPlease report this bug. Run the command again with --log-level debug, "
                       "and include its output.\n");
    CHECK_INT(error_text_what(filled, ERR_GONE, "process %d", 7), ERR_GONE);
    error_text_hint(filled, "try %s", "this");
    print_error(ERR_GONE, filled, printed, sizeof(printed));
    CHECK_STR(printed, "Error: The process has exited: process 7\ntry this\n");
    print_error(ERR_NO_PROCESS, filled, printed, sizeof(printed));
    CHECK_STR(printed, "Error: Failed to get process executable name. Check that the process is running. (process 7)\n"
                       "try this\n");
    CHECK_INT(error_text_what(NULL, ERR_READ, "%d", 1), ERR_READ);
    error_text_hint(NULL, "%d", 1);
    memset(long_text, 'y', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    error_text_what(filled, ERR_GONE, "runs %s", "a\x1b[31m\n");
    error_text_hint(filled, "kill %s", "\xe2\x80\xae");
    print_error(ERR_GONE, filled, printed, sizeof(printed));
    CHECK(strstr(printed, "runs a\\x1b[31m\\n\n") != NULL && strstr(printed, "kill \\u202e\n") != NULL);
    CHECK_STR(text.what, "runs a\\x1b[31m\\n"); /* for --status-fd, the summary and the remark in a profile, too */
    CHECK_STR(text.hint, "kill \\u202e");
    error_text_explain(filled, ERR_CORE, &(struct err_facts){.reason = REASON_CORE_EMPTY, .path = "\x1b[31m\xff"});
    CHECK_STR(text.what, "\\x1b[31m\\xff is empty");
    text.command = "record";
    error_text_explain(filled, ERR_PERMISSION, &(struct err_facts){.reason = REASON_PROC_HIDDEN, .pid = 7});
    CHECK_STR(text.hint, "Run as root: sudo env \"PATH=$PATH\" test_error_text record --pid 7");
    error_text_what(filled, ERR_GONE, "%s", long_text); /* cut, not overrun */
    error_text_hint(filled, "%s", long_text);
    CHECK(strlen(text.what) == sizeof(text.what) - 1 && strlen(text.hint) == sizeof(text.hint) - 1);
}

static void check_text(const struct err_facts *facts, const char *what, const char *hint)
{
    struct error_text text = {.what = "old", .hint = "old"};

    CHECK_INT(error_text_explain(&text, ERR_PERMISSION, facts), ERR_PERMISSION);
    CHECK_STR(text.what, what);
    CHECK_STR(text.hint, hint);
}

#define SUDO "Run as root: sudo env \"PATH=$PATH\" test_error_text dump --pid 7"
#define CONTAINER                                                                                                      \
    "Add the capability to the container: docker run --cap-add SYS_PTRACE …, or in a pod securityContext: "          \
    "{capabilities: {add: [SYS_PTRACE]}}"
#define POD                                                                                                            \
    "Add the capability to the container: securityContext: {capabilities: {add: [SYS_PTRACE]}}. Without a restart: "   \
    "kubectl debug -it POD --image=IMAGE --target=CONTAINER --profile=general"

static void test_access(void)
{
    struct err_facts f = {.reason = REASON_OTHER_USER, .pid = 7, .uid = 33, .own_uid = 1000};
    const char *what = "process 7 belongs to another user (uid 33; you are uid 1000) and spyglass lacks CAP_SYS_PTRACE";

    check_text(&f, what, SUDO);
    f.in_container = true;
    check_text(&f, what, "Run as that user: docker exec --user 33 … Or: " CONTAINER);
    f.in_pod = true;
    check_text(&f, what, "Run as that user: docker exec --user 33 … Or: " POD);
    f = (struct err_facts){.reason = REASON_OTHER_USER, .pid = 7, .uid = 33};
    what = "process 7 belongs to another user (uid 33; you are uid 0) and spyglass lacks CAP_SYS_PTRACE";
    check_text(&f, what, CONTAINER);
    f = (struct err_facts){.reason = REASON_MORE_CAPABILITIES, .pid = 7, .own_uid = 1000};
    what = "process 7 has more capabilities than spyglass, and spyglass lacks CAP_SYS_PTRACE";
    check_text(&f, what, SUDO);
    f.in_container = true;
    check_text(&f, what, CONTAINER);
    f.reason = REASON_NOT_DUMPABLE;
    check_text(
        &f, "process 7 is not dumpable (it changed its user ID or disabled dumping) and spyglass lacks CAP_SYS_PTRACE",
        CONTAINER);
    f.reason = REASON_PROC_HIDDEN;
    check_text(&f, "/proc/7 is hidden from this user", SUDO);
    f.reason = REASON_SECURITY_MODULE;
    check_text(&f, "the kernel denied access to process 7 (possibly SELinux, AppArmor or another security module)",
               "Look for the denial in the kernel log: dmesg | tail");
    f.reason = REASON_USER_NAMESPACE;
    check_text(&f, "process 7 is in another user namespace, where spyglass has no privileges",
               "Run spyglass inside its container, or as root on the host: sudo test_error_text dump --pid 7");
    f = (struct err_facts){.reason = REASON_SETUID_NOT_OWN, .pid = 7, .uid = 33, .own_uid = 1000};
    check_text(&f,
               "test_error_text is installed setuid and only reads your own processes; process 7 belongs to uid 33, or "
               "has privileges that you do not have",
               SUDO);
}

static void test_yama(void)
{
    struct err_facts f = {.reason = REASON_YAMA_CHILDREN_ONLY, .pid = 7, .own_uid = 1000, .number = 1};

    check_text(&f, "Yama (ptrace_scope=1) only lets you trace your own children",
               SUDO " — or allow tracing: sudo sysctl kernel.yama.ptrace_scope=0");
    f.in_container = true;
    check_text(&f, "Yama (ptrace_scope=1) only lets you trace your own children",
               "Launch the program with record -- PROGRAM. Or: " CONTAINER);
    f.reason = REASON_YAMA_CAPABLE_ONLY;
    f.number = 2;
    check_text(&f, "Yama (ptrace_scope=2) only lets processes with CAP_SYS_PTRACE trace others", CONTAINER);
    f.reason = REASON_YAMA_NONE;
    f.number = 3;
    check_text(&f, "Yama (ptrace_scope=3) forbids tracing any process",
               "This setting lasts until the next boot: set kernel.yama.ptrace_scope = 1 in /etc/sysctl.d and reboot.");
}

static void test_versions(void)
{
    struct err_facts f = {.reason = REASON_VERSION, .version = {3, 99, 1}, .other = "a2"};

    check_text(&f, "3.99.1a2", "");
    f.reason = REASON_FREE_THREADED;
    check_text(&f, "3.99.1 is a free-threaded build", "Run the program with a GIL-enabled build of Python 3.99.");
}

static void test_core_files(void)
{
    static const struct {
        int machine;
        const char *what;
    } rows[] = {{EM_386, "c is from a 32-bit x86 process"},   {EM_AARCH64, "c is from an aarch64 process"},
                {EM_ARM, "c is from a 32-bit ARM process"},   {EM_PPC64, "c is from a PowerPC process"},
                {EM_S390, "c is from an s390 process"},       {EM_RISCV, "c is from a RISC-V process"},
                {0, "c is from an unsupported machine type"}, {0xffff, "c is from an unsupported machine type"}};
    struct err_facts f = {.reason = REASON_CORE_MACHINE, .path = "c"};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        f.number = rows[i].machine;
        check_text(&f, rows[i].what, "Only core files of 64-bit x86 processes are supported.");
    }
    f = (struct err_facts){.reason = REASON_CORE_CORRUPT, .path = "c.gz", .other = "gzip -d"};
    check_text(&f, "c.gz is compressed but corrupt",
               "Copy the original again, or decompress it yourself: gzip -d c.gz");
    f = (struct err_facts){
        .reason = REASON_CORE_UNPACK, .path = "c.gz", .other = "/tmp", .error = ENOSPC, .number = 12};
    check_text(&f, "decompressing c.gz to /tmp: No space left on device after 12 MB",
               "Set TMPDIR to a directory with more space, or decompress the file yourself.");
    /* A path is no form: nothing in it is replaced. */
    f = (struct err_facts){.reason = REASON_CORE_IS_DIRECTORY, .path = "{pid}%s{other}"};
    check_text(&f, "{pid}%s{other} is a directory",
               "Use a core file that the kernel wrote at a crash, or one from gcore: gcore -o core PID");
}

static void test_output_files(void)
{
    struct err_facts f = {.reason = REASON_OUTPUT_BAD_DIRECTORY, .path = "d/a", .other = "d", .error = ENOTDIR};

    check_text(&f, "'d/a': the directory 'd' cannot be used: Not a directory", "");
    f.reason = REASON_OUTPUT_NO_DIRECTORY;
    check_text(&f, "'d/a': the directory 'd' does not exist", "Create it, or choose another path with -o FILE.");
    f.path = "\033[31m\xc2\x9bm\xff/a";
    f.other = "\xc3\xa9t\xc3\xa9";
    check_text(&f, "'\\x1b[31m\\u009bm\\xff/a': the directory '\xc3\xa9t\xc3\xa9' does not exist",
               "Create it, or choose another path with -o FILE.");
    f = (struct err_facts){.reason = REASON_OUTPUT_NO_READER, .path = "f"};
    check_text(&f, "'f': no process is reading from this FIFO",
               "Start the reader first, or choose another path with -o FILE.");
    f = (struct err_facts){.reason = REASON_WRITE, .path = "f", .error = ENOSPC};
    check_text(&f, "'f': No space left on device", "");
    f.reason = REASON_WRITE_IN_PLACE;
    check_text(&f, "'f': No space left on device", "Free some disk space or choose another path with -o FILE.");
    f = (struct err_facts){.reason = REASON_WRITE_NO_READER, .path = "f", .error = EPIPE};
    check_text(&f, "'f': Broken pipe",
               "The process reading from it has exited. Read all of the output, or write to a file with -o FILE.");
}

/* Each reason has a sentence in which every fact is replaced, whatever its length. */
static void test_every_reason(void)
{
    char longest[sizeof(((struct err_note *)0)->path)];
    struct err_note note;
    struct error_text text = {.what = "mine", .hint = "too"};

    memset(longest, 'y', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    CHECK_INT(error_text_explain(&text, 0, &(struct err_facts){.reason = REASON_ZOMBIE}), 0);
    CHECK_INT(error_text_explain(&text, ERR_READ, &(struct err_facts){.reason = REASON_NONE}), ERR_READ);
    CHECK_STR(text.what, "mine");
    for (enum err_reason reason = REASON_NONE + 1; reason < REASON_END_; reason++)
        for (int i = 0; i < 2; i++) {
            struct err_facts f = {.reason = reason, .own_uid = 1000, .in_container = i};

            f.path = f.other = i ? longest : "p";
            err_because(&note, ERR_IO, &f);
            CHECK_INT(error_text_explain(&text, ERR_IO, &note.facts), ERR_IO);
            if (!CHECK(text.what[0] && !strchr(text.what, '{') && !strchr(text.what, '}')))
                fprintf(stderr, "    reason %d: %s\n", reason, text.what);
            CHECK(strlen(text.what) < sizeof(text.what) && strlen(text.hint) < sizeof(text.hint));
            if (!CHECK(!strchr(text.hint, '{') || strstr(text.hint, "{capabilities: {add: [SYS_PTRACE]}}")))
                fprintf(stderr, "    reason %d: %s\n", reason, text.hint);
        }
}

static void test_complete(void)
{
    struct error_text text = {0};

    error_text_complete(&text, ERR_STARTING);
    CHECK_STR(text.what, "Python has not finished starting in the target process");
    CHECK_STR(text.hint, "Try again in a moment.");
    text = (struct error_text){.what = "a", .hint = "b"};
    error_text_complete(&text, ERR_STARTING);
    CHECK(strcmp(text.what, "a") == 0 && strcmp(text.hint, "b") == 0);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_codes);
    TEST_RUN(test_access);
    TEST_RUN(test_yama);
    TEST_RUN(test_versions);
    TEST_RUN(test_core_files);
    TEST_RUN(test_output_files);
    TEST_RUN(test_every_reason);
    TEST_RUN(test_complete);
    return test_finish("test_error_text");
}
