/*
 * Finds the CPython in a target: which version, where its runtime is. By the dynamic symbols of every
 * image in memory, whatever its name; else by .symtab; else by searching the data for what only an
 * interpreter looks like.
 */
#ifndef PYTHON_DETECT_H
#define PYTHON_DETECT_H

#include "base/err.h"
#include "python/python.h"
#include "target/files.h"
#include "target/proc.h"

/* 0; ERR_NOT_PYTHON; ERR_STARTING when a Python is there but no interpreter yet; ERR_VERSION. */
int detect_python(const struct files *files, struct mem *mem, const struct proc_maps *maps, struct intern *names,
                  struct python *ret, struct err_note *note);

#endif
