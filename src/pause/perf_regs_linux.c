/*
 * A perf event on the context switches of one thread, with a ring buffer that keeps the last records.
 * Records are checked before use.
 */
#include "pause/perf_regs.h"

#include "base/err.h"
#include "base/log.h"

#include <asm/perf_regs.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE      4096
#define RING_SIZE (2 * (size_t)PAGE) /* the control page and one page of records */
#define N_REGS    17

/* In the order of the words in a record: by asm/perf_regs.h number. */
static const struct {
    unsigned bit;
    enum reg reg;
} reg_order[N_REGS] = {
    {PERF_REG_X86_AX, REGS_AX},      {PERF_REG_X86_BX, REGS_BX},      {PERF_REG_X86_CX, REGS_CX},
    {PERF_REG_X86_DX, REGS_DX},      {PERF_REG_X86_SI, REGS_SI},      {PERF_REG_X86_DI, REGS_DI},
    {PERF_REG_X86_BP, REGS_BP},      {PERF_REG_X86_SP, REGS_SP},      {PERF_REG_X86_IP, REGS_PC},
    {PERF_REG_X86_R8, REGS_R8},      {PERF_REG_X86_R9, REGS_R8 + 1},  {PERF_REG_X86_R10, REGS_R8 + 2},
    {PERF_REG_X86_R11, REGS_R8 + 3}, {PERF_REG_X86_R12, REGS_R8 + 4}, {PERF_REG_X86_R13, REGS_R8 + 5},
    {PERF_REG_X86_R14, REGS_R8 + 6}, {PERF_REG_X86_R15, REGS_R15}};

struct record {
    struct perf_event_header header;
    uint64_t abi;
    uint64_t words[N_REGS];
};

void perf_regs_open(struct perf_regs *s, pid_t tid)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof(attr),
                                   .config = PERF_COUNT_SW_CONTEXT_SWITCHES,
                                   .sample_period = 1,
                                   .sample_type = PERF_SAMPLE_REGS_USER,
                                   .exclude_hv = 1,
                                   .write_backward = 1, /* overwrite the oldest record (Linux 4.7) */
                                   .watermark = 1,      /* no wakeups, since nobody polls */
                                   .wakeup_watermark = PAGE};
    void *ring;
    int fd;

    if (s->tried)
        return;
    s->tried = true;
    if (geteuid() != getuid()) /* setuid: do not use privileges that the caller does not have */
        return;
    for (size_t i = 0; i < N_REGS; i++)
        attr.sample_regs_user |= 1ull << reg_order[i].bit;
    fd = (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    log_often(LOG_LEVEL_DEBUG, "pause", fd < 0 ? errno : 0, "tid %d: perf_event_open: %s", (int)tid,
              fd < 0 ? strerror(errno) : "done");
    if (fd < 0)
        return;
    ring = mmap(NULL, RING_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    close(fd); /* the mapping keeps the event alive */
    if (ring != MAP_FAILED)
        s->ring = ring;
}

void perf_regs_close(struct perf_regs *s)
{
    if (s->ring)
        munmap(s->ring, RING_SIZE);
    *s = (struct perf_regs){0};
}

int perf_regs_read(const struct perf_regs *s, struct regs *ret)
{
    const struct perf_event_mmap_page *control = s->ring;
    const unsigned char *records = (const unsigned char *)s->ring + PAGE;
    struct record record;
    uint64_t head;
    size_t at, first;

    if (!s->ring)
        return ERR_UNSUPPORTED;
    head = __atomic_load_n(&control->data_head, __ATOMIC_ACQUIRE);
    if (!head)
        return ERR_UNSUPPORTED;
    at = head & (PAGE - 1);
    first = sizeof(record) < PAGE - at ? sizeof(record) : PAGE - at;
    memcpy(&record, records + at, first);
    memcpy((unsigned char *)&record + first, records, sizeof(record) - first);
    if (record.header.type != PERF_RECORD_SAMPLE || record.header.size != sizeof(record) ||
        record.abi != PERF_SAMPLE_REGS_ABI_64)
        return ERR_UNSUPPORTED;
    ret->unknown = 0;
    for (size_t i = 0; i < N_REGS; i++)
        ret->r[reg_order[i].reg] = record.words[i];
    return 0;
}
