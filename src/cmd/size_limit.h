/*
 * How large an answer may be for the one who asked. Called by record.
 *
 *     r = size_limit_write(format, profile, &options, size_limit_of(o), out);   // as large as it gets, unless Ray asked
 */
#ifndef CMD_SIZE_LIMIT_H
#define CMD_SIZE_LIMIT_H

#include "cmd/args.h"
#include "out/dump.h"

/* Bytes of a file at most; 0 for no limit. */
size_t size_limit_of(const struct options *o);
/* Bytes of dump's text. */
size_t size_limit_of_dump(const struct options *o);

/* As format->write; a profile that would be larger than `limit` is made coarser until it fits, and a remark says so. */
int size_limit_write(const struct format *format, struct profile *p, const struct out_options *options, size_t limit,
                     FILE *out);

/* As dump_text; in a text larger than `share` the middles of deep stacks are left out. Returns its bytes. */
size_t size_limit_dump(const struct proc_info *process, const struct trace *traces, size_t n_traces,
                       const struct dump_options *options, bool first, size_t share, FILE *out);

#endif
