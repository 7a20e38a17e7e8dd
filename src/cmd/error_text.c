/*
 * Two tables of messages: one row for each error code, with its exit status, and one for each reason.
 */
#include "cmd/error_text.h"

#include "base/text.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

struct row {
    const char *message;
    const char *hint;
    const char *prefix; /* starts the printed line; NULL: "Error: " */
    int status;         /* 0: 1 */
};

#define ROW(code) [(code)-ERR_NOMEM]

static const struct row rows[ERR_END_ - ERR_NOMEM] = {
    ROW(ERR_NOMEM) = {"Out of memory", "Free some memory, or record for a shorter time."},
    ROW(ERR_IO) = {"I/O error"},
    ROW(ERR_USAGE) = {"Bad arguments", "For more information try --help", "error: ", 2},
    ROW(ERR_NO_PROCESS) = {"Failed to get process executable name. Check that the process is running.",
                           "To list the Python processes, run: spyglass list"},
    ROW(ERR_NOT_PYTHON) = {"Failed to find python version from target process",
                           "If a child of this process runs Python, add --subprocesses."},
    ROW(ERR_STARTING) = {"Python has not finished starting in the target process", "Try again in a moment."},
    ROW(ERR_PERMISSION) = {"Cannot read the process", NULL, "Permission Denied: "},
    ROW(ERR_VERSION) = {"Unsupported Python version", "Supported versions: CPython 2.7 and 3.6 to 3.15."},
    ROW(ERR_GONE) = {"The process has exited"},
    ROW(ERR_READ) = {"Failed to read the memory of the target process"},
    ROW(ERR_BOUNDS) = {"The memory of the target process contains invalid values"},
    ROW(ERR_CYCLE) = {"The memory of the target process contains an unexpected cycle"},
    ROW(ERR_TOO_DEEP) = {"A stack is deeper than 262,144 frames, the most that spyglass reads"},
    ROW(ERR_TOO_MANY_CODES) = {"A stack has more than 32,768 different functions, the most that spyglass reads"},
    ROW(ERR_TORN) = {"The target process changed while spyglass was reading it", "Try again."},
    ROW(ERR_STOP) = {"Failed to pause a thread of the target process",
                     "Add --nonblocking to read without pausing threads."},
    ROW(ERR_OUTPUT) = {"Failed to create the output file", "Choose another path with -o FILE."},
    ROW(ERR_DISK) =
        {"Failed to write the output file",
         "Free some disk space or choose another path with -o FILE. An existing file of that name is unchanged."},
    ROW(ERR_LAUNCH) = {"Failed to start the program"},
    ROW(ERR_CORE) = {"Failed to read the core file"},
    ROW(ERR_NO_SAMPLES) = {"No stack counts found"},
    ROW(ERR_ALL_FILTERED) = {"Nothing is left to show"},
    ROW(ERR_PROFILE) = {"Failed to read the profile",
                        "merge reads what `record --format raw` writes: one stack and its count per line."},
    ROW(ERR_DUMP) = {"Failed to read the dump",
                     "group reads the output of `dump` and `dump --json`, from spyglass or py-spy."},
    ROW(ERR_UNSUPPORTED) = {"Not supported"},
    ROW(ERR_INTERRUPTED) = {"Gave up writing the output"},
    ROW(ERR_NO_MATCH) = {"Found no process", "To list the Python processes, run: spyglass list"},
    ROW(ERR_INTERNAL) =
        {"Internal error",
         "Please report this bug. Run the command again with --log-level debug, and include its output."},
};

/* How to get CAP_SYS_PTRACE depends on where spyglass runs. {capability} expands to one of these. */
#define SUDO "Run as root: sudo env \"PATH=$PATH\" {spyglass} {command} --pid {pid}"
#define CONTAINER                                                                                                      \
    "Add the capability to the container: docker run --cap-add SYS_PTRACE …, or in a pod "                           \
    "securityContext: {capabilities: {add: [SYS_PTRACE]}}"
#define POD                                                                                                            \
    "Add the capability to the container: securityContext: {capabilities: {add: [SYS_PTRACE]}}. "                      \
    "Without a restart: kubectl debug -it POD --image=IMAGE --target=CONTAINER --profile=general"

#define YAMA_HINT SUDO " — or allow tracing: sudo sysctl kernel.yama.ptrace_scope=0"
/* This helps with ptrace_scope 1 only: 2 requires the capability even for children. */
#define YAMA_HINT_IN_CONTAINER "Launch the program with record -- PROGRAM. Or: {capability}"

#define OTHER_CORE "Use a core file that the kernel wrote at a crash, or one from gcore: gcore -o core PID"
#define X86_64     "Only core files of 64-bit x86 processes are supported."

/* Words in braces are placeholders for facts: see expand. Without a hint, the one for the code is printed. */
static const struct reason_row {
    const char *what;
    const char *hint;
    const char *hint_in_container; /* NULL: the same */
} reasons[REASON_END_] = {
    [REASON_PROC_HIDDEN] = {"/proc/{pid} is hidden from this user", SUDO},
    [REASON_SETUID_NOT_OWN] = {"{spyglass} is installed setuid and only reads your own processes; process {pid} "
                               "belongs to uid {uid}, or has privileges that you do not have",
                               SUDO},
    [REASON_USER_NAMESPACE] = {"process {pid} is in another user namespace, where spyglass has no privileges",
                               "Run spyglass inside its container, or as root on the host: sudo {spyglass} {command} "
                               "--pid {pid}"},
    [REASON_OTHER_USER] = {"process {pid} belongs to another user (uid {uid}; you are uid {own_uid}) and spyglass "
                           "lacks CAP_SYS_PTRACE",
                           "{capability}", "Run as that user: docker exec --user {uid} … Or: {capability}"},
    [REASON_MORE_CAPABILITIES] = {"process {pid} has more capabilities than spyglass, and spyglass lacks "
                                  "CAP_SYS_PTRACE",
                                  "{capability}"},
    [REASON_NOT_DUMPABLE] = {"process {pid} is not dumpable (it changed its user ID or disabled dumping) and spyglass "
                             "lacks CAP_SYS_PTRACE",
                             "{capability}"},
    [REASON_YAMA_CHILDREN_ONLY] = {"Yama (ptrace_scope={number}) only lets you trace your own children", YAMA_HINT,
                                   YAMA_HINT_IN_CONTAINER},
    [REASON_YAMA_CAPABLE_ONLY] = {"Yama (ptrace_scope={number}) only lets processes with CAP_SYS_PTRACE trace others",
                                  YAMA_HINT, "{capability}"},
    [REASON_YAMA_NONE] = {"Yama (ptrace_scope={number}) forbids tracing any process",
                          "This setting lasts until the next boot: set kernel.yama.ptrace_scope = 1 in /etc/sysctl.d "
                          "and reboot."},
    [REASON_SECCOMP] = {"a seccomp filter blocks spyglass from reading other processes",
                        "Allow process_vm_readv and ptrace in the container's seccomp profile, for example with "
                        "docker run --cap-add SYS_PTRACE …"},
    [REASON_SECURITY_MODULE] = {"the kernel denied access to process {pid} (possibly SELinux, AppArmor or another "
                                "security module)",
                                "Look for the denial in the kernel log: dmesg | tail"},
    [REASON_SETUID_KEPT] = {"spyglass is installed setuid but cannot drop its privileges",
                            "Remove the setuid bit: chmod u-s,g-s PROGRAM"},
    [REASON_PROC_MISSING] = {"/proc is not mounted", "Mount it: mount -t proc proc /proc"},
    [REASON_PROC_FOREIGN] = {"/proc belongs to a different PID namespace than spyglass, so its PIDs do not match",
                             "Mount the /proc of this namespace, as unshare --fork --pid --mount-proc does, or run "
                             "spyglass outside of it."},
    [REASON_PAUSE_SECCOMP] = {"a seccomp filter blocks ptrace; docker run --cap-add SYS_PTRACE … allows it"},
    [REASON_PAUSE_TRACED] = {"process {pid} is tracing it"},
    [REASON_PAUSE_UNKNOWN] = {"another tracer is attached, or ptrace is not permitted"},
    [REASON_NO_PID] = {"no process has PID {pid}"},
    [REASON_ZOMBIE] = {"process {pid} is a zombie that its parent has not reaped"},
    [REASON_KERNEL_THREAD] = {"process {pid} is a kernel thread and runs no Python",
                              "To list the Python processes, run: spyglass list"},
    [REASON_OTHER_PROGRAM] = {"process {pid} runs {path}"},
    [REASON_FREE_THREADED] = {"{version} is a free-threaded build",
                              "Run the program with a GIL-enabled build of Python {minor_version}."},
    [REASON_VERSION] = {"{version}{other}"},
    [REASON_PYPY] = {"process {pid} runs PyPy ({path}), which spyglass does not support"},
    [REASON_NO_ANSWER] =
        {"process {pid} keeps its memory locked, probably while it waits for a file system that does not answer",
         "To see where its threads in state D are blocked, run: cat /proc/{pid}/task/*/stack"},
    [REASON_NOT_INITIALIZED] = {"process {pid} has loaded Python {minor_version} ({path}) but has not initialized it",
                                "If its children run Python, as with Apache and mod_wsgi, add --subprocesses. If it is "
                                "about to start Python, try again."},
    [REASON_PIPE] = {"{error}"},
    [REASON_EXEC] = {"'{path}': {error}",
                     "Check its path and its permissions. Put the program and its arguments after --, as in a shell."},
    [REASON_ROOT_OPEN] = {"cannot open the directory {path}: {error}",
                          "Use --root with a directory that holds the files of the original machine or container."},
    [REASON_CORE_OPEN] = {"cannot open {path}: {error}",
                          "/proc/sys/kernel/core_pattern names the location of core files; with systemd, extract one "
                          "with coredumpctl dump."},
    [REASON_CORE_IS_DIRECTORY] = {"{path} is a directory", OTHER_CORE},
    [REASON_CORE_NOT_REGULAR] = {"{path} is not a regular file", OTHER_CORE},
    [REASON_CORE_EMPTY] = {"{path} is empty", "The disk may have been full when it was written."},
    [REASON_CORE_UNREADABLE] = {"{path} cannot be read", "Check the disk that holds it."},
    [REASON_CORE_NOT_ELF] = {"{path} is not a core file: it has no ELF header", OTHER_CORE},
    [REASON_CORE_BIG_ENDIAN] = {"{path} is from a big-endian machine", X86_64},
    [REASON_CORE_IS_PROGRAM] = {"{path} is a program or library, not a core file", OTHER_CORE},
    [REASON_CORE_MACHINE] = {"{path} is from {machine}", X86_64},
    [REASON_CORE_32_BIT] = {"{path} is from a 32-bit process", X86_64},
    [REASON_CORE_NO_SEGMENTS] = {"{path} is corrupt: it has no program headers", "Copy the original again."},
    [REASON_CORE_CUT] = {"{path} is truncated: its headers are incomplete",
                         "Copy the original again; if it is truncated too, raise ulimit -c."},
    [REASON_CORE_FORMAT] = {"{path} is compressed in an unsupported format", "Decompress it first: {other} {path}"},
    [REASON_CORE_CORRUPT] = {"{path} is compressed but corrupt",
                             "Copy the original again, or decompress it yourself: {other} {path}"},
    [REASON_CORE_UNPACK] = {"decompressing {path} to {other}: {error} after {number} MB",
                            "Set TMPDIR to a directory with more space, or decompress the file yourself."},
    [REASON_OUTPUT_OPEN] = {"'{short_path}': {error}"},
    [REASON_OUTPUT_NO_DIRECTORY] = {"'{short_path}': the directory '{short_other}' does not exist",
                                    "Create it, or choose another path with -o FILE."},
    [REASON_OUTPUT_BAD_DIRECTORY] = {"'{short_path}': the directory '{short_other}' cannot be used: {error}"},
    [REASON_OUTPUT_IS_DIRECTORY] = {"'{short_path}': is a directory"},
    [REASON_OUTPUT_NOT_REGULAR] = {"'{short_path}': not a regular file, FIFO or character device"},
    [REASON_OUTPUT_NO_NAME] = {"'{short_path}': the file name is empty"},
    [REASON_OUTPUT_NO_READER] = {"'{short_path}': no process is reading from this FIFO",
                                 "Start the reader first, or choose another path with -o FILE."},
    [REASON_OUTPUT_REPLACED] = {"'{short_path}': the file was replaced while spyglass was opening it"},
    [REASON_OUTPUT_NOT_OWN] = {"'{short_path}': the existing file belongs to another user"},
    [REASON_OUTPUT_FD_CLOSED] = {"'{short_path}': the descriptor is not open"},
    [REASON_OUTPUT_FD_READ_ONLY] = {"'{short_path}': the descriptor is not open for writing"},
    [REASON_OUTPUT_BUFFER] = {"cannot allocate a buffer for '{short_path}'"},
    [REASON_OUTPUT_PATH] = {"cannot allocate a path"},
    [REASON_WRITE] = {"'{short_path}': {error}"},
    [REASON_WRITE_IN_PLACE] = {"'{short_path}': {error}", "Free some disk space or choose another path with -o FILE."},
    [REASON_WRITE_STALLED] = {"the reader of '{short_path}' is not reading; {number} bytes were written",
                              "Read all of the output, or write to a file with -o FILE."},
    [REASON_WRITE_NO_READER] =
        {"'{short_path}': {error}",
         "The process reading from it has exited. Read all of the output, or write to a file with -o FILE."},
};

static const struct row *row_of(int code)
{
    if (code < ERR_NOMEM || code >= ERR_END_)
        code = ERR_INTERNAL;
    return &rows[code - ERR_NOMEM];
}

/* Messages can contain paths, arguments and names that the target controls. Sanitize them once, here. */
__attribute__((format(printf, 3, 0))) static void format_safe(char *to, size_t size, const char *fmt, va_list args)
{
    char text[sizeof(struct error_text)];

    vsnprintf(text, sizeof(text), fmt, args);
    text_copy_safe(to, size, text);
}

int error_text_what(struct error_text *text, int code, const char *fmt, ...)
{
    va_list args;

    if (text) {
        va_start(args, fmt);
        format_safe(text->what, sizeof(text->what), fmt, args);
        va_end(args);
        text->hint[0] = '\0';
    }
    return code;
}

void error_text_hint(struct error_text *text, const char *fmt, ...)
{
    va_list args;

    if (!text)
        return;
    va_start(args, fmt);
    format_safe(text->hint, sizeof(text->hint), fmt, args);
    va_end(args);
}

static const char *machine_name(int64_t machine)
{
    static const char *const names[] = {
        [EM_386] = "a 32-bit x86 process", [EM_AARCH64] = "an aarch64 process", [EM_ARM] = "a 32-bit ARM process",
        [EM_PPC64] = "a PowerPC process",  [EM_S390] = "an s390 process",       [EM_RISCV] = "a RISC-V process"};
    const char *name = machine >= 0 && machine <= EM_RISCV ? names[machine] : NULL;

    return name ? name : "an unsupported machine type";
}

/* Copies `form`, replaces each fact in braces with its value, and sanitizes the result. */
static void expand(char *to, size_t size, const char *form, const struct err_facts *f, const char *command)
{
    char text[2 * PATH_MAX] = "";
    const char *path = f->path ? f->path : "", *other = f->other ? f->other : "";
    const struct text_safe short_path = text_safe(path), short_other = text_safe(other);
    char pid[16], uid[16], own_uid[16], number[32], version[48], minor_version[32];
    const struct {
        const char *name, *value;
    } facts[] = {{"{pid}", pid},
                 {"{uid}", uid},
                 {"{own_uid}", own_uid},
                 {"{number}", number},
                 {"{machine}", machine_name(f->number)},
                 {"{version}", version},
                 {"{minor_version}", minor_version},
                 {"{error}", strerror(f->error)},
                 {"{path}", path},
                 {"{other}", other},
                 {"{short_path}", short_path.s},
                 {"{short_other}", short_other.s},
                 {"{spyglass}", program_invocation_short_name},
                 {"{command}", command}};
    const size_t n = sizeof(facts) / sizeof(facts[0]);
    size_t used = 0, i;

    snprintf(pid, sizeof(pid), "%d", (int)f->pid);
    snprintf(uid, sizeof(uid), "%u", f->uid);
    snprintf(own_uid, sizeof(own_uid), "%u", f->own_uid);
    snprintf(number, sizeof(number), "%lld", (long long)f->number);
    snprintf(version, sizeof(version), "%d.%d.%d", f->version[0], f->version[1], f->version[2]);
    snprintf(minor_version, sizeof(minor_version), "%d.%d", f->version[0], f->version[1]);
    while (*form && used < sizeof(text) - 1) {
        for (i = 0; i < n && strncmp(form, facts[i].name, strlen(facts[i].name)) != 0; i++)
            ;
        size_t room = sizeof(text) - 1 - used, len = i < n ? strlen(facts[i].value) : 1;

        len = len < room ? len : room;
        memcpy(text + used, i < n ? facts[i].value : form, len);
        used += len;
        form += i < n ? strlen(facts[i].name) : 1;
    }
    text_copy_safe(to, size, text);
}

int error_text_explain(struct error_text *text, int code, const struct err_facts *f)
{
    const struct reason_row *row = &reasons[f->reason];
    const char *hint = f->in_container && row->hint_in_container ? row->hint_in_container : row->hint, *at;
    char form[sizeof(text->hint)];

    if (code >= 0 || f->reason == REASON_NONE)
        return code;
    at = hint ? strstr(hint, "{capability}") : NULL;
    if (at)
        snprintf(form, sizeof(form), "%.*s%s", (int)(at - hint), hint,
                 f->in_pod                            ? POD
                 : f->in_container || f->own_uid == 0 ? CONTAINER
                                                      : SUDO);
    *text = (struct error_text){.command = text->command ? text->command : "dump"};
    expand(text->what, sizeof(text->what), row->what, f, text->command);
    expand(text->hint, sizeof(text->hint), at ? form : hint ? hint : "", f, text->command);
    return code;
}

void error_text_complete(struct error_text *text, int code)
{
    const struct row *row = row_of(code);

    if (!text->what[0])
        snprintf(text->what, sizeof(text->what), "%s", row->message);
    if (!text->hint[0] && row->hint)
        snprintf(text->hint, sizeof(text->hint), "%s", row->hint);
}

int error_text_print(FILE *out, int code, const struct error_text *text)
{
    const struct row *row = row_of(code);
    const char *hint = text && text->hint[0] ? text->hint : row->hint;

    fprintf(out, "%s%s", row->prefix ? row->prefix : "Error: ", row->message);
    if (text && text->what[0]) {
        bool is_sentence = row->message[strlen(row->message) - 1] == '.';

        fputs(is_sentence ? " (" : ": ", out);
        text_print_safe(out, text->what);
        fputs(is_sentence ? ")" : "", out);
    }
    fputc('\n', out);
    if (hint) {
        text_print_safe(out, hint);
        fputc('\n', out);
    }
    return row->status ? row->status : 1;
}
