/*
 * Access checks: synthetic facts for restrictions that no kernel here has (Yama), control groups of every runtime, and
 * the setuid guard, as far as one process can test it.
 */
#include "base/err.h"
#include "pause/access_probe.h"
#include "target/access.h"
#include "target/caps.h"
#include "target/container.h"
#include "target/run_as_user.h"
#include "target/setuid_guard.h"
#include "test.h"

#include <errno.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ALL UINT64_MAX

/* Uid 1000 reads another of its own processes. */
static struct access_facts plain_facts(void)
{
    struct access_facts f = {.pid = 4242, .same_user_ns = true, .dumpable = true, .yama = -1};

    f.self.uid_real = f.self.uid_effective = f.self.uid_saved = 1000;
    f.self.gid_real = f.self.gid_effective = f.self.gid_saved = 1000;
    f.target = f.self;
    return f;
}

static void be_uid(struct proc_status *st, uid_t uid)
{
    st->uid_real = st->uid_effective = st->uid_saved = uid;
    st->gid_real = st->gid_effective = st->gid_saved = uid;
}

static void check_reason(const struct access_facts *f, enum err_reason reason)
{
    struct err_note note = {0};

    CHECK_INT(access_judge(f, &note), ERR_PERMISSION);
    CHECK_INT(note.facts.reason, reason);
    CHECK(note.facts.pid == f->pid && note.facts.number == f->yama);
    CHECK(note.facts.uid == f->target.uid_effective && note.facts.own_uid == f->self.uid_effective);
    CHECK(note.facts.in_container == f->in_container && note.facts.in_pod == f->in_pod);
}

static void test_users(void)
{
    struct access_facts f = plain_facts();

    be_uid(&f.target, 0);
    check_reason(&f, REASON_OTHER_USER);
    f.in_container = f.in_pod = true;
    check_reason(&f, REASON_OTHER_USER);
    f = plain_facts();
    f.target.gid_saved = 7; /* a setgid program of the same user */
    check_reason(&f, REASON_OTHER_USER);
    be_uid(&f.self, 0);
    be_uid(&f.target, 1000);
    check_reason(&f, REASON_OTHER_USER);
}

static void test_yama(void)
{
    struct access_facts f = plain_facts();

    f.yama = 1;
    check_reason(&f, REASON_YAMA_CHILDREN_ONLY);
    f.in_container = true;
    check_reason(&f, REASON_YAMA_CHILDREN_ONLY);
    f.yama = 2;
    check_reason(&f, REASON_YAMA_CAPABLE_ONLY);
    f.yama = 3;
    check_reason(&f, REASON_YAMA_NONE);
    f.self.cap_eff = f.self.cap_perm = ALL;
    check_reason(&f, REASON_YAMA_NONE);
    f.yama = 2; /* does not restrict a process with the capability */
    check_reason(&f, REASON_SECURITY_MODULE);
    f.yama = 0;
    check_reason(&f, REASON_SECURITY_MODULE);
}

static void test_other_restrictions(void)
{
    struct access_facts f = plain_facts();

    f.dumpable = false;
    f.yama = 1;
    check_reason(&f, REASON_NOT_DUMPABLE);
    f = plain_facts();
    f.target.cap_perm = CAPS_ADMIN;
    check_reason(&f, REASON_MORE_CAPABILITIES);
    f = plain_facts();
    f.same_user_ns = false;
    check_reason(&f, REASON_USER_NAMESPACE);
    f = plain_facts();
    f.readv_filtered = true;
    check_reason(&f, REASON_SECCOMP);
    f = plain_facts();
    be_uid(&f.self, 0);
    be_uid(&f.target, 0);
    check_reason(&f, REASON_NOT_DUMPABLE); /* cannot tell for root's processes */
    f = plain_facts();
    f.is_setuid = true;
    be_uid(&f.target, 0);
    check_reason(&f, REASON_SETUID_NOT_OWN);
    f = plain_facts();
    f.is_setuid = true;
    f.dumpable = false;
    check_reason(&f, REASON_SETUID_NOT_OWN);
}

#define HEX "59fb1f64d19376c2625445c240dc8a0d778e0114164e2d2a42de5fc558afbb29"

static void test_containers(void)
{
    static const struct {
        const char *text, *runtime, *id;
        bool in_pod;
    } rows[] = {
        {"0::/\n", NULL, NULL, false},
        {"", NULL, NULL, false},
        {"0::", NULL, NULL, false},
        {"garbage\nwithout:colons", NULL, NULL, false},
        {"0::/user.slice/user-1000.slice/session-2.scope\n", NULL, NULL, false},
        {"0::/system.slice/docker.service\n", NULL, NULL, false},
        {"0::/process/0123456789abcdef0123456789abcdef\n", NULL, NULL, false},
        {"0::/system.slice/docker-" HEX ".scope\n", "docker", HEX, false},
        {"12:pids:/docker/" HEX "\n11:cpu:/docker/" HEX "\n0::/\n", "docker", HEX, false},
        {"0::/machine.slice/libpod-" HEX ".scope/container\n", "podman", HEX, false},
        {"0::/machine.slice/libpod-conmon-" HEX ".scope\n", NULL, NULL, false},
        {"9:name=systemd:/libpod_parent/libpod-" HEX "\n", "podman", HEX, false},
        {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b.slice/cri-containerd-" HEX ".scope\n",
         "containerd", HEX, true},
        {"0::/kubepods/besteffort/pod4f6c2f9b-1d54-4a52-9e9e-a0d3e7f6a3b1/" HEX "\n", "kubernetes", HEX, true},
        {"0::/kubepods.slice/kubepods-pod1.slice/crio-" HEX ".scope\n", "cri-o", HEX, true},
        {"0::/docker/0000000000000000000000000000000000000000000000000000000000000000/kubelet/kubepods/pod1/" HEX,
         "docker", HEX, true},
        {"0::/../" HEX "\n", "unknown", HEX, false},
        {"0::/../cri-containerd-" HEX ".scope\n", "containerd", HEX, true},
        {"0::/lxc.payload.web-1/init.scope\n", "lxc", "web-1", false},
        {"4:memory:/lxc/db\n", "lxc", "db", false},
        {"0::/machine.slice/machine-box.scope/payload\n", "nspawn", "box", false},
        {"0::/lxc/\033[31mred\n", NULL, NULL, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct container c = {.runtime = "none"};

        if (!CHECK_INT(container_parse(rows[i].text, &c), rows[i].runtime != NULL))
            fprintf(stderr, "    %s", rows[i].text);
        if (!rows[i].runtime) {
            CHECK_STR(c.runtime, "none");
            continue;
        }
        CHECK_STR(c.runtime, rows[i].runtime);
        CHECK_STR(c.id, rows[i].id);
        CHECK_INT(c.in_pod, rows[i].in_pod);
    }
}

/* A program that is not setuid gets no capability. A process that is not dumpable, or belongs to another user, is
 * not the caller's own. */
static void test_setuid_guard(void)
{
    pid_t child = access_probe_start_child();

    CHECK(!setuid_guard_active());
    CHECK_INT(setuid_guard_drop_privileges(NULL), 0);
    CHECK_INT(setuid_guard_open_mem(getpid()), -1);
    CHECK_INT(errno, EPERM);
    CHECK(!setuid_guard_seize(child));
    CHECK(!setuid_guard_is_own(0) && !setuid_guard_is_own(-1));
    if (getuid() == 0)
        CHECK(!setuid_guard_is_own(child)); /* it has capabilities */
    access_probe_end_child(child);
    CHECK(!setuid_guard_is_own(child));
}

static void test_run_as_user(void)
{
    run_as_user_begin(NULL);
    run_as_user_end(NULL);
    CHECK(run_as_user_free(NULL) == NULL);
    CHECK(run_as_user_of(getpid()) == NULL); /* it is the caller's own */
    CHECK(run_as_user_of(-1) == NULL);
}

static void test_access_probe(void)
{
    struct access_probe w;
    pid_t child = access_probe_start_child();

    access_probe_try(child, &w);
    CHECK(access_probe_can_read(&w));
    CHECK_INT(w.items[ACCESS_PROBE_PTRACE].error, 0);
    access_probe_end_child(child);
    access_probe_try(child, &w);
    CHECK(!access_probe_can_read(&w));
    for (size_t i = 0; i < ACCESS_PROBE_COUNT; i++)
        CHECK(w.items[i].name && w.items[i].use);
}

static void test_gather(void)
{
    struct access_facts f;
    pid_t child = access_probe_start_child();

    CHECK_INT(access_gather(child, &f), 0);
    CHECK(f.pid == child && f.same_user_ns && f.self.uid_real == getuid() && f.target.uid_real == getuid());
    CHECK(!f.readv_filtered && !access_ptrace_filtered());
    access_probe_end_child(child);
    CHECK(access_gather(child, &f) < 0);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_users);
    TEST_RUN(test_yama);
    TEST_RUN(test_other_restrictions);
    TEST_RUN(test_containers);
    TEST_RUN(test_setuid_guard);
    TEST_RUN(test_run_as_user);
    TEST_RUN(test_access_probe);
    TEST_RUN(test_gather);
    return test_finish("test_access");
}
