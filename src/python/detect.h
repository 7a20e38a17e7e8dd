/*
 * Finds the CPython in a process: its version and its runtime. Tries the dynamic symbols of every image
 * in memory, whatever its name; then searches the writable data for something that looks like an
 * interpreter; then reads .symtab from the files.
 */
#ifndef PYTHON_DETECT_H
#define PYTHON_DETECT_H

#include "base/err.h"
#include "python/python.h"
#include "target/files.h"
#include "target/proc.h"

/* 0; ERR_NOT_PYTHON; ERR_STARTING if there is a Python but no interpreter yet; ERR_VERSION. */
int detect_python(const struct files *files, struct mem *mem, const struct proc_maps *maps, struct intern *names,
                  struct python *ret, struct err_note *note);

#endif
