/*
 * group: merges the equal stacks of dumps that were written to files, on this machine or on others.
 */
#include "base/log.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/group_output.h"
#include "profile/group_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)512 << 20)
#define CHUNK          ((size_t)1 << 16)

struct group_command {
    struct groups *groups;
    struct error_text *text;
    size_t n_files, n_read, n_broken;
    bool stdin_taken;
};

/* Reads the whole file. The caller frees *ret. */
static int read_whole(int fd, const char *path, char **ret, size_t *ret_len, struct error_text *text)
{
    char *bytes = NULL, *bigger;
    size_t len = 0, cap = 0;
    ssize_t n;

    do {
        if (cap - len < CHUNK) {
            cap = 2 * cap + CHUNK;
            bigger = cap <= FILE_MAX_BYTES + CHUNK ? realloc(bytes, cap) : NULL;
            if (!bigger) {
                free(bytes);
                return cap <= FILE_MAX_BYTES + CHUNK ? ERR_NOMEM
                                                     : error_text_what(text, ERR_DUMP, "%s: larger than %zu MB",
                                                                       text_safe(path).s, FILE_MAX_BYTES >> 20);
            }
            bytes = bigger;
        }
        n = read(fd, bytes + len, cap - len);
        if (n > 0)
            len += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    if (n < 0) {
        free(bytes);
        return error_text_what(text, ERR_DUMP, "%s: %s", text_safe(path).s, strerror(errno));
    }
    *ret = bytes;
    *ret_len = len;
    return 0;
}

static int open_file(struct group_command *c, const char *path)
{
    struct stat st;
    int fd;

    if (strcmp(path, "-") == 0) {
        if (c->stdin_taken)
            return error_text_what(c->text, ERR_USAGE, "standard input (-) can only be read once");
        c->stdin_taken = true;
        fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    } else {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    }
    if (fd < 0)
        return error_text_what(c->text, ERR_DUMP, "%s: %s", text_safe(path).s, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return error_text_what(c->text, ERR_DUMP, "%s: is a directory", text_safe(path).s);
    }
    return fd;
}

/* A broken file is a note, as long as another one can be read. */
static int note_broken(struct group_command *c, const struct group_file *f, const char *path, int r)
{
    char line[32] = "";

    if (f->line)
        snprintf(line, sizeof(line), ", line %zu", f->line);
    error_text_what(c->text, r, "%s%s: %s", text_safe(path).s, line,
                    r == ERR_BOUNDS ? "too many threads, processes or names"
                    : f->why        ? f->why
                                    : err_name(r));
    error_text_hint(c->text, "group reads the output of `dump` and `dump --json`, from spyglass or py-spy.");
    c->n_broken++;
    if (c->n_files == 1 && !f->n_threads)
        return 0; /* it becomes the error */
    fprintf(stderr, "Note: %s", c->text->what);
    if (f->n_threads)
        fprintf(stderr, "; read %zu thread%s before that", f->n_threads, f->n_threads == 1 ? "" : "s");
    fputs(".\n", stderr);
    return 0;
}

static int add_file(const char *path, void *arg)
{
    struct group_command *c = arg;
    struct group_file f = {.groups = c->groups, .name = strcmp(path, "-") == 0 ? "standard input" : path};
    char *text = NULL;
    size_t len = 0;
    int fd = open_file(c, path), r;

    if (fd < 0)
        return fd;
    r = read_whole(fd, path, &text, &len, c->text);
    close(fd);
    if (r < 0)
        return r;
    r = group_file_read(&f, text, len);
    free(text);
    log_info("group", "%s: %zu threads: %s", path, f.n_threads, r < 0 ? err_name(r) : "read");
    c->n_read += f.n_threads;
    return r == ERR_DUMP || r == ERR_BOUNDS ? note_broken(c, &f, path, r) : r;
}

int cmd_group(const struct options *o)
{
    struct error_text text = {0};
    struct group_command c = {.groups = groups_new(), .text = &text, .n_files = o->n_files};
    int r = c.groups ? args_each_file(o, add_file, &c) : ERR_NOMEM;

    if (r == 0 && !c.n_read)
        r = ERR_DUMP; /* `text` is about the last file */
    if (r == 0)
        r = groups_finish(c.groups);
    if (r == 0)
        r = group_output_write(o, c.groups, &(struct groups_output){0}, &text);
    groups_free(c.groups);
    return r < 0 ? error_text_print(stderr, r, &text) : c.n_broken > 0;
}
