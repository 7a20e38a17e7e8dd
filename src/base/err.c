/*
 * The table of errors. Every layer returns these codes; only cmd/ prints them.
 */
#include "base/err.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

struct err_row {
    const char *name;
    const char *prefix; /* starts the printed line */
    const char *message;
    const char *hint;
    int status;
};

#define ROW(code) [(code)-ERR_NOMEM]

static const struct err_row rows[ERR_END_ - ERR_NOMEM] = {
    ROW(ERR_NOMEM) = {"out of memory", "Error: ", "Out of memory", "Free some memory, or record for a shorter time.",
                      1},
    ROW(ERR_IO) = {"I/O error", "Error: ", "I/O error", NULL, 1},
    ROW(ERR_USAGE) = {"usage", "error: ", "Bad arguments", "For more information try --help", 2},
    ROW(ERR_NO_PROCESS) = {"no such process",
                           "Error: ", "Failed to get process executable name. Check that the process is running.",
                           "To list the Python processes, run dump without --pid on a terminal.", 1},
    ROW(ERR_NOT_PYTHON) = {"not Python", "Error: ", "Failed to find python version from target process",
                           "If a child of this process runs Python, add --subprocesses.", 1},
    ROW(ERR_STARTING) = {"starting", "Error: ", "Python has not finished starting in the target process",
                         "Try again in a moment.", 1},
    ROW(ERR_PERMISSION) = {"permission", "Permission Denied: ", "Cannot read the process", NULL, 1},
    ROW(ERR_VERSION) = {"unsupported version", "Error: ", "Unsupported Python version",
                        "Supported versions: CPython 2.7 and 3.6 to 3.15.", 1},
    ROW(ERR_GONE) = {"process exited", "Error: ", "The process has exited", NULL, 1},
    ROW(ERR_READ) = {"unreadable memory", "Error: ", "Failed to read the memory of the target process", NULL, 1},
    ROW(ERR_BOUNDS) = {"out of bounds", "Error: ", "The memory of the target process contains invalid values", NULL, 1},
    ROW(ERR_CYCLE) = {"cycle", "Error: ", "The memory of the target process contains an unexpected cycle", NULL, 1},
    ROW(ERR_TORN) = {"torn read", "Error: ", "The target process changed while spyglass was reading it", "Try again.",
                     1},
    ROW(ERR_STOP) = {"could not pause", "Error: ", "Failed to pause a thread of the target process",
                     "Add --nonblocking to read without pausing threads.", 1},
    ROW(ERR_OUTPUT) = {"output", "Error: ", "Failed to create the output file", "Choose another path with -o FILE.", 1},
    ROW(ERR_DISK) =
        {"write failed", "Error: ", "Failed to write the output file",
         "Free some disk space or choose another path with -o FILE. An existing file of that name is unchanged.", 1},
    ROW(ERR_LAUNCH) = {"launch failed", "Error: ", "Failed to start the program", NULL, 1},
    ROW(ERR_CORE) = {"core file", "Error: ", "Failed to read the core file", NULL, 1},
    ROW(ERR_NO_SAMPLES) = {"no samples", "Error: ", "No stack counts found", NULL, 1},
    ROW(ERR_PROFILE) = {"raw profile", "Error: ", "Failed to read the profile",
                        "merge reads what `record --format raw` writes: one stack and its count per line.", 1},
    ROW(ERR_UNSUPPORTED) = {"unsupported", "Error: ", "Not supported", NULL, 1},
    ROW(ERR_INTERNAL) = {"internal", "Error: ", "Internal error", "Please report this bug.", 1},
};

static const struct err_row *row_of(int code)
{
    if (code < ERR_NOMEM || code >= ERR_END_)
        code = ERR_INTERNAL;
    return &rows[code - ERR_NOMEM];
}

int err_note_what(struct err_note *note, int code, const char *fmt, ...)
{
    va_list args;

    if (note) {
        va_start(args, fmt);
        vsnprintf(note->what, sizeof(note->what), fmt, args);
        va_end(args);
        note->hint[0] = '\0';
    }
    return code;
}

void err_note_hint(struct err_note *note, const char *fmt, ...)
{
    va_list args;

    if (!note)
        return;
    va_start(args, fmt);
    vsnprintf(note->hint, sizeof(note->hint), fmt, args);
    va_end(args);
}

const char *err_name(int code)
{
    return row_of(code)->name;
}

int err_print(FILE *out, int code, const struct err_note *note)
{
    const struct err_row *row = row_of(code);
    const char *hint = note && note->hint[0] ? note->hint : row->hint;

    fprintf(out, "%s%s", row->prefix, row->message);
    if (note && note->what[0]) {
        bool is_sentence = row->message[strlen(row->message) - 1] == '.';

        fputs(is_sentence ? " (" : ": ", out);
        text_print_safe(out, note->what); /* it may hold paths and names that a target chose */
        fputs(is_sentence ? ")" : "", out);
    }
    fputc('\n', out);
    if (hint) {
        text_print_safe(out, hint);
        fputc('\n', out);
    }
    return row->status;
}
