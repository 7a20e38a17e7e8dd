/*
 * The log: what spyglass finds and decides, as lines on standard error for a maintainer. It is off unless --log-level or
 * SPYGLASS_LOG turns it on.
 *
 *     log_debug("pause", "tid %d: PTRACE_SEIZE: %s", (int)tid, strerror(errno));
 *
 *     14:03:21.042 DEBUG pause: tid 4711: PTRACE_SEIZE: Operation not permitted
 *
 * While the log is off, a call costs one comparison and does not evaluate its arguments, so these may be expensive. A call
 * preserves errno.
 *
 * A line is one write(2) of at most LOG_LINE_MAX bytes. Control characters are escaped as in dump. If standard error is
 * blocked, a call waits LOG_WAIT_MS, then drops the line and counts it. Log little while a thread is paused.
 *
 * Never log what a user would not put into a public bug report: no values of variables and no environment.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_OFF, LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVELS };

#define LOG_LINE_MAX 4096 /* PIPE_BUF: lines of several processes do not mix in a pipe */
#define LOG_WAIT_MS  20
#define LOG_SITES    1024

/* One message, identified by its format and a key such as a thread ID: how often it was written. */
struct log_site {
    const char *format; /* NULL: free */
    uint64_t key;
    uint64_t value; /* log_changed: as last written */
    uint64_t lines;
    uint64_t written_ns;
    uint64_t suppressed; /* since then */
};

/* The exception to "no mutable globals": every layer logs, and passing a log down would change every signature. Only log.c
 * writes to it. Nothing but the log depends on it. */
extern struct log_state {
    enum log_level level;
    int fd;
    bool erases;      /* fd is a terminal, and the progress line may be on it */
    uint64_t dropped; /* lines, since the last one that was written */
    struct log_site sites[LOG_SITES];
} log_state;

/* `fd` stays the caller's. */
void log_start(enum log_level level, int fd);
/* Writes how many lines each rate limit has suppressed, and turns the log off. */
void log_finish(void);

/* In a forked process: writes to another descriptor, which may be -1. The parent passes the lines on. */
void log_redirect(int fd);
void log_pass_on(const char *lines, size_t len);

/* "error", "warning", "info", "debug"; NULL for LOG_LEVEL_OFF and anything else. */
const char *log_level_name(enum log_level level);
/* LOG_LEVEL_OFF if `name` is no level. */
enum log_level log_level_by_name(const char *name);

#define log_is_on(wanted) (__builtin_expect(log_state.level >= (wanted), 0))

#define log_error(area, ...) (log_is_on(LOG_LEVEL_ERROR) ? log_write(LOG_LEVEL_ERROR, area, __VA_ARGS__) : (void)0)
#define log_warning(area, ...)                                                                                         \
    (log_is_on(LOG_LEVEL_WARNING) ? log_write(LOG_LEVEL_WARNING, area, __VA_ARGS__) : (void)0)
#define log_info(area, ...)  (log_is_on(LOG_LEVEL_INFO) ? log_write(LOG_LEVEL_INFO, area, __VA_ARGS__) : (void)0)
#define log_debug(area, ...) (log_is_on(LOG_LEVEL_DEBUG) ? log_write(LOG_LEVEL_DEBUG, area, __VA_ARGS__) : (void)0)

/* For what can happen at every sample. Writes the first five lines of each `key`, a thread ID for instance, and then
 * one per second with the number of suppressed lines. All keys of a format together get 200 lines, and then 20 per
 * second. */
#define log_often(level, area, key, ...)                                                                               \
    (log_is_on(level) ? log_write_often(level, area, (uint64_t)(key), __VA_ARGS__) : (void)0)

/* For a state. Writes a line when `value` differs from the last line of this `key`, under the same limits. */
#define log_changed(level, area, key, value, ...)                                                                      \
    (log_is_on(level) ? log_write_changed(level, area, (uint64_t)(key), (uint64_t)(value), __VA_ARGS__) : (void)0)

/* Use the macros. */
__attribute__((format(printf, 3, 4))) void log_write(enum log_level level, const char *area, const char *fmt, ...);
__attribute__((format(printf, 4, 5))) void log_write_often(enum log_level level, const char *area, uint64_t key,
                                                           const char *fmt, ...);
__attribute__((format(printf, 5, 6))) void log_write_changed(enum log_level level, const char *area, uint64_t key,
                                                             uint64_t value, const char *fmt, ...);

#endif
