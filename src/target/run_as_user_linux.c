/*
 * Takes on the ids of a process's user, and returns to root.
 *
 * The kernel compares our real ids with all ids of the target (ptrace(2), "Ptrace access mode checking"),
 * so the real ids change, too. The saved user id stays root's: it lets us return, and it keeps the other
 * user from tracing us.
 */
#include "target/run_as_user.h"

#include "base/err.h"
#include "base/log.h"
#include "target/caps.h"
#include "target/proc.h"

#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUPS_MAX 1024

struct groups {
    gid_t items[GROUPS_MAX];
    size_t n;
};

struct run_as_user {
    uid_t uid;
    gid_t gid, root_gid;
    struct groups groups, root_groups;
    uint64_t caps;
    bool active;
};

static bool has_one_identity(const struct proc_status *st)
{
    return st->uid_real == st->uid_effective && st->uid_real == st->uid_saved && st->gid_real == st->gid_effective &&
           st->gid_real == st->gid_saved;
}

/* Ignores groups beyond the limit: they only matter for files. */
static void read_groups(pid_t pid, struct groups *ret)
{
    char *text, *end;
    const char *p;
    size_t len;

    ret->n = 0;
    if (proc_read_file(pid, 0, "status", &text, &len) < 0)
        return;
    for (p = proc_status_field(text, "Groups"); ret->n < GROUPS_MAX; p = end) {
        unsigned long gid;

        p += strspn(p, " \t");
        gid = strtoul(p, &end, 10);
        if (end == p || *p == '\n')
            break;
        ret->items[ret->n++] = (gid_t)gid;
    }
    free(text);
}

static struct run_as_user *run_as_user_new(pid_t pid, const struct proc_status *st)
{
    struct run_as_user *u = calloc(1, sizeof(*u));
    int n;

    if (!u)
        return NULL;
    u->uid = st->uid_real;
    u->gid = st->gid_real;
    u->root_gid = getgid();
    u->caps = caps_permitted();
    read_groups(pid, &u->groups);
    n = getgroups(GROUPS_MAX, u->root_groups.items);
    u->root_groups.n = n > 0 ? (size_t)n : 0;
    return u;
}

struct run_as_user *run_as_user_of(pid_t pid)
{
    struct proc_status st;

    if (geteuid() != 0 || getuid() != 0 || caps_effective() & CAPS_PTRACE)
        return NULL;
    if (proc_status_read(pid, 0, &st) < 0 || !has_one_identity(&st) || (st.uid_real == 0 && st.gid_real == getgid()))
        return NULL;
    log_info("access", "root without CAP_SYS_PTRACE: reading pid %d as uid %u, gid %u", (int)pid, (unsigned)st.uid_real,
             (unsigned)st.gid_real);
    return run_as_user_new(pid, &st);
}

struct run_as_user *run_as_user_free(struct run_as_user *u)
{
    free(u);
    return NULL;
}

static bool set_groups(const struct run_as_user *u, const struct groups *groups, gid_t gid)
{
    return setgroups(groups->n, groups->items) == 0 && setresgid(gid, gid, u->root_gid) == 0;
}

/* Never continue with the ids of two users mixed. */
static void become_root(struct run_as_user *u)
{
    u->active = false;
    if (setresuid(0, 0, 0) < 0 || !set_groups(u, &u->root_groups, u->root_gid))
        _exit(EXIT_FAILURE);
}

/* If the switch fails we stay root, and reading reports what is missing. Makes our permitted capabilities effective
 * again: only a process with the same capabilities may read a process that has some. */
void run_as_user_begin(struct run_as_user *u)
{
    if (!u || setgroups(u->groups.n, u->groups.items) < 0)
        return;
    u->active = true;
    if (!set_groups(u, &u->groups, u->gid) || setresuid(u->uid, u->uid, 0) < 0)
        become_root(u);
    else
        caps_set(u->caps, u->caps);
    log_changed(LOG_LEVEL_DEBUG, "access", u->uid, u->active, "acting as uid %u: %s", (unsigned)u->uid,
                u->active ? "done" : "refused");
}

void run_as_user_end(struct run_as_user *u)
{
    if (u && u->active)
        become_root(u);
}
