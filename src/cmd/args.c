/*
 * The tables of flags and of commands. The parser (args_parse.c), the help texts and the completions all use them.
 */
#include "cmd/args_private.h"

#include <string.h>

#ifndef SPYGLASS_VERSION
#define SPYGLASS_VERSION "0.1.0"
#endif

/* The version of py-spy whose command line we accept under the name py-spy. */
#define PY_SPY_VERSION "0.4.3"

#define IN_RECORD          ARGS_IN(ARGS_RECORD)
#define IN_DUMP            ARGS_IN(ARGS_DUMP)
#define IN_LIST            ARGS_IN(ARGS_LIST)
#define IN_MERGE           ARGS_IN(ARGS_MERGE)
#define IN_GROUP           ARGS_IN(ARGS_GROUP)
#define IN_DOCTOR          ARGS_IN(ARGS_DOCTOR)
#define IN_RECORD_AND_DUMP (IN_RECORD | IN_DUMP)
#define IN_STACKS          (IN_RECORD_AND_DUMP | IN_MERGE)
#define FIELD(name)        offsetof(struct options, name)

/* In the order of the help text. A letter is unique within a command. */
static const struct args_flag flags[] = {
    {"pid", 'p', ARGS_PIDS, IN_RECORD_AND_DUMP | IN_DOCTOR, FIELD(pid), "PID",
     "Process ID, decimal or hexadecimal with 0x; dump and record accept several: 12,34"},
    {"name", 0, ARGS_NAME, IN_RECORD_AND_DUMP, FIELD(names), "PATTERN",
     "Python processes whose command line contains this text or, with * or ?, matches it"},
    {"all", 0, ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(all), NULL, "Every Python process that you may read"},
    {"core", 'c', ARGS_FILE, IN_DUMP, FIELD(core), "FILE",
     "Read a core file instead of a running process; gzip and zstd are supported"},
    {"root", 0, ARGS_FILE, IN_DUMP, FIELD(root), "DIR",
     "With --core: directory containing the original machine's or container's files"},
    {"exe", 0, ARGS_FILE, IN_DUMP, FIELD(exe), "FILE", "With --core: path of the executable, if it has moved"},
    {"module", 'm', ARGS_MODULE, IN_RECORD, FIELD(module), "MODULE",
     "Launch a Python module, as python3 -m does; all words after it are its arguments"},
    {"output", 'o', ARGS_FILE, IN_STACKS | IN_GROUP, FIELD(output), "FILE", "Output file; - is standard output"},
    {"format", 'f', ARGS_FORMAT, IN_STACKS | IN_GROUP, FIELD(format), "FORMAT", "Output format"},
    {"duration", 'd', ARGS_DURATION, IN_RECORD, FIELD(duration), "SECONDS",
     "How long to record, in seconds or 'unlimited' [default: unlimited]"},
    {"title", 0, ARGS_TEXT, IN_MERGE, FIELD(title), "TEXT", "Title of the profile"},
    {"rate", 'r', ARGS_RATE, IN_RECORD | IN_MERGE, FIELD(rate), "RATE", "Samples per second [default: 100]"},
    {"subprocesses", 's', ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(subprocesses), NULL, "Include child processes"},
    {"subprocess-depth", 0, ARGS_DEPTH, IN_RECORD_AND_DUMP, FIELD(subprocess_depth), "N",
     "Include N generations of child processes: 1 is the children, 2 adds their children"},
    {"mode", 0, ARGS_MODE, IN_RECORD, FIELD(mode), "MODE",
     "What to measure: cpu or wall time, gil (time held) or wait (time off the CPU) [default: cpu]"},
    {"idle", 'i', ARGS_BOOL, IN_RECORD, FIELD(idle), NULL, "Include idle threads, and count samples instead of time"},
    {"gil", 'g', ARGS_BOOL, IN_RECORD, FIELD(gil), NULL,
     "Include only the thread that holds the GIL, and count samples instead of time"},
    {"threads", 't', ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(threads), NULL,
     "Show each thread separately (dump always does)"},
    {"async", 0, ARGS_ASYNC, IN_RECORD, FIELD(async), NULL,
     "Show running asyncio tasks below those that await them; --async all: waiting tasks, too"},
    {"function", 'F', ARGS_BOOL, IN_RECORD, FIELD(function), NULL, "Aggregate by function instead of by line"},
    {"nolineno", 0, ARGS_BOOL, IN_RECORD, FIELD(nolineno), NULL, "Omit line numbers"},
    {"include", 0, ARGS_PATTERN, IN_STACKS, FIELD(filter.include), "PATTERN",
     "Keep only stacks in which a function, module or file matches, such as 'json.*'; repeatable"},
    {"exclude", 0, ARGS_PATTERN, IN_STACKS, FIELD(filter.exclude), "PATTERN",
     "Drop stacks in which a function, module or file matches; repeatable"},
    {"thread", 0, ARGS_PATTERN, IN_STACKS, FIELD(filter.thread), "PATTERN",
     "Keep only threads whose name or ID matches, such as 'worker*'; repeatable"},
    {"only-mine", 0, ARGS_BOOL, IN_STACKS, FIELD(filter.only_mine), NULL,
     "Fold frames of the standard library and of installed packages into your code that calls them"},
    {"min-percent", 0, ARGS_PERCENT, IN_RECORD | IN_MERGE, FIELD(filter.min_percent), "N",
     "Fold calls below N percent of what the filter kept into their callers"},
    {"group", 0, ARGS_BOOL, IN_DUMP, FIELD(group), NULL,
     "Merge equal stacks of several processes, and name those that are elsewhere; -o draws them"},
    {"rounds", 0, ARGS_ROUNDS, IN_DUMP, FIELD(rounds), "N",
     "With --group: read the stacks N times, and show which processes moved"},
    {"every", 0, ARGS_SECONDS, IN_DUMP, FIELD(every), "SECONDS", "With --rounds: time between them [default: 5]"},
    {"locals", 'l', ARGS_COUNT, IN_DUMP, FIELD(locals), NULL,
     "Show local variables; -ll and -lll show longer values and object attributes"},
    {"show-secrets", 0, ARGS_BOOL, IN_DUMP, FIELD(show_secrets), NULL,
     "Do not mask values whose names suggest passwords, tokens, secrets or keys"},
    {"source", 0, ARGS_BOOL, IN_DUMP, FIELD(source), NULL,
     "Show the source line of each frame; on Python 3.11+, mark the part that is being executed"},
    {"waits", 0, ARGS_BOOL, IN_DUMP, FIELD(waits), NULL,
     "Show what each thread waits for, who holds the lock, and why the process hangs"},
    {"no-waits", 0, ARGS_BOOL, IN_DUMP, FIELD(no_waits), NULL, "Do not show what the threads wait for"},
    {"tasks", 0, ARGS_BOOL, IN_DUMP, FIELD(tasks), NULL, "Show the tasks of asyncio and trio, and greenlets"},
    {"no-tasks", 0, ARGS_BOOL, IN_DUMP, FIELD(no_tasks), NULL, "Do not show tasks and greenlets"},
    {"json", 'j', ARGS_BOOL, IN_DUMP | IN_LIST | IN_DOCTOR | IN_GROUP, FIELD(json), NULL, "Write JSON"},
    {"native", 'n', ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(native), NULL,
     "Include native functions: C, C++, Rust and Cython"},
    {"native-all", 0, ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(native_all), NULL,
     "Also include the interpreter's own functions and threads that run no Python"},
    {"full-filenames", 0, ARGS_BOOL, IN_RECORD_AND_DUMP | IN_GROUP, FIELD(full_filenames), NULL, "Show full paths"},
    {"nonblocking", 0, ARGS_BOOL, IN_RECORD_AND_DUMP, FIELD(nonblocking), NULL,
     "Read without pausing threads; stacks may be incomplete"},
    {"deadline", 0, ARGS_DURATION, IN_DUMP, FIELD(deadline), "SECONDS",
     "Stop after this time and show what was read; in seconds or 'unlimited' [default: 30]"},
    {"capture", 0, ARGS_BOOL, IN_RECORD, FIELD(capture), NULL,
     "Hide the output of the launched program unless it fails"},
    {"wait", 0, ARGS_BOOL, IN_RECORD, FIELD(wait), NULL,
     "If the recording ends first, wait for the launched program to exit"},
    {"kill", 0, ARGS_BOOL, IN_RECORD, FIELD(kill), NULL, "If the recording ends first, terminate the launched program"},
    {"hideprogress", 0, ARGS_BOOL, IN_RECORD, FIELD(hide_progress), NULL, "Do not show the progress line"},
    {"with-parent", 0, ARGS_PID, IN_RECORD, FIELD(with_parent), "PID",
     "Stop and save the profile when the parent process PID exits"},
    {"status-fd", 0, ARGS_FD, IN_RECORD_AND_DUMP, FIELD(status_fd), "N",
     "Report events as JSON, one object per line, on this open descriptor"},
    {"verbose", 'v', ARGS_BOOL, IN_RECORD_AND_DUMP | ARGS_IN(ARGS_NONE), FIELD(verbose), NULL,
     "Print more details (no effect in dump); with --version, show how this program was built"},
    {"log-level", 0, ARGS_LOG_LEVEL, IN_RECORD_AND_DUMP | IN_LIST | IN_MERGE | IN_DOCTOR | IN_GROUP, FIELD(log_level),
     "LEVEL", "Log to standard error: error, warning, info or debug"},
    {"help", 'h', ARGS_SHOW_HELP, ARGS_IN_ALL, FIELD(show_help), NULL, "Show this help"},
    {"version", 'V', ARGS_SHOW_VERSION, ARGS_IN_ALL, FIELD(show_version), NULL, "Show the version"},
    {0},
};

/* args_parser.seen has a bit for each row. */
_Static_assert(sizeof(flags) / sizeof(flags[0]) - 1 <= 64, "struct args_parser needs a wider set");

static const struct args_command_row commands[ARGS_COMMANDS_] = {
    [ARGS_RECORD] =
        {"record", "Record where a program spends its time",
         "[FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | [FLAGS] [--] PROGRAM [ARGUMENT]...", false, false,
         "[FLAGS] PID... | [FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | [FLAGS] SCRIPT [ARGUMENT]... | "
         "[FLAGS] -m MODULE [ARGUMENT]... | [FLAGS] [--] PROGRAM [ARGUMENT]..."},
    [ARGS_DUMP] = {"dump", "Show the current call stack of every thread",
                   "[FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | [FLAGS] --core FILE", false, false,
                   "[FLAGS] PID... | [FLAGS] NAME | [FLAGS] --pid PID[,PID]... | [FLAGS] --name PATTERN | "
                   "[FLAGS] --core FILE"},
    [ARGS_LIST] = {"list", "List the Python processes, busiest first", "[FLAGS]", false, false},
    [ARGS_MERGE] = {"merge", "Combine raw profiles into one, with a separate root for each", "[FLAGS] [ROOT=]FILE...",
                    false, false},
    [ARGS_GROUP] = {"group", "Merge equal stacks of dumps from several machines", "[FLAGS] FILE...", false, false},
    [ARGS_RAY] = {"ray", "Dump or record every worker of a Ray cluster", "dump [FLAGS] | record [FLAGS]", true, true},
    [ARGS_DOCTOR] = {"doctor", "Check what this system permits, and suggest fixes", "[FLAGS] [--pid PID]", true, false,
                     "[FLAGS] [PID]"},
    [ARGS_COMPLETIONS] = {"completions", "Generate a shell completion script", "SHELL", false, false},
    [ARGS_HELP] = {"help", "Show help for a command", "[COMMAND]", false, false},
};

const struct args_flag *args_flags(void)
{
    return flags;
}

const struct args_command_row *args_command_row(enum args_command command)
{
    return &commands[command];
}

const char *args_usage(const struct options *options)
{
    const struct args_command_row *row = &commands[options->command];

    return row->short_usage && !options->as_py_spy ? row->short_usage : row->usage;
}

const char *args_name(const struct options *options)
{
    return options->as_py_spy ? "py-spy" : "spyglass";
}

const char *args_version(const struct options *options)
{
    return options->as_py_spy ? "py-spy " PY_SPY_VERSION " (spyglass " SPYGLASS_VERSION ")"
                              : "spyglass " SPYGLASS_VERSION;
}

const char *args_prefix(const struct options *options)
{
    return options->as_py_spy ? "py-spy> " : "spyglass> ";
}

const char *args_mode_name(enum args_mode mode)
{
    static const char *const names[MODES_] = {
        [MODE_CPU] = "cpu", [MODE_WALL] = "wall", [MODE_GIL] = "gil", [MODE_WAIT] = "wait"};

    return mode < MODES_ ? names[mode] : NULL;
}

const struct args_flag *args_find_flag(const char *name, size_t n, char letter, unsigned where)
{
    for (const struct args_flag *f = flags; f->name; f++) {
        bool same = letter ? f->letter == letter : strlen(f->name) == n && memcmp(f->name, name, n) == 0;
        if (same && (f->commands & where))
            return f;
    }
    return NULL;
}

bool args_may_repeat(const struct args_flag *flag)
{
    return flag->kind == ARGS_PIDS || flag->kind == ARGS_NAME || flag->kind == ARGS_PATTERN;
}

bool args_choose_process(const struct options *options)
{
    return options->pid || options->names || options->all;
}

bool args_choose_several(const struct options *options)
{
    return options->several_pids || options->names || options->all;
}
