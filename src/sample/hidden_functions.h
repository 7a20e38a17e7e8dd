/*
 * Which native functions to hide: those with which the interpreter calls functions, starts up and evaluates frames.
 * Functions that do work for the program (sort a list, match a pattern) are shown.
 */
#ifndef SAMPLE_HIDDEN_FUNCTIONS_H
#define SAMPLE_HIDDEN_FUNCTIONS_H

#include <stdbool.h>

/* `in_python`: the function is in the interpreter's module. `name` is NULL when the function has no symbol. */
bool hidden_functions_match(const char *name, const char *path, bool in_python);

/* True for the C library. Its outermost functions only start threads and programs, with or without symbols. */
bool hidden_functions_is_libc(const char *path);

/* True for the eval function: PyEval_EvalFrameEx in 2.7, _PyEval_EvalFrameDefault later. */
bool hidden_functions_is_eval(const char *name, bool is_python2);

/* True for the function on which the stack of a greenlet begins: greenlet::UserGreenlet::g_initialstub, or g_initialstub
 * in greenlet 1 and earlier. */
bool hidden_functions_is_greenlet_start(const char *name);

/* True for the extension module of greenlet. */
bool hidden_functions_is_greenlet(const char *path);

#endif
