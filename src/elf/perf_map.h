/*
 * The text of a perf map (/tmp/perf-PID.map), in which a JIT tells what it made: an address -> a name.
 *
 *     7f0c80001000 1f0 py::work:/srv/app.py
 *
 * From 3.12 on Python writes one with `-X perf`: its trampolines are called `py::NAME:FILE`.
 */
#ifndef ELF_PERF_MAP_H
#define ELF_PERF_MAP_H

#include "base/addr.h"

#include <stddef.h>

struct perf_map;

/* Lines of no known form are passed over. NULL when out of memory. `text` is not kept. */
struct perf_map *perf_map_new(const char *text, size_t len);
struct perf_map *perf_map_free(struct perf_map *m);

/* The name of what is at `pc`, of equal entries the last one written; NULL when there is none. Lives as long as `m`. */
const char *perf_map_find(const struct perf_map *m, addr_t pc);

#endif
