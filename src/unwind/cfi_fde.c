/*
 * Bytes of .eh_frame or .debug_frame -> CIEs and FDEs. Called by cfi.c. The two sections differ in a few numbers: how a
 * CIE is told from an FDE, how that points to its CIE, and how addresses are written.
 */
#include "unwind/cfi_fde.h"

#include "unwind/cfi_bytes.h"

#include <string.h>

#define MAX_ENTRY        (4 * 1024 * 1024) /* bytes; the interpreter's loop has some 10,000 */
#define MAX_AUGMENTATION 16

/* The head of an entry. */
struct head {
    uint64_t id; /* what it says: it is a CIE, or where its CIE is */
    size_t id_pos;
    bool is_cie;
};

static bool load(const struct cfi_section *s, size_t pos, size_t len)
{
    if (len > s->len - pos)
        len = s->len - pos;
    return !s->load || s->load(s->arg, pos, len);
}

static bool head_open(const struct cfi_table *t, uint64_t offset, struct cfi_bytes *b, struct head *ret)
{
    uint64_t len;
    size_t wide = 4;

    *b = (struct cfi_bytes){
        .start = t->frame.bytes, .pos = offset > t->frame.len ? t->frame.len : offset, .end = t->frame.len};
    b->at = t->frame.at;
    if (!load(&t->frame, b->pos, 12))
        return false;
    len = cfi_bytes_fixed(b, 4);
    if (len == 0xffffffff) {
        len = cfi_bytes_fixed(b, 8);
        wide = t->is_debug ? 8 : 4; /* Linux Standard Base: in .eh_frame the id has four bytes all the same */
    }
    if (b->bad || len < wide || len > b->end - b->pos || len > MAX_ENTRY)
        return false;
    if (!load(&t->frame, b->pos, len))
        return false;
    b->end = b->pos + len;
    ret->id_pos = b->pos;
    ret->id = cfi_bytes_fixed(b, wide);
    ret->is_cie = t->is_debug ? ret->id == (wide == 8 ? UINT64_MAX : UINT32_MAX) : ret->id == 0;
    return !b->bad;
}

bool cfi_fde_next(const struct cfi_table *t, size_t offset, size_t *ret)
{
    struct cfi_bytes b;
    struct head h;

    if (!head_open(t, offset, &b, &h))
        return false;
    *ret = b.end;
    return true;
}

static void read_augmentation(struct cfi_cie *c, struct cfi_bytes *b, const char *text)
{
    uint64_t len = cfi_bytes_uleb(b);
    size_t end;

    if (b->bad || len > b->end - b->pos) {
        b->bad = true;
        return;
    }
    c->has_augmentation_data = true;
    end = b->pos + len;
    for (text++; *text && !b->bad; text++) {
        if (*text == 'R')
            c->pointer_encoding = (unsigned)cfi_bytes_fixed(b, 1); /* of what the linker wrote: never elsewhere */
        else if (*text == 'P')
            cfi_bytes_pointer(b, (unsigned)cfi_bytes_fixed(b, 1), 0);
        else if (*text == 'L')
            cfi_bytes_fixed(b, 1);
        else if (*text == 'S')
            c->is_signal = true;
        else if (*text != 'B')
            break; /* not known: how long all of it is was told */
    }
    b->bad |= b->pos > end || c->pointer_encoding & CFI_BYTES_INDIRECT;
    b->pos = end;
}

/* The letters that say what else is in a CIE; NULL when they have no end. */
static const char *read_letters(struct cfi_bytes *b)
{
    const char *text = (const char *)b->start + b->pos;
    size_t room = b->end - b->pos, len = strnlen(text, room < MAX_AUGMENTATION ? room : MAX_AUGMENTATION);

    cfi_bytes_skip(b, len + 1);
    return b->bad || text[len] ? NULL : text;
}

static bool cie_read(const struct cfi_table *t, uint64_t offset, struct cfi_cie *ret)
{
    struct cfi_bytes b;
    struct head h;
    const char *letters;
    uint64_t version, ra;

    if (!head_open(t, offset, &b, &h) || !h.is_cie)
        return false;
    *ret = (struct cfi_cie){0};
    version = cfi_bytes_fixed(&b, 1);
    letters = b.bad || !version || version > 5 ? NULL : read_letters(&b);
    if (!letters || (*letters && *letters != 'z' && strcmp(letters, "eh") != 0))
        return false;
    if (*letters == 'e')
        cfi_bytes_skip(&b, 8); /* GCC 2: a pointer */
    /* Sizes of an address and of a segment's number: 8 and 0, or it is not for this CPU. */
    if (version >= 4 && cfi_bytes_fixed(&b, 2) != 8)
        return false;
    ret->code_align = cfi_bytes_uleb(&b);
    ret->data_align = cfi_bytes_sleb(&b);
    ra = version == 1 ? cfi_bytes_fixed(&b, 1) : cfi_bytes_uleb(&b);
    if (*letters == 'z')
        read_augmentation(ret, &b, letters);
    ret->program = b.pos;
    ret->end = b.end;
    return !b.bad && ra == CFI_RA;
}

static void read_range(const struct cfi_table *t, struct cfi_bytes *b, struct cfi_fde *ret)
{
    if (t->is_debug) {
        ret->start = cfi_bytes_fixed(b, 8);
        ret->size = cfi_bytes_fixed(b, 8);
        /* What the linker threw away begins at 0, or at the very end. */
        if (ret->start == 0 || ret->start >= UINT64_MAX - 1)
            b->bad = true;
        ret->start += t->bias;
    } else {
        ret->start = cfi_bytes_pointer(b, ret->cie.pointer_encoding, 0);
        ret->size = cfi_bytes_pointer(b, ret->cie.pointer_encoding & 0x0f, 0);
    }
    if (ret->size > UINT64_MAX - ret->start)
        b->bad = true;
}

bool cfi_fde_read(const struct cfi_table *t, uint64_t offset, struct cfi_fde *ret)
{
    struct cfi_bytes b;
    struct head h;

    if (!head_open(t, offset, &b, &h) || h.is_cie || (!t->is_debug && h.id > h.id_pos))
        return false;
    if (!cie_read(t, t->is_debug ? h.id : h.id_pos - h.id, &ret->cie))
        return false;
    read_range(t, &b, ret);
    if (ret->cie.has_augmentation_data)
        cfi_bytes_skip(&b, cfi_bytes_uleb(&b));
    ret->bias = t->bias;
    ret->program = b.pos;
    ret->end = b.end;
    return !b.bad;
}
