/*
 * A pid -> its user's ids, for us to take and to give back. Called by sample/process.c around all that reads a process.
 *
 * The kernel compares our real ids with all of the target's (ptrace(2), "Ptrace access mode checking"), so the real ones
 * change too. Our saved user id stays root's: by it we come back, and for it the other user cannot trace us.
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
    gid_t gid, own_gid;
    struct groups groups, own_groups;
    uint64_t caps;
    bool is_on;
};

static bool ids_are_one(const struct proc_status *st)
{
    return st->uid_real == st->uid_effective && st->uid_real == st->uid_saved && st->gid_real == st->gid_effective &&
           st->gid_real == st->gid_saved;
}

/* Those beyond the room are left out: they matter for files only. */
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
    struct run_as_user *b = calloc(1, sizeof(*b));
    int n;

    if (!b)
        return NULL;
    b->uid = st->uid_real;
    b->gid = st->gid_real;
    b->own_gid = getgid();
    b->caps = caps_permitted();
    read_groups(pid, &b->groups);
    n = getgroups(GROUPS_MAX, b->own_groups.items);
    b->own_groups.n = n > 0 ? (size_t)n : 0;
    return b;
}

struct run_as_user *run_as_user_of(pid_t pid)
{
    struct proc_status st;

    if (geteuid() != 0 || getuid() != 0 || caps_effective() & CAPS_PTRACE)
        return NULL;
    if (proc_status_read(pid, 0, &st) < 0 || !ids_are_one(&st) || (st.uid_real == 0 && st.gid_real == getgid()))
        return NULL;
    log_info("access", "root without CAP_SYS_PTRACE: reading pid %d as uid %u, gid %u", (int)pid, (unsigned)st.uid_real,
             (unsigned)st.gid_real);
    return run_as_user_new(pid, &st);
}

struct run_as_user *run_as_user_free(struct run_as_user *b)
{
    free(b);
    return NULL;
}

static bool take_groups(const struct run_as_user *b, const struct groups *groups, gid_t gid)
{
    return setgroups(groups->n, groups->items) == 0 && setresgid(gid, gid, b->own_gid) == 0;
}

/* Never goes on as a mixture of two users. */
static void be_root(struct run_as_user *b)
{
    b->is_on = false;
    if (setresuid(0, 0, 0) < 0 || !take_groups(b, &b->own_groups, b->own_gid))
        _exit(EXIT_FAILURE);
}

/* Where it is refused we stay who we are, and the reading then says what it lacks. The capabilities that we have are
 * put into effect again: a process that has some itself can be read only by one that has them too. */
void run_as_user_begin(struct run_as_user *b)
{
    if (!b || setgroups(b->groups.n, b->groups.items) < 0)
        return;
    b->is_on = true;
    if (!take_groups(b, &b->groups, b->gid) || setresuid(b->uid, b->uid, 0) < 0)
        be_root(b);
    else
        caps_set(b->caps, b->caps);
    log_changed(LOG_LEVEL_DEBUG, "access", b->uid, b->is_on, "acting as uid %u: %s", (unsigned)b->uid,
                b->is_on ? "done" : "refused");
}

void run_as_user_end(struct run_as_user *b)
{
    if (b && b->is_on)
        be_root(b);
}
