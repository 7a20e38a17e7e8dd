/*
 * Names of error codes, and the note that carries the facts about a failure to cmd/.
 */
#include "base/err.h"

#include <stdio.h>

/* In the order of enum err. */
static const char *const names[] = {"out of memory",
                                    "I/O error",
                                    "usage",
                                    "no such process",
                                    "not Python",
                                    "starting",
                                    "permission",
                                    "unsupported version",
                                    "process exited",
                                    "unreadable memory",
                                    "out of bounds",
                                    "cycle",
                                    "deeper than 262144 frames",
                                    "more than 32768 functions",
                                    "torn read",
                                    "could not pause",
                                    "output",
                                    "write failed",
                                    "launch failed",
                                    "core file",
                                    "no samples",
                                    "all filtered",
                                    "raw profile",
                                    "dump",
                                    "unsupported",
                                    "interrupted",
                                    "no match",
                                    "internal"};

_Static_assert(sizeof(names) / sizeof(names[0]) == ERR_END_ - ERR_NOMEM, "one name for each code");

const char *err_name(int code)
{
    return names[(code < ERR_NOMEM || code >= ERR_END_ ? ERR_INTERNAL : code) - ERR_NOMEM];
}

static const char *copy(char *room, size_t size, const char *text)
{
    snprintf(room, size, "%s", text ? text : "");
    return text ? room : NULL;
}

int err_because(struct err_note *note, int code, const struct err_facts *facts)
{
    if (note) {
        note->facts = *facts;
        note->facts.path = copy(note->path, sizeof(note->path), facts->path);
        note->facts.other = copy(note->other, sizeof(note->other), facts->other);
    }
    return code;
}
