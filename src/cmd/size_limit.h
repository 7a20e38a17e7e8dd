/*
 * Size limits for callers that cannot handle large results (Ray).
 */
#ifndef CMD_SIZE_LIMIT_H
#define CMD_SIZE_LIMIT_H

#include "cmd/args.h"
#include "out/dump.h"

/* The maximum size of an output file of record, in bytes; 0: no limit. */
size_t size_limit_of(const struct options *o);
/* The maximum size of the text of dump, in bytes; 0: no limit. */
size_t size_limit_of_dump(void);

/* Like format->write. If the output exceeds `limit`, shrinks the profile until it fits and adds a remark. */
int size_limit_write(const struct format *format, struct profile *p, const struct out_options *options, size_t limit,
                     FILE *out);

/* Like dump_text. If the text exceeds `share` bytes, omits the middle of deep stacks. Returns the size of the text. */
size_t size_limit_dump(const struct proc_info *process, const struct trace *traces, size_t n_traces,
                       const struct dump_options *options, bool first, size_t share, FILE *out);

#endif
