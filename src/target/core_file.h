/*
 * A core file: what is left of a process, written by the kernel when it crashed or by gcore. Its memory is read
 * through target/mem_core.c; here are its segments, mapped files, threads with their registers, and the signal.
 *
 *     r = core_file_open("core.1234", &core, &note);
 *     t = core_file_thread(core, tid);                     // t->regs, t->fs_base; NULL: no such thread
 *     for (size_t i = 0; i < core->n_threads; i++) …       // all of them, those without Python too
 *     core = core_file_free(core);
 *
 * Everything in the file may be wrong: it can be cut off, or made up. What cannot be right is left out.
 */
#ifndef TARGET_CORE_FILE_H
#define TARGET_CORE_FILE_H

#include "base/addr.h"
#include "base/err.h"
#include "target/mem.h"
#include "target/proc.h"
#include "target/regs.h"

struct files;

/* Memory that was there. The bytes of its first `size` are in the file, those of the rest are not. */
struct core_segment {
    addr_t start, end;
    uint64_t offset, size;
    bool readable, writable, executable;
};

/* A part of a file that was mapped. */
struct core_mapped {
    addr_t start, end;
    uint64_t offset;
    const char *path; /* without " (deleted)"; lives in the core file's notes */
    bool deleted;
    size_t module; /* equal for equal paths: 0 to n_modules - 1 */
};

struct core_thread {
    pid_t tid; /* as in the target's own pid namespace */
    struct regs regs;
    uint64_t fs_base; /* what pthread_self() gives in that thread */
    int signal;       /* 0: none */
    bool in_call;     /* it was inside a system call */
    bool has_address; /* what the signal tells: the address that the fault was at */
    addr_t address;
    pid_t sender; /* the process that sent it; 0: the kernel itself */
};

struct core_file {
    int fd;
    uint64_t size;                 /* bytes that are there */
    uint64_t wanted;               /* bytes that its headers speak of; more than `size` when it was cut off */
    struct core_segment *segments; /* by address, without overlaps */
    size_t n_segments, cap_segments;
    struct core_mapped *mapped; /* by address */
    size_t n_mapped, cap_mapped, n_modules;
    struct core_thread *threads; /* as in the file: the kernel puts the one that got the signal first */
    size_t n_threads, cap_threads;
    pid_t pid;
    char name[17];     /* of the program, at most 16 bytes */
    char args[81];     /* the start of its command line */
    uint64_t *aux;     /* pairs of key and value as the kernel gave them to the program */
    size_t n_aux;      /* pairs */
    char *files_text;  /* the notes' bytes that paths point into */
    const char *where; /* the path that was given; borrowed */
};

/* 0; ERR_CORE with `note` filled. Packed files are unpacked to a temporary file without a name. */
int core_file_open(const char *path, struct core_file **ret, struct err_note *note);
/* The same for a descriptor, which it takes over, also on failure. */
int core_file_open_fd(int fd, const char *path, struct core_file **ret, struct err_note *note);
struct core_file *core_file_free(struct core_file *core);

/* The thread with this id, or NULL. */
const struct core_thread *core_file_thread(const struct core_file *core, pid_t tid);
/* The thread whose pthread_self() is `id`, or NULL. */
const struct core_thread *core_file_thread_by_base(const struct core_file *core, uint64_t id);
/* The one that the signal hit; NULL when the core was made of a living process. */
const struct core_thread *core_file_signalled(const struct core_file *core);
/* True when the thread did something of its own: it got the signal, or was not waiting in the kernel. */
bool core_file_was_active(const struct core_file *core, const struct core_thread *thread);

/* The segment or mapped part that holds `addr`, or NULL. */
const struct core_segment *core_file_segment(const struct core_file *core, addr_t addr);
const struct core_mapped *core_file_mapped(const struct core_file *core, addr_t addr);

/* Of the bytes at `addr` that the file itself holds, up to `len` are read; returns how many, 0 for none. */
size_t core_file_read(const struct core_file *core, addr_t addr, void *buf, size_t len);

/* A value of the auxiliary vector, 0 when it is not there. */
uint64_t core_file_aux(const struct core_file *core, uint64_t key);

/* The maps as /proc/PID/maps had them; paths are borrowed from the core file. */
int core_file_maps(const struct core_file *core, struct proc_maps *ret);
/* The path of the program as it was mapped; "" when unknown. */
const char *core_file_exe(const struct core_file *core);
/* The command line, valid UTF-8, caller frees. */
int core_file_command(const struct core_file *core, struct mem *m, char **ret);

/* Parts of core_file_open: the notes of one PT_NOTE segment; gzip or zstd to a temporary file. */
int core_notes_take(struct core_file *core, const unsigned char *notes, size_t len);
int core_unpack(int fd, const char *path, int *ret_fd, struct err_note *note);

/* The memory of a core file. What the dump left out is read from the files that were mapped there, if they are the
 * same still. Borrows both. */
int mem_core_open(const struct core_file *core, const struct files *files, struct mem **ret);

/* Looks for a mapped file at once, needed or not. */
void mem_core_want(struct mem *m, const char *path);

/* A file that was needed and could not be had. */
struct mem_core_lack {
    const char *path;
    bool is_other; /* it is there, but is not the one that was mapped */
    size_t n;      /* how many such files there are */
};
/* False when none was. */
bool mem_core_lacks(const struct mem *m, struct mem_core_lack *ret);

#endif
