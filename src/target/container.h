/*
 * Which container a process is in, as far as the paths of its control groups tell.
 *
 *     struct container c;
 *     if (container_of(pid, &c))
 *         printf("%s/%s\n", c.runtime, c.id);     // "podman/59fb1f64d193…"
 */
#ifndef TARGET_CONTAINER_H
#define TARGET_CONTAINER_H

#include <stdbool.h>
#include <sys/types.h>

struct container {
    const char *runtime; /* "docker", "podman", "containerd", "cri-o", "kubernetes", "lxc", "nspawn" or "unknown" */
    char id[72];         /* 64 hex digits, or a name; printable */
    bool in_pod;         /* of Kubernetes */
};

/* From the text of /proc/PID/cgroup. False when no container is named there. */
bool container_parse(const char *cgroup, struct container *ret);
bool container_of(pid_t pid, struct container *ret);

/* Marks that a runtime leaves for those inside: "/.dockerenv", "/run/.containerenv", "KUBERNETES_SERVICE_HOST", or
 * what the control groups tell; NULL when there is none. */
const char *container_mark(void);
/* True when we are in a pod of Kubernetes. */
bool container_in_pod(void);

#endif
