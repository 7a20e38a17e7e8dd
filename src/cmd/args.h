/*
 * Command line parsing. One table of flags and one of commands drive the parser, the help texts and the shell
 * completions. Nothing here prints or exits.
 */
#ifndef CMD_ARGS_H
#define CMD_ARGS_H

#include "base/log.h"
#include "cmd/error_text.h"
#include "out/format.h"
#include "profile/filter.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct launch_origin;
struct status;

enum args_command {
    ARGS_NONE, /* no command: --help or --version */
    ARGS_RECORD,
    ARGS_DUMP,
    ARGS_LIST,
    ARGS_MERGE,
    ARGS_GROUP,
    ARGS_RAY,
    ARGS_DOCTOR,
    ARGS_COMPLETIONS,
    ARGS_HELP,
    ARGS_COMMANDS_ /* one past the last */
};

/* What record measures. MODE_NONE: not given. */
enum args_mode { MODE_NONE, MODE_CPU, MODE_WALL, MODE_GIL, MODE_WAIT, MODES_ };

/* Which tasks record shows. */
enum args_async { ASYNC_NONE, ASYNC_RUNNING, ASYNC_ALL };

/* Strings point into argv. */
struct options {
    bool as_py_spy; /* invoked under the name py-spy */
    bool bare;      /* neither a command nor a flag: show the help and exit with status 2 */
    bool show_help; /* for `command`; for ARGS_NONE, the overview */
    bool show_version;
    enum args_command command;

    pid_t pid;            /* the first PID; 0: not given */
    bool several_pids;    /* --pid gives another one: see args_each_pid */
    bool names;           /* --name was given: see args_each_name */
    bool all;             /* every Python process */
    const char *name;     /* the name of a process, for `dump NAME`; NULL: not given */
    char *const *program; /* program to launch and its arguments, NULL-terminated, or NULL; for `ray`, its arguments */
    const char *module;   /* run this Python module; `program` has its arguments */
    int word; /* index in argv of the PID, `name` or program that was given as a word, or of an unknown command that
                         resembles none; 0: none, or after -- */
    const char *core; /* core file, or NULL */
    const char *root; /* directory containing the original system's files; NULL: / */
    const char *exe;  /* executable of the dumped process; NULL: at its original path */

    bool full_filenames;
    bool subprocesses;         /* set by --subprocesses or --subprocess-depth */
    unsigned subprocess_depth; /* generations of children; 0: all */
    bool native;
    bool nonblocking;
    bool gil;
    bool idle;
    enum args_mode mode;
    double rate;                 /* samples per second, 0.000001 to 1000000, default 100 */
    double duration;             /* seconds; 0: unlimited */
    double deadline;             /* of a dump, in seconds; 0: unlimited; -1: not given */
    const char *output;          /* NULL: not given */
    const struct format *format; /* NULL: not given */
    bool function;
    bool nolineno;
    bool threads;
    enum args_async async; /* ASYNC_ALL sets `mode` */
    bool capture;          /* capture the output of the launched program */
    bool wait;             /* wait for the launched program to exit */
    bool kill;             /* terminate it when the recording ends */
    bool hide_progress;
    pid_t with_parent; /* stop when this is no longer our parent; 0: not given */
    int status_fd;     /* -1: not given */
    unsigned locals;   /* number of times -l was given */
    bool show_secrets;
    bool source;
    bool waits, no_waits;
    bool group;
    unsigned rounds; /* 0: not given */
    double every;    /* seconds between them; 0: not given */
    bool tasks, no_tasks;
    bool native_all;
    bool json;
    bool verbose;
    /* LOG_LEVEL_OFF: not given. */
    enum log_level log_level;
    struct filter_options filter; /* --include, --exclude, --thread, --only-mine, --min-percent */
    const char *shell;            /* for `completions` */
    const char *title;            /* for `merge`; NULL: not given */
    size_t n_files;               /* for `merge` and `group`: see args_each_file */
    int argc;
    char *const *argv;

    const struct launch_origin *origin; /* signal state we inherited; set by main.c */
    struct status *status;              /* of status_fd, or NULL; set by main.c */
};

/* The type of a flag's value. */
enum args_kind {
    ARGS_BOOL,
    ARGS_ASYNC, /* the value may be left out */
    ARGS_COUNT,
    ARGS_TEXT,
    ARGS_FILE,
    ARGS_PID,
    ARGS_PIDS,
    ARGS_NAME,
    ARGS_DEPTH,
    ARGS_ROUNDS,
    ARGS_RATE,
    ARGS_DURATION,
    ARGS_SECONDS,
    ARGS_FORMAT,
    ARGS_LOG_LEVEL,
    ARGS_MODE,
    ARGS_PATTERN,
    ARGS_PERCENT,
    ARGS_MODULE,
    ARGS_FD,
    ARGS_SHOW_HELP,
    ARGS_SHOW_VERSION,
};

/* A row of the flag table. To add a flag, add a row to flags[] in args.c and a field to struct options. The parser, the
 * help and the completions use that table. If it contradicts another flag, add a row to args_check.c. */
struct args_flag {
    const char *name; /* "pid", without the dashes */
    char letter;      /* 'p', or 0 */
    enum args_kind kind;
    unsigned commands; /* bit set of 1u << enum args_command */
    size_t offset;     /* of the field in struct options */
    const char *value; /* "PID"; NULL: takes no value */
    const char *help;
};

struct args_command_row {
    const char *name;        /* "record" */
    const char *summary;     /* one line for the overview */
    const char *usage;       /* what follows the name: "[FLAGS] --pid PID" */
    bool yields;             /* an abbreviation that also matches another command means the other */
    bool in_package;         /* the Python package runs it, with all arguments */
    const char *short_usage; /* the same with words instead of --pid, which py-spy does not accept; NULL: `usage` */
};

/* The flag table ends with a row without a name. ARGS_NONE has a row without a name. */
const struct args_flag *args_flags(void);
/* True for a flag that takes a value and may be given several times. */
bool args_may_repeat(const struct args_flag *flag);
/* "cpu"; NULL for MODE_NONE and MODES_. */
const char *args_mode_name(enum args_mode mode);

const struct args_command_row *args_command_row(enum args_command command);

/* Returns 0, or ERR_USAGE with `text` filled. Even on failure, args_name(ret) works. */
int args_parse(int argc, char *const argv[], struct options *ret, struct error_text *text);

/* Calls `visit` for each file argument of `merge` ("ROOT=FILE") and `group`, as given. Returns the first nonzero result, or 0. */
int args_each_file(const struct options *options, int (*visit)(const char *word, void *arg), void *arg);

/* The same for each PID of --pid, and for each pattern of --name. A PID may come more than once. */
int args_each_pid(const struct options *options, int (*visit)(pid_t pid, void *arg), void *arg);
int args_each_name(const struct options *options, int (*visit)(const char *pattern, void *arg), void *arg);

/* True if --pid, --name or --all was given. */
bool args_choose_process(const struct options *options);
/* True if they may mean more than one process: each then has a section of its own in the output. */
bool args_choose_several(const struct options *options);
/* What follows the name of options->command in its help. */
const char *args_usage(const struct options *options);

/* "spyglass" or "py-spy". */
const char *args_name(const struct options *options);
/* "spyglass 0.1.0" or "py-spy 0.4.3 (spyglass 0.1.0)". */
const char *args_version(const struct options *options);
/* The prefix of the messages of record and merge: "spyglass> " or "py-spy> ". */
const char *args_prefix(const struct options *options);

#endif
