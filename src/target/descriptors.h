/*
 * Descriptors are short when a thousand processes are read at once. Those that only save time are given up first.
 */
#ifndef TARGET_DESCRIPTORS_H
#define TARGET_DESCRIPTORS_H

/* As many as we may have. A launched program gets the old limit back (launch.h). */
void descriptors_raise_limit(void);

/* `fd` if it may stay open; else closes it and gives -1: the last ones are for what is read and closed at once. */
int descriptors_keep(int fd);

#endif
