/*
 * Writes groups as the flags say: text or JSON to standard output, or a picture to a file.
 */
#ifndef CMD_GROUP_OUTPUT_H
#define CMD_GROUP_OUTPUT_H

#include "cmd/args.h"
#include "out/groups.h"

/* `g` is finished; `output->options` is ignored. Returns 0, or an error with `text` filled. */
int group_output_write(const struct options *o, struct groups *g, const struct groups_output *output,
                       struct error_text *text);

#endif
