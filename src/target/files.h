/*
 * Opens the files of a target: through /proc/PID/root of a running process, or below a directory for a
 * core file. A path of the target never leads out of its root, whatever symbolic links it contains.
 */
#ifndef TARGET_FILES_H
#define TARGET_FILES_H

#include "base/err.h"
#include "base/helper.h"

#include <stdbool.h>
#include <sys/types.h>

struct files {
    pid_t pid;                /* the running process; 0: use the fields below */
    int root;                 /* the root directory, or -1: no files at all */
    char *root_path;          /* its path with links resolved; NULL if that is / or unknown */
    char *exe_path;           /* the program's path in the target; NULL if unknown */
    uid_t uid;                /* the user that the process ran as */
    const char *exe_override; /* the file to use in its place; NULL: exe_path itself. Borrowed */
};

/* Opens a directory, or fails with ERR_CORE and `note` filled in. `dir` NULL: our own root directory. */
int files_open_root(const char *dir, struct files *ret, struct err_note *note);
/* Uses the files of a running process. */
void files_open_live(pid_t pid, struct files *ret);
void files_close(struct files *f);

/* Converts a path from the target's maps to the target's own view. If the target has another root directory but
 * shares our mount namespace, the kernel reports paths as we see them, with that root in front. */
const char *files_inside(const struct files *f, const char *path);

/* Opens a regular file of the target for reading; -1 with errno set on failure. */
int files_open(const struct files *f, const char *path);
/* Does the same for a file that the target itself wrote, in a directory where others can create files, too (/tmp). Fails
 * unless it belongs to the target's user or to root, or if it is a symbolic link. */
int files_open_own(const struct files *f, const char *path);
bool files_exist(const struct files *f, const char *path);

/* Passes `f` to a helper process: see base/helper.h. files_open and files_exist may wait for a file system for good, so only
 * a helper may call them. Free what was unpacked with files_close. */
void files_pack(struct pack *p, const struct files *f);
void files_unpack(struct unpack *u, struct files *ret);
struct helper_about files_about(const struct files *f, const char *path);

/* Opens a regular file, like files_open, after a helper process has read its start; -1 if its file system does not answer. */
int files_open_checked(const struct files *f, const char *path);

/* The path of the target's program as in its maps. The caller frees it. */
int files_exe_read(const struct files *f, char **ret_path);

#endif
