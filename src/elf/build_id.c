/*
 * Finds the build ID in ELF notes.
 */
#include "elf/build_id.h"

#include "base/err.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

/* Build ID notes are aligned to 4 bytes, whatever the alignment of their segment. */
#define ALIGN4(n) (((n) + 3) & ~(size_t)3)

int build_id_from_notes(const unsigned char *notes, size_t len, struct build_id *ret)
{
    size_t at = 0;

    while (len - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr head;
        size_t name = at + sizeof(head), desc;

        memcpy(&head, notes + at, sizeof(head));
        if (head.n_namesz > len - name || ALIGN4((size_t)head.n_namesz) > len - name)
            return ERR_READ;
        desc = name + ALIGN4((size_t)head.n_namesz);
        if (head.n_descsz > len - desc)
            return ERR_READ;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0 &&
            head.n_descsz && head.n_descsz <= BUILD_ID_MAX) {
            *ret = (struct build_id){.len = head.n_descsz};
            memcpy(ret->bytes, notes + desc, head.n_descsz);
            return 0;
        }
        if (ALIGN4((size_t)head.n_descsz) > len - desc)
            return ERR_READ;
        at = desc + ALIGN4((size_t)head.n_descsz);
    }
    return ERR_READ;
}

int build_id_from_file(const struct elf_file *f, struct build_id *ret)
{
    Elf64_Ehdr eh;
    Elf64_Phdr ph;

    if (!elf_file_valid(f))
        return ERR_READ;
    memcpy(&eh, f->bytes, sizeof(eh));
    if (eh.e_phentsize != sizeof(ph) || eh.e_phoff > f->len || eh.e_phnum > (f->len - eh.e_phoff) / sizeof(ph))
        return ERR_READ;
    for (size_t i = 0; i < eh.e_phnum; i++) {
        memcpy(&ph, f->bytes + eh.e_phoff + i * sizeof(ph), sizeof(ph));
        if (ph.p_type == PT_NOTE && ph.p_offset <= f->len && ph.p_filesz <= f->len - ph.p_offset &&
            build_id_from_notes(f->bytes + ph.p_offset, ph.p_filesz, ret) == 0)
            return 0;
    }
    return ERR_READ;
}

bool build_id_equal(const struct build_id *a, const struct build_id *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

struct build_id_text build_id_show(const struct build_id *id)
{
    struct build_id_text t = {"none"};

    for (size_t i = 0; i < id->len; i++)
        snprintf(t.text + 2 * i, 3, "%02x", id->bytes[i]);
    return t;
}
