/*
 * A file that gets its name when it is complete. Where the file system has O_TMPFILE, it has no name until then, so that nothing
 * is left behind however we end. Elsewhere it has a temporary name.
 */
#ifndef OUT_TEMP_FILE_H
#define OUT_TEMP_FILE_H

#include <stdbool.h>
#include <sys/types.h>

struct temp_file {
    int dir; /* borrowed */
    int fd;
    char name[40]; /* the temporary name; "" if it has none */
};

/* Opens one for writing in the directory open as `dir`. `named`: do not try O_TMPFILE. Returns 0, or -1 with errno set. */
int temp_file_open(int dir, mode_t mode, bool named, struct temp_file *ret);

/* Gives it its name; an existing file of that name is replaced in one step. Returns 0, or -1 with errno set. If it still has
 * no name then, the file system or a missing /proc did not let us link it: only a named one can be published. */
int temp_file_publish(struct temp_file *t, const char *name);

/* Closes it, and removes it if it has not been published. */
void temp_file_close(struct temp_file *t);

#endif
