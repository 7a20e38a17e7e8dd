/*
 * What the files that print a dump as text share.
 */
#ifndef OUT_DUMP_PRIVATE_H
#define OUT_DUMP_PRIVATE_H

#include "out/dump.h"

enum dump_style {
    STYLE_NONE, /* ends the others */
    STYLE_FUNCTION,
    STYLE_PLACE, /* file and line */
    STYLE_IDLE,
    STYLE_ACTIVE,
    STYLE_HAS_GIL,
    STYLE_WAITING,
    STYLE_CODE, /* the part of a source line that is being executed */
    STYLE_CARETS,
};

/* Switches the style of a terminal; does nothing without options->color. */
void dump_style(const struct dump_options *options, enum dump_style style, FILE *out);

/* Prints a frame with its source line and its variables, indented by `indent` columns. */
void dump_text_frame(const struct frame *frame, const struct dump_options *options, unsigned indent, FILE *out);

/* Prints the source line of a frame, which has one, and a line that underlines the part that is being executed, both
 * indented by `columns`. */
void dump_text_source(const struct frame *frame, const struct dump_options *options, unsigned columns, FILE *out);

void dump_json_frame(const struct frame *frame, FILE *out);

/* Prints the key `event_loops` of a thread that has some. `first`: it is the first thread of its process. */
void dump_json_tasks(const struct task_set *set, const struct trace *trace, bool first, FILE *out);

/* Prints why a thread of the process `self` waits: as a line of text, or as the value of a JSON field. */
void dump_text_wait(const struct wait_reason *wait, pid_t self, const struct dump_options *options, FILE *out);
void dump_json_wait(const struct wait_reason *wait, FILE *out);

/* Prints a lock or an operation: "Lock stock", "the import lock of module a", "Queue.get (jobs)". */
void dump_text_object(const struct awaited_object *object, FILE *out);

/* Prints a thread by its name, else by its ID. */
void dump_text_owner(const struct awaited_thread *thread, FILE *out);

/* Prints "waits for Lock stock, likely held by restock", of a wait with an object. */
void dump_text_wait_object(const struct wait_reason *wait, FILE *out);

/* Prints "waits for I/O (recvfrom): fd 5 TCP 10.0.0.3:51234 -> 10.0.0.7:5432 ESTABLISHED", of a thread of the process `self`. */
void dump_text_wait_reason(const struct wait_reason *wait, pid_t self, FILE *out);

/* Prints "process 812 (convert -), which is stopped by a signal". */
void dump_text_process(const struct awaited_process *process, pid_t self, FILE *out);

/* Prints the key `verdict`. */
void dump_json_verdict(const struct verdict *verdict, FILE *out);

#endif
