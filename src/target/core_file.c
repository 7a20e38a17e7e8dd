/*
 * Reads the ELF headers of a core file into struct core_file.
 */
#include "target/core_file.h"

#include "base/grow.h"
#include "base/log.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SEGMENTS ((size_t)1 << 20) /* sixteen times the kernel's default limit (vm.max_map_count) */
#define MAX_NOTES    ((size_t)256 << 20)

struct core_file *core_file_free(struct core_file *core)
{
    if (!core)
        return NULL;
    if (core->fd >= 0)
        close(core->fd);
    free(core->segments);
    free(core->mapped);
    free(core->threads);
    free(core->aux);
    free(core->files_text);
    free(core);
    return NULL;
}

/* Reads `len` bytes at `offset`, all or nothing. */
static bool read_at(const struct core_file *core, uint64_t offset, void *buf, size_t len)
{
    size_t got = 0;

    if (offset > core->size || len > core->size - offset)
        return false;
    while (got < len) {
        ssize_t n = pread(core->fd, (char *)buf + got, len - got, (off_t)(offset + got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

static int reject(struct err_note *note, const char *path, enum err_reason reason)
{
    return err_because(note, ERR_CORE, &(struct err_facts){.reason = reason, .path = path});
}

static int check_header(const struct core_file *core, const Elf64_Ehdr *eh, struct err_note *note)
{
    const char *path = core->path;

    if (memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0)
        return reject(note, path, REASON_CORE_NOT_ELF);
    if (eh->e_ident[EI_DATA] != ELFDATA2LSB)
        return reject(note, path, REASON_CORE_BIG_ENDIAN);
    /* Both classes have type and machine at the same place. */
    if (eh->e_type != ET_CORE)
        return reject(note, path, REASON_CORE_IS_PROGRAM);
    if (eh->e_machine != EM_X86_64)
        return err_because(note, ERR_CORE,
                           &(struct err_facts){.reason = REASON_CORE_MACHINE, .path = path, .number = eh->e_machine});
    if (eh->e_ident[EI_CLASS] != ELFCLASS64)
        return reject(note, path, REASON_CORE_32_BIT);
    if (eh->e_phentsize != sizeof(Elf64_Phdr) || !eh->e_phnum)
        return reject(note, path, REASON_CORE_NO_SEGMENTS);
    return 0;
}

static int add_segment(struct core_file *core, const Elf64_Phdr *ph)
{
    struct core_segment s = {.start = ph->p_vaddr,
                             .end = ph->p_vaddr + ph->p_memsz,
                             .offset = ph->p_offset,
                             .size = ph->p_filesz,
                             .readable = ph->p_flags & PF_R,
                             .writable = ph->p_flags & PF_W,
                             .executable = ph->p_flags & PF_X};

    if (!ph->p_memsz || s.end < s.start)
        return 0;
    if (s.size > ph->p_memsz)
        s.size = ph->p_memsz;
    if (s.offset > core->size)
        s.size = 0;
    else if (s.size > core->size - s.offset)
        s.size = core->size - s.offset;
    if (grow_array((void **)&core->segments, &core->cap_segments, core->n_segments + 1, sizeof(s)) < 0)
        return ERR_NOMEM;
    core->segments[core->n_segments++] = s;
    return 0;
}

static int read_notes(struct core_file *core, const Elf64_Phdr *ph)
{
    size_t len = ph->p_filesz;
    unsigned char *notes;
    int r;

    if (ph->p_offset >= core->size)
        return 0;
    if (len > core->size - ph->p_offset)
        len = core->size - ph->p_offset;
    if (len > MAX_NOTES)
        len = MAX_NOTES;
    notes = malloc(len + 1);
    if (!notes)
        return ERR_NOMEM;
    r = read_at(core, ph->p_offset, notes, len) ? core_notes_parse(core, notes, len) : 0;
    free(notes);
    return r;
}

static int read_program_headers(struct core_file *core, const Elf64_Phdr *ph, size_t n)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++) {
        uint64_t end;

        if (!__builtin_add_overflow(ph[i].p_offset, ph[i].p_filesz, &end) && end > core->expected_size)
            core->expected_size = end;
        if (ph[i].p_type == PT_LOAD)
            r = add_segment(core, &ph[i]);
        else if (ph[i].p_type == PT_NOTE)
            r = read_notes(core, &ph[i]);
    }
    return r;
}

static int by_start(const void *a, const void *b)
{
    const struct core_segment *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    /* If two start at the same address, put the one with more bytes last: it wins. */
    return x->size < y->size ? -1 : x->size > y->size;
}

/* Sorts the segments and trims each where the next one starts. */
static void sort_segments(struct core_file *core)
{
    struct core_segment *s = core->segments;
    size_t kept = 0;

    if (core->n_segments)
        qsort(s, core->n_segments, sizeof(*s), by_start);
    for (size_t i = 0; i < core->n_segments; i++) {
        if (i + 1 < core->n_segments && s[i].end > s[i + 1].start)
            s[i].end = s[i + 1].start;
        if (s[i].size > s[i].end - s[i].start)
            s[i].size = s[i].end - s[i].start;
        if (s[i].end > s[i].start)
            s[kept++] = s[i];
    }
    core->n_segments = kept;
}

static int read_headers(struct core_file *core, struct err_note *note)
{
    Elf64_Ehdr eh = {0};
    Elf64_Shdr sh;
    Elf64_Phdr *ph;
    size_t n;
    int r;

    if (!core->size)
        return reject(note, core->path, REASON_CORE_EMPTY);
    if (!read_at(core, 0, &eh, core->size < sizeof(eh) ? core->size : sizeof(eh)))
        return reject(note, core->path, REASON_CORE_UNREADABLE);
    r = check_header(core, &eh, note);
    if (r < 0)
        return r;
    n = eh.e_phnum;
    /* If there are too many segments for e_phnum, the first section header has the number (gABI, PN_XNUM). */
    if (n == PN_XNUM)
        n = read_at(core, eh.e_shoff, &sh, sizeof(sh)) ? sh.sh_info : 0;
    if (!n || n > MAX_SEGMENTS || eh.e_phoff > core->size || n > (core->size - eh.e_phoff) / sizeof(*ph))
        return reject(note, core->path, REASON_CORE_CUT);
    ph = malloc(n * sizeof(*ph));
    if (!ph)
        return ERR_NOMEM;
    r = read_at(core, eh.e_phoff, ph, n * sizeof(*ph)) ? read_program_headers(core, ph, n) : ERR_CORE;
    free(ph);
    if (r == ERR_CORE)
        return reject(note, core->path, REASON_CORE_UNREADABLE);
    sort_segments(core);
    log_info("core", "%s: %llu bytes, %zu segments, %zu mapped files, %zu threads, pid %d", core->path,
             (unsigned long long)core->size, core->n_segments, core->n_mapped, core->n_threads, (int)core->pid);
    if (core->pid <= 0)
        for (size_t i = 0; i < core->n_threads; i++)
            if (i == 0 || core->threads[i].tid < core->pid)
                core->pid = core->threads[i].tid;
    return r;
}

int core_file_open_fd(int fd, const char *path, struct core_file **ret, struct err_note *note)
{
    struct core_file *core = calloc(1, sizeof(*core));
    struct stat st;
    int r;

    if (!core) {
        close(fd);
        return ERR_NOMEM;
    }
    core->fd = fd;
    core->path = path;
    core->size = fstat(fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
    r = read_headers(core, note);
    if (r < 0) {
        core_file_free(core);
        return r;
    }
    *ret = core;
    return 0;
}

int core_file_open(const char *path, struct core_file **ret, struct err_note *note)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        r = err_because(note, ERR_CORE, &(struct err_facts){.reason = REASON_CORE_OPEN, .path = path, .error = errno});
        if (fd >= 0)
            close(fd);
        return r;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return reject(note, path, S_ISDIR(st.st_mode) ? REASON_CORE_IS_DIRECTORY : REASON_CORE_NOT_REGULAR);
    }
    r = core_unpack(fd, path, &fd, note);
    if (r < 0) {
        close(fd);
        return r;
    }
    return core_file_open_fd(fd, path, ret, note);
}

const struct core_thread *core_file_thread(const struct core_file *core, pid_t tid)
{
    for (size_t i = 0; i < core->n_threads; i++)
        if (core->threads[i].tid == tid)
            return &core->threads[i];
    return NULL;
}

const struct core_thread *core_file_thread_by_base(const struct core_file *core, uint64_t id)
{
    for (size_t i = 0; id && i < core->n_threads; i++)
        if (core->threads[i].fs_base == id)
            return &core->threads[i];
    return NULL;
}

/* The kernel gives every thread the fatal signal; the first thread in the file is the one that received it. */
const struct core_thread *core_file_signalled(const struct core_file *core)
{
    for (size_t i = 0; i < core->n_threads; i++)
        if (core->threads[i].signal)
            return &core->threads[i];
    return NULL;
}

bool core_file_was_active(const struct core_file *core, const struct core_thread *thread)
{
    return thread == core_file_signalled(core) || !thread->in_syscall;
}

const struct core_segment *core_file_segment(const struct core_file *core, addr_t addr)
{
    size_t low = 0, high = core->n_segments;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (core->segments[mid].end <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    return low < core->n_segments && core->segments[low].start <= addr ? &core->segments[low] : NULL;
}

const struct core_mapped *core_file_mapped(const struct core_file *core, addr_t addr)
{
    size_t low = 0, high = core->n_mapped;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (core->mapped[mid].end <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    return low < core->n_mapped && core->mapped[low].start <= addr ? &core->mapped[low] : NULL;
}

size_t core_file_read(const struct core_file *core, addr_t addr, void *buf, size_t len)
{
    const struct core_segment *s = core_file_segment(core, addr);
    uint64_t at = s ? addr - s->start : 0;

    if (!s || at >= s->size)
        return 0;
    if (len > s->size - at)
        len = s->size - at;
    return read_at(core, s->offset + at, buf, len) ? len : 0;
}

uint64_t core_file_aux(const struct core_file *core, uint64_t key)
{
    for (size_t i = 0; i < core->n_aux; i++)
        if (core->aux[2 * i] == key)
            return core->aux[2 * i + 1];
    return 0;
}
