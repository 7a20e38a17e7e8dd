/*
 * Error codes, and the reasons and facts behind them. Functions return 0 or a negative `enum err`. Only
 * cmd/error_text.c turns codes and reasons into messages. Failed samples are counted by code.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum err {
    ERR_NOMEM = -1000,
    ERR_IO,
    ERR_USAGE,
    ERR_NO_PROCESS,
    ERR_NOT_PYTHON,
    ERR_STARTING,
    ERR_PERMISSION,
    ERR_VERSION,
    ERR_GONE,
    ERR_READ,
    ERR_BOUNDS,
    ERR_CYCLE,
    ERR_TOO_DEEP,       /* a stack of more than PY_MAX_FRAMES frames */
    ERR_TOO_MANY_CODES, /* a stack of more functions than python/code.c keeps */
    ERR_TORN,
    ERR_STOP,
    ERR_OUTPUT,
    ERR_DISK,
    ERR_LAUNCH,
    ERR_CORE,
    ERR_NO_SAMPLES,
    ERR_ALL_FILTERED, /* a filter dropped everything */
    ERR_PROFILE,
    ERR_DUMP, /* a file that should be the output of dump */
    ERR_UNSUPPORTED,
    ERR_INTERRUPTED,
    ERR_NO_MATCH,
    ERR_INTERNAL,
    ERR_END_ /* one past the last row */
};

/* Why a function failed, beyond its code. The comments name the facts that come with a reason. */
enum err_reason {
    REASON_NONE, /* the code says it all */

    /* ERR_PERMISSION: pid, uid, own_uid, in_container, in_pod (target/access.h) */
    REASON_PROC_HIDDEN,
    REASON_SETUID_NOT_OWN,
    REASON_USER_NAMESPACE,
    REASON_OTHER_USER,
    REASON_MORE_CAPABILITIES,
    REASON_NOT_DUMPABLE,
    REASON_YAMA_CHILDREN_ONLY, /* number: ptrace_scope; so for the next two */
    REASON_YAMA_CAPABLE_ONLY,
    REASON_YAMA_NONE,
    REASON_SECCOMP,
    REASON_SECURITY_MODULE,
    REASON_SETUID_KEPT, /* we could not drop the privileges of the setuid bit */

    /* ERR_UNSUPPORTED */
    REASON_PROC_MISSING,
    REASON_PROC_FOREIGN,

    /* A process that we can read but not pause */
    REASON_PAUSE_SECCOMP,
    REASON_PAUSE_TRACED, /* pid: the tracer */
    REASON_PAUSE_UNKNOWN,

    /* ERR_NO_PROCESS, ERR_GONE, ERR_NOT_PYTHON, ERR_VERSION */
    REASON_NO_PID,        /* pid */
    REASON_ZOMBIE,        /* pid */
    REASON_KERNEL_THREAD, /* pid */
    REASON_OTHER_PROGRAM, /* pid, path */
    REASON_FREE_THREADED, /* version */
    REASON_VERSION,       /* version; other: its suffix */
    REASON_PYPY,          /* pid, path */

    /* ERR_READ */
    REASON_NO_ANSWER, /* pid */

    /* ERR_STARTING */
    REASON_NOT_INITIALIZED, /* pid, path, version */

    /* ERR_LAUNCH: error */
    REASON_PIPE,
    REASON_EXEC, /* path */

    /* ERR_CORE: path */
    REASON_ROOT_OPEN, /* error */
    REASON_CORE_OPEN, /* error */
    REASON_CORE_IS_DIRECTORY,
    REASON_CORE_NOT_REGULAR,
    REASON_CORE_EMPTY,
    REASON_CORE_UNREADABLE,
    REASON_CORE_NOT_ELF,
    REASON_CORE_BIG_ENDIAN,
    REASON_CORE_IS_PROGRAM,
    REASON_CORE_MACHINE, /* number: e_machine */
    REASON_CORE_32_BIT,
    REASON_CORE_NO_SEGMENTS,
    REASON_CORE_CUT,
    REASON_CORE_FORMAT,  /* other: the command that decompresses it */
    REASON_CORE_CORRUPT, /* the same */
    REASON_CORE_UNPACK,  /* other: the directory of the temporary file; error; number: MB written */

    /* ERR_OUTPUT, ERR_DISK, ERR_NOMEM: path */
    REASON_OUTPUT_OPEN,          /* error */
    REASON_OUTPUT_NO_DIRECTORY,  /* other: the directory */
    REASON_OUTPUT_BAD_DIRECTORY, /* other: the directory; error */
    REASON_OUTPUT_IS_DIRECTORY,
    REASON_OUTPUT_NOT_REGULAR,
    REASON_OUTPUT_NO_NAME,
    REASON_OUTPUT_NO_READER, /* of a FIFO */
    REASON_OUTPUT_REPLACED,
    REASON_OUTPUT_NOT_OWN,
    REASON_OUTPUT_FD_CLOSED,
    REASON_OUTPUT_FD_READ_ONLY,
    REASON_OUTPUT_BUFFER,
    REASON_OUTPUT_PATH,
    REASON_WRITE,           /* error; an existing file is unchanged */
    REASON_WRITE_IN_PLACE,  /* error */
    REASON_WRITE_STALLED,   /* number: bytes written */
    REASON_WRITE_NO_READER, /* error */
    REASON_END_
};

struct err_facts {
    enum err_reason reason;
    int error; /* errno */
    pid_t pid;
    uid_t uid, own_uid; /* effective user IDs of the process and of spyglass */
    int64_t number;
    int version[3];
    const char *path, *other;
    bool in_container, in_pod; /* spyglass itself */
};

/* The facts about a failure, with copies of their strings. */
struct err_note {
    struct err_facts facts; /* its strings point into this note: do not copy it */
    char path[1280], other[1280];
};

/* Stores `facts` in `note`, which may be NULL, and returns `code`:
 *
 *     return err_because(note, ERR_CORE, &(struct err_facts){.reason = REASON_CORE_EMPTY, .path = path});
 */
int err_because(struct err_note *note, int code, const struct err_facts *facts);

/* The short name of a code, such as "torn read". */
const char *err_name(int code);

#endif
