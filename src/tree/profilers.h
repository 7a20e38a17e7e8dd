/*
 * Recognises profilers among the processes of a tree. A profiler that works on the program is not part
 * of what is profiled, even if the program or its tools started it: dask-pyspy starts one as a child of
 * its target.
 */
#ifndef TREE_PROFILERS_H
#define TREE_PROFILERS_H

#include <stdbool.h>
#include <sys/types.h>

/* True if the process is a profiler or debugger that reads other processes, spyglass itself included: by its program,
 * or by the script or module that a Python interpreter runs. */
bool profilers_match(pid_t pid);

/* Sets our own name (comm), so that other profilers recognise us even if our executable has another name or none. */
void profilers_announce(bool as_py_spy);

#endif
