/*
 * Recognises the container that a process runs in by its cgroup paths.
 */
#ifndef TARGET_CONTAINER_H
#define TARGET_CONTAINER_H

#include <stdbool.h>
#include <sys/types.h>

struct container {
    const char *runtime; /* "docker", "podman", "containerd", "cri-o", "kubernetes", "lxc", "nspawn" or "unknown" */
    char id[72];         /* 64 hex digits or a name; printable */
    bool in_pod;         /* in a Kubernetes pod */
};

/* Parses the text of /proc/PID/cgroup. False if it names no container. */
bool container_parse(const char *cgroup, struct container *ret);
bool container_of(pid_t pid, struct container *ret);

/* The evidence that we run in a container: "/.dockerenv", "/run/.containerenv", "Kubernetes" or "its control group";
 * NULL if there is none. */
const char *container_evidence(void);
/* True if we run in a Kubernetes pod. */
bool container_in_pod(void);

#endif
