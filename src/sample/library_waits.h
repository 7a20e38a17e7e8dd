/*
 * Waits for a GPU or for other ranks, from the names of frames.
 */
#ifndef SAMPLE_LIBRARY_WAITS_H
#define SAMPLE_LIBRARY_WAITS_H

#include "sample/trace.h"

/* Looks for functions of CUDA, NCCL, Gloo, MPI and torch.distributed among the innermost frames; native ones are there only with
 * --native. Fills `kind` and `operation`. False if there is none. */
bool library_wait_find(const struct frame *frames, size_t n, struct awaited_object *ret);

/* True if what is known of a wait without names of functions tells more: a lock or a thread. */
bool library_wait_is_weaker(const struct awaited_object *object);

#endif
