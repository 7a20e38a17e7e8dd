/*
 * Bounds the number of threads in a profile. A program may start a million short-lived threads.
 */
#ifndef PROFILE_FOLD_H
#define PROFILE_FOLD_H

#include "profile/profile.h"

/* Keeps the `keep` threads with the most samples. Merges the others into one thread per process, "[other threads]", and
 * those of processes of which no thread is kept into "[other processes]". Renumbers all nodes but 0, all frames and all
 * threads. Returns 0, or ERR_NOMEM with nothing merged. */
int fold_threads(struct profile *p, size_t keep);

#endif
