/*
 * The first and last lines of the log: user, command line and machine, then the counters and the exit status.
 */
#ifndef CMD_LOG_SESSION_H
#define CMD_LOG_SESSION_H

#include "cmd/args.h"

#include <stdio.h>

struct loop;
struct sampler;

/* Starts the log at the level of --log-level, else of SPYGLASS_LOG; without either it stays off. `write_build` writes one
 * fact about the build per line. Returns 0, or ERR_USAGE with `text` filled if SPYGLASS_LOG is not a level. */
int log_session_start(const struct options *o, void (*write_build)(FILE *out), struct error_text *text);

/* The counters of a sampler, and of a recording's loop if it is not NULL. */
void log_session_counters(const struct sampler *s, const struct loop *l);

/* The exit status, and how many lines the rate limits suppressed. */
void log_session_end(int status);

#endif
