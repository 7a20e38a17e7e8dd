/*
 * Runs functions in a helper process. A file of the target may be on a file system that has stopped answering, and libdw may
 * exit when memory is short. There, it costs the answer; here, it would cost the session.
 *
 *     static int run_size(struct unpack *in, struct pack *out)         // in the helper
 *     {
 *         struct stat st;
 *         if (stat(unpack_text(in), &st) < 0)
 *             return ERR_READ;
 *         pack_number(out, (uint64_t)st.st_size);
 *         return 0;
 *     }
 *
 *     pack_text(&in, path);
 *     r = helper_call(run_size, &in, &(struct helper_about){.path = path}, &answer);
 *
 * The helper is a fork of this process, started by the first call, and again after it had to be abandoned. A call waits until
 * the helper has been blocked for two seconds without any progress, however long it computes. The file system that it waited
 * for is then skipped for the rest of the session.
 *
 * A thread would not do: a thread that waits for a FUSE server cannot always be killed, and keeps its process from ending.
 */
#ifndef BASE_HELPER_H
#define BASE_HELPER_H

#include "base/pack.h"

#include <stdbool.h>
#include <sys/types.h>

/* Returns 0 or an error. Runs with the memory of the process as it was when the helper was forked: pass everything in `in`. */
typedef int (*helper_function)(struct unpack *in, struct pack *out);

/* What a call looks at, to find the file system that blocks it, and to tell the user. */
struct helper_about {
    pid_t pid;        /* the process whose file it is; 0: our own */
    uint64_t device;  /* of the file, as in maps; 0 if unknown */
    const char *path; /* for the user; NULL if it is not about a file */
    bool names;       /* only names and lines depend on it: it may not use up the time that stacks need */
};

struct helper_answer {
    unsigned char *bytes; /* the caller frees them with helper_answer_free */
    struct unpack out;
};

#define HELPER_STUCK (-1) /* the file system does not answer */
#define HELPER_DIED  (-2) /* the helper has exited: out of memory, or a fault in a library */
#define HELPER_LATE  (-3) /* the deadline has passed (base/deadline.h) */

/* Returns what `f` returns, or one of the three above. `ret` may be NULL; it is empty unless the result is 0. */
int helper_call(helper_function f, const struct pack *in, const struct helper_about *about, struct helper_answer *ret);
void helper_answer_free(struct helper_answer *a);

/* A number that changes when the next call gets a new helper, which has none of the state of the last one; 0 if there is none,
 * for lack of memory. */
uint64_t helper_generation(void);

/* True if calls about files on this device are given up at once: it belongs to a file system that does not answer. */
bool helper_skips_device(uint64_t device);

/* Ends the helpers before we exit. In a container without an init process, nobody else would reap them. */
void helper_end(void);

/* True if `pid` is a helper of ours. */
bool helper_is(pid_t pid);

/* What was left out so far, in the order in which it happened. */
enum helper_loss_kind { HELPER_LOST_FILES, HELPER_LOST_PROCESS, HELPER_LOST_SYMBOLS, HELPER_LOST_TIME };

struct helper_loss {
    enum helper_loss_kind kind;
    pid_t pid;
    uint64_t since_ns;
    char path[1024];  /* the first file; "" if it is not about a file */
    char point[1024]; /* where the file system is mounted; "" if unknown */
};

size_t helper_losses(const struct helper_loss **ret);

/* The CPU time that helpers have used, and the memory of the largest one, in KiB. */
uint64_t helper_cpu_ns(void);
long helper_max_rss_kib(void);

/* ---- in the helper ---- */

/* True in a helper process. */
bool helper_is_inside(void);

/* Say what the helper is about to look at, so that we know what blocks it: a path without links below the root `view`, or an
 * open file. False if that is on a file system that does not answer. */
bool helper_enter(uint64_t view, const char *path);
bool helper_enter_file(int fd);

/* True if one of these two has returned false in this call. */
bool helper_has_refused(void);

/* A number for the root directory `fd`, which paths are relative to. */
uint64_t helper_view(int fd);

#endif
