/*
 * Saves file descriptors when spyglass samples a thousand processes: those that are only kept open for
 * speed go first.
 */
#ifndef TARGET_DESCRIPTORS_H
#define TARGET_DESCRIPTORS_H

/* Raises RLIMIT_NOFILE to the hard limit. A launched program gets the old limit back (launch.h). */
void descriptors_raise_limit(void);

/* Returns `fd` if it may stay open, or closes it and returns -1: the last descriptors are reserved for short reads. */
int descriptors_keep(int fd);

#endif
