/*
 * Finds out why a process cannot be read.
 */
#ifndef TARGET_ACCESS_H
#define TARGET_ACCESS_H

#include "base/err.h"
#include "target/mem.h"
#include "target/proc.h"

/* Everything that the kernel's ptrace access check depends on. */
struct access_facts {
    pid_t pid;
    struct proc_status self, target;
    bool same_user_ns;
    bool dumpable;       /* false: PR_SET_DUMPABLE is off in the target */
    int yama;            /* kernel.yama.ptrace_scope; -1: no Yama */
    bool readv_filtered; /* seccomp refuses process_vm_readv even on ourselves */
    bool in_container, in_pod;
    bool is_setuid; /* we got our rights from the setuid bit (target/setuid_guard.h) */
};

/* ERR_NO_PROCESS or ERR_PERMISSION if the process is hidden from us. */
int access_gather(pid_t pid, struct access_facts *ret);
/* Finds the check that failed, given that one did. Fills in `note` and returns ERR_PERMISSION. */
int access_judge(const struct access_facts *f, struct err_note *note);

int access_yama_scope(void); /* -1: no Yama */
/* True if seccomp refuses the system call, whatever the target. */
bool access_readv_filtered(void);
bool access_ptrace_filtered(void);

/* True if we can read the target's memory at all. */
bool access_can_read(struct mem *m, const struct proc_maps *maps);

/* 0, or ERR_UNSUPPORTED with `note` filled if /proc is missing or shows another pid namespace. */
int access_check_proc(struct err_note *note);

/* Fills in `note` with the cause; returns ERR_PERMISSION. */
int access_explain(pid_t pid, struct err_note *note);

/* Why spyglass can read the process but not pause it: one of REASON_PAUSE_*. */
struct err_facts access_pause_refusal(pid_t pid);

/* Finds up to `max` processes in containers that have `pid` in their own pid namespace, and returns their number. `ret`
 * gets their pids on this host. */
size_t access_find_container_pids(pid_t pid, pid_t *ret, size_t max);

/* True if the process started so recently that it may still exec another program. */
bool access_is_starting(pid_t pid);

#endif
