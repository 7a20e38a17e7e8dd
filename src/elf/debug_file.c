/*
 * Finds debug files. Opens all paths inside the target's root. Never trusts a path: a file is used only if its build
 * ID or its CRC matches.
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

#define DEBUG_DIR        "/usr/lib/debug"
#define CRC_MAX          ((uint64_t)1 << 31) /* bytes read to compute a CRC */
#define COMPRESSED_MAX   ((size_t)32 << 20)
#define DECOMPRESSED_MAX ((size_t)128 << 20)
#define LZMA_MEMORY_MAX  ((uint64_t)128 << 20)

static bool crc_matches(const struct elf_module *m, uint32_t want)
{
    unsigned char *buf = malloc((size_t)1 << 20);
    uLong crc = crc32(0, NULL, 0);
    uint64_t at = 0;

    if (!buf || m->size > CRC_MAX) {
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
    return at == m->size && crc == want;
}

/* What a debug file must match: the build ID or, unless it is NULL, the CRC. */
struct expected {
    struct build_id id;
    const uint32_t *crc;
};

static int open_verified(int root_fd, const char *path, const struct expected *want, struct elf_module *ret)
{
    struct elf_module m;
    struct build_id id;

    if (elf_module_open(open_in_root(root_fd, path), &m) < 0)
        return ERR_READ;
    id = elf_module_build_id(&m);
    if ((id.len == 0 || !build_id_equal(&id, &want->id)) && (!want->crc || !crc_matches(&m, *want->crc))) {
        log_warning("symbols", "debug file %s: refused, neither its build ID nor its CRC fits", path);
        elf_module_close(&m);
        return ERR_READ;
    }
    *ret = m;
    return 0;
}

static int find_by_build_id(int root_fd, const struct build_id *id, struct elf_module *ret,
                            char path[DEBUG_FILE_PATH_ROOM])
{
    const struct expected want = {.id = *id};
    const size_t room = DEBUG_FILE_PATH_ROOM;
    size_t n;

    if (id->len < 2)
        return ERR_READ;
    n = (size_t)snprintf(path, room, DEBUG_DIR "/.build-id/%02x/", id->bytes[0]);
    for (size_t i = 1; i < id->len; i++)
        n += (size_t)snprintf(path + n, room - n, "%02x", id->bytes[i]);
    snprintf(path + n, room - n, ".debug");
    return open_verified(root_fd, path, &want, ret);
}

/* The length of a path up to its last slash. */
static int dirname_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (int)(slash - path) : 0;
}

static int find_by_debuglink(int root_fd, const char *path, const struct expected *want, const char *link,
                             struct elf_module *ret, char file[DEBUG_FILE_PATH_ROOM])
{
    static const char *const dirs[][2] = {
        {"", ""}, {"", "/.debug"}, {DEBUG_DIR, ""}}; /* around the module's directory */

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        int n =
            snprintf(file, DEBUG_FILE_PATH_ROOM, "%s%.*s%s/%s", dirs[i][0], dirname_len(path), path, dirs[i][1], link);

        if (n < DEBUG_FILE_PATH_ROOM && strcmp(file, path) != 0 && open_verified(root_fd, file, want, ret) == 0)
            return 0;
    }
    return ERR_READ;
}

int debug_file_find(int root_fd, const char *path, const struct elf_module *m, struct elf_module *ret,
                    char ret_path[DEBUG_FILE_PATH_ROOM])
{
    struct expected want = {.id = elf_module_build_id(m)};
    const char *link;
    GElf_Word crc;

    if (find_by_build_id(root_fd, &want.id, ret, ret_path) == 0)
        return 0;
    link = dwelf_elf_gnu_debuglink(m->elf, &crc);
    if (!link || !link[0] || strchr(link, '/'))
        return ERR_READ;
    want.crc = &crc;
    return find_by_debuglink(root_fd, path, &want, link, ret, ret_path);
}

/* .gnu_debugaltlink holds a NUL-terminated path followed by the build ID. */
int debug_file_find_alt(int root_fd, const char *path, const struct elf_module *debug, struct elf_module *ret)
{
    struct expected want = {.crc = NULL};
    unsigned char *bytes;
    char file[DEBUG_FILE_PATH_ROOM];
    GElf_Shdr section;
    size_t len, name;
    int r = ERR_READ;

    if (!elf_module_section(debug, ".gnu_debugaltlink", &section) ||
        elf_module_read_section(debug, &section, DEBUG_FILE_PATH_ROOM, &bytes, &len) < 0)
        return ERR_READ;
    name = strnlen((const char *)bytes, len);
    want.id.len = len - name - (name < len);
    if (name < len && name > 0 && want.id.len > 0 && want.id.len <= BUILD_ID_MAX) {
        memcpy(want.id.bytes, bytes + name + 1, want.id.len);
        if (bytes[0] == '/')
            snprintf(file, sizeof(file), "%s", (const char *)bytes);
        else
            snprintf(file, sizeof(file), "%.*s/%s", dirname_len(path), path, (const char *)bytes);
        r = open_verified(root_fd, file, &want, ret);
        if (r < 0)
            r = find_by_build_id(root_fd, &want.id, ret, file);
    }
    free(bytes);
    return r;
}

/* Decompresses `in`, up to DECOMPRESSED_MAX bytes. */
static int decompress(const unsigned char *in, size_t len, unsigned char **ret, size_t *ret_len)
{
    lzma_stream s = LZMA_STREAM_INIT;
    size_t room = 0;
    unsigned char *out = NULL;
    lzma_ret r = lzma_stream_decoder(&s, LZMA_MEMORY_MAX, 0);

    s.next_in = in;
    s.avail_in = len;
    while (r == LZMA_OK) {
        if (s.avail_out == 0) {
            size_t more = room ? room * 2 : (size_t)1 << 18;
            unsigned char *grown = more <= DECOMPRESSED_MAX ? realloc(out, more) : NULL;

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

int debug_file_open_minidebug(const struct elf_module *m, struct elf_module *ret)
{
    unsigned char *compressed, *decompressed;
    GElf_Shdr section;
    size_t len, decompressed_len;
    int r;

    if (!elf_module_section(m, ".gnu_debugdata", &section) ||
        elf_module_read_section(m, &section, COMPRESSED_MAX, &compressed, &len) < 0)
        return ERR_READ;
    r = decompress(compressed, len, &decompressed, &decompressed_len);
    free(compressed);
    return r < 0 ? r : elf_module_open_image(decompressed, decompressed_len, ret);
}
