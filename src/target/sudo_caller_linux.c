/*
 * SUDO_UID and SUDO_GID -> the calling user with all groups. The groups are those of the process that ran
 * sudo or, if it has exited, those in /etc/group. NSS is not used: a static program cannot load it, and a
 * minimal container has none.
 */
#include "target/sudo_caller.h"

#include "base/grow.h"
#include "target/proc.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANCESTORS_MAX 16
#define GROUPS_MAX    65536 /* NGROUPS_MAX of Linux */

/* Parses a plain decimal id; rejects (uid_t)-1, which means "no change". */
static bool read_id(const char *text, uint32_t *ret)
{
    unsigned long long value;

    if (!text || !*text || strlen(text) > 10 || text[strspn(text, "0123456789")])
        return false;
    value = strtoull(text, NULL, 10);
    if (value >= UINT32_MAX)
        return false;
    *ret = (uint32_t)value;
    return true;
}

static bool add_group(struct sudo_caller *c, size_t *cap, gid_t gid)
{
    if (c->n_groups == GROUPS_MAX || grow_array((void **)&c->groups, cap, c->n_groups + 1, sizeof(*c->groups)) < 0)
        return false;
    c->groups[c->n_groups++] = gid;
    return true;
}

/* Parses the line `Groups:` of a status file. */
static bool parse_groups(struct sudo_caller *c, const char *status)
{
    const char *p = proc_status_field(status, "Groups");
    size_t cap = 0;
    char *end;

    for (p += strspn(p, " \t"); *p >= '0' && *p <= '9'; p = end + strspn(end, " \t")) {
        unsigned long gid = strtoul(p, &end, 10);

        if (gid >= UINT32_MAX || !add_group(c, &cap, (gid_t)gid))
            return false;
    }
    return true;
}

static bool groups_from_ancestor(struct sudo_caller *c)
{
    pid_t pid = getppid();
    struct proc_status st;
    struct proc_stat stat;

    for (int i = 0; i < ANCESTORS_MAX && pid > 0 && proc_status_read(pid, 0, &st) == 0; i++) {
        if (st.uid_real == c->uid && st.uid_effective == c->uid) {
            char *text;
            size_t len;
            bool found;

            if (proc_read_file(pid, 0, "status", &text, &len) < 0)
                return false;
            found = parse_groups(c, text);
            free(text);
            return found;
        }
        if (proc_stat_read(pid, 0, &stat) < 0)
            return false;
        pid = stat.parent;
    }
    return false;
}

/* Splits a line of /etc/passwd or /etc/group at the colons. */
static size_t split(char *line, char **ret, size_t max)
{
    size_t n = 0;

    line[strcspn(line, "\n")] = '\0';
    while (line && n < max)
        ret[n++] = strsep(&line, ":");
    return n;
}

/* Reads name and home directory of the uid. If it has several names, prefers $SUDO_USER. */
static void read_passwd(struct sudo_caller *c)
{
    const char *sudo_user = getenv("SUDO_USER");
    FILE *file = fopen("/etc/passwd", "re");
    char *line = NULL, *f[7];
    size_t size = 0;
    uint32_t uid;

    while (file && getline(&line, &size, file) > 0) {
        bool preferred;

        if (split(line, f, 7) < 6 || !read_id(f[2], &uid) || uid != c->uid)
            continue;
        preferred = sudo_user && strcmp(f[0], sudo_user) == 0;
        if (c->name && !preferred)
            continue;
        free(c->name);
        free(c->home);
        c->name = strdup(f[0]);
        c->home = strdup(f[5]);
        if (preferred)
            break;
    }
    free(line);
    if (file)
        fclose(file);
}

static bool is_member(char *members, const char *name)
{
    for (char *m; (m = strsep(&members, ","));)
        if (strcmp(m, name) == 0)
            return true;
    return false;
}

static void groups_from_file(struct sudo_caller *c)
{
    FILE *file = fopen("/etc/group", "re");
    char *line = NULL, *f[4];
    size_t size = 0, cap = 0;
    uint32_t gid;

    free(c->groups);
    c->groups = NULL;
    c->n_groups = 0;
    add_group(c, &cap, c->gid);
    while (file && c->name && getline(&line, &size, file) > 0)
        if (split(line, f, 4) == 4 && read_id(f[2], &gid) && gid != c->gid && is_member(f[3], c->name) &&
            !add_group(c, &cap, gid))
            break;
    free(line);
    if (file)
        fclose(file);
}

bool sudo_caller_find(struct sudo_caller *ret)
{
    struct sudo_caller c = {0};

    if (getuid() != 0 || geteuid() != 0)
        return false;
    if (!read_id(getenv("SUDO_UID"), &c.uid) || !read_id(getenv("SUDO_GID"), &c.gid) || c.uid == 0)
        return false;
    read_passwd(&c);
    if (!groups_from_ancestor(&c))
        groups_from_file(&c);
    *ret = c;
    return true;
}

void sudo_caller_free(struct sudo_caller *c)
{
    free(c->groups);
    free(c->name);
    free(c->home);
    *c = (struct sudo_caller){0};
}

int sudo_caller_switch(const struct sudo_caller *c)
{
    /* The uid goes last: without uid 0 we could not change the others. */
    if (setgroups(c->n_groups, c->groups) < 0 || setresgid(c->gid, c->gid, c->gid) < 0 ||
        setresuid(c->uid, c->uid, c->uid) < 0)
        return errno;
    if (setuid(0) == 0)
        return EPERM;
    if (c->home)
        setenv("HOME", c->home, 1);
    if (c->name) {
        setenv("USER", c->name, 1);
        setenv("LOGNAME", c->name, 1);
    }
    return 0;
}
