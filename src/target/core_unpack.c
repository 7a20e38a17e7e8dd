/*
 * Decompresses a core file into an unnamed temporary file, with holes for zeroes. systemd compresses with
 * zstd, people use gzip.
 */
#include "target/core_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define IN_BYTES  ((size_t)256 * 1024)
#define OUT_BYTES ((size_t)1024 * 1024)
#define BLOCK     ((size_t)4096)
#define MAX_BYTES ((uint64_t)1 << 40) /* holes are free, but a terabyte of them is not a core file */

enum kind { PLAIN, GZIP, ZSTD, UNSUPPORTED };

struct unpack {
    const char *path, *dir; /* the compressed file, the directory of the temporary file */
    struct err_note *note;
    int in, out;
    unsigned char *in_bytes, *out_bytes;
    uint64_t written;
    bool corrupt; /* the compressed stream is corrupt from here on */
};

static const struct compression {
    const char *magic;
    size_t len;
    enum kind kind;
    const char *program; /* the command that decompresses it */
} compressions[] = {
    {"\x1f\x8b", 2, GZIP, "gzip -d"},
    {"\x28\xb5\x2f\xfd", 4, ZSTD, "zstd -d"},
    {"\xfd\x37zXZ", 5, UNSUPPORTED, "xz -d"},
    {"BZh", 3, UNSUPPORTED, "bzip2 -d"},
    {"\x04\x22\x4d\x18", 4, UNSUPPORTED, "lz4 -d"},
};

static const struct compression *find_compression(int fd)
{
    char bytes[8] = {0};

    if (pread(fd, bytes, sizeof(bytes), 0) < 4)
        return NULL;
    for (size_t i = 0; i < sizeof(compressions) / sizeof(compressions[0]); i++)
        if (memcmp(bytes, compressions[i].magic, compressions[i].len) == 0)
            return &compressions[i];
    return NULL;
}

static int fail_write(const struct unpack *u, int error)
{
    return err_because(u->note, ERR_CORE,
                       &(struct err_facts){.reason = REASON_CORE_UNPACK,
                                           .path = u->path,
                                           .other = u->dir,
                                           .error = error,
                                           .number = (int64_t)(u->written >> 20)});
}

static bool is_zero(const unsigned char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static int write_block(struct unpack *u, const unsigned char *bytes, size_t len)
{
    size_t done = 0;

    while (!is_zero(bytes, len) && done < len) {
        ssize_t n = pwrite(u->out, bytes + done, len - done, (off_t)(u->written + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_write(u, n < 0 ? errno : ENOSPC);
        done += (size_t)n;
    }
    u->written += len;
    return 0;
}

static int write_out(struct unpack *u, size_t len)
{
    int r = 0;

    if (len > MAX_BYTES - u->written)
        return fail_write(u, EFBIG);
    for (size_t at = 0; r == 0 && at < len; at += BLOCK)
        r = write_block(u, u->out_bytes + at, len - at < BLOCK ? len - at : BLOCK);
    return r;
}

/* Reads the next piece of the compressed file; 0 at its end. */
static size_t read_in(const struct unpack *u)
{
    ssize_t n;

    do
        n = read(u->in, u->in_bytes, IN_BYTES);
    while (n < 0 && errno == EINTR);
    return n > 0 ? (size_t)n : 0;
}

/* Writes all output for the input so far. A file may consist of several gzip members. */
static int inflate_piece(struct unpack *u, z_stream *z)
{
    int r = 0, state = Z_OK;

    while (r == 0 && !u->corrupt) {
        z->next_out = u->out_bytes;
        z->avail_out = (uInt)OUT_BYTES;
        state = inflate(z, Z_NO_FLUSH);
        r = write_out(u, OUT_BYTES - z->avail_out);
        if (state == Z_STREAM_END)
            u->corrupt = inflateReset(z) != Z_OK;
        else if (state != Z_OK && state != Z_BUF_ERROR)
            u->corrupt = true;
        if (!z->avail_in && z->avail_out)
            break;
    }
    return r;
}

static int unpack_gzip(struct unpack *u)
{
    z_stream z = {0};
    int r = 0;

    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return ERR_NOMEM;
    while (r == 0 && !u->corrupt && (z.avail_in = (uInt)read_in(u)) > 0) {
        z.next_in = u->in_bytes;
        r = inflate_piece(u, &z);
    }
    inflateEnd(&z);
    return r;
}

static int zstd_piece(struct unpack *u, ZSTD_DStream *z, size_t len)
{
    ZSTD_inBuffer in = {u->in_bytes, len, 0};
    int r = 0;

    while (r == 0 && !u->corrupt) {
        ZSTD_outBuffer out = {u->out_bytes, OUT_BYTES, 0};

        u->corrupt = ZSTD_isError(ZSTD_decompressStream(z, &out, &in)) != 0;
        r = write_out(u, out.pos);
        if (in.pos == in.size && out.pos < out.size)
            break;
    }
    return r;
}

static int unpack_zstd(struct unpack *u)
{
    ZSTD_DStream *z = ZSTD_createDStream();
    size_t len;
    int r = 0;

    if (!z)
        return ERR_NOMEM;
    /* zstd --long=31 makes streams that need 2 GB of memory. The library's default limit refuses more than 128 MB. */
    while (r == 0 && !u->corrupt && (len = read_in(u)) > 0)
        r = zstd_piece(u, z, len);
    ZSTD_freeDStream(z);
    return r;
}

/* Unnamed, so it disappears when we exit, for whatever reason. */
static int open_temporary(struct unpack *u)
{
    char name[4096];
    int n;

    u->dir = secure_getenv("TMPDIR");
    if (!u->dir || !u->dir[0])
        u->dir = access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
    u->out = open(u->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (u->out >= 0)
        return 0;
    n = snprintf(name, sizeof(name), "%s/spyglass-core-XXXXXX", u->dir);
    u->out = n > 0 && (size_t)n < sizeof(name) ? mkostemp(name, O_CLOEXEC) : -1;
    if (u->out < 0)
        return fail_write(u, errno);
    unlink(name);
    return 0;
}

static int unpack_to_temporary(struct unpack *u, enum kind kind)
{
    int r = open_temporary(u);

    if (r < 0)
        return r;
    u->in_bytes = malloc(IN_BYTES);
    u->out_bytes = malloc(OUT_BYTES);
    r = !u->in_bytes || !u->out_bytes ? ERR_NOMEM : kind == GZIP ? unpack_gzip(u) : unpack_zstd(u);
    free(u->in_bytes);
    free(u->out_bytes);
    if (r == 0 && ftruncate(u->out, (off_t)u->written) < 0)
        r = fail_write(u, errno);
    return r;
}

int core_unpack(int fd, const char *path, int *ret_fd, struct err_note *note)
{
    const struct compression *compression = find_compression(fd);
    struct unpack u = {.path = path, .note = note, .in = fd, .out = -1};
    int r;

    if (!compression)
        return 0;
    struct err_facts facts = {.reason = REASON_CORE_FORMAT, .path = path, .other = compression->program};
    if (compression->kind == UNSUPPORTED)
        return err_because(note, ERR_CORE, &facts);
    r = unpack_to_temporary(&u, compression->kind);
    if (r == 0 && u.corrupt && !u.written) {
        facts.reason = REASON_CORE_CORRUPT;
        r = err_because(note, ERR_CORE, &facts);
    }
    if (r < 0) {
        if (u.out >= 0)
            close(u.out);
        return r;
    }
    close(fd);
    *ret_fd = u.out;
    return 0;
}
