/*
 * Parses CIEs and FDEs. .eh_frame and .debug_frame differ in how they mark a CIE, how an FDE refers to its CIE, and how
 * they encode addresses.
 */
#include "unwind/cfi_fde.h"

#include "unwind/cfi_bytes.h"

#include <dwarf.h>
#include <string.h>

#define MAX_ENTRY        (4 * 1024 * 1024) /* bytes; CPython's eval loop takes about 10,000 */
#define MAX_AUGMENTATION 16

struct entry_header {
    uint64_t id;   /* marks a CIE, or refers to the FDE's CIE */
    size_t id_pos; /* position of `id`, which .eh_frame's references are relative to */
    bool is_cie;
};

static bool load(const struct cfi_section *s, size_t pos, size_t len)
{
    if (len > s->len - pos)
        len = s->len - pos;
    return !s->load || s->load(s->arg, pos, len);
}

static bool open_entry(const struct cfi_table *t, uint64_t offset, struct dwarf_bytes *b, struct entry_header *ret)
{
    uint64_t len;
    size_t id_size = 4;

    *b = (struct dwarf_bytes){
        .start = t->frame.bytes, .pos = offset > t->frame.len ? t->frame.len : offset, .end = t->frame.len};
    b->addr = t->frame.addr;
    if (!load(&t->frame, b->pos, 12))
        return false;
    len = dwarf_bytes_fixed(b, 4);
    if (len == 0xffffffff) {
        len = dwarf_bytes_fixed(b, 8);
        id_size = t->is_debug_frame ? 8 : 4; /* Linux Standard Base: 4 bytes in .eh_frame even with a 64-bit length */
    }
    if (b->bad || len < id_size || len > b->end - b->pos || len > MAX_ENTRY)
        return false;
    if (!load(&t->frame, b->pos, len))
        return false;
    b->end = b->pos + len;
    ret->id_pos = b->pos;
    ret->id = dwarf_bytes_fixed(b, id_size);
    ret->is_cie = t->is_debug_frame ? ret->id == (id_size == 8 ? UINT64_MAX : UINT32_MAX) : ret->id == 0;
    return !b->bad;
}

bool cfi_fde_next(const struct cfi_table *t, size_t offset, size_t *ret)
{
    struct dwarf_bytes b;
    struct entry_header h;

    if (!open_entry(t, offset, &b, &h))
        return false;
    *ret = b.end;
    return true;
}

static void read_augmentation_data(struct cfi_cie *c, struct dwarf_bytes *b, const char *text)
{
    uint64_t len = dwarf_bytes_uleb(b);
    size_t end;

    if (b->bad || len > b->end - b->pos) {
        b->bad = true;
        return;
    }
    c->has_augmentation_data = true;
    end = b->pos + len;
    for (text++; *text && !b->bad; text++) {
        if (*text == 'R')
            c->pointer_encoding = (unsigned)dwarf_bytes_fixed(b, 1);
        else if (*text == 'P')
            cfi_bytes_pointer(b, (unsigned)dwarf_bytes_fixed(b, 1), 0);
        else if (*text == 'L')
            dwarf_bytes_fixed(b, 1);
        else if (*text == 'S')
            c->is_signal = true;
        else if (*text != 'B')
            break; /* unknown, but `len` tells where the data ends */
    }
    b->bad |= b->pos > end || c->pointer_encoding & DW_EH_PE_indirect; /* linkers never write indirect here */
    b->pos = end;
}

/* The augmentation string of a CIE; NULL if it is not terminated. */
static const char *read_augmentation_string(struct dwarf_bytes *b)
{
    const char *text = (const char *)b->start + b->pos;
    size_t room = b->end - b->pos, len = strnlen(text, room < MAX_AUGMENTATION ? room : MAX_AUGMENTATION);

    dwarf_bytes_skip(b, len + 1);
    return b->bad || text[len] ? NULL : text;
}

static bool cie_read(const struct cfi_table *t, uint64_t offset, struct cfi_cie *ret)
{
    struct dwarf_bytes b;
    struct entry_header h;
    const char *augmentation;
    uint64_t version, ra;

    if (!open_entry(t, offset, &b, &h) || !h.is_cie)
        return false;
    *ret = (struct cfi_cie){0};
    version = dwarf_bytes_fixed(&b, 1);
    augmentation = b.bad || !version || version > 5 ? NULL : read_augmentation_string(&b);
    if (!augmentation || (*augmentation && *augmentation != 'z' && strcmp(augmentation, "eh") != 0))
        return false;
    if (*augmentation == 'e')
        dwarf_bytes_skip(&b, 8); /* GCC 2: "eh" adds a pointer */
    /* The address size must be 8 and the segment selector size 0. */
    if (version >= 4 && dwarf_bytes_fixed(&b, 2) != 8)
        return false;
    ret->code_align = dwarf_bytes_uleb(&b);
    ret->data_align = dwarf_bytes_sleb(&b);
    ra = version == 1 ? dwarf_bytes_fixed(&b, 1) : dwarf_bytes_uleb(&b);
    if (*augmentation == 'z')
        read_augmentation_data(ret, &b, augmentation);
    ret->program = b.pos;
    ret->end = b.end;
    return !b.bad && ra == CFI_RA;
}

static void read_range(const struct cfi_table *t, struct dwarf_bytes *b, struct cfi_fde *ret)
{
    if (t->is_debug_frame) {
        ret->start = dwarf_bytes_fixed(b, 8);
        ret->size = dwarf_bytes_fixed(b, 8);
        /* The linker sets the start of discarded functions to 0 or to a value near the maximum. */
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
    struct dwarf_bytes b;
    struct entry_header h;

    if (!open_entry(t, offset, &b, &h) || h.is_cie || (!t->is_debug_frame && h.id > h.id_pos))
        return false;
    if (!cie_read(t, t->is_debug_frame ? h.id : h.id_pos - h.id, &ret->cie))
        return false;
    read_range(t, &b, ret);
    if (ret->cie.has_augmentation_data)
        dwarf_bytes_skip(&b, dwarf_bytes_uleb(&b));
    ret->bias = t->bias;
    ret->program = b.pos;
    ret->end = b.end;
    return !b.bad;
}
