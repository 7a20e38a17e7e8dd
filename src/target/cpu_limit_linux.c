/*
 * Reads cpu.stat of cgroups: v2 has throttled_usec, v1 throttled_time in ns.
 */
#include "target/cpu_limit.h"

#include "base/clock.h"
#include "target/proc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "/sys/fs/cgroup"

static uint64_t read_stat(const char *dir)
{
    char path[PATH_MAX + 16], name[64];
    uint64_t value, ns = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/cpu.stat", dir);
    f = fopen(path, "re");
    if (!f)
        return 0;
    while (fscanf(f, "%63s %" SCNu64, name, &value) == 2)
        if (strcmp(name, "throttled_usec") == 0)
            ns = value * NS_PER_US;
        else if (strcmp(name, "throttled_time") == 0)
            ns = value;
    fclose(f);
    return ns;
}

/* A limit can be set at any level: of a container, of its pod, of a service. */
static uint64_t read_path(const char *dir)
{
    char path[PATH_MAX];
    uint64_t most = 0, ns;

    snprintf(path, sizeof(path), "%s", dir);
    while (strlen(path) >= strlen(ROOT)) {
        ns = read_stat(path);
        most = ns > most ? ns : most;
        *strrchr(path, '/') = '\0';
    }
    return most;
}

/* The directory of one line of /proc/PID/cgroup: "0::/PATH" is cgroup v2, "4:cpu,cpuacct:/PATH" is v1. A path that begins
 * with /.. is outside of our cgroup namespace. */
static bool parse_line(char *line, char dir[PATH_MAX])
{
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    const char *mount;

    if (!path || strncmp(path + 1, "/..", 3) == 0)
        return false;
    *path++ = '\0';
    names++;
    if (!*names)
        mount = ROOT;
    else if (strcmp(names, "cpu,cpuacct") == 0 || strcmp(names, "cpuacct,cpu") == 0 || strcmp(names, "cpu") == 0)
        mount = ROOT "/cpu";
    else
        return false;
    snprintf(dir, PATH_MAX, "%s%.*s", mount, PATH_MAX - 32, path);
    return true;
}

void cpu_limit_find(pid_t pid, struct cpu_limit *ret)
{
    char *text, *next, dir[PATH_MAX];
    size_t len;

    *ret = (struct cpu_limit){0};
    if (proc_read_file(pid, 0, "cgroup", &text, &len) < 0)
        return;
    for (char *line = text; line && *line; line = next) {
        uint64_t ns;

        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (!parse_line(line, dir))
            continue;
        ns = read_path(dir);
        if (!ret->dir[0] || ns > ret->before_ns) {
            memcpy(ret->dir, dir, sizeof(dir));
            ret->before_ns = ns;
        }
    }
    free(text);
}

uint64_t cpu_limit_throttled_ns(const struct cpu_limit *limit)
{
    uint64_t now_ns = limit->dir[0] ? read_path(limit->dir) : 0;

    return now_ns > limit->before_ns ? now_ns - limit->before_ns : 0;
}
