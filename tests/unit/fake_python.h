/*
 * A synthetic CPython of any version in synthetic memory: an ELF image with a runtime in its data, interpreters,
 * threads, frames, code objects, strings, and the dicts that lead to the names of threads. Built from the version's
 * layout row; the live tests check that the row is right.
 *
 *     struct fake_python p;
 *     fake_python_init(&p, 3, 12, 1 << 20);
 *     addr_t interp = fake_interp_add(&p);
 *     struct fake_thread t = fake_thread_add(&p, interp, 0x7000, 42);
 *     fake_entry_push(&p, &t);
 *     fake_frame_push(&p, &t, fake_code(&p, "f", "/a.py", 10), 4, FAKE_PLAIN);
 *     frames_read(…, &p.py, t.tstate, …);
 *     fake_python_free(&p);
 */
#ifndef TESTS_UNIT_FAKE_PYTHON_H
#define TESTS_UNIT_FAKE_PYTHON_H

#include "fake_mem.h"
#include "python/python.h"
#include "target/proc.h"

#define FAKE_IMAGE 0x7f1000000000ull
#define FAKE_HEAP  0x7f2000000000ull
#define FAKE_STACK 0x7f3000000000ull /* the chunks of data stacks */
#define FAKE_C     0x7ffc00000000ull /* the C stack */

#define FAKE_CHUNK_BYTES 16384

/* Every supported version, oldest first: ADD A PYTHON HERE. */
static const struct fake_version {
    int major, minor;
} fake_versions[] = {{2, 7}, {3, 6}, {3, 7}, {3, 8}, {3, 9}, {3, 10}, {3, 11}, {3, 12}, {3, 13}, {3, 14}, {3, 15}};

#define N_VERSIONS (sizeof(fake_versions) / sizeof(fake_versions[0]))

struct fake_python {
    struct fake_mem *mem;
    struct python py; /* as detect_python would fill it */
    struct proc_map map;
    struct proc_maps maps; /* the address of the runtime */
    addr_t runtime, interp_head, current;
    addr_t none;
};

struct fake_thread {
    addr_t tstate, interp;
    addr_t frame; /* the innermost frame */
    addr_t chunk, top;
    addr_t cframe; /* the current _PyCFrame: 3.11, 3.12 */
    bool entering; /* C calls the next frame */
};

/* The size of every frame. */
size_t fake_frame_size(const struct fake_python *p);

/* The owner of a frame, as in _PyInterpreterFrame.owner. */
enum fake_owner { FAKE_PLAIN = 0, FAKE_GENERATOR = 1 };

void fake_python_init(struct fake_python *p, int major, int minor, size_t room);
void fake_python_init_nth(struct fake_python *p, size_t version, size_t room); /* an index in fake_versions[] */
void fake_python_free(struct fake_python *p);

/* The index of a version in fake_versions[]. */
size_t fake_version_index(int major, int minor);

addr_t fake_alloc(struct fake_python *p, size_t len);

/* fake_objects.c */
addr_t fake_str(struct fake_python *p, const char *ascii);
/* Characters of 1 (Latin-1), 2 or 4 bytes that are not all ASCII: 3.x only. */
addr_t fake_str_wide(struct fake_python *p, const uint32_t *characters, size_t n, int kind);
addr_t fake_bytes(struct fake_python *p, const void *bytes, size_t len);
addr_t fake_int(struct fake_python *p, uint64_t value);
/* With `are_str`, the dict has the form for keys that are all str (3.11+). */
addr_t fake_dict(struct fake_python *p, const addr_t *keys, const addr_t *values, size_t n, bool are_str);
/* An object with these attributes, which are where the version keeps them. */
addr_t fake_instance(struct fake_python *p, const addr_t *keys, const addr_t *values, size_t n);
/* A code object whose instructions 0, 4, 8 … are on the lines first, first + 1, first + 2 … */
addr_t fake_code(struct fake_python *p, const char *name, const char *file, int first_line);
addr_t fake_code_of(struct fake_python *p, addr_t name, addr_t file, int first_line, addr_t table);
/* The line table of such a code object in the version's form; returns its length. */
size_t fake_lines(const struct fake_python *p, unsigned char out[64]);
/* sys.modules["threading"]._active */
void fake_threading(struct fake_python *p, addr_t interp, const uint64_t *ids, const char *const *names, size_t n);
addr_t fake_thread_object(struct fake_python *p, const char *name);

/* The C library's struct of a thread, whose address is the thread's ID. It begins with that address, and has the
 * kernel's ID where glibc has it. */
addr_t fake_pthread(struct fake_python *p, int native_id);

addr_t fake_interp_add(struct fake_python *p);
struct fake_thread fake_thread_add(struct fake_python *p, addr_t interp, uint64_t thread_id, uint64_t native_id);
void fake_gil_take(struct fake_python *p, const struct fake_thread *t, bool locked);

/* Writes `t` to the thread state: this is how a thread switches from one stack to another. */
void fake_thread_sync(struct fake_python *p, const struct fake_thread *t);

/* C calls the interpreter; then a frame is pushed. Both update the thread state. */
void fake_entry_push(struct fake_python *p, struct fake_thread *t);
addr_t fake_frame_push(struct fake_python *p, struct fake_thread *t, addr_t code, int at, enum fake_owner owner);

#endif
