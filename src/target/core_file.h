/*
 * A core file: the memory, mapped files, threads and signal of a dead process, written by the kernel at a
 * crash or by gcore. target/mem_core.c reads the memory.
 *
 * The file is untrusted: it can be truncated or forged. Implausible parts are ignored.
 */
#ifndef TARGET_CORE_FILE_H
#define TARGET_CORE_FILE_H

#include "base/addr.h"
#include "base/err.h"
#include "target/mem.h"
#include "target/proc.h"
#include "target/regs.h"

struct files;

/* A range of memory. The file holds its first `size` bytes. */
struct core_segment {
    addr_t start, end;
    uint64_t offset, size;
    bool readable, writable, executable;
};

/* A mapped part of a file. */
struct core_mapped {
    addr_t start, end;
    uint64_t offset;
    const char *path; /* without " (deleted)"; owned by the core file */
    bool deleted;
    size_t module; /* the same for equal paths: 0 to n_modules - 1 */
};

struct core_thread {
    pid_t tid; /* in the target's own pid namespace */
    struct regs regs;
    uint64_t fs_base; /* pthread_self() of the thread */
    int signal;       /* 0: none */
    bool in_syscall;  /* in a system call */
    bool has_address; /* siginfo has the fault address */
    addr_t address;
    pid_t sender; /* the process that sent the signal; 0: the kernel */
};

struct core_file {
    int fd;
    uint64_t size;                 /* bytes in the file */
    uint64_t expected_size;        /* bytes according to the headers; more than `size` if the file is truncated */
    struct core_segment *segments; /* sorted by address, without overlaps */
    size_t n_segments, cap_segments;
    struct core_mapped *mapped; /* sorted by address */
    size_t n_mapped, cap_mapped, n_modules;
    struct core_thread *threads; /* in file order: the kernel writes the thread that got the signal first */
    size_t n_threads, cap_threads;
    pid_t pid;
    uid_t uid;        /* real user ID, in the target's own user namespace */
    char name[17];    /* comm, at most 16 bytes */
    char args[81];    /* the start of the command line */
    uint64_t *aux;    /* auxiliary vector: pairs of key and value */
    size_t n_aux;     /* number of pairs */
    char *files_text; /* the bytes of NT_FILE, which the paths point into */
    const char *path; /* the path that the user gave; borrowed */
};

/* 0, or ERR_CORE with `note` filled in. Compressed files are decompressed to an unnamed temporary file. */
int core_file_open(const char *path, struct core_file **ret, struct err_note *note);
/* The same for a file descriptor. Takes ownership of it, also on failure. */
int core_file_open_fd(int fd, const char *path, struct core_file **ret, struct err_note *note);
struct core_file *core_file_free(struct core_file *core);

/* The thread with this tid, or NULL. */
const struct core_thread *core_file_thread(const struct core_file *core, pid_t tid);
/* The thread whose pthread_self() is `id`, or NULL. */
const struct core_thread *core_file_thread_by_base(const struct core_file *core, uint64_t id);
/* The thread that received the signal; NULL if the process did not crash (gcore). */
const struct core_thread *core_file_signalled(const struct core_file *core);
/* True if the thread was running: it received the signal, or was not in a system call. */
bool core_file_was_active(const struct core_file *core, const struct core_thread *thread);

/* The segment or the mapped part that contains `addr`, or NULL. */
const struct core_segment *core_file_segment(const struct core_file *core, addr_t addr);
const struct core_mapped *core_file_mapped(const struct core_file *core, addr_t addr);

/* Reads up to `len` bytes at `addr` from the core file itself. Returns how many; 0 if it has none. */
size_t core_file_read(const struct core_file *core, addr_t addr, void *buf, size_t len);

/* A value of the auxiliary vector; 0 if it is missing. */
uint64_t core_file_aux(const struct core_file *core, uint64_t key);

/* The memory maps as in /proc/PID/maps; paths are borrowed from the core file. */
int core_file_maps(const struct core_file *core, struct proc_maps *ret);
/* The path of the program as it was mapped; "" if unknown. */
const char *core_file_exe(const struct core_file *core);
/* The command line as valid UTF-8; the caller frees it. */
int core_file_command(const struct core_file *core, struct mem *m, char **ret);

/* Parts of core_file_open(): parse the notes of one PT_NOTE segment; decompress gzip or zstd to a temporary file. */
int core_notes_parse(struct core_file *core, const unsigned char *notes, size_t len);
int core_unpack(int fd, const char *path, int *ret_fd, struct err_note *note);

/* Opens the memory of a core file. Bytes that the core file lacks are read from the mapped files, if those have not
 * changed. Borrows both arguments. */
int mem_core_open(const struct core_file *core, const struct files *files, struct mem **ret);

/* Opens a mapped file right away, whether or not anything reads it. */
void mem_core_check_file(struct mem *m, const char *path);

/* A mapped file that was needed but could not be used. */
struct mem_core_missing {
    const char *path;
    bool is_different; /* the file exists, but is not the one that was mapped */
    size_t n;          /* number of such files */
};
/* False if all needed files could be used. */
bool mem_core_find_missing(const struct mem *m, struct mem_core_missing *ret);

#endif
