/*
 * Parses mountinfo (proc(5)):  36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
 */
#include "base/mounts.h"

#include "base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* File systems that only the kernel and the disks of this machine serve. Any other may wait for a process or a server: FUSE,
 * NFS, SMB, 9P, Ceph, AFS, Lustre, virtiofs, and those that we do not know. */
static const char *const local_types[] = {
    "autofs",  "bcachefs", "bpf",       "btrfs",   "cgroup", "cgroup2",  "configfs", "cramfs",     "debugfs",
    "devpts",  "devtmpfs", "efivarfs",  "erofs",   "exfat",  "ext2",     "ext3",     "ext4",       "f2fs",
    "fusectl", "hfsplus",  "hugetlbfs", "iso9660", "jfs",    "mqueue",   "msdos",    "nilfs2",     "ntfs3",
    "nsfs",    "overlay",  "proc",      "pstore",  "ramfs",  "reiserfs", "rootfs",   "securityfs", "squashfs",
    "sysfs",   "tmpfs",    "tracefs",   "udf",     "vfat",   "xfs",      "zfs",
};

static bool is_local_type(const char *type)
{
    for (size_t i = 0; i < sizeof(local_types) / sizeof(local_types[0]); i++)
        if (strcmp(local_types[i], type) == 0)
            return true;
    return false;
}

/* Spaces and the like are written as \040. */
static void unescape(char *s)
{
    char *out = s;

    for (; *s; s++)
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
            *out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 3;
        } else {
            *out++ = *s;
        }
    *out = '\0';
}

static bool parse(const char *line, struct mount *ret)
{
    unsigned major, minor;
    char type[64];
    const char *rest = strstr(line, " - ");

    _Static_assert(MOUNTS_POINT_ROOM == 1024, "the width below");
    if (!rest || sscanf(line, "%*d %*d %u:%u %*s %1023s", &major, &minor, ret->point) != 3 ||
        sscanf(rest, " - %63s", type) != 1)
        return false;
    ret->device = (uint64_t)major << 32 | minor;
    ret->is_local = is_local_type(type);
    unescape(ret->point);
    return true;
}

bool mounts_each(pid_t pid, bool (*visit)(void *arg, const struct mount *m), void *arg)
{
    char path[64] = "/proc/self/mountinfo", *line = NULL;
    size_t cap = 0;
    bool more = true;
    FILE *file;

    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    while (more && getline(&line, &cap, file) > 0) {
        struct mount m;

        if (parse(line, &m))
            more = visit(arg, &m);
    }
    free(line);
    fclose(file);
    return true;
}

bool mounts_contain(const char *dir, const char *path)
{
    size_t len = strlen(dir);

    if (len && dir[len - 1] == '/')
        len--;
    return strncmp(dir, path, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

struct search {
    uint64_t device;
    const char *path;
    bool found, by_device;
    struct mount best;
};

/* Of mounts at the same place, the last one hides the others. */
static bool consider(void *arg, const struct mount *m)
{
    struct search *s = arg;
    bool by_device = s->device && m->device == s->device;
    bool contains = s->path && mounts_contain(m->point, s->path);

    if (s->by_device ? !by_device : !by_device && !contains)
        return true;
    if (s->found && s->by_device == by_device && strlen(m->point) < strlen(s->best.point))
        return true;
    s->found = true;
    s->by_device = by_device;
    s->best = *m;
    return true;
}

bool mounts_find(pid_t pid, uint64_t device, const char *path, struct mount *ret)
{
    struct search s = {.device = device, .path = path};

    mounts_each(pid, consider, &s);
    if (s.found)
        *ret = s.best;
    return s.found;
}

/* ---- a list ---- */

static bool add_place(void *arg, const struct mount *m)
{
    struct mount_list *l = arg;
    char *point = strdup(m->point);

    if (!point || grow_array((void **)&l->items, &l->cap, l->n + 1, sizeof(*l->items)) < 0) {
        free(point);
        return false;
    }
    l->items[l->n++] = (struct mount_place){point, m->is_local};
    return true;
}

void mounts_list(pid_t pid, struct mount_list *ret)
{
    bool all_local = true;

    mounts_list_free(ret);
    mounts_each(pid, add_place, ret);
    for (size_t i = 0; i < ret->n; i++)
        all_local &= ret->items[i].is_local;
    if (all_local)
        mounts_list_free(ret);
}

/* Of mounts at the same place, the last one hides the others. */
bool mounts_are_local(const struct mount_list *l, const char *path)
{
    const struct mount_place *best = NULL;

    for (size_t i = 0; i < l->n; i++)
        if (mounts_contain(l->items[i].point, path) && (!best || strlen(l->items[i].point) >= strlen(best->point)))
            best = &l->items[i];
    return !best || best->is_local;
}

void mounts_list_free(struct mount_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i].point);
    free(l->items);
    *l = (struct mount_list){0};
}
