/*
 * Limits the size of files and dumps for Ray. Ray's dashboard passes the result on in one gRPC message of at most
 * 4 MiB and fails silently above that. The flame graph limits itself and says so in the picture; this file handles the
 * other formats.
 */
#include "cmd/size_limit.h"

#include "profile/profile.h"
#include "target/proc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_RAY    ((size_t)3900000) /* 4 MiB less the rest of the message */
#define LIMIT_ROUNDS 40                /* each one halves the profile */
#define LIMIT_FRAMES ((size_t)4096)    /* first limit on the frames per thread of a dump that is too large */

#define LIMIT_ANCESTORS 4

size_t size_limit_of(const struct options *o)
{
    /* ray/dashboard/modules/reporter/profile_manager.py: `raw_1234_cpu_profiling.txt` */
    static const char *const endings[] = {"_cpu_profiling.txt", "_cpu_profiling.svg"};
    size_t len = o->output ? strlen(o->output) : 0;

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t n = strlen(endings[i]);

        if (len >= n && strcmp(o->output + len - n, endings[i]) == 0)
            return LIMIT_RAY;
    }
    return 0;
}

/* The limit applies if Ray's dashboard agent is one of our ancestors, perhaps with sudo in between. */
size_t size_limit_of_dump(void)
{
    pid_t pid = getppid();
    bool ray = false;

    for (int i = 0; i < LIMIT_ANCESTORS && pid > 1 && !ray; i++) {
        struct proc_stat st;
        char *command = NULL;

        if (proc_command_read(pid, &command) == 0)
            ray = strncmp(command, "ray::DashboardAgent", 19) == 0 || strstr(command, "/ray/dashboard/agent.py");
        free(command);
        pid = proc_stat_read(pid, 0, &st) == 0 ? st.parent : 0;
    }
    return ray ? LIMIT_RAY : 0;
}

/* Writes the profile to memory: *ret_len bytes at *ret. */
static int write_text(const struct format *format, const struct profile *p, const struct out_options *options,
                      char **ret, size_t *ret_len)
{
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);
    int r;

    if (!mem)
        return ERR_NOMEM;
    r = format->write(p, options, mem);
    if (fclose(mem) != 0 && r == 0)
        r = ERR_NOMEM;
    if (r < 0) {
        free(text);
        return r;
    }
    *ret = text;
    *ret_len = len;
    return 0;
}

int size_limit_write(const struct format *format, struct profile *p, const struct out_options *options, size_t limit,
                     FILE *out)
{
    struct out_options shown = *options;
    char *text = NULL;
    size_t len = 0;
    int r;

    if (!limit)
        return format->write(p, options, out);
    r = write_text(format, p, &shown, &text, &len);
    for (int i = 0; r == 0 && len > limit && i < LIMIT_ROUNDS; i++) {
        free(text);
        text = NULL;
        if (shown.each_sample) { /* equal samples in a row can share an entry: that loses nothing */
            shown.each_sample = false;
        } else {
            shown.remark = "reduced to stay below 4 MiB: rare calls are folded into their callers";
            r = profile_shrink(p);
        }
        if (r == 0)
            r = write_text(format, p, &shown, &text, &len);
    }
    if (r == 0)
        fwrite(text, 1, len, out);
    free(text);
    return r;
}

size_t size_limit_dump(const struct proc_info *process, const struct trace *traces, size_t n_traces,
                       const struct dump_options *options, bool first, size_t share, FILE *out)
{
    struct dump_options shown = *options;
    char *text = NULL;
    size_t len = 0;

    for (;;) {
        FILE *mem = open_memstream(&text, &len);

        if (!mem)
            return 0;
        dump_text(process, traces, n_traces, &shown, first, mem);
        if (fclose(mem) != 0 || len <= share || shown.max_frames == 2)
            break;
        shown.max_frames = shown.max_frames ? shown.max_frames / 2 : LIMIT_FRAMES;
        free(text);
        text = NULL;
    }
    fwrite(text, 1, len, out);
    free(text);
    return len;
}
