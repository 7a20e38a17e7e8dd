/*
 * Reads and parses /proc. Keeps no state.
 */
#include "target/proc.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/helper.h"
#include "base/utf8.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define COMMAND_MAX    ((size_t)128 * 1024)       /* the maximum length of a single argument */
#define FILE_MAX_BYTES ((size_t)64 * 1024 * 1024) /* a maps file of half a million lines */

static int code_from_errno(void)
{
    if (errno == ENOENT || errno == ESRCH)
        return ERR_NO_PROCESS;
    if (errno == EACCES || errno == EPERM)
        return ERR_PERMISSION;
    return errno == ENOMEM ? ERR_NOMEM : ERR_IO;
}

static int read_all(int fd, char **ret_text, size_t *ret_len)
{
    char *text = NULL;
    size_t len = 0, cap = 0;
    ssize_t got;

    do {
        if (len >= FILE_MAX_BYTES || grow_array((void **)&text, &cap, len + 4096, 1) < 0) {
            free(text);
            return ERR_NOMEM;
        }
        got = read(fd, text + len, cap - len - 1);
        if (got > 0)
            len += (size_t)got;
    } while (got > 0 || (got < 0 && errno == EINTR));
    if (got < 0) {
        int r = code_from_errno();

        free(text);
        return r;
    }
    text[len] = '\0';
    *ret_text = text;
    *ret_len = len;
    return 0;
}

static int read_and_close(int fd, char **ret_text, size_t *ret_len)
{
    int r;

    if (fd < 0)
        return code_from_errno();
    r = read_all(fd, ret_text, ret_len);
    close(fd);
    return r;
}

int proc_read_file(pid_t pid, pid_t tid, const char *name, char **ret_text, size_t *ret_len)
{
    char path[128];
    int fd;

    if (tid)
        snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
    else
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    /* A signal interrupts open(2) where a seccomp supervisor decides about it. */
    do
        fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    return read_and_close(fd, ret_text, ret_len);
}

/* Parses the numbers of a stat line after the state; ignores signs. */
static size_t stat_numbers(const char *p, uint64_t *ret, size_t max)
{
    size_t n = 0;
    char *end;

    for (; n < max; p = end) {
        p += strspn(p, " -");
        ret[n] = strtoull(p, &end, 10);
        if (end == p)
            break;
        n++;
    }
    return n;
}

/* If we may not trace the process, the kernel hides the addresses. Use the name instead. */
static uint64_t stat_image(const char *name, size_t name_len, uint64_t code, uint64_t stack, uint64_t heap)
{
    if (!code)
        return 0;
    if (code == 1 && !stack)
        return hash_bytes(name, name_len) | 1;
    return hash_mix(hash_mix(hash_mix(0, code), stack), heap) | 1;
}

/* proc(5): the parent is field 4. */
#define STAT_FIELD(number) ((number)-4)

#define PF_KTHREAD 0x00200000 /* in field 9, the flags; from the kernel's include/linux/sched.h */

/* The name in a stat line may contain anything, even ") R 1", so parse from the last parenthesis. */
int proc_stat_parse(const char *text, struct proc_stat *ret)
{
    uint64_t f[STAT_FIELD(48)] = {0};
    const char *p = strrchr(text, ')');

    if (!p || p[1] != ' ' || !p[2] || stat_numbers(p + 3, f, sizeof(f) / sizeof(f[0])) <= STAT_FIELD(22))
        return ERR_NO_PROCESS;
    *ret = (struct proc_stat){
        .state = p[2],
        .parent = (pid_t)f[STAT_FIELD(4)],
        .group = (pid_t)f[STAT_FIELD(5)],
        .session = (pid_t)f[STAT_FIELD(6)],
        .is_kernel_thread = f[STAT_FIELD(9)] & PF_KTHREAD,
        .start_time = f[STAT_FIELD(22)],
        .image = stat_image(text, (size_t)(p - text), f[STAT_FIELD(26)], f[STAT_FIELD(28)], f[STAT_FIELD(47)])};
    return 0;
}

static int read_stat(pid_t pid, pid_t tid, struct proc_stat *ret)
{
    char *text;
    size_t len;
    int r = proc_read_file(pid, tid, "stat", &text, &len);

    if (r < 0)
        return r;
    r = proc_stat_parse(text, ret);
    free(text);
    return r;
}

/* Finds a thread that is alive in a process whose main thread has ended. */
static bool find_live_thread(pid_t pid, pid_t *ret_tid, struct proc_stat *ret)
{
    pid_t *tids;
    size_t n;
    bool found = false;

    if (proc_tasks_read(pid, &tids, &n) < 0)
        return false;
    for (size_t i = 0; i < n && !found; i++) {
        found = tids[i] != pid && read_stat(pid, tids[i], ret) == 0 && ret->state != 'Z' && ret->state != 'X';
        *ret_tid = tids[i];
    }
    free(tids);
    return found;
}

int proc_stat_read(pid_t pid, pid_t tid, struct proc_stat *ret)
{
    struct proc_stat st, live;
    pid_t other;
    int r = read_stat(pid, tid, &st);

    if (r < 0)
        return r;
    if (!tid && st.state == 'Z' && find_live_thread(pid, &other, &live)) {
        st.state = live.state;
        st.image = live.image;
    }
    *ret = st;
    return 0;
}

pid_t proc_live_thread(pid_t pid)
{
    struct proc_stat st;
    pid_t tid;

    return read_stat(pid, 0, &st) == 0 && st.state == 'Z' && find_live_thread(pid, &tid, &st) ? tid : pid;
}

uint64_t proc_clock_ticks(void)
{
    uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK);
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * ticks + (uint64_t)now.tv_nsec / (NS_PER_S / ticks);
}

bool proc_is_alive(pid_t pid, uint64_t start_time)
{
    struct proc_stat st;
    int r = proc_stat_read(pid, 0, &st);

    return r < 0 ? r != ERR_NO_PROCESS : st.start_time == start_time && st.state != 'Z' && st.state != 'X';
}

const char *proc_status_field(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            return line + len + 1;
    }
    return "";
}

static void status_parse(const char *text, struct proc_status *st)
{
    sscanf(proc_status_field(text, "Uid"), "%u %u %u", &st->uid_real, &st->uid_effective, &st->uid_saved);
    sscanf(proc_status_field(text, "Gid"), "%u %u %u", &st->gid_real, &st->gid_effective, &st->gid_saved);
    sscanf(proc_status_field(text, "Tgid"), "%d", &st->process);
    sscanf(proc_status_field(text, "TracerPid"), "%d", &st->tracer);
    st->cap_eff = strtoull(proc_status_field(text, "CapEff"), NULL, 16);
    st->cap_perm = strtoull(proc_status_field(text, "CapPrm"), NULL, 16);
    sscanf(proc_status_field(text, "Seccomp"), "%d", &st->seccomp);
    sscanf(proc_status_field(text, "NoNewPrivs"), "%d", &st->no_new_privs);
}

bool proc_same_namespace(pid_t pid, const char *name)
{
    char path[64], ours[64] = "", theirs[64] = "";

    snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
    if (readlink(path, ours, sizeof(ours) - 1) < 0)
        return true;
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    return readlink(path, theirs, sizeof(theirs) - 1) < 0 || strcmp(ours, theirs) == 0;
}

/* Linux 4.1 added NSpid. Without it we do not know the ids in another pid namespace, and must not mistake ours for
 * them. */
static void status_read_ns(const char *text, pid_t pid, pid_t tid, struct proc_status *st)
{
    const char *field = proc_status_field(text, "NSpid"), *p = field;
    char *end;

    st->ns_pid = tid ? tid : pid;
    /* One column per nested namespace; the last is the id in the innermost. */
    for (int columns = 1; *p == '\t' || *p == ' ' || isdigit((unsigned char)*p); columns++, p = end) {
        int id = (int)strtol(p, &end, 10);

        if (end == p)
            break;
        if (columns > 1) {
            st->ns_pid = id;
            st->in_pid_ns = true;
        }
    }
    if (!*field && !proc_same_namespace(pid, "pid")) {
        st->in_pid_ns = true;
        st->ns_pid = 0;
    }
}

int proc_status_read(pid_t pid, pid_t tid, struct proc_status *ret)
{
    struct proc_status st = {0};
    char *text;
    size_t len;
    int r = proc_read_file(pid, tid, "status", &text, &len);

    if (r < 0)
        return r;
    status_parse(text, &st);
    status_read_ns(text, pid, tid, &st);
    free(text);
    *ret = st;
    return 0;
}

int proc_status_read_at(int dir, struct proc_status *ret)
{
    struct proc_status st = {0};
    char *text;
    size_t len;
    int r = read_and_close(openat(dir, "status", O_RDONLY | O_CLOEXEC), &text, &len);

    if (r < 0)
        return r;
    status_parse(text, &st);
    free(text);
    *ret = st;
    return 0;
}

int proc_stat_read_at(int dir, struct proc_stat *ret)
{
    char *text;
    size_t len;
    int r = read_and_close(openat(dir, "stat", O_RDONLY | O_CLOEXEC), &text, &len);

    if (r < 0)
        return r;
    r = proc_stat_parse(text, ret);
    free(text);
    return r;
}

static bool map_parse_line(char *line, struct proc_map *ret)
{
    unsigned long long start, end, offset, inode;
    unsigned int major, minor;
    char perms[5];
    int at = 0;
    size_t len;

    if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &start, &end, perms, &offset, &major, &minor, &inode, &at) < 7)
        return false;
    if (at == 0 || end <= start)
        return false;
    *ret = (struct proc_map){.start = start,
                             .end = end,
                             .offset = offset,
                             .readable = perms[0] == 'r',
                             .writable = perms[1] == 'w',
                             .executable = perms[2] == 'x',
                             .shared = perms[3] == 's',
                             .device = (uint64_t)major << 32 | minor,
                             .inode = inode,
                             .path = line + at};
    len = strlen(line + at);
    if (len > 10 && strcmp(line + at + len - 10, " (deleted)") == 0) {
        line[(size_t)at + len - 10] = '\0';
        ret->deleted = true;
    }
    return true;
}

int proc_maps_parse(char *text, struct proc_maps *ret)
{
    struct proc_maps maps = {.text = text};

    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (grow_array((void **)&maps.items, &maps.cap, maps.n + 1, sizeof(*maps.items)) < 0) {
            proc_maps_free(&maps);
            return ERR_NOMEM;
        }
        if (map_parse_line(line, &maps.items[maps.n]))
            maps.n++;
    }
    *ret = maps;
    return 0;
}

int proc_maps_read(pid_t pid, struct proc_maps *ret)
{
    char *text;
    size_t len;
    int r = proc_read_file(pid, 0, "maps", &text, &len);
    pid_t tid = r == 0 && !len ? proc_live_thread(pid) : pid;

    if (tid != pid) {
        free(text);
        r = proc_read_file(pid, tid, "maps", &text, &len);
    }
    return r < 0 ? r : proc_maps_parse(text, ret);
}

void proc_maps_free(struct proc_maps *maps)
{
    free(maps->items);
    free(maps->text);
    *maps = (struct proc_maps){0};
}

/* Lists the entries of a directory that are numbers. */
static int list_numbers(const char *path, pid_t **ret, size_t *ret_n)
{
    DIR *dir = opendir(path);
    pid_t *items = NULL;
    size_t n = 0, cap = 0;
    struct dirent *entry;

    if (!dir)
        return code_from_errno();
    while ((entry = readdir(dir))) {
        long value = strtol(entry->d_name, NULL, 10);

        if (value <= 0)
            continue;
        if (grow_array((void **)&items, &cap, n + 1, sizeof(*items)) < 0) {
            free(items);
            closedir(dir);
            return ERR_NOMEM;
        }
        items[n++] = (pid_t)value;
    }
    closedir(dir);
    *ret = items;
    *ret_n = n;
    return 0;
}

int proc_tasks_read(pid_t pid, pid_t **ret_tids, size_t *ret_n)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    return list_numbers(path, ret_tids, ret_n);
}

int proc_pids_read(pid_t **ret_pids, size_t *ret_n)
{
    return list_numbers("/proc", ret_pids, ret_n);
}

/* Appends the children of one thread. */
static int children_of_task(pid_t pid, pid_t tid, pid_t **items, size_t *n, size_t *cap)
{
    char *text, *end;
    size_t len;
    int r = proc_read_file(pid, tid, "children", &text, &len);

    if (r < 0)
        return r;
    for (char *p = text; *p; p = end) {
        long child = strtol(p, &end, 10);

        if (end == p)
            break;
        if (grow_array((void **)items, cap, *n + 1, sizeof(**items)) < 0) {
            free(text);
            return ERR_NOMEM;
        }
        (*items)[(*n)++] = (pid_t)child;
    }
    free(text);
    return 0;
}

/* Fallback for kernels without CONFIG_PROC_CHILDREN. */
static int children_by_parent(pid_t pid, pid_t **ret_pids, size_t *ret_n)
{
    pid_t *pids;
    size_t n, kept = 0;
    int r = proc_pids_read(&pids, &n);
    struct proc_stat st;

    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        if (proc_stat_read(pids[i], 0, &st) == 0 && st.parent == pid)
            pids[kept++] = pids[i];
    *ret_pids = pids;
    *ret_n = kept;
    return 0;
}

bool proc_has_children_file(pid_t pid)
{
    char path[96];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int proc_children_read(pid_t pid, pid_t **ret_pids, size_t *ret_n)
{
    pid_t *tids, *items = NULL;
    size_t n_tids, n = 0, cap = 0, failed = 0;
    int r = proc_tasks_read(pid, &tids, &n_tids);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n_tids; i++)
        failed += children_of_task(pid, tids[i], &items, &n, &cap) < 0;
    free(tids);
    if (failed == n_tids) {
        free(items);
        return children_by_parent(pid, ret_pids, ret_n);
    }
    *ret_pids = items;
    *ret_n = n;
    return 0;
}

static char *clean_copy(const char *text, size_t len)
{
    char *out = malloc(len * 3 + 1);

    if (out)
        out[utf8_clean(text, len, out)] = '\0';
    return out;
}

static int command_from_comm(pid_t pid, char **ret_command)
{
    char *text, *name;
    size_t len;
    int r = proc_read_file(pid, 0, "comm", &text, &len);

    if (r < 0)
        return r;
    if (len && text[len - 1] == '\n')
        text[--len] = '\0';
    name = clean_copy(text, len);
    free(text);
    if (!name)
        return ERR_NOMEM;
    r = asprintf(ret_command, "[%s]", name) < 0 ? ERR_NOMEM : 0;
    free(name);
    return r;
}

/* In the helper. */
static int run_read_file(struct unpack *in, struct pack *out)
{
    pid_t pid = (pid_t)unpack_number(in);
    size_t max = (size_t)unpack_number(in), len;
    const char *name = unpack_text(in);
    char *text;
    int r = name ? proc_read_file(pid, 0, name, &text, &len) : ERR_IO;
    pid_t tid = r == 0 && !len ? proc_live_thread(pid) : pid;

    if (tid != pid) {
        free(text);
        r = proc_read_file(pid, tid, name, &text, &len);
    }
    if (r < 0)
        return r;
    pack_bytes(out, text, len < max ? len : max);
    free(text);
    return 0;
}

int proc_read_memory_file(pid_t pid, const char *name, size_t max, char **ret_text, size_t *ret_len)
{
    struct helper_answer answer;
    struct pack in = {0};
    const void *bytes;
    size_t len = 0;
    char *text;
    int r;

    pack_number(&in, (uint64_t)pid);
    pack_number(&in, max);
    pack_text(&in, name);
    r = helper_call(run_read_file, &in, &(struct helper_about){.pid = pid}, &answer);
    pack_free(&in);
    if (r < 0)
        return r == HELPER_STUCK || r == HELPER_DIED || r == HELPER_LATE ? ERR_IO : r;
    bytes = unpack_bytes(&answer.out, &len);
    text = malloc(len + 1);
    if (text) {
        memcpy(text, bytes ? bytes : "", len);
        text[len] = '\0';
        *ret_text = text;
        *ret_len = len;
    }
    helper_answer_free(&answer);
    return text ? 0 : ERR_NOMEM;
}

int proc_command_read(pid_t pid, char **ret_command)
{
    char *text;
    size_t len;
    int r = proc_read_memory_file(pid, "cmdline", COMMAND_MAX, &text, &len);

    if (r == ERR_IO)
        return command_from_comm(pid, ret_command);
    if (r < 0)
        return r;
    while (len && (text[len - 1] == '\0' || text[len - 1] == ' '))
        len--;
    if (!len) {
        free(text);
        return command_from_comm(pid, ret_command);
    }
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    *ret_command = clean_copy(text, len);
    free(text);
    return *ret_command ? 0 : ERR_NOMEM;
}

int proc_exe_read(pid_t pid, char **ret_path)
{
    char path[64], link[4096];
    ssize_t len;

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)proc_live_thread(pid));
    len = readlink(path, link, sizeof(link));
    if (len < 0)
        return code_from_errno();
    if (len > 10 && memcmp(link + len - 10, " (deleted)", 10) == 0)
        len -= 10;
    *ret_path = clean_copy(link, (size_t)len);
    return *ret_path ? 0 : ERR_NOMEM;
}

/* Builds the clock id as the kernel defines it. clock_getcpuclockid() does the same with one more system call. */
uint64_t proc_cpu_ns(pid_t pid)
{
    clockid_t clock = (clockid_t)((~(unsigned)pid << 3) | 2);
    struct timespec ts;

    if (clock_gettime(clock, &ts) < 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

bool proc_is_ours(void)
{
    char link[32];
    ssize_t len = readlink("/proc/self", link, sizeof(link) - 1);

    if (len <= 0)
        return false;
    link[len] = '\0';
    return strtol(link, NULL, 10) == getpid();
}

/* ADDR_NO_RANDOMIZE of personality(2), or kernel.randomize_va_space. */
bool proc_is_randomized(pid_t pid)
{
    char *text, setting = '2';
    size_t len;
    bool yes = true;
    int fd;

    if (proc_read_file(pid, 0, "personality", &text, &len) == 0) {
        yes = !(strtoul(text, NULL, 16) & 0x0040000);
        free(text);
    }
    fd = open("/proc/sys/kernel/randomize_va_space", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        yes &= read(fd, &setting, 1) == 1 && setting != '0';
        close(fd);
    }
    return yes;
}

int proc_pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}
