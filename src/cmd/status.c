/*
 * Events -> lines of JSON on an inherited descriptor, without ever blocking.
 */
#include "cmd/status.h"

#include "base/clock.h"
#include "out/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATUS_VERSION   1
#define SAMPLES_EVERY_NS (500 * NS_PER_MS)
#define LEAST_TEXT       16 /* bytes of a string that is cut to make its line fit */

/* How to write without blocking depends on the type of the file. */
enum status_kind { STATUS_NONBLOCKING, STATUS_SOCKET, STATUS_FILE, STATUS_POLL };

struct status {
    int fd;
    bool owned; /* `fd` is ours to close */
    enum status_kind kind;
    bool broken; /* a write failed: the reader has gone */
    bool ended;  /* the last event was sent */
    uint64_t samples_ns;
    size_t n_rest; /* bytes of a line that was written in part: the next write completes it */
    char rest[PIPE_BUF];
};

/* ---- lines ---- */

enum field_kind { FIELD_TEXT, FIELD_NUMBER, FIELD_SECONDS, FIELD_BOOL };

struct field {
    const char *name;
    enum field_kind kind;
    const char *text;
    uint64_t number;
    bool is_null;
};

#define TEXT(name, value)    ((struct field){(name), FIELD_TEXT, (value), 0, false})
#define NUMBER(name, value)  ((struct field){(name), FIELD_NUMBER, NULL, (uint64_t)(value), false})
#define SECONDS(name, value) ((struct field){(name), FIELD_SECONDS, NULL, (value), false})
#define BOOL(name, value)    ((struct field){(name), FIELD_BOOL, NULL, (value), false})
#define COUNT(array)         (sizeof(array) / sizeof((array)[0]))

/* Writes at most `limit` bytes of `text`. Returns true if that is not all of it. */
static bool put_text(FILE *out, const char *text, size_t limit)
{
    size_t n = text ? strnlen(text, limit + 1) : 0;
    char *copy;

    if (n <= limit) {
        json_string(out, text);
        return false;
    }
    for (n = limit; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
        ; /* not in the middle of a character */
    copy = strndup(text, n);
    json_string(out, copy);
    free(copy);
    return true;
}

/* Writes the event with its strings cut to `limit` bytes. */
static void write_line(FILE *out, const char *event, const struct field *fields, size_t n, size_t limit)
{
    bool cut = false;

    fprintf(out, "{\"event\":\"%s\",\"version\":%d", event, STATUS_VERSION);
    for (size_t i = 0; i < n; i++) {
        const struct field *f = &fields[i];

        fprintf(out, ",\"%s\":", f->name);
        if (f->is_null)
            fputs("null", out);
        else if (f->kind == FIELD_TEXT)
            cut |= put_text(out, f->text, limit);
        else if (f->kind == FIELD_SECONDS)
            json_seconds(out, f->number);
        else if (f->kind == FIELD_BOOL)
            fputs(f->number ? "true" : "false", out);
        else
            fprintf(out, "%" PRIu64, f->number);
    }
    fputs(cut ? ",\"truncated\":true}\n" : "}\n", out);
}

/* ---- the descriptor ---- */

static bool may_write(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return poll(&p, 1, 0) > 0;
}

/* Returns the bytes written; 0 if there is no room, or nobody reads. */
static size_t write_some(struct status *s, const char *data, size_t n)
{
    ssize_t done;

    if (s->kind == STATUS_POLL && !may_write(s->fd))
        return 0;
    do {
        if (s->kind == STATUS_SOCKET)
            done = send(s->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        else
            done = write(s->fd, data, n);
    } while (done < 0 && errno == EINTR);
    if (done < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        s->broken = true;
    return done > 0 ? (size_t)done : 0;
}

/* A pipe takes a line of up to PIPE_BUF bytes whole or not at all; a terminal or a socket may take a part of it. */
static void deliver(struct status *s, const char *line, size_t n)
{
    size_t done;

    if (s->n_rest) {
        done = write_some(s, s->rest, s->n_rest);
        s->n_rest -= done;
        memmove(s->rest, s->rest + done, s->n_rest);
    }
    if (s->n_rest || s->broken)
        return;
    done = write_some(s, line, n);
    if (done > 0 && done < n) {
        s->n_rest = n - done;
        memcpy(s->rest, line + done, s->n_rest);
    }
}

static void send_event(struct status *s, const char *event, const struct field *fields, size_t n)
{
    size_t len = SIZE_MAX;

    if (!s || s->broken)
        return;
    for (size_t limit = PIPE_BUF; len > PIPE_BUF && limit >= LEAST_TEXT; limit /= 2) {
        char *line = NULL;
        FILE *out = open_memstream(&line, &len);

        if (!out)
            return;
        write_line(out, event, fields, n, limit);
        if (fclose(out) == 0 && len <= PIPE_BUF)
            deliver(s, line, len);
        free(line);
    }
}

/* The pipe is half full. Drop samples events then, so that events that occur once, such as the end, still fit. */
static bool is_half_full(const struct status *s)
{
    int waiting = 0, size;
    socklen_t len = sizeof(size);

    if (s->n_rest)
        return true;
    if (s->kind == STATUS_SOCKET)
        return ioctl(s->fd, SIOCOUTQ, &waiting) == 0 && getsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &size, &len) == 0 &&
               waiting > size / 2;
    size = fcntl(s->fd, F_GETPIPE_SZ);
    return size > 0 && ioctl(s->fd, FIONREAD, &waiting) == 0 && waiting > size / 2;
}

/* O_NONBLOCK belongs to the open file description, which other processes share: a shell that shares its terminal with
 * us would get the flag too. So reopen a pipe or a terminal. If that is refused, poll before each write, which is
 * enough as long as nobody else writes to the same pipe. */
static void choose_way(struct status *s, int fd)
{
    char path[32];
    struct stat st;

    s->fd = fd;
    s->kind = STATUS_POLL;
    if (fstat(fd, &st) < 0)
        return;
    if (S_ISSOCK(st.st_mode)) {
        s->kind = STATUS_SOCKET;
    } else if (S_ISREG(st.st_mode)) {
        s->kind = STATUS_FILE;
    } else if (S_ISFIFO(st.st_mode) || isatty(fd)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (again >= 0) {
            s->fd = again;
            s->owned = true;
            s->kind = STATUS_NONBLOCKING;
        }
    }
}

int status_open(int fd, struct status **ret, struct error_text *text)
{
    int mode = fd < 0 ? 0 : fcntl(fd, F_GETFL);
    struct status *s;

    *ret = NULL;
    if (fd < 0)
        return 0;
    if (mode < 0 || (mode & O_ACCMODE) == O_RDONLY || (mode & O_PATH)) {
        error_text_what(text, ERR_USAGE, "--status-fd %d: this descriptor is not open%s", fd,
                        mode < 0 ? "" : " for writing");
        error_text_hint(text, "The program that starts spyglass opens it. In a shell: --status-fd 3 3>status.json");
        return ERR_USAGE;
    }
    s = calloc(1, sizeof(*s));
    if (!s)
        return ERR_NOMEM;
    choose_way(s, fd);
    /* The standard streams are the launched program's, too. */
    if (fd > STDERR_FILENO)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    *ret = s;
    return 0;
}

struct status *status_close(struct status *s)
{
    if (s && s->owned)
        close(s->fd);
    free(s);
    return NULL;
}

/* ---- events ---- */

void status_started(struct status *s, const struct status_started *e)
{
    struct field fields[] = {TEXT("program", e->program), NUMBER("profiler_pid", getpid()), TEXT("command", e->command),
                             NUMBER("pid", e->pid),       TEXT("format", e->format),        TEXT("output", e->output)};

    fields[3].is_null = !e->pid;
    send_event(s, "started", fields, COUNT(fields));
}

void status_ready(struct status *s, pid_t pid, const char *command_line, size_t processes)
{
    struct field fields[] = {NUMBER("pid", pid), TEXT("command_line", command_line), NUMBER("processes", processes)};

    fields[0].is_null = !pid;
    send_event(s, "ready", fields, COUNT(fields));
    if (s)
        s->samples_ns = clock_now_ns(); /* the first samples event comes half a second later */
}

bool status_samples_due(const struct status *s, uint64_t now_ns)
{
    return s && !s->broken && now_ns - s->samples_ns >= SAMPLES_EVERY_NS && !is_half_full(s);
}

void status_samples(struct status *s, const struct status_counts *c, uint64_t now_ns)
{
    const struct field fields[] = {SECONDS("elapsed", c->elapsed_ns), NUMBER("samples", c->samples),
                                   NUMBER("errors", c->errors), NUMBER("missed", c->missed),
                                   NUMBER("processes", c->processes)};

    if (!s)
        return;
    s->samples_ns = now_ns;
    send_event(s, "samples", fields, COUNT(fields));
}

/* The size of the output; null if it is not a file. */
static struct field bytes_of(const char *output)
{
    struct field field = NUMBER("bytes", 0);
    struct stat st;

    field.is_null = stat(output, &st) < 0 || !S_ISREG(st.st_mode);
    if (!field.is_null)
        field.number = (uint64_t)st.st_size;
    return field;
}

void status_snapshot(struct status *s, const struct status_counts *c, const char *output)
{
    const struct field fields[] = {SECONDS("elapsed", c->elapsed_ns), NUMBER("samples", c->samples),
                                   NUMBER("errors", c->errors), TEXT("output", output), bytes_of(output)};

    send_event(s, "snapshot", fields, COUNT(fields));
}

void status_finished(struct status *s, const struct status_end *end, const struct status_counts *c, const char *output)
{
    struct field fields[12];
    size_t n = 0;

    if (s)
        s->ended = true;
    if (end->reason)
        fields[n++] = TEXT("reason", end->reason);
    if (end->signal)
        fields[n++] = TEXT("signal", end->signal);
    if (c) {
        fields[n++] = SECONDS("elapsed", c->elapsed_ns);
        fields[n++] = NUMBER("samples", c->samples);
        fields[n++] = NUMBER("errors", c->errors);
        fields[n++] = NUMBER("missed", c->missed);
        fields[n++] = SECONDS("cpu_time", c->cpu_ns);
        fields[n++] = SECONDS("cpu_time_without_python", c->native_cpu_ns);
        fields[n - 1].is_null = fields[n - 2].is_null = !c->cpu_ns;
    }
    if (output) {
        fields[n++] = TEXT("output", output);
        fields[n++] = bytes_of(output);
    }
    if (end->text) {
        fields[n++] = TEXT("message", end->text->what);
        fields[n++] = TEXT("advice", end->text->hint);
    }
    send_event(s, "finished", fields, n);
}

/* Uses the text of error_text_print: its first line is the message, the rest is the advice. */
static void send_error(struct status *s, pid_t pid, int code, const struct error_text *text, bool fatal)
{
    char *message = NULL, *advice;
    size_t len = 0;
    FILE *out = s ? open_memstream(&message, &len) : NULL;

    if (!out)
        return;
    error_text_print(out, code, text);
    if (fclose(out) == 0) {
        while (len > 0 && message[len - 1] == '\n')
            message[--len] = '\0';
        advice = strchr(message, '\n');
        if (advice)
            *advice++ = '\0';
        const struct field fields[] = {TEXT("code", status_code(code)), TEXT("message", message),
                                       TEXT("advice", advice), BOOL("fatal", fatal), NUMBER("pid", pid)};
        send_event(s, "error", fields, COUNT(fields) - !pid);
    }
    free(message);
}

void status_error(struct status *s, int code, const struct error_text *text, bool fatal)
{
    send_error(s, 0, code, text, fatal);
    if (s && fatal)
        s->ended = true;
}

bool status_has_ended(const struct status *s)
{
    return s && s->ended;
}

void status_left_out(struct status *s, pid_t pid, int code, const struct error_text *text)
{
    send_error(s, pid, code, text, false);
}

const char *status_code(int code)
{
    static const char *const names[ERR_END_ - ERR_NOMEM] = {
#define NAME(code) [(code)-ERR_NOMEM]
        NAME(ERR_NOMEM) = "no_memory",
        NAME(ERR_IO) = "io",
        NAME(ERR_USAGE) = "usage",
        NAME(ERR_NO_PROCESS) = "no_process",
        NAME(ERR_NOT_PYTHON) = "not_python",
        NAME(ERR_STARTING) = "starting",
        NAME(ERR_PERMISSION) = "permission",
        NAME(ERR_VERSION) = "version",
        NAME(ERR_GONE) = "gone",
        NAME(ERR_READ) = "read",
        NAME(ERR_BOUNDS) = "bounds",
        NAME(ERR_CYCLE) = "cycle",
        NAME(ERR_TOO_DEEP) = "too_deep",
        NAME(ERR_TOO_MANY_CODES) = "too_many_functions",
        NAME(ERR_TORN) = "torn",
        NAME(ERR_STOP) = "pause",
        NAME(ERR_OUTPUT) = "output",
        NAME(ERR_DISK) = "disk",
        NAME(ERR_LAUNCH) = "launch",
        NAME(ERR_CORE) = "core",
        NAME(ERR_NO_SAMPLES) = "no_samples",
        NAME(ERR_ALL_FILTERED) = "all_filtered",
        NAME(ERR_PROFILE) = "profile",
        NAME(ERR_DUMP) = "dump",
        NAME(ERR_UNSUPPORTED) = "unsupported",
        NAME(ERR_INTERRUPTED) = "interrupted",
        NAME(ERR_NO_MATCH) = "no_match",
        NAME(ERR_INTERNAL) = "internal",
#undef NAME
    };
    bool known = code >= ERR_NOMEM && code < ERR_END_ && names[code - ERR_NOMEM];

    return known ? names[code - ERR_NOMEM] : "internal";
}
