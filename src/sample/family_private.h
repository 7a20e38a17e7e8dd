/*
 * What the files of the family share: family.c has the set, family_refresh.c brings it up to date, lineage.c knows whose
 * child a process is.
 */
#ifndef SAMPLE_FAMILY_PRIVATE_H
#define SAMPLE_FAMILY_PRIVATE_H

#include "sample/family.h"
#include "target/proc.h"

/* NULL when it is not in the set. Good until the set changes. */
struct family_entry *family_find(const struct family *t, pid_t pid);

/* A process joins below `up`. It is not attached yet. ERR_NOMEM, ERR_BOUNDS. */
int family_join(struct family *t, pid_t pid, const struct proc_stat *st, struct kin *up);

/* Those marked dead leave, but for the root. 0 or ERR_NOMEM. */
int family_drop_dead(struct family *t);

/* Attaches, and says what becomes of one that cannot be. Only ERR_NOMEM matters to a caller without a `note`. */
int family_try(struct family *t, struct family_entry *e, uint64_t patience_ns, struct err_note *note);

/* Ends its Python and its name: it has executed something else. 0 or ERR_NOMEM. */
int family_renew(struct family_entry *e, const struct proc_stat *st);

/* Finds out who takes in orphans of the root, and how sure an image is. */
void lineage_open(struct family *t);

/* The place that a new process has a parent in, or NULL: it is not of this family. */
struct kin *lineage_parent(const struct family *t, pid_t pid, const struct proc_stat *st);

#endif
