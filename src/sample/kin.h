/*
 * A process as it is shown, with its place in the tree. It outlives the process when a profile or a child still names
 * it, and only then: a program that starts a million short-lived children costs no memory for those never seen at work.
 *
 *     struct kin *kin = kin_new(parent_kin, pid);
 *     kin_pin(kin);                        // a trace with &kin->info was handed out: it stays
 *     kin = kin_drop(kin);
 */
#ifndef SAMPLE_KIN_H
#define SAMPLE_KIN_H

#include "sample/trace.h"

struct kin {
    struct proc_info info;
    struct kin *up; /* the parent that it was found with, whatever became of it since */
    unsigned depth; /* 0 at the root */
    size_t refs;
    bool pinned;
    char *own_command;    /* unless it is interned */
    struct kin *previous; /* of all that are pinned: for kin_free_all */
};

/* Holds `up`, which may be NULL. NULL when out of memory. */
struct kin *kin_new(struct kin *up, pid_t pid);
/* Gives up one hold; returns NULL. */
struct kin *kin_drop(struct kin *kin);

/* From now on it stays until kin_free_all; `all` is the head of the list of these. */
void kin_pin(struct kin *kin, struct kin **all);
void kin_free_all(struct kin **all);

/* Its command line as /proc has it now. 0 or ERR_NOMEM. */
int kin_read_command(struct kin *kin);

#endif
