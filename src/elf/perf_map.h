/*
 * Parses a perf map (/tmp/perf-PID.map), in which a JIT compiler names the code it generated.
 *
 *     7f0c80001000 1f0 py::work:/srv/app.py
 *
 * CPython 3.12 and later write one with `-X perf`; its trampolines are called `py::NAME:FILE`.
 */
#ifndef ELF_PERF_MAP_H
#define ELF_PERF_MAP_H

#include "base/addr.h"

#include <stddef.h>

struct perf_map;

/* Skips lines that it cannot parse. Does not keep `text`. NULL if out of memory. */
struct perf_map *perf_map_new(const char *text, size_t len);
struct perf_map *perf_map_free(struct perf_map *m);

/* The name of the code at `pc`, or NULL. If entries overlap, the last one in the file wins. Lives as long as `m`. */
const char *perf_map_find(const struct perf_map *m, addr_t pc);

#endif
