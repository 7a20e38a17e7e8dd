/*
 * Why a thread sleeps in the kernel: the system call, and the files and processes that it waits for. `dump` only.
 */
#ifndef SAMPLE_WAIT_REASON_H
#define SAMPLE_WAIT_REASON_H

#include "sample/process.h"
#include "sample/thread_table.h"

/* Notes the call that the thread sleeps in. For --native, before ptrace may stop the thread. */
void wait_reason_prepare(struct process *p, struct sampled_thread *th);

/* While the thread sleeps: reads the call, its time limit and the numbers of its descriptors. False if the thread is awake, or
 * if we may not know. The caller checks that it has not run meanwhile. */
bool wait_reason_read(struct process *p, struct sampled_thread *th, char kernel_state, struct wait_reason *ret);

/* After all threads were read: describes the descriptors and processes. Each file in /proc is read once for all of them. */
void wait_reasons_describe(struct process *p, struct wait_reason **waits, size_t n);

#endif
