/*
 * Formats, limits and writes the lines of the log.
 */
#include "base/log.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Escaped, a byte takes up to four: a line of any text fits into LOG_LINE_MAX. */
#define MESSAGE_MAX 960

#define PROBES       8
#define KEY_ALL      UINT64_MAX /* the site that counts the lines of all keys */
#define BURST        5
#define PAUSE_NS     NS_PER_S
#define BURST_ALL    200
#define PAUSE_ALL_NS (50 * NS_PER_MS)

struct log_state log_state;

static const char *const names[LOG_LEVELS] = {[LOG_LEVEL_ERROR] = "error",
                                              [LOG_LEVEL_WARNING] = "warning",
                                              [LOG_LEVEL_INFO] = "info",
                                              [LOG_LEVEL_DEBUG] = "debug"};
static const char *const titles[LOG_LEVELS] = {
    [LOG_LEVEL_ERROR] = "ERROR", [LOG_LEVEL_WARNING] = "WARN", [LOG_LEVEL_INFO] = "INFO", [LOG_LEVEL_DEBUG] = "DEBUG"};

const char *log_level_name(enum log_level level)
{
    return level < LOG_LEVELS ? names[level] : NULL;
}

enum log_level log_level_by_name(const char *name)
{
    for (enum log_level level = LOG_LEVEL_ERROR; level < LOG_LEVELS; level++)
        if (strcmp(names[level], name) == 0)
            return level;
    return LOG_LEVEL_OFF;
}

/* The progress line is drawn on the same terminals (ui/progress.c). */
static bool shows_progress(int fd)
{
    const char *term = secure_getenv("TERM");

    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

void log_start(enum log_level level, int fd)
{
    log_state = (struct log_state){.level = level, .fd = fd, .erases = level && shows_progress(fd)};
}

void log_redirect(int fd)
{
    log_state.fd = fd;
    log_state.dropped = 0;
    if (fd < 0)
        log_state.level = LOG_LEVEL_OFF;
}

/* Cuts the text to MESSAGE_MAX bytes. A multi-byte character at the end may be incomplete and is dropped. */
static void format_message(char message[MESSAGE_MAX + 4], const char *fmt, va_list args)
{
    int len = vsnprintf(message, MESSAGE_MAX, fmt, args);
    size_t end = MESSAGE_MAX - 1;

    if (len < MESSAGE_MAX)
        return;
    while (end > 0 && ((unsigned char)message[end - 1] & 0xc0) == 0x80)
        end--;
    if (end > 0 && (unsigned char)message[end - 1] >= 0xc0)
        end--;
    memcpy(message + end, "...", 4);
}

/* "14:03:21.042 DEBUG pause: ". On a terminal it erases the progress line first, which is redrawn within 100 ms. */
static void put_head(FILE *out, enum log_level level, const char *area)
{
    struct timespec now = {0};
    struct tm tm = {0};

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    fprintf(out, "%s%02d:%02d:%02d.%03ld %s %s: ", log_state.erases ? "\r\033[K" : "", tm.tm_hour, tm.tm_min, tm.tm_sec,
            now.tv_nsec / 1000000, titles[level], area);
}

/* After a line that was dropped the next one does not wait. */
static bool is_writable(void)
{
    struct pollfd p = {.fd = log_state.fd, .events = POLLOUT};
    int n;

    do
        n = poll(&p, 1, log_state.dropped ? 0 : LOG_WAIT_MS);
    while (n < 0 && errno == EINTR);
    return n == 1 && p.revents & POLLOUT;
}

static void put_line(const char *line, size_t len)
{
    bool done = is_writable() && write(log_state.fd, line, len) == (ssize_t)len;

    log_state.dropped = done ? 0 : log_state.dropped + 1;
}

void log_pass_on(const char *lines, size_t len)
{
    if (log_is_on(LOG_LEVEL_ERROR))
        put_line(lines, len);
}

/* `suppressed`: lines like this one that were not written. */
static void write_line(enum log_level level, const char *area, const char *message, uint64_t suppressed)
{
    char line[LOG_LINE_MAX + 1];
    FILE *out = fmemopen(line, sizeof(line), "w");
    long len;

    if (!out)
        return;
    put_head(out, level, area);
    text_print_safe(out, message);
    if (suppressed)
        fprintf(out, " (and %llu times more)", (unsigned long long)suppressed);
    if (log_state.dropped)
        fprintf(out, " (%llu lines before this one were dropped: standard error was blocked)",
                (unsigned long long)log_state.dropped);
    fputc('\n', out);
    len = ftell(out);
    fclose(out);
    if (len > 0)
        put_line(line, (size_t)len);
}

static void write_message(enum log_level level, const char *area, uint64_t suppressed, const char *fmt, va_list args)
{
    char message[MESSAGE_MAX + 4];

    format_message(message, fmt, args);
    write_line(level, area, message, suppressed);
}

/* The site of a format and key. If its slots are taken, it replaces another site, but not one that counts all keys. */
static struct log_site *find_site(const char *format, uint64_t key)
{
    uint64_t hash = hash_mix(hash_mix(0, (uint64_t)(uintptr_t)format), key);
    struct log_site *victim = &log_state.sites[hash % LOG_SITES];

    for (unsigned i = 0; i < PROBES; i++) {
        struct log_site *site = &log_state.sites[(hash + i) % LOG_SITES];

        if (site->format == format && site->key == key)
            return site;
        if (!site->format || site->key != KEY_ALL)
            victim = site;
        if (!site->format)
            break;
    }
    *victim = (struct log_site){.format = format, .key = key};
    return victim;
}

static bool is_due(const struct log_site *site, uint64_t burst, uint64_t pause_ns, uint64_t now)
{
    return site->lines < burst || now - site->written_ns >= pause_ns;
}

/* Counts one more line of the site and of its format, or one more suppressed: then false. */
static bool take_line(struct log_site *site)
{
    struct log_site *all = find_site(site->format, KEY_ALL);
    uint64_t now = clock_now_ns();

    if (!is_due(site, BURST, PAUSE_NS, now) || !is_due(all, BURST_ALL, PAUSE_ALL_NS, now)) {
        site->suppressed++;
        return false;
    }
    site->lines++;
    all->lines++;
    site->written_ns = all->written_ns = now;
    return true;
}

static uint64_t take_suppressed(struct log_site *site)
{
    uint64_t n = site->suppressed;

    site->suppressed = 0;
    return n;
}

void log_write(enum log_level level, const char *area, const char *fmt, ...)
{
    int error = errno;
    va_list args;

    va_start(args, fmt);
    write_message(level, area, 0, fmt, args);
    va_end(args);
    errno = error;
}

void log_write_often(enum log_level level, const char *area, uint64_t key, const char *fmt, ...)
{
    struct log_site *site = find_site(fmt, key);
    int error = errno;
    va_list args;

    if (!take_line(site))
        return;
    va_start(args, fmt);
    write_message(level, area, take_suppressed(site), fmt, args);
    va_end(args);
    errno = error;
}

void log_write_changed(enum log_level level, const char *area, uint64_t key, uint64_t value, const char *fmt, ...)
{
    struct log_site *site = find_site(fmt, key);
    int error = errno;
    va_list args;

    if ((site->lines && site->value == value) || !take_line(site))
        return;
    site->value = value;
    va_start(args, fmt);
    write_message(level, area, take_suppressed(site), fmt, args);
    va_end(args);
    errno = error;
}

/* Sums over all keys of a format. */
static uint64_t take_suppressed_of(const char *format)
{
    uint64_t n = 0;

    for (size_t i = 0; i < LOG_SITES; i++)
        if (log_state.sites[i].format == format)
            n += take_suppressed(&log_state.sites[i]);
    return n;
}

void log_finish(void)
{
    for (size_t i = 0; log_is_on(LOG_LEVEL_INFO) && i < LOG_SITES; i++) {
        const char *format = log_state.sites[i].suppressed ? log_state.sites[i].format : NULL;

        if (format)
            log_info("log", "suppressed %llu more lines like: %s", (unsigned long long)take_suppressed_of(format),
                     format);
    }
    log_state.level = LOG_LEVEL_OFF;
}
