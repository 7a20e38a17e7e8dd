/*
 * The command line: argv -> struct options. One table of flags and one of commands feed the parser,
 * the help texts and the shell completions. Called by main.c; nothing here prints or exits.
 *
 *     struct options o;
 *     struct err_note note = {0};
 *     int r = args_parse(argc, argv, &o, &note);  // "record -o out.svg -d 1.5 -- python a.py"
 *     if (r < 0)
 *         return err_print(stderr, r, &note);     // o.output "out.svg", o.duration 1.5, o.program {"python", "a.py", NULL}
 */
#ifndef CMD_ARGS_H
#define CMD_ARGS_H

#include "base/err.h"
#include "out/format.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct launch_origin;
struct status;

enum args_command {
    ARGS_NONE, /* no command: help or version was asked for */
    ARGS_RECORD,
    ARGS_DUMP,
    ARGS_MERGE,
    ARGS_RAY,
    ARGS_DOCTOR,
    ARGS_COMPLETIONS,
    ARGS_HELP,
    ARGS_COMMANDS_ /* one past the last */
};

/* Strings point into argv. */
struct options {
    bool as_py_spy; /* started under the name py-spy */
    bool bare;      /* neither a command nor a flag: the help is shown, the status is 2 */
    bool show_help; /* of `command`; ARGS_NONE is the overview */
    bool show_version;
    enum args_command command;

    pid_t pid; /* 0: none given */
    char *const
        *program; /* the program to launch and its arguments, NULL at the end; NULL: none given; of `ray`: its words */
    const char *core; /* a core file; NULL: none given */
    const char *root; /* where the files of a core file are; NULL: here */
    const char *exe;  /* the program of a core file; NULL: where it was */

    bool full_filenames;
    bool subprocesses;         /* told, or by the next one */
    unsigned subprocess_depth; /* generations of children; 0: all */
    bool native;
    bool nonblocking;
    bool gil;
    bool idle;
    double rate;                 /* samples a second, 0.000001 to 1000000; 100 unless told */
    double duration;             /* seconds; 0: unlimited */
    const char *output;          /* NULL: none given */
    const struct format *format; /* NULL: none given */
    bool function;
    bool nolineno;
    bool threads;
    bool capture; /* hold back the launched program's output */
    bool wait;    /* stay until the launched program ends */
    bool kill;    /* end it with the recording */
    bool hide_progress;
    pid_t with_parent; /* end when this is no longer our parent; 0: none given */
    int status_fd;     /* -1: none given */
    unsigned locals;   /* how often -l was given */
    bool show_secrets;
    bool native_all;
    bool json;
    bool verbose;
    const char *shell; /* of `completions` */
    const char *title; /* of `merge`; NULL: none given */
    size_t n_files;    /* of `merge`: see args_each_file */
    int argc;
    char *const *argv;

    const struct launch_origin *origin; /* how we were started; set by main.c */
    struct status *status;              /* of status_fd, NULL: none; set by main.c */
};

/* How a flag's value is read; decides as well whether it takes one. */
enum args_kind {
    ARGS_BOOL,
    ARGS_COUNT,
    ARGS_TEXT,
    ARGS_FILE,
    ARGS_PID,
    ARGS_DEPTH,
    ARGS_RATE,
    ARGS_DURATION,
    ARGS_FORMAT,
    ARGS_FD,
    ARGS_SHOW_HELP,
    ARGS_SHOW_VERSION,
};

/* A row of the table of flags. ADD A FLAG HERE (args.c): parser, help and completions follow. */
struct args_flag {
    const char *name; /* "pid", without its dashes */
    char letter;      /* 'p', or 0 */
    enum args_kind kind;
    unsigned commands; /* set of 1u << enum args_command */
    size_t offset;     /* of the field in struct options */
    const char *value; /* "PID"; NULL: takes none */
    const char *help;
};

struct args_command_row {
    const char *name;    /* "record" */
    const char *summary; /* one line for the overview */
    const char *usage;   /* what follows the name: "[FLAGS] --pid PID" */
    bool yields;         /* an abbreviation that fits another command too means that one */
    bool in_package;     /* the Python package runs it, with the words that follow */
};

/* The tables: flags are ended by a row without a name; a command without a name has no row. */
const struct args_flag *args_flags(void);
const struct args_command_row *args_command_row(enum args_command command);

/* 0, or ERR_USAGE with `note` filled. `ret` is always filled so far that args_name works. */
int args_parse(int argc, char *const argv[], struct options *ret, struct err_note *note);

/* Calls `visit` for each file of `merge`, as given ("ROOT=FILE"), until it returns another value than 0; returns it. */
int args_each_file(const struct options *options, int (*visit)(const char *word, void *arg), void *arg);

/* "spyglass" or "py-spy". */
const char *args_name(const struct options *options);
/* "spyglass 0.1.0" or "py-spy 0.4.3 (spyglass 0.1.0)". */
const char *args_version(const struct options *options);
/* What each message of record begins with: "spyglass> " or "py-spy> ". */
const char *args_prefix(const struct options *options);

#endif
