/*
 * `spyglass NAME`, `dump NAME` and `record NAME`: offers the Python processes that the name matches, with the lines to paste.
 */
#ifndef CMD_OFFER_H
#define CMD_OFFER_H

#include "cmd/args.h"

/* Finds the Python processes whose command line matches the name that is given as the word o->word, after a command or instead
 * of one. If there are any, shows them and returns ERR_USAGE with `text` filled. If there is none, returns 0. */
int offer_processes(const struct options *o, struct error_text *text);

#endif
