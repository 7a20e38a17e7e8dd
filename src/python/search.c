/*
 * Finds an interpreter without symbols by searching the writable data of one image. Takes milliseconds,
 * so detect.c tries the dynamic symbols first.
 */
#include "python/search.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define RANGE_MAX ((size_t)64 * 1024 * 1024)

/* A copy of one writable range. */
struct data {
    addr_t start;
    size_t len;
    unsigned char *bytes;
};

/* Copies as much as is readable: the end of .bss may not be mapped. */
static int data_read(struct mem *m, const struct image_range *range, struct data *ret)
{
    size_t len = range->end - range->start;
    struct data d = {.start = range->start};

    if (range->end <= range->start || len > RANGE_MAX)
        return ERR_BOUNDS;
    d.bytes = malloc(len);
    if (!d.bytes)
        return ERR_NOMEM;
    for (; d.len < len; d.len += 4096) {
        size_t piece = len - d.len < 4096 ? len - d.len : 4096;

        if (d.len == 0 && mem_read(m, d.start, d.bytes, len) == 0) {
            d.len = len;
            break;
        }
        if (mem_read(m, d.start + d.len, d.bytes + d.len, piece) < 0)
            break;
    }
    if (d.len > len)
        d.len = len;
    *ret = d;
    return 0;
}

static int parse_number(const char **p, const char *end)
{
    int value = 0, digits = 0;

    for (; *p < end && **p >= '0' && **p <= '9' && digits < 3; (*p)++, digits++)
        value = value * 10 + (**p - '0');
    return digits ? value : -1;
}

bool search_parse_version(const char *text, size_t len, struct debug_version *ret)
{
    struct debug_version v = {.final = true};
    const char *p = text, *end = text + len;
    size_t n = 0;

    v.major = parse_number(&p, end);
    if (p >= end || *p++ != '.')
        return false;
    v.minor = parse_number(&p, end);
    if (p >= end || *p++ != '.')
        return false;
    v.patch = parse_number(&p, end);
    while (p < end && ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')) && n + 1 < sizeof(v.suffix)) {
        v.suffix[n++] = *p++;
        v.final = false;
    }
    if (p < end && *p == '+')
        p++;
    if (end - p < 2 || p[0] != ' ' || p[1] != '(' || v.patch < 0)
        return false;
    *ret = v;
    return (v.major == 2 && v.minor == 7) || (v.major == 3 && v.minor >= 3);
}

/* State of one search through a range of data. */
struct search {
    struct mem *m;
    const struct layout *layout;
    struct debug_version version;
    addr_t at;
};

static bool find_version(const struct data *d, struct search *s)
{
    const unsigned char *end = d->bytes + d->len, *dot = d->bytes;

    while (end - dot > 1 && (dot = memchr(dot + 1, '.', (size_t)(end - dot) - 1))) {
        size_t left = (size_t)(end - dot) + 1;

        if ((dot[-1] == '2' || dot[-1] == '3') &&
            search_parse_version((const char *)dot - 1, left < 32 ? left : 32, &s->version))
            return true;
    }
    return false;
}

/* Runs `test` on each writable range of the image until it succeeds. */
static int search_ranges(const struct image *img, bool (*test)(const struct data *, struct search *), struct search *s)
{
    for (size_t i = 0; i < img->n_writable; i++) {
        struct data d;
        bool ok;

        if (data_read(s->m, &img->writable[i], &d) < 0)
            continue;
        ok = test(&d, s);
        free(d.bytes);
        if (ok)
            return 0;
    }
    return ERR_READ;
}

int search_version(struct mem *m, const struct image *img, struct debug_version *ret)
{
    struct search s = {.m = m};
    int r = search_ranges(img, find_version, &s);

    if (r == 0)
        *ret = s.version;
    return r;
}

/* An interpreter's first thread state points back to it. Type objects and free lists can look like that, too, so also
 * check that thread_id is the address of a thread control block: on x86-64 (glibc and musl) its first word is its own
 * address. */
static bool is_interpreter(struct mem *m, const struct layout *l, addr_t interp)
{
    addr_t thread, interp_of_thread, tcb, self;

    if (!interp || interp & 7)
        return false;
    return mem_read_addr(m, interp + (addr_t)l->in_threads, &thread) == 0 && thread && !(thread & 7) &&
           thread != interp && mem_read_addr(m, thread + (addr_t)l->ts_interp, &interp_of_thread) == 0 &&
           interp_of_thread == interp && mem_read_addr(m, thread + (addr_t)l->ts_thread_id, &tcb) == 0 && tcb > 4096 &&
           !(tcb & 7) && mem_read_addr(m, tcb, &self) == 0 && self == tcb;
}

static addr_t word_at(const struct data *d, size_t at)
{
    addr_t value;

    memcpy(&value, d->bytes + at, sizeof(value));
    return value;
}

/* From 3.7 on, the runtime has the newest interpreter next to the main interpreter; usually both are the same. */
static bool find_head(const struct data *d, struct search *s)
{
    const struct layout *l = s->layout;
    bool pair = l->rt_interp_head != NO;

    for (size_t at = 0; at + 16 <= d->len; at += 8) {
        addr_t word = word_at(d, at);

        if (word < 4096 || word >> 47 || (pair && word_at(d, at + 8) < 4096))
            continue;
        if (is_interpreter(s->m, l, word) && (!pair || is_interpreter(s->m, l, word_at(d, at + 8)))) {
            s->at = d->start + at;
            return true;
        }
    }
    return false;
}

int search_interp_head(struct mem *m, const struct image *img, const struct layout *l, addr_t *ret)
{
    struct search s = {.m = m, .layout = l};
    int r = l ? search_ranges(img, find_head, &s) : ERR_VERSION;

    if (r == 0)
        *ret = s.at;
    return r;
}

static bool find_cookie(const struct data *d, struct search *s)
{
    for (size_t at = 0; at + 24 <= d->len; at += 8)
        if (debug_offsets_version(d->bytes + at, d->len - at, &s->version)) {
            s->at = d->start + at;
            return true;
        }
    return false;
}

int search_runtime(struct mem *m, const struct image *img, struct debug_version *ret_version, addr_t *ret_runtime,
                   addr_t *ret_head)
{
    struct search s = {.m = m};
    const struct layout *l;

    if (search_ranges(img, find_cookie, &s) == 0) {
        *ret_version = s.version;
        *ret_runtime = s.at;
        return 0;
    }
    if (search_ranges(img, find_version, &s) < 0)
        return ERR_READ;
    l = layout_of(s.version.major, s.version.minor);
    if (!l || search_interp_head(m, img, l, &s.at) < 0)
        return ERR_READ;
    *ret_version = s.version;
    *ret_head = s.at;
    if (l->rt_interp_head != NO)
        *ret_runtime = s.at - (addr_t)l->rt_interp_head;
    return 0;
}
