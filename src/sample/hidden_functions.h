/*
 * Which native functions are the interpreter's own business: how it calls, starts and loops. What they do for the
 * program (sorting a list, matching a pattern) is not.
 */
#ifndef SAMPLE_HIDDEN_FUNCTIONS_H
#define SAMPLE_HIDDEN_FUNCTIONS_H

#include <stdbool.h>

/* `in_python`: the function lies in the interpreter's module. `name` is NULL when it has none. */
bool hidden_functions_match(const char *name, const char *path, bool in_python);

/* The C library: what it has below all else starts threads and programs, whether it has names or not. */
bool hidden_functions_is_libc(const char *path);

/* The function that runs Python frames; 2.7: PyEval_EvalFrameEx, later _PyEval_EvalFrameDefault. */
bool hidden_functions_is_eval(const char *name, bool is_python2);

#endif
