/*
 * Encodes .eh_frame, .debug_frame and .eh_frame_hdr: the inverse of unwind/cfi*.c, written from the same standards.
 */
#include "fake_cfi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fake_cfi_bytes(struct fake_cfi *f, const void *bytes, size_t len)
{
    if (len > sizeof(f->bytes) - f->len) {
        fprintf(stderr, "fake_cfi: no room\n");
        abort();
    }
    if (len)
        memcpy(f->bytes + f->len, bytes, len);
    f->len += len;
}

void fake_cfi_fixed(struct fake_cfi *f, uint64_t value, size_t size)
{
    fake_cfi_bytes(f, &value, size);
}

void fake_cfi_uleb(struct fake_cfi *f, uint64_t value)
{
    do {
        uint64_t byte = value & 0x7f;

        value >>= 7;
        fake_cfi_fixed(f, byte | (value ? 0x80 : 0), 1);
    } while (value);
}

void fake_cfi_sleb(struct fake_cfi *f, int64_t value)
{
    for (bool more = true; more;) {
        uint64_t byte = (uint64_t)value & 0x7f;

        value >>= 7;
        more = !((value == 0 && !(byte & 0x40)) || (value == -1 && byte & 0x40));
        fake_cfi_fixed(f, byte | (more ? 0x80 : 0), 1);
    }
}

void fake_cfi_pointer(struct fake_cfi *f, unsigned encoding, uint64_t value, uint64_t base)
{
    static const size_t sizes[16] = {8, 0, 2, 4, 8, 0, 0, 0, 0, 0, 2, 4, 8, 0, 0, 0};

    if (encoding == 0xff)
        return;
    if (encoding == 0x50) { /* aligned */
        while ((f->at + f->len) & 7)
            fake_cfi_fixed(f, 0, 1);
        encoding = 0;
    }
    if ((encoding & 0x70) == 0x10)
        value -= f->at + f->len;
    if ((encoding & 0x70) == 0x30)
        value -= base;
    if ((encoding & 15) == 1)
        fake_cfi_uleb(f, value);
    else if ((encoding & 15) == 9)
        fake_cfi_sleb(f, (int64_t)value);
    else
        fake_cfi_fixed(f, value, sizes[encoding & 15]);
}

/* The header of an entry; returns the offset that its length counts from. */
static size_t open_entry(struct fake_cfi *f, size_t header)
{
    if (header == 8)
        fake_cfi_fixed(f, 0xffffffff, 4);
    fake_cfi_fixed(f, 0, header);
    return f->len;
}

static void close_entry(struct fake_cfi *f, size_t from, size_t header)
{
    uint64_t len;

    while ((f->len - from) % 8 != 4)
        fake_cfi_fixed(f, 0, 1); /* nop */
    len = f->len - from;
    memcpy(f->bytes + from - header, &len, header);
}

static void put_letters(struct fake_cfi *f, const struct fake_cie *c)
{
    struct fake_cfi data = {.at = 0};

    if (c->letters[0] != 'z')
        return;
    for (const char *letter = c->letters + 1; *letter; letter++) {
        if (*letter == 'R')
            fake_cfi_fixed(&data, c->encoding, 1);
        if (*letter == 'L')
            fake_cfi_fixed(&data, 0x1b, 1);
        if (*letter == 'P') {
            fake_cfi_fixed(&data, 0x9b, 1);
            fake_cfi_fixed(&data, 0x1234, 4);
        }
    }
    fake_cfi_uleb(f, data.len);
    fake_cfi_bytes(f, data.bytes, data.len);
}

size_t fake_cfi_cie(struct fake_cfi *f, const struct fake_cie *cie)
{
    struct fake_cie *c = &f->cie;
    size_t from, begin = f->len;

    *c = *cie;
    c->letters = c->letters ? c->letters : f->is_debug ? "" : "zR";
    c->encoding = c->encoding || f->has_no_encoding ? c->encoding : 0x1b;
    c->version = c->version ? c->version : 1;
    c->code_align = c->code_align ? c->code_align : 1;
    c->data_align = c->data_align ? c->data_align : -8;
    c->ra = c->ra ? c->ra : 16;
    c->header = c->header ? c->header : 4;
    f->cie_at = begin;
    from = open_entry(f, c->header);
    fake_cfi_fixed(f, f->is_debug ? UINT64_MAX : 0, f->is_debug ? c->header : 4);
    fake_cfi_fixed(f, c->version, 1);
    fake_cfi_bytes(f, c->letters, strlen(c->letters) + 1);
    if (c->version >= 4)
        fake_cfi_fixed(f, c->address_size ? c->address_size : 8, 2);
    if (strcmp(c->letters, "eh") == 0)
        fake_cfi_fixed(f, 0x123456, 8);
    fake_cfi_uleb(f, c->code_align);
    fake_cfi_sleb(f, c->data_align);
    fake_cfi_uleb(f, c->ra);
    put_letters(f, c);
    if (c->program)
        fake_cfi_bytes(f, c->program, c->program_len);
    else
        fake_cfi_bytes(f, "\x0c\x07\x08\x90\x01", 5);
    close_entry(f, from, c->header);
    return begin;
}

size_t fake_cfi_fde(struct fake_cfi *f, uint64_t start, uint64_t size, const char *program, size_t program_len)
{
    size_t begin = f->len, from = open_entry(f, f->cie.header);

    if (f->is_debug) {
        fake_cfi_fixed(f, f->cie_at, f->cie.header);
        fake_cfi_fixed(f, start, 8);
        fake_cfi_fixed(f, size, 8);
    } else {
        fake_cfi_fixed(f, f->len - f->cie_at, 4);
        fake_cfi_pointer(f, f->cie.encoding, start, 0);
        fake_cfi_pointer(f, f->cie.encoding & 15, size, 0);
    }
    if (f->cie.letters[0] == 'z') {
        bool has_lsda = strchr(f->cie.letters, 'L') != NULL;

        fake_cfi_uleb(f, has_lsda ? 4 : 0);
        fake_cfi_fixed(f, 0x11223344, has_lsda ? 4 : 0);
    }
    fake_cfi_bytes(f, program, program_len);
    close_entry(f, from, f->cie.header);
    return begin;
}

void fake_cfi_end(struct fake_cfi *f)
{
    fake_cfi_fixed(f, 0, 4);
}

void fake_cfi_header(struct fake_cfi *ret, uint64_t at, unsigned encoding, const struct fake_cfi *frame,
                     const uint64_t *starts, const size_t *offsets, size_t n)
{
    ret->len = 0;
    ret->at = at;
    fake_cfi_fixed(ret, 1, 1);
    fake_cfi_fixed(ret, encoding, 1);
    fake_cfi_fixed(ret, 0x03, 1);
    fake_cfi_fixed(ret, 0x3b, 1);
    fake_cfi_pointer(ret, encoding, frame->at, at);
    fake_cfi_fixed(ret, n, 4);
    for (size_t i = 0; i < n; i++) {
        fake_cfi_fixed(ret, starts[i] - at, 4);
        fake_cfi_fixed(ret, frame->at + offsets[i] - at, 4);
    }
}
