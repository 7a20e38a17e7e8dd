/*
 * Finds debug files. Called by symbols.c when a module has no symbols of its own. All paths are those of the target and
 * are opened beneath its root; nothing that is found is trusted to be the right file without a proof.
 */
#include "elf/debug_file.h"

#include "base/err.h"
#include "base/log.h"
#include "base/open_in_root.h"

#include <elfutils/libdwelf.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define DEBUG_DIR  "/usr/lib/debug"
#define SUM_MAX    ((uint64_t)1 << 31) /* bytes that are read to prove that a file is the right one */
#define PACKED_MAX ((size_t)32 << 20)
#define PLAIN_MAX  ((size_t)128 << 20)
#define MEMORY_MAX ((uint64_t)128 << 20)

static bool same_id(const struct elf_module *m, const unsigned char *id, size_t len)
{
    unsigned char other[ELF_MODULE_BUILD_ID_MAX];

    return len > 0 && elf_module_build_id(m, other) == len && memcmp(id, other, len) == 0;
}

static int open_with_id(int root_fd, const char *path, const unsigned char *id, size_t len, struct elf_module *ret)
{
    struct elf_module m;

    if (elf_module_open(open_in_root(root_fd, path), &m) < 0)
        return ERR_READ;
    if (!same_id(&m, id, len)) {
        log_warning("symbols", "debug file %s: refused, its build ID differs", path);
        elf_module_close(&m);
        return ERR_READ;
    }
    *ret = m;
    return 0;
}

static int find_by_id(int root_fd, const unsigned char *id, size_t len, struct elf_module *ret, char *path)
{
    const size_t room = DEBUG_FILE_PATH_ROOM;
    size_t n;

    if (len < 2)
        return ERR_READ;
    n = (size_t)snprintf(path, room, DEBUG_DIR "/.build-id/%02x/", id[0]);
    for (size_t i = 1; i < len; i++)
        n += (size_t)snprintf(path + n, room - n, "%02x", id[i]);
    snprintf(path + n, room - n, ".debug");
    return open_with_id(root_fd, path, id, len, ret);
}

static bool sum_is(const struct elf_module *m, uint32_t sum)
{
    unsigned char *buf = malloc((size_t)1 << 20);
    uLong crc = crc32(0, NULL, 0);
    uint64_t at = 0;

    if (!buf || m->size > SUM_MAX) {
        free(buf);
        return false;
    }
    while (at < m->size) {
        size_t n = (size_t)(m->size - at < (1 << 20) ? m->size - at : (1 << 20));

        if (elf_module_read(m, at, buf, n) < 0)
            break;
        crc = crc32(crc, buf, (uInt)n);
        at += n;
    }
    free(buf);
    return at == m->size && crc == sum;
}

/* What proves that a file which was found by its name is the right one. */
struct proof {
    unsigned char id[ELF_MODULE_BUILD_ID_MAX];
    size_t id_len;
    uint32_t sum;
};

static int open_proven(int root_fd, const char *path, const struct proof *proof, struct elf_module *ret)
{
    struct elf_module m;

    if (elf_module_open(open_in_root(root_fd, path), &m) < 0)
        return ERR_READ;
    if (!same_id(&m, proof->id, proof->id_len) && !sum_is(&m, proof->sum)) {
        log_warning("symbols", "debug file %s: refused, neither its build ID nor its CRC fits", path);
        elf_module_close(&m);
        return ERR_READ;
    }
    *ret = m;
    return 0;
}

/* The part of a path before its last slash. */
static int dir_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (int)(slash - path) : 0;
}

static int find_by_link(int root_fd, const char *path, const struct proof *proof, const char *link,
                        struct elf_module *ret, char file[DEBUG_FILE_PATH_ROOM])
{
    static const char *const places[][2] = {{"", ""}, {"", "/.debug"}, {DEBUG_DIR, ""}};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int n =
            snprintf(file, DEBUG_FILE_PATH_ROOM, "%s%.*s%s/%s", places[i][0], dir_len(path), path, places[i][1], link);

        if (n < DEBUG_FILE_PATH_ROOM && strcmp(file, path) != 0 && open_proven(root_fd, file, proof, ret) == 0)
            return 0;
    }
    return ERR_READ;
}

int debug_file_find(int root_fd, const char *path, const struct elf_module *m, struct elf_module *ret,
                    char ret_path[DEBUG_FILE_PATH_ROOM])
{
    struct proof proof = {.id_len = 0};
    const char *link;
    GElf_Word sum;

    proof.id_len = elf_module_build_id(m, proof.id);
    if (find_by_id(root_fd, proof.id, proof.id_len, ret, ret_path) == 0)
        return 0;
    link = dwelf_elf_gnu_debuglink(m->elf, &sum);
    if (!link || !link[0] || strchr(link, '/'))
        return ERR_READ;
    proof.sum = sum;
    return find_by_link(root_fd, path, &proof, link, ret, ret_path);
}

/* The section holds a path and, behind its NUL, the build id. */
int debug_file_find_alt(int root_fd, const char *path, const struct elf_module *debug, struct elf_module *ret)
{
    unsigned char *bytes, id[ELF_MODULE_BUILD_ID_MAX];
    char file[DEBUG_FILE_PATH_ROOM];
    GElf_Shdr section;
    size_t len, name, id_len;
    int r = ERR_READ;

    if (!elf_module_section(debug, ".gnu_debugaltlink", &section) ||
        elf_module_load(debug, &section, DEBUG_FILE_PATH_ROOM, &bytes, &len) < 0)
        return ERR_READ;
    name = strnlen((const char *)bytes, len);
    id_len = len - name - (name < len);
    if (name < len && name > 0 && id_len > 0 && id_len <= sizeof(id)) {
        memcpy(id, bytes + name + 1, id_len);
        if (bytes[0] == '/')
            snprintf(file, sizeof(file), "%s", (const char *)bytes);
        else
            snprintf(file, sizeof(file), "%.*s/%s", dir_len(path), path, (const char *)bytes);
        r = open_with_id(root_fd, file, id, id_len, ret);
        if (r < 0)
            r = find_by_id(root_fd, id, id_len, ret, file);
    }
    free(bytes);
    return r;
}

/* Unpacks all of `in`; grows the result as long as it may. */
static int unpack(const unsigned char *in, size_t len, unsigned char **ret, size_t *ret_len)
{
    lzma_stream s = LZMA_STREAM_INIT;
    size_t room = 0;
    unsigned char *out = NULL;
    lzma_ret r = lzma_stream_decoder(&s, MEMORY_MAX, 0);

    s.next_in = in;
    s.avail_in = len;
    while (r == LZMA_OK) {
        if (s.avail_out == 0) {
            size_t more = room ? room * 2 : (size_t)1 << 18;
            unsigned char *grown = more <= PLAIN_MAX ? realloc(out, more) : NULL;

            if (!grown)
                break;
            out = grown;
            s.next_out = out + room;
            s.avail_out = more - room;
            room = more;
        }
        r = lzma_code(&s, LZMA_FINISH);
    }
    *ret_len = room - s.avail_out;
    lzma_end(&s);
    if (r != LZMA_STREAM_END) {
        free(out);
        return ERR_READ;
    }
    *ret = out;
    return 0;
}

int debug_file_unpack(const struct elf_module *m, struct elf_module *ret)
{
    unsigned char *packed, *plain;
    GElf_Shdr section;
    size_t len, plain_len;
    int r;

    if (!elf_module_section(m, ".gnu_debugdata", &section) ||
        elf_module_load(m, &section, PACKED_MAX, &packed, &len) < 0)
        return ERR_READ;
    r = unpack(packed, len, &plain, &plain_len);
    free(packed);
    return r < 0 ? r : elf_module_open_image(plain, plain_len, ret);
}
