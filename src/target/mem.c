/*
 * Shared functions of all memory readers.
 */
#include "target/mem.h"

#include "base/err.h"

int mem_read(struct mem *m, addr_t addr, void *buf, size_t len)
{
    struct mem_span span = {addr, buf, len};

    return m->ops->readv(m, &span, 1) == 1 ? 0 : ERR_READ;
}

int mem_read_addr(struct mem *m, addr_t addr, addr_t *ret)
{
    addr_t value;
    int r = mem_read(m, addr, &value, sizeof(value));

    if (r == 0)
        *ret = value;
    return r;
}

size_t mem_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    return m->ops->readv(m, spans, n);
}

size_t mem_set_maps(struct mem *m, const struct proc_maps *maps)
{
    return m->ops->set_maps ? m->ops->set_maps(m, maps) : 0;
}

bool mem_answers(struct mem *m)
{
    return !m->ops->answers || m->ops->answers(m);
}

struct mem *mem_close(struct mem *m)
{
    return m ? m->ops->close(m) : NULL;
}
