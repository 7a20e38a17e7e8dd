/*
 * The notes of a core file -> threads, signal, mapped files, command line.
 *
 * NT_PRSTATUS starts a thread; the notes that follow belong to it (Linux, fs/binfmt_elf.c; gdb,
 * linux-tdep.c).
 */
#include "base/grow.h"
#include "target/core_file.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS ((size_t)1 << 16)
#define MAX_MAPPED  ((size_t)1 << 18)
#define ALIGN4(n)   (((n) + 3) & ~(size_t)3)
#define DELETED     " (deleted)"

/* struct elf_prstatus, elf_prpsinfo and siginfo_t of Linux on x86-64. The system headers would define conflicting
 * register names. */
enum {
    PRSTATUS_SIGNAL = 12,
    PRSTATUS_TID = 32,
    PRSTATUS_REGS = 112,
    PRSTATUS_BYTES = 336,
    PRPSINFO_UID = 16,
    PRPSINFO_PID = 24,
    PRPSINFO_NAME = 40,
    PRPSINFO_ARGS = 56,
    PRPSINFO_BYTES = 136,
    SIGINFO_CODE = 8,
    SIGINFO_FIELDS = 16,
    SIGINFO_BYTES = 128,
};
#define SIGNAL_MAX    64
#define CODE_KERNEL   0x80 /* SI_KERNEL: a fault without an address */
#define REGS_ORIG_RAX 15
#define REGS_FS_BASE  21

/* The index in struct user_regs_struct of each register in `enum reg`. */
static const unsigned char reg_places[REGS_N_] = {10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16};

static uint64_t word_at(const unsigned char *bytes, size_t i)
{
    uint64_t value;

    memcpy(&value, bytes + 8 * i, sizeof(value));
    return value;
}

static int int_at(const unsigned char *bytes, size_t at)
{
    int value;

    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

static int parse_prstatus(struct core_file *core, const unsigned char *bytes, size_t len)
{
    const unsigned char *regs = bytes + PRSTATUS_REGS;
    struct core_thread t = {0};

    if (len < PRSTATUS_BYTES || core->n_threads == MAX_THREADS || int_at(bytes, PRSTATUS_TID) <= 0)
        return 0;
    t.tid = int_at(bytes, PRSTATUS_TID);
    t.signal = int_at(bytes, PRSTATUS_SIGNAL) & 0xffff;
    if (t.signal > SIGNAL_MAX)
        t.signal = 0;
    for (size_t i = 0; i < REGS_N_; i++)
        t.regs.r[i] = word_at(regs, reg_places[i]);
    t.fs_base = word_at(regs, REGS_FS_BASE);
    t.in_syscall = (int64_t)word_at(regs, REGS_ORIG_RAX) >= 0;
    if (grow_array((void **)&core->threads, &core->cap_threads, core->n_threads + 1, sizeof(t)) < 0)
        return ERR_NOMEM;
    core->threads[core->n_threads++] = t;
    return 0;
}

/* Belongs to the last thread. gdb also writes the siginfo of its own attach stop; that has another signal number. */
static void parse_siginfo(struct core_file *core, const unsigned char *bytes, size_t len)
{
    struct core_thread *t = core->n_threads ? &core->threads[core->n_threads - 1] : NULL;
    int code;

    if (!t || len < SIGINFO_BYTES || !t->signal || int_at(bytes, 0) != t->signal)
        return;
    code = int_at(bytes, SIGINFO_CODE);
    if (code <= 0) /* sent by a process: SI_USER, SI_TKILL, … */
        t->sender = int_at(bytes, SIGINFO_FIELDS);
    else if (code < CODE_KERNEL) {
        t->has_address = true;
        t->address = word_at(bytes, SIGINFO_FIELDS / 8);
    }
}

static void parse_prpsinfo(struct core_file *core, const unsigned char *bytes, size_t len)
{
    if (len < PRPSINFO_BYTES)
        return;
    core->uid = (uid_t)int_at(bytes, PRPSINFO_UID);
    core->pid = int_at(bytes, PRPSINFO_PID);
    memcpy(core->name, bytes + PRPSINFO_NAME, sizeof(core->name) - 1);
    memcpy(core->args, bytes + PRPSINFO_ARGS, sizeof(core->args) - 1);
}

static int parse_auxv(struct core_file *core, const unsigned char *bytes, size_t len)
{
    size_t n = len / 16;

    if (core->aux || !n)
        return 0;
    core->aux = malloc(n * 16);
    if (!core->aux)
        return ERR_NOMEM;
    memcpy(core->aux, bytes, n * 16);
    core->n_aux = n;
    return 0;
}

static int add_mapped(struct core_file *core, const unsigned char *row, uint64_t unit, char *path)
{
    struct core_mapped m = {.start = word_at(row, 0), .end = word_at(row, 1), .path = path};
    size_t len = strlen(path), suffix = sizeof(DELETED) - 1;

    if (m.end <= m.start || path[0] != '/' || __builtin_mul_overflow(word_at(row, 2), unit, &m.offset))
        return 0;
    if (len > suffix && strcmp(path + len - suffix, DELETED) == 0) {
        path[len - suffix] = '\0';
        m.deleted = true;
    }
    if (grow_array((void **)&core->mapped, &core->cap_mapped, core->n_mapped + 1, sizeof(m)) < 0)
        return ERR_NOMEM;
    core->mapped[core->n_mapped++] = m;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    const struct core_mapped *x = a, *y = b;

    return strcmp(x->path, y->path);
}

static int by_start(const void *a, const void *b)
{
    const struct core_mapped *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* Numbers the paths, then sorts by address and trims each part where the next one starts. */
static void sort_mapped(struct core_file *core)
{
    struct core_mapped *m = core->mapped;
    size_t kept = 0;

    if (!core->n_mapped)
        return;
    qsort(m, core->n_mapped, sizeof(*m), by_path);
    for (size_t i = 1; i < core->n_mapped; i++)
        m[i].module = m[i - 1].module + (strcmp(m[i].path, m[i - 1].path) != 0);
    core->n_modules = m[core->n_mapped - 1].module + 1;
    qsort(m, core->n_mapped, sizeof(*m), by_start);
    for (size_t i = 0; i < core->n_mapped; i++) {
        if (i + 1 < core->n_mapped && m[i].end > m[i + 1].start)
            m[i].end = m[i + 1].start;
        if (m[i].end > m[i].start)
            m[kept++] = m[i];
    }
    core->n_mapped = kept;
}

/* NT_FILE: number of rows, unit of the offsets; rows of start, end, offset; then the paths. */
static int parse_files(struct core_file *core, const unsigned char *bytes, size_t len)
{
    uint64_t n, unit;
    char *path, *end;
    int r = 0;

    if (core->files_text || len < 16)
        return 0;
    n = word_at(bytes, 0);
    unit = word_at(bytes, 1);
    if (!n || n > MAX_MAPPED || !unit || n > (len - 16) / 24)
        return 0;
    core->files_text = malloc(len + 1);
    if (!core->files_text)
        return ERR_NOMEM;
    memcpy(core->files_text, bytes, len);
    core->files_text[len] = '\0';
    path = core->files_text + 16 + n * 24;
    end = core->files_text + len;
    for (size_t i = 0; r == 0 && i < n && path < end; i++) {
        size_t path_len = strlen(path);

        r = add_mapped(core, bytes + 16 + i * 24, unit, path);
        path += path_len + 1;
    }
    sort_mapped(core);
    return r;
}

static int parse_note(struct core_file *core, const Elf64_Nhdr *head, const unsigned char *desc)
{
    switch (head->n_type) {
    case NT_PRSTATUS:
        return parse_prstatus(core, desc, head->n_descsz);
    case NT_PRPSINFO:
        parse_prpsinfo(core, desc, head->n_descsz);
        return 0;
    case NT_SIGINFO:
        parse_siginfo(core, desc, head->n_descsz);
        return 0;
    case NT_AUXV:
        return parse_auxv(core, desc, head->n_descsz);
    case NT_FILE:
        return parse_files(core, desc, head->n_descsz);
    default:
        return 0;
    }
}

int core_notes_parse(struct core_file *core, const unsigned char *notes, size_t len)
{
    size_t at = 0;
    int r = 0;

    while (r == 0 && len - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr head;
        size_t name = at + sizeof(head), desc;

        memcpy(&head, notes + at, sizeof(head));
        if (ALIGN4((size_t)head.n_namesz) > len - name)
            return 0;
        desc = name + ALIGN4((size_t)head.n_namesz);
        if (head.n_descsz > len - desc)
            return 0;
        /* "LINUX" notes hold further registers, "GDB" notes a description of them. */
        if (head.n_namesz >= 4 && memcmp(notes + name, "CORE", 4) == 0)
            r = parse_note(core, &head, notes + desc);
        if (ALIGN4((size_t)head.n_descsz) > len - desc)
            return r;
        at = desc + ALIGN4((size_t)head.n_descsz);
    }
    return r;
}
