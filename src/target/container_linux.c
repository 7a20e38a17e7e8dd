/*
 * Cgroup paths -> container runtime and id. The paths are conventions of the runtimes, for cgroup v1 and
 * v2, with and without systemd. They only serve for display and hints.
 */
#include "target/container.h"

#include "target/proc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ID_MIN 32 /* hex digits; Docker, podman and containerd use 64, some pods 32 */
#define ID_MAX 64

/* ADD A RUNTIME HERE: the first word found in a path wins. */
static const struct {
    const char *word, *runtime;
} runtimes[] = {
    {"libpod", "podman"},         {"cri-containerd", "containerd"}, {"crio", "cri-o"},      {"docker", "docker"},
    {"containerd", "containerd"}, {"kubepods", "kubernetes"},       {"lxc.payload", "lxc"}, {"/lxc/", "lxc"},
    {"machine-", "nspawn"},
};

static const char *runtime_in(const char *path, size_t len)
{
    for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
        if (memmem(path, len, runtimes[i].word, strlen(runtimes[i].word)))
            return runtimes[i].runtime;
    return NULL;
}

/* Takes the last run of hex digits that is long enough, since containers can be nested. */
static bool find_hex(const char *path, size_t len, struct container *ret)
{
    bool found = false;

    for (size_t i = 0, run; i < len; i += run + 1) {
        for (run = 0; i + run < len && isxdigit((unsigned char)path[i + run]); run++)
            ;
        if (run < ID_MIN || run > ID_MAX)
            continue;
        memcpy(ret->id, path + i, run);
        ret->id[run] = '\0';
        found = true;
    }
    return found;
}

/* Containers with names: /lxc/NAME, /lxc.payload.NAME, /machine.slice/machine-NAME.scope. */
static bool find_name(const char *path, size_t len, struct container *ret)
{
    static const char *const before[] = {"/lxc/", "lxc.payload.", "lxc.payload/", "machine.slice/machine-"};

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        const char *at = memmem(path, len, before[i], strlen(before[i]));
        size_t n = 0, room;

        if (!at)
            continue;
        at += strlen(before[i]);
        room = (size_t)(path + len - at);
        while (n < room && n < ID_MAX && (isalnum((unsigned char)at[n]) || strchr("-_.", at[n])))
            n++;
        memcpy(ret->id, at, n);
        ret->id[n] = '\0';
        if (n > 6 && strcmp(ret->id + n - 6, ".scope") == 0)
            ret->id[n - 6] = '\0';
        return n > 0;
    }
    return false;
}

static bool parse_path(const char *path, size_t len, struct container *ret)
{
    struct container c = {.runtime = runtime_in(path, len)};

    /* conmon, podman's monitor, runs outside of the container. */
    if (memmem(path, len, "conmon", 6) || !(c.runtime || memmem(path, len, "/../", 4)))
        return false;
    if (!find_hex(path, len, &c) && !find_name(path, len, &c))
        return false;
    c.in_pod = memmem(path, len, "kubepods", 8) || memmem(path, len, "cri-", 4) || memmem(path, len, "crio", 4);
    if (!c.runtime)
        c.runtime = "unknown";
    *ret = c;
    return true;
}

bool container_parse(const char *cgroup, struct container *ret)
{
    const char *end;

    for (const char *line = cgroup; *line; line = *end ? end + 1 : end) {
        const char *colon = strchr(line, ':');

        end = strchrnul(line, '\n');
        colon = colon && colon < end ? memchr(colon + 1, ':', (size_t)(end - colon - 1)) : NULL;
        if (colon && parse_path(colon + 1, (size_t)(end - colon - 1), ret))
            return true;
    }
    return false;
}

bool container_of(pid_t pid, struct container *ret)
{
    char *text;
    size_t len;
    bool found;

    if (proc_read_file(pid, 0, "cgroup", &text, &len) < 0)
        return false;
    found = container_parse(text, ret);
    free(text);
    return found;
}

bool container_in_pod(void)
{
    struct container c;

    return secure_getenv("KUBERNETES_SERVICE_HOST") || access("/var/run/secrets/kubernetes.io", F_OK) == 0 ||
           (container_of(getpid(), &c) && c.in_pod);
}

const char *container_evidence(void)
{
    struct container c;

    if (access("/.dockerenv", F_OK) == 0)
        return "/.dockerenv";
    if (access("/run/.containerenv", F_OK) == 0)
        return "/run/.containerenv";
    if (container_in_pod())
        return "Kubernetes";
    return container_of(getpid(), &c) ? "its cgroup" : NULL;
}
