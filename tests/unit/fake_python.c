/*
 * Runtime, interpreters, threads and frames of a synthetic CPython.
 */
#include "fake_python.h"

#include "fake_elf.h"
#include "python/debug_offsets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_BYTES  8192
#define RUNTIME_AT  64 /* in the data segment */
#define HEAD_AT     16 /* 2.7 and 3.6: interp_head and _PyThreadState_Current */
#define CURRENT_AT  32
#define VERSION_AT  4096
#define PATCH       5
#define INTERP_SIZE 8192
#define THREAD_SIZE 512

static bool has_debug_offsets(const struct fake_python *p)
{
    return p->py.major == 3 && p->py.minor >= DEBUG_OFFSETS_FIRST_MINOR;
}

/* The debug offsets that an interpreter provides from 3.13 on: here, the numbers of the layout row. */
static void put_offsets(struct fake_python *p)
{
    size_t column = (size_t)(p->py.minor - DEBUG_OFFSETS_FIRST_MINOR);
    const struct layout *l = &p->py.layout;
    const struct debug_offset *t;
    addr_t gil = p->runtime + debug_offset_gil(column);

    fake_mem_put_bytes(p->mem, p->runtime, DEBUG_OFFSETS_COOKIE, 8);
    fake_mem_put(p->mem, p->runtime + 8, 3ull << 24 | (uint64_t)p->py.minor << 16 | PATCH << 8 | 0xf0);
    for (size_t i = 0; (t = debug_offset_nth(i)); i++) {
        int value;

        memcpy(&value, (const char *)l + t->field, sizeof(value));
        if (t->at[column])
            fake_mem_put(p->mem, p->runtime + t->at[column], (uint64_t)value);
    }
    fake_mem_put(p->mem, gil, 7000);
    fake_mem_put(p->mem, gil + 16, (uint64_t)(7000 + l->gil_locked));
    fake_mem_put(p->mem, gil + 24, (uint64_t)(7000 + l->gil_holder));
}

static void put_image(struct fake_python *p)
{
    bool has_runtime = p->py.layout.rt_interp_head != NO;
    struct fake_symbol symbols[3] = {{has_runtime ? "_PyRuntime" : "_PyThreadState_Current",
                                      FAKE_ELF_DATA + (has_runtime ? RUNTIME_AT : CURRENT_AT)},
                                     {"Py_Version", FAKE_ELF_DATA + VERSION_AT},
                                     {NULL, 0}};
    struct fake_symbol none = {NULL, 0};
    struct fake_elf elf;
    addr_t data = FAKE_IMAGE + FAKE_ELF_DATA;
    char text[64];

    if (p->py.major == 2 || p->py.minor < 11)
        symbols[1].name = NULL;
    fake_elf_make(&elf, symbols, &none, DATA_BYTES);
    fake_mem_add(p->mem, FAKE_IMAGE, FAKE_ELF_DATA + DATA_BYTES);
    fake_mem_put_bytes(p->mem, FAKE_IMAGE, elf.bytes, FAKE_ELF_DATA + DATA_BYTES);
    fake_elf_free(&elf);
    fake_mem_put(p->mem, data + VERSION_AT, 3ull << 24 | (uint64_t)p->py.minor << 16 | PATCH << 8 | 0xf0);
    snprintf(text, sizeof(text), "%d.%d.%d (main, Jan  1 2024)", p->py.major, p->py.minor, PATCH);
    fake_mem_put_bytes(p->mem, data + VERSION_AT + 16, text, strlen(text) + 1);
    p->runtime = has_runtime ? data + RUNTIME_AT : 0;
    p->current = has_runtime ? 0 : data + CURRENT_AT;
    p->interp_head = has_runtime ? p->runtime + (addr_t)p->py.layout.rt_interp_head : data + HEAD_AT;
}

void fake_python_init(struct fake_python *p, int major, int minor, size_t room)
{
    const struct layout *row = layout_of(major, minor);

    if (!row)
        abort();
    *p = (struct fake_python){.mem = fake_mem_new()};
    p->py = (struct python){.mem = &p->mem->mem, .names = intern_new(), .layout = *row};
    p->py.major = major;
    p->py.minor = minor;
    p->py.patch = PATCH;
    if (!p->py.names)
        abort();
    put_image(p);
    p->py.runtime = p->runtime;
    p->py.interp_head = p->interp_head;
    p->py.current_thread = p->current;
    if (has_debug_offsets(p))
        put_offsets(p);
    fake_mem_add(p->mem, FAKE_HEAP, room);
    fake_mem_add(p->mem, FAKE_STACK, room);
    fake_mem_add(p->mem, FAKE_C, 8192);
    p->none = fake_alloc(p, 32);
    p->map = (struct proc_map){.start = FAKE_IMAGE,
                               .end = FAKE_IMAGE + FAKE_ELF_DATA,
                               .readable = true,
                               .inode = 1,
                               .path = "/nonexistent/fake"};
    p->maps = (struct proc_maps){.items = &p->map, .n = 1, .cap = 1};
}

void fake_python_init_nth(struct fake_python *p, size_t version, size_t room)
{
    fake_python_init(p, fake_versions[version].major, fake_versions[version].minor, room);
}

size_t fake_version_index(int major, int minor)
{
    for (size_t i = 0; i < N_VERSIONS; i++)
        if (fake_versions[i].major == major && fake_versions[i].minor == minor)
            return i;
    fprintf(stderr, "fake_versions[] has no %d.%d\n", major, minor);
    abort();
}

void fake_python_free(struct fake_python *p)
{
    intern_free(p->py.names);
    mem_close(&p->mem->mem);
    *p = (struct fake_python){0};
}

addr_t fake_alloc(struct fake_python *p, size_t len)
{
    return fake_mem_alloc(p->mem, FAKE_HEAP, len);
}

static void put_at(struct fake_python *p, addr_t base, int field, uint64_t value)
{
    if (field != NO)
        fake_mem_put(p->mem, base + (addr_t)field, value);
}

addr_t fake_pthread(struct fake_python *p, int native_id)
{
    addr_t block = fake_alloc(p, 1024);

    fake_mem_put(p->mem, block, block);
    fake_mem_put_bytes(p->mem, block + 720, &native_id, sizeof(native_id));
    return block;
}

addr_t fake_interp_add(struct fake_python *p)
{
    const struct layout *l = &p->py.layout;
    addr_t interp = fake_alloc(p, INTERP_SIZE), head = fake_mem_get(p->mem, p->interp_head);

    put_at(p, interp, l->in_next, head);
    if (l->in_gil != NO)
        put_at(p, interp, l->in_gil, fake_alloc(p, 64));
    fake_mem_put(p->mem, p->interp_head, interp);
    if (l->rt_interp_head != NO) /* the main interpreter, next to it */
        fake_mem_put(p->mem, p->interp_head + 8, head ? fake_mem_get(p->mem, p->interp_head + 8) : interp);
    return interp;
}

void fake_gil_take(struct fake_python *p, const struct fake_thread *t, bool locked)
{
    const struct layout *l = &p->py.layout;
    addr_t gil = l->in_gil == NO ? p->runtime : fake_mem_get(p->mem, t->interp + (addr_t)l->in_gil);
    uint32_t flag = locked;

    if (p->current) {
        fake_mem_put(p->mem, p->current, locked ? t->tstate : 0);
        return;
    }
    put_at(p, gil, l->in_gil == NO ? l->rt_gil_holder : l->gil_holder, t->tstate);
    fake_mem_put_bytes(p->mem, gil + (addr_t)(l->in_gil == NO ? l->rt_gil_locked : l->gil_locked), &flag, sizeof(flag));
}

/* Adds a chunk after the current one, which records its used part. */
static void chunk_add(struct fake_python *p, struct fake_thread *t)
{
    addr_t chunk = fake_mem_alloc(p->mem, FAKE_STACK, FAKE_CHUNK_BYTES);

    if (t->chunk)
        fake_mem_put(p->mem, t->chunk + 16, (t->top - t->chunk - 24) / 8);
    fake_mem_put(p->mem, chunk, t->chunk);
    fake_mem_put(p->mem, chunk + 8, FAKE_CHUNK_BYTES);
    t->chunk = chunk;
    t->top = chunk + 24;
}

static addr_t cframe_add(struct fake_python *p, addr_t previous)
{
    addr_t cframe = fake_mem_alloc(p->mem, FAKE_C, 24);

    put_at(p, cframe, p->py.layout.cf_previous, previous);
    return cframe;
}

/* Points the thread state to the innermost frame and to the top of the data stack. */
void fake_thread_sync(struct fake_python *p, const struct fake_thread *t)
{
    const struct layout *l = &p->py.layout;

    if (l->cf_frame != NO) {
        put_at(p, t->tstate, l->ts_frame, t->cframe);
        put_at(p, t->cframe, l->cf_frame, t->frame);
    } else {
        put_at(p, t->tstate, l->ts_frame, t->frame);
    }
    if (l->ts_chunk != NO) {
        put_at(p, t->tstate, l->ts_chunk, t->chunk);
        put_at(p, t->tstate, l->ts_chunk + 8, t->top);
        put_at(p, t->tstate, l->ts_chunk + 16, t->chunk + FAKE_CHUNK_BYTES);
    }
}

struct fake_thread fake_thread_add(struct fake_python *p, addr_t interp, uint64_t thread_id, uint64_t native_id)
{
    const struct layout *l = &p->py.layout;
    struct fake_thread t = {.interp = interp, .tstate = fake_alloc(p, THREAD_SIZE)};

    put_at(p, t.tstate, l->ts_next, fake_mem_get(p->mem, interp + (addr_t)l->in_threads));
    put_at(p, t.tstate, l->ts_interp, interp);
    put_at(p, t.tstate, l->ts_thread_id, thread_id);
    put_at(p, t.tstate, l->ts_native_id, native_id);
    put_at(p, interp, l->in_threads, t.tstate);
    if (l->ts_chunk != NO)
        chunk_add(p, &t);
    if (l->cf_frame != NO)
        t.cframe = t.tstate + THREAD_SIZE - 24; /* the root _PyCFrame is part of the thread state */
    fake_thread_sync(p, &t);
    return t;
}

void fake_entry_push(struct fake_python *p, struct fake_thread *t)
{
    const struct layout *l = &p->py.layout;
    addr_t frame;

    if (l->cf_frame != NO)
        t->cframe = cframe_add(p, t->cframe);
    t->entering = true;
    if (l->fr_owner != NO && l->fr_is_entry == NO) {
        unsigned char owner = 3;

        frame = fake_mem_alloc(p->mem, FAKE_C, (size_t)l->fr_size);
        put_at(p, frame, l->fr_code, p->none | (p->py.minor >= 14));
        put_at(p, frame, l->fr_back, t->frame);
        fake_mem_put_bytes(p->mem, frame + (addr_t)l->fr_owner, &owner, 1);
        t->frame = frame;
    }
    fake_thread_sync(p, t);
}

size_t fake_frame_size(const struct fake_python *p)
{
    return ((size_t)p->py.layout.fr_size + 32 + 7) & ~(size_t)7;
}

static addr_t frame_room(struct fake_python *p, struct fake_thread *t, enum fake_owner owner)
{
    size_t size = fake_frame_size(p);

    if (p->py.layout.ts_chunk == NO || owner == FAKE_GENERATOR)
        return fake_alloc(p, size);
    if (t->top + size > t->chunk + FAKE_CHUNK_BYTES)
        chunk_add(p, t);
    t->top += size;
    return t->top - size;
}

addr_t fake_frame_push(struct fake_python *p, struct fake_thread *t, addr_t code, int at, enum fake_owner owner)
{
    const struct layout *l = &p->py.layout;
    addr_t frame = frame_room(p, t, owner);
    unsigned char byte = (unsigned char)owner, entry = t->entering, executing = l->fr_executing >> 1 & 1;
    int lasti = l->line_kind == LINES_RANGES ? at / 2 : at;

    put_at(p, frame, l->fr_code, code);
    put_at(p, frame, l->fr_back, t->frame);
    if (l->fr_lasti != NO)
        fake_mem_put_bytes(p->mem, frame + (addr_t)l->fr_lasti, &lasti, sizeof(lasti));
    else
        put_at(p, frame, l->fr_instr, code + (addr_t)(l->co_bytecode + at));
    if (l->fr_state != NO)
        fake_mem_put_bytes(p->mem, frame + (addr_t)l->fr_state, &executing, 1);
    if (l->fr_owner != NO)
        fake_mem_put_bytes(p->mem, frame + (addr_t)l->fr_owner, &byte, 1);
    if (l->fr_is_entry != NO)
        fake_mem_put_bytes(p->mem, frame + (addr_t)l->fr_is_entry, &entry, 1);
    t->entering = false;
    t->frame = frame;
    fake_thread_sync(p, t);
    return frame;
}
