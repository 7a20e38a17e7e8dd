/*
 * What /proc says about a process: maps, threads, children, command line, credentials. All reads are
 * bounded. If the process disappears meanwhile, the result is ERR_NO_PROCESS.
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
    bool is_kernel_thread;
    uint64_t start_time; /* in clock ticks since boot; pid and start time identify a process */
    uint64_t
        image; /* hash of the addresses of code, heap and stack: unchanged by fork, changed by exec; 0 for a zombie */
};

struct proc_map {
    addr_t start, end, offset;
    bool readable, writable, executable, shared;
    bool deleted;
    uint64_t device, inode;
    const char *path; /* "" for anonymous memory */
};

struct proc_maps {
    struct proc_map *items;
    size_t n, cap;
    char *text; /* owns the paths */
};

struct proc_status {
    pid_t process; /* thread group id */
    uid_t uid_real, uid_effective, uid_saved;
    gid_t gid_real, gid_effective, gid_saved;
    pid_t tracer;
    pid_t ns_pid;      /* pid in its own pid namespace; 0: unknown */
    bool in_pid_ns;    /* that namespace is not ours */
    uint64_t cap_eff;  /* effective capabilities */
    uint64_t cap_perm; /* permitted capabilities */
    int seccomp;       /* 0 none, 1 strict, 2 filter */
    int no_new_privs;  /* 1: exec grants no privileges */
};

/* Reads a whole small file of a process, NUL-terminated. The caller frees it. `tid` 0: of the process itself. */
int proc_read_file(pid_t pid, pid_t tid, const char *name, char **ret_text, size_t *ret_len);

/* The same for a file that the kernel reads from the memory of the process, such as cmdline: at most `max` bytes, by a helper
 * process, because the memory may be on a file system that does not answer. */
int proc_read_memory_file(pid_t pid, const char *name, size_t max, char **ret_text, size_t *ret_len);

/* True if /proc shows our own pid namespace. Elsewhere, a PID in /proc and the same PID in a system call mean different
 * processes. */
bool proc_is_ours(void);

/* `tid` 0: of the process. Its state is 'Z' once all its threads have ended. */
int proc_stat_read(pid_t pid, pid_t tid, struct proc_stat *ret);
/* The ID of a thread that is alive: the pid, or another thread's if the main thread has ended before the others
 * (pthread_exit). The kernel has taken memory, files and namespaces from a thread that has ended, so read them from this one. */
pid_t proc_live_thread(pid_t pid);
/* Parses the text of a stat file. */
int proc_stat_parse(const char *text, struct proc_stat *ret);
/* The time since boot, in the unit of proc_stat.start_time. */
uint64_t proc_clock_ticks(void);
/* False if the process has exited or its pid was reused. True if we cannot tell. */
bool proc_is_alive(pid_t pid, uint64_t start_time);
int proc_status_read(pid_t pid, pid_t tid, struct proc_status *ret);
/* The same from an open /proc/PID directory, which refers to one process for good. Leaves out the namespace fields. */
int proc_status_read_at(int dir, struct proc_status *ret);
int proc_stat_read_at(int dir, struct proc_stat *ret);
/* The text after "NAME:" in a status file; "" if there is no such line. */
const char *proc_status_field(const char *text, const char *name);

/* True if the process is in our namespace of this kind ("user", "pid", "mnt", …), or if we cannot tell. */
bool proc_same_namespace(pid_t pid, const char *name);

int proc_maps_read(pid_t pid, struct proc_maps *ret);
void proc_maps_free(struct proc_maps *maps);
/* Parses the text of a maps file and takes ownership of it. */
int proc_maps_parse(char *text, struct proc_maps *ret);

/* Thread ids. The caller frees them. */
int proc_tasks_read(pid_t pid, pid_t **ret_tids, size_t *ret_n);

/* Direct children. The caller frees them. Reads the kernel's list if there is one, else all of /proc. */
int proc_children_read(pid_t pid, pid_t **ret_pids, size_t *ret_n);

/* True if the kernel has that list (CONFIG_PROC_CHILDREN). */
bool proc_has_children_file(pid_t pid);

/* CPU time of all threads of a process, without opening a file; 0 if it has exited. If the time has not changed, no
 * thread has run. */
uint64_t proc_cpu_ns(pid_t pid);

/* All pids. The caller frees them. */
int proc_pids_read(pid_t **ret_pids, size_t *ret_n);

/* The command line with spaces between the arguments, as valid UTF-8; the name in brackets if it has none. The
 * caller frees it. */
int proc_command_read(pid_t pid, char **ret_command);

/* The path of the program, without " (deleted)", as valid UTF-8. The caller frees it. */
int proc_exe_read(pid_t pid, char **ret_path);

/* True if address space layout randomisation (ASLR) was on for the process. */
bool proc_is_randomized(pid_t pid);

/* A file descriptor that becomes readable when the process exits; -1 on kernels before 5.3. */
int proc_pidfd_open(pid_t pid);

#endif
