/*
 * doctor: reports what this machine, container and user permit, and how to fix what is missing. Prints one fact per
 * line, or one JSON object. Tests the process given with --pid, or else a child of its own.
 */
#include "base/log.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/log_session.h"
#include "cmd/report.h"
#include "out/json.h"
#include "pause/access_probe.h"
#include "sample/process.h"
#include "target/access.h"
#include "target/caps.h"
#include "target/container.h"
#include "target/proc.h"
#include "target/run_as_user.h"
#include "target/setuid_guard.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FACTS_MAX 48

struct fact {
    const char *key;
    char text[2048];
};

struct doctor {
    const struct options *o;
    struct fact facts[FACTS_MAX];
    size_t n;
    struct access_probe ways;
    bool works;
};

__attribute__((format(printf, 3, 4))) static void tell(struct doctor *d, const char *key, const char *fmt, ...)
{
    struct fact *f = &d->facts[d->n];
    va_list args;

    if (d->n == FACTS_MAX)
        return;
    f->key = key;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, args);
    va_end(args);
    d->n++;
}

static const char *yes_no(uint64_t value)
{
    return value ? "yes" : "no";
}

/* The number in a link such as "user:[4026531837]"; 0 if it cannot be read. */
static unsigned long namespace_number(pid_t pid, const char *name)
{
    char path[64], link[64] = "";

    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    if (readlink(path, link, sizeof(link) - 1) < 0 || !strchr(link, '['))
        return 0;
    return strtoul(strchr(link, '[') + 1, NULL, 10);
}

static void tell_yama(struct doctor *d)
{
    static const char *const scopes[] = {"you can trace your own processes", "you can only trace your own children",
                                         "only with CAP_SYS_PTRACE", "no tracing until the next boot"};
    int scope = access_yama_scope();

    if (scope < 0)
        tell(d, "yama", "none");
    else
        tell(d, "yama", "ptrace_scope %d: %s", scope, scopes[scope > 3 ? 3 : scope]);
}

static void tell_container(struct doctor *d, const char *key, pid_t pid, const char *mark)
{
    struct container c;
    bool found = container_of(pid, &c);

    if (found)
        tell(d, key, "%s/%s%s", c.runtime, c.id, c.in_pod ? ", in a Kubernetes pod" : "");
    else if (mark)
        tell(d, key, "yes, detected from %s", mark);
    else
        tell(d, key, "none detected");
}

/* Shows the longest path: the first line may belong to an unused hierarchy. */
static void tell_cgroup(struct doctor *d)
{
    char *text, *save = NULL, *best = NULL;
    size_t len;

    if (proc_read_file(getpid(), 0, "cgroup", &text, &len) < 0)
        return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *path = strchr(line, ':') ? strchr(strchr(line, ':') + 1, ':') : NULL;

        if (path && (!best || strlen(path + 1) > strlen(best)))
            best = path + 1;
    }
    tell(d, "cgroup", "%s", best ? best : "none");
    free(text);
}

static void tell_ourselves(struct doctor *d)
{
    uint64_t caps = caps_effective();
    struct utsname name;

    tell(d, "version", "%s", args_version(d->o));
    if (uname(&name) == 0)
        tell(d, "kernel", "%s %s %s", name.sysname, name.release, name.machine);
    tell(d, "user", "uid %u, gid %u", (unsigned)getuid(), (unsigned)getgid());
    tell(d, "capabilities", "%016llx: CAP_SYS_PTRACE %s, CAP_SYS_ADMIN %s, CAP_SETUID %s, CAP_SETGID %s",
         (unsigned long long)caps, yes_no(caps & CAPS_PTRACE), yes_no(caps & CAPS_ADMIN), yes_no(caps & CAPS_SETUID),
         yes_no(caps & CAPS_SETGID));
    tell(d, "setuid", "%s",
         setuid_guard_active() ? "yes: spyglass only reads processes of the calling user"
                               : "no, and no file capabilities");
}

/* What the kernel reports in /proc. */
static void tell_limits(struct doctor *d)
{
    struct proc_status st = {0};

    proc_status_read(getpid(), 0, &st);
    tell_yama(d);
    tell(d, "seccomp", "%s%s%s",
         st.seccomp == 2   ? "filter"
         : st.seccomp == 1 ? "strict"
                           : "none",
         access_readv_filtered() ? "; process_vm_readv is blocked" : "",
         access_ptrace_filtered() ? "; ptrace is blocked" : "");
    tell(d, "no_new_privs", "%s", yes_no((uint64_t)st.no_new_privs));
    tell(d, "namespaces", "user %lu, pid %lu, mnt %lu", namespace_number(getpid(), "user"),
         namespace_number(getpid(), "pid"), namespace_number(getpid(), "mnt"));
    tell_cgroup(d);
    tell_container(d, "container", getpid(), container_evidence());
}

static void tell_ways(struct doctor *d)
{
    for (size_t i = 0; i < ACCESS_PROBE_COUNT; i++) {
        const struct access_method *w = &d->ways.items[i];

        if (w->error)
            tell(d, w->name, "unavailable (%s): %s", strerror(w->error), w->use);
        else
            tell(d, w->name, "ok: %s", w->use);
    }
}

static const char *ours(pid_t pid, const char *name)
{
    return proc_same_namespace(pid, name) ? "same" : "different";
}

static void tell_tracer(struct doctor *d, const struct proc_status *st)
{
    char *command = NULL;

    if (!st->tracer)
        return;
    proc_command_read(st->tracer, &command);
    tell(d, "process tracer", "process %d: %s", (int)st->tracer, command ? command : "?");
    free(command);
}

static void tell_process(struct doctor *d, pid_t pid)
{
    struct access_facts f;
    char *command = NULL;

    if (access_gather(pid, &f) < 0)
        return;
    proc_command_read(pid, &command);
    tell(d, "process", "%d: %s", (int)pid, command ? command : "?");
    free(command);
    tell(d, "process user", "uid %u, %u, %u; gid %u, %u, %u (real, effective, saved)", (unsigned)f.target.uid_real,
         (unsigned)f.target.uid_effective, (unsigned)f.target.uid_saved, (unsigned)f.target.gid_real,
         (unsigned)f.target.gid_effective, (unsigned)f.target.gid_saved);
    tell(d, "process capabilities", "%016llx", (unsigned long long)f.target.cap_perm);
    tell(d, "process namespaces", "user %s, pid %s, mnt %s", ours(pid, "user"), ours(pid, "pid"), ours(pid, "mnt"));
    if (f.target.in_pid_ns && f.target.ns_pid)
        tell(d, "process pid inside", "%d", (int)f.target.ns_pid);
    tell_container(d, "process container", pid, NULL);
    tell(d, "process dumpable", "%s", yes_no(f.dumpable));
    tell_tracer(d, &f.target);
}

static int count_trace(const struct trace *trace, void *arg)
{
    (void)trace;
    ++*(size_t *)arg;
    return 0;
}

static void tell_python(struct doctor *d, struct process *p, size_t stacks)
{
    const struct proc_info *info = process_info(p);

    tell(d, "python", "%d.%d.%d%s, found via %s", info->major, info->minor, info->patch, info->version_suffix,
         info->found_by);
    tell(d, "stacks", "%zu read", stacks);
    tell(d, "native stacks", "%s",
         d->ways.items[ACCESS_PROBE_PTRACE].error ? "no: spyglass cannot pause threads" : "yes");
}

/* Runs what dump would do, without printing the stacks. */
static void try_dump(struct doctor *d, pid_t pid)
{
    struct sampler *s = sampler_new(&(struct sampler_options){.include_idle = true, .same_core = true});
    struct err_note note = {0};
    struct error_text text = {0};
    struct process *p = NULL;
    size_t stacks = 0;
    int r = s ? process_attach(s, pid, 0, &p, &note) : ERR_NOMEM;

    error_text_explain(&text, r, &note.facts);
    if (r == 0)
        r = process_sample(p, count_trace, &stacks);
    if (p)
        tell_python(d, p, stacks);
    d->works = r == 0;
    if (r == ERR_NO_PROCESS || r == ERR_NOT_PYTHON)
        report_hint_container_pid(&text, pid);
    if (r < 0)
        error_text_complete(&text, r);
    if (r == 0)
        tell(d, "dump", "works");
    else
        tell(d, "dump", "does not work (%s): %s", err_name(r), text.what);
    if (r < 0 && text.hint[0])
        tell(d, "help", "%s", text.hint);
    log_session_counters(s, NULL);
    process_free(p);
    sampler_free(s);
}

static void examine_process(struct doctor *d, pid_t pid)
{
    struct run_as_user *user = run_as_user_of(pid);

    tell_process(d, pid);
    if (user)
        tell(d, "read as", "the user of the process, because spyglass is root without CAP_SYS_PTRACE");
    run_as_user_begin(user);
    access_probe_try(pid, &d->ways);
    run_as_user_end(user);
    run_as_user_free(user);
    tell_ways(d);
    try_dump(d, pid);
}

static const char capability_help[] =
    "reading processes of other users requires CAP_SYS_PTRACE: docker run --cap-add SYS_PTRACE …, or in a pod "
    "securityContext: "
    "{capabilities: {add: [SYS_PTRACE]}}, or kubectl debug -it POD --image=IMAGE --target=CONTAINER --profile=general";

/* Explains what prevents access to processes that are not our children. */
static void tell_help(struct doctor *d)
{
    bool capable = caps_effective() & CAPS_PTRACE;
    int yama = setuid_guard_active() ? 0 : access_yama_scope();

    if (yama > 2)
        tell(d, "help",
             "Yama forbids tracing until the next boot: set kernel.yama.ptrace_scope = 1 in /etc/sysctl.d and reboot");
    else if (!capable && yama > 0)
        tell(d, "help", "Yama restricts tracing: run sudo sysctl kernel.yama.ptrace_scope=0%s",
             yama == 1 ? ", or launch the program with record -- PROGRAM" : "");
    else if (!capable && container_evidence())
        tell(d, "help", "%s", capability_help);
    else if (!capable)
        tell(d, "help", "reading processes of other users requires root: sudo env \"PATH=$PATH\" %s …",
             program_invocation_short_name);
    if (access_ptrace_filtered())
        tell(d, "help native",
             "seccomp blocks ptrace, which native stacks require: use a profile that allows it, for example docker run "
             "--cap-add SYS_PTRACE …");
}

static void examine_child(struct doctor *d)
{
    pid_t child = access_probe_start_child();

    tell(d, "tried on", "a child of spyglass; use --pid PID to test another process");
    if (child > 0)
        access_probe_try(child, &d->ways);
    access_probe_end_child(child);
    tell_ways(d);
    d->works = child > 0 && access_probe_can_read(&d->ways);
    tell(d, "dump", d->works ? "works for processes that you can trace" : "does not work: spyglass cannot read memory");
    tell_help(d);
}

static void tell_bad_proc(struct doctor *d, const struct err_note *note)
{
    struct error_text text = {0};

    error_text_explain(&text, ERR_UNSUPPORTED, &note->facts);
    tell(d, "dump", "does not work: %s", text.what);
    tell(d, "help", "%s", text.hint);
}

static void print_text(const struct doctor *d)
{
    for (size_t i = 0; i < d->n; i++) {
        printf("%s: ", d->facts[i].key);
        text_print_safe(stdout, d->facts[i].text);
        putchar('\n');
    }
}

static void print_json(const struct doctor *d)
{
    putchar('{');
    for (size_t i = 0; i < d->n; i++) {
        fputs(i ? ",\n  " : "\n  ", stdout);
        json_string(stdout, d->facts[i].key);
        fputs(": ", stdout);
        json_string(stdout, d->facts[i].text);
    }
    fputs("\n}\n", stdout);
}

int cmd_doctor(const struct options *o)
{
    struct doctor *d = calloc(1, sizeof(*d));
    struct err_note note = {0};
    bool works;

    if (!d)
        return error_text_print(stderr, ERR_NOMEM, NULL);
    d->o = o;
    tell_ourselves(d);
    if (access_check_proc(&note) < 0) {
        tell_bad_proc(d, &note);
    } else {
        tell_limits(d);
        if (o->pid)
            examine_process(d, o->pid);
        else
            examine_child(d);
    }
    if (o->json)
        print_json(d);
    else
        print_text(d);
    works = d->works;
    free(d);
    return works ? 0 : 1;
}
