/*
 * A process as /proc shows it: its maps, threads, children, command line, credentials.
 * Everything read is bounded; a process that vanishes meanwhile is ERR_NO_PROCESS.
 */
#ifndef TARGET_PROC_H
#define TARGET_PROC_H

#include "base/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_stat {
    char state; /* R, S, D, T, t, Z, … */
    pid_t parent, group, session;
    uint64_t start_time; /* in clock ticks since boot: with the pid it names a process for good */
    uint64_t image;      /* where its program, heap and stack lie, as one number: the same after a fork, another one
                            after an exec; 0 for a zombie */
};

struct proc_map {
    addr_t start, end, offset;
    bool readable, writable, executable;
    bool deleted;
    uint64_t device, inode;
    const char *path; /* "" for anonymous memory */
};

struct proc_maps {
    struct proc_map *items;
    size_t n, cap;
    char *text; /* the paths live here */
};

struct proc_status {
    pid_t process; /* that the thread belongs to */
    uid_t uid_real, uid_effective, uid_saved;
    gid_t gid_real, gid_effective, gid_saved;
    pid_t tracer;
    pid_t ns_pid;      /* the pid in its own pid namespace; 0: unknown */
    bool in_pid_ns;    /* that namespace is not ours */
    uint64_t cap_eff;  /* effective capabilities */
    uint64_t cap_perm; /* permitted ones */
    int seccomp;       /* 0 none, 1 strict, 2 filter */
    int no_new_privs;  /* 1: exec gives no rights */
};

/* A whole small file of a process, NUL-terminated: caller frees. `tid` 0: of the process itself. */
int proc_read_file(pid_t pid, pid_t tid, const char *name, char **ret_text, size_t *ret_len);

int proc_stat_read(pid_t pid, pid_t tid, struct proc_stat *ret);
/* False when it has ended, or another has its pid by now. If that cannot be told, it is alive. */
bool proc_is_alive(pid_t pid, uint64_t start_time);
int proc_status_read(pid_t pid, pid_t tid, struct proc_status *ret);
/* The same of an open directory of /proc, which is one process for good; nothing of namespaces. */
int proc_status_read_at(int dir, struct proc_status *ret);
/* What follows "NAME:" in the text of a status file; "" when it has no such line. */
const char *proc_status_field(const char *text, const char *name);

/* True when the process is in our namespace of this kind ("user", "pid", "mnt", …), and when that cannot be told. */
bool proc_same_namespace(pid_t pid, const char *name);

int proc_maps_read(pid_t pid, struct proc_maps *ret);
void proc_maps_free(struct proc_maps *maps);
/* Parses the text of a maps file, which it takes over. */
int proc_maps_parse(char *text, struct proc_maps *ret);
/* The mapping that holds `addr`, or NULL. */
const struct proc_map *proc_maps_find(const struct proc_maps *maps, addr_t addr);

/* Thread ids, caller frees. */
int proc_tasks_read(pid_t pid, pid_t **ret_tids, size_t *ret_n);

/* Direct children, caller frees; by the kernel's own list where it has one, else by all of /proc. */
int proc_children_read(pid_t pid, pid_t **ret_pids, size_t *ret_n);

/* The kernel has such a list (CONFIG_PROC_CHILDREN). */
bool proc_has_children_file(pid_t pid);

/* CPU time of all its threads, without a descriptor; 0 when it has gone. Equal times: nothing of it ran. */
uint64_t proc_cpu_ns(pid_t pid);

/* All processes, caller frees. */
int proc_pids_read(pid_t **ret_pids, size_t *ret_n);

/* Command line joined by blanks, valid UTF-8; the name in brackets when it has none. Caller frees. */
int proc_command_read(pid_t pid, char **ret_command);

/* Path of the program file, without a trailing " (deleted)"; valid UTF-8. Caller frees. */
int proc_exe_read(pid_t pid, char **ret_path);

/* The addresses of its memory were drawn by lot (ASLR). */
bool proc_is_randomized(pid_t pid);

/* A profiler or a debugger that reads processes from outside, we ourselves among them: by its program, or by the script
 * or module that a Python runs. */
bool proc_is_profiler(pid_t pid);
/* Others of our kind know us by our name, whatever file we were started from: a nameless one, for instance. */
void proc_be_profiler(bool as_py_spy);

/* A descriptor that becomes readable when the process ends; -1 on kernels before 5.3. */
int proc_pidfd_open(pid_t pid);

#endif
