/*
 * Why a process may not be read, and the line to paste that changes it.
 */
#ifndef TARGET_ACCESS_H
#define TARGET_ACCESS_H

#include "base/err.h"
#include "target/mem.h"
#include "target/proc.h"

/* All that the kernel's answer depends on. */
struct access_facts {
    pid_t pid;
    struct proc_status self, target;
    bool same_user_ns;
    bool dumpable;       /* false: the target may not be dumped */
    int yama;            /* kernel.yama.ptrace_scope; -1: there is no Yama */
    bool readv_filtered; /* a filter refuses process_vm_readv even on ourselves */
    bool in_container, in_pod;
    bool lent; /* target/setuid_guard.h */
};

/* ERR_NO_PROCESS or ERR_PERMISSION when the process is hidden from us. */
int access_gather(pid_t pid, struct access_facts *ret);
/* Which gate is shut, given that one is: fills `note` and returns ERR_PERMISSION. */
int access_judge(const struct access_facts *f, struct err_note *note);

int access_yama_scope(void); /* -1: there is no Yama */
/* True when a filter (seccomp) refuses the call, whatever the target. */
bool access_readv_filtered(void);
bool access_ptrace_filtered(void);

/* True when the target's memory can be read at all. */
bool access_can_read(struct mem *m, const struct proc_maps *maps);

/* Fills `note` with the cause that is found; returns ERR_PERMISSION. */
int access_explain(pid_t pid, struct err_note *note);

/* Why a process that may be read may not be held, as part of a sentence: "process 4242 is tracing it". */
struct access_reason {
    char text[128];
};
struct access_reason access_hold_reason(pid_t pid);

/* When `pid` is that of processes inside of containers: their pids here go into the hint of `note`. Nothing is guessed:
 * a pid always means the process that has it here. */
void access_hint_inner(pid_t pid, struct err_note *note);

/* Fills `note` with what the process is, for the message that it is not Python. */
void access_describe(pid_t pid, struct err_note *note);

/* True when the process began so short a time ago that it may yet become something else. */
bool access_is_starting(pid_t pid);

#endif
