/*
 * Where the files of a target are: behind a running process, or below a directory when all that is left of the
 * process is a core file. A path of the target never leads out of its root, whatever links are in it.
 *
 *     struct files live = {.pid = pid};
 *     r = files_open_root("/mnt/image", &f, &note);        // a copy of the files of another machine
 *     fd = files_open(&f, "/usr/bin/python3.11");          // /mnt/image/usr/bin/python3.11
 */
#ifndef TARGET_FILES_H
#define TARGET_FILES_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct files {
    pid_t pid;           /* of a running process; 0: there is none, the rest counts */
    int root;            /* the directory, or -1: no files at all */
    char *root_path;     /* its own path, without links; NULL when that is just /, or not known */
    char *exe_path;      /* the program as the target knows it; NULL when unknown */
    const char *exe_own; /* the file that stands for it; NULL: the one at exe_path. Borrowed */
};

/* The directory, or ERR_CORE with `note` filled. `dir` NULL: this machine's own root. */
int files_open_root(const char *dir, struct files *ret, struct err_note *note);
/* Those of a running process. */
void files_open_live(pid_t pid, struct files *ret);
void files_close(struct files *f);

/* A path in the target's maps as the target sees it: of one that lives in another root, but in our view of all mounts,
 * the kernel tells it as we see it, below that root. */
const char *files_inside(const struct files *f, const char *path);

/* A regular file of the target, opened for reading; -1 with errno set when it cannot be had. */
int files_open(const struct files *f, const char *path);
bool files_exist(const struct files *f, const char *path);

/* The path of the target's program as its maps have it. Caller frees. */
int files_exe_read(const struct files *f, char **ret_path);

#endif
