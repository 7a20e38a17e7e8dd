/*
 * How large an answer may be for the one who asked. Called by record.
 *
 *     r = limit_write(format, profile, &options, limit_of(o), out);   // as large as it gets, unless Ray asked
 */
#ifndef CMD_LIMIT_H
#define CMD_LIMIT_H

#include "cmd/args.h"

/* Bytes at most; 0 for no limit. */
size_t limit_of(const struct options *o);

/* As format->write; a profile that would be larger than `limit` is made coarser until it fits, and a remark says so. */
int limit_write(const struct format *format, struct profile *p, const struct out_options *options, size_t limit,
                FILE *out);

#endif
