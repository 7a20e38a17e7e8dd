/*
 * /proc/PID/fd, fdinfo, net and /proc/locks. Each of them is read once for all descriptors.
 */
#include "target/open_file.h"

#include "base/clock.h"
#include "base/err.h"
#include "target/proc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NET_LINES_MAX 200000 /* a busy proxy has that many sockets; reading them takes a tenth of a second */
#define FDS_MAX       65536  /* of one process */

/* ---- sockets ---- */

static const char *const tcp_states[] = {
    [1] = "ESTABLISHED", [2] = "SYN_SENT",   [3] = "SYN_RECV", [4] = "FIN_WAIT1", [5] = "FIN_WAIT2", [6] = "TIME_WAIT",
    [7] = "CLOSE",       [8] = "CLOSE_WAIT", [9] = "LAST_ACK", [10] = "LISTEN",   [11] = "CLOSING",
};

/* "0100007F:1F90": 32-bit words in the machine's byte order. False if it is not an address; "" for address and port 0. */
static bool format_address(const char *hex, char *ret, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "";
    uint32_t words[4] = {0};
    unsigned port;
    size_t n = strcspn(hex, ":") / 8;
    bool is_v4 = n == 1;

    if ((n != 1 && n != 4) || sscanf(hex + 8 * n, ":%4x", &port) != 1)
        return false;
    for (size_t i = 0; i < n; i++)
        if (sscanf(hex + 8 * i, "%8" SCNx32, &words[i]) != 1)
            return false;
    if (n == 4 && !words[0] && !words[1] && words[2] == htonl(0xffff)) { /* ::ffff:10.0.0.7 */
        words[0] = words[3];
        is_v4 = true;
    }
    inet_ntop(is_v4 ? AF_INET : AF_INET6, words, host, sizeof(host));
    if (port == 0 && !words[0] && !words[1] && !words[2] && !words[3])
        snprintf(ret, size, "%s", "");
    else
        snprintf(ret, size, is_v4 ? "%s:%u" : "[%s]:%u", host, port);
    return true;
}

struct inet_line {
    char local[40], remote[40]; /* as in the file */
    unsigned state;
    uint64_t inode;
};

/* "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 …": proc(5). */
static bool parse_inet(const char *line, struct inet_line *ret)
{
    return sscanf(line, " %*[^:]: %39s %39s %x %*s %*s %*s %*s %*s %" SCNu64, ret->local, ret->remote, &ret->state,
                  &ret->inode) == 4;
}

static FILE *open_net(pid_t pid, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, name);
    return fopen(path, "re");
}

static void describe_inet(const struct inet_line *line, bool is_tcp, struct open_file *file)
{
    if (!format_address(line->local, file->local, sizeof(file->local)) ||
        !format_address(line->remote, file->peer, sizeof(file->peer)))
        return;
    file->protocol = is_tcp ? "TCP" : "UDP";
    if (is_tcp && line->state < sizeof(tcp_states) / sizeof(tcp_states[0]))
        file->state = tcp_states[line->state];
}

/* Finds the sockets among `files`, and then those at the other end of the connection, if that is on this machine. */
static void find_inet(pid_t pid, const char *name, bool is_tcp, struct open_file *files, size_t n)
{
    struct inet_line line, *own = calloc(n, sizeof(*own));
    size_t left = 0;
    char text[512];
    FILE *in = own ? open_net(pid, name) : NULL;

    for (int i = 0; in && i < NET_LINES_MAX && fgets(text, sizeof(text), in); i++) {
        if (!parse_inet(text, &line) || !line.inode)
            continue;
        for (size_t k = 0; k < n; k++)
            if (files[k].kind == OPEN_FILE_SOCKET && files[k].inode == line.inode) {
                describe_inet(&line, is_tcp, &files[k]);
                own[k] = line;
                left += files[k].peer[0] != '\0';
            }
    }
    if (in)
        rewind(in);
    for (int i = 0; in && left && i < NET_LINES_MAX && fgets(text, sizeof(text), in); i++) {
        if (!parse_inet(text, &line))
            continue;
        for (size_t k = 0; k < n; k++)
            if (own[k].inode && strcmp(line.local, own[k].remote) == 0 && strcmp(line.remote, own[k].local) == 0)
                files[k].peer_inode = line.inode;
    }
    if (in)
        fclose(in);
    free(own);
}

struct unix_request {
    struct nlmsghdr header;
    struct unix_diag_req body;
};

/* Asks the kernel for the other end of a Unix socket. It knows those of our network namespace. */
static uint64_t unix_peer(uint64_t inode)
{
    struct unix_request request = {
        .header = {.nlmsg_len = sizeof(request), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = AF_UNIX,
                 .udiag_states = UINT32_MAX,
                 .udiag_ino = (uint32_t)inode,
                 .udiag_show = UDIAG_SHOW_PEER,
                 .udiag_cookie = {UINT32_MAX, UINT32_MAX}},
    };
    struct timeval patience = {.tv_usec = 100000};
    union {
        struct nlmsghdr header;
        char bytes[1024];
    } answer;
    uint64_t peer = 0;
    ssize_t got = -1;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

    if (fd < 0 || inode > UINT32_MAX)
        goto done;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (send(fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request))
        got = recv(fd, &answer, sizeof(answer), 0);
    if (got < (ssize_t)NLMSG_LENGTH(sizeof(struct unix_diag_msg)) || !NLMSG_OK(&answer.header, (size_t)got) ||
        answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
        goto done;
    for (size_t at = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(struct unix_diag_msg)));
         at + sizeof(struct nlattr) <= answer.header.nlmsg_len;) {
        struct nlattr attribute;
        uint32_t value;

        memcpy(&attribute, answer.bytes + at, sizeof(attribute));
        if (attribute.nla_len < sizeof(attribute) || at + attribute.nla_len > answer.header.nlmsg_len)
            break;
        if (attribute.nla_type == UNIX_DIAG_PEER && attribute.nla_len >= sizeof(attribute) + sizeof(value)) {
            memcpy(&value, answer.bytes + at + sizeof(attribute), sizeof(value));
            peer = value;
        }
        at += (size_t)NLA_ALIGN(attribute.nla_len);
    }
done:
    if (fd >= 0)
        close(fd);
    return peer;
}

/* "ffff…: 00000003 00000000 00000000 0001 03 12345 /run/x": the path may be missing. */
static void find_unix(pid_t pid, struct open_file *files, size_t n)
{
    bool is_ours = proc_same_namespace(pid, "net");
    FILE *in = open_net(pid, "unix");
    char line[512];

    for (int i = 0; in && i < NET_LINES_MAX && fgets(line, sizeof(line), in); i++) {
        uint64_t inode;
        int end = 0;

        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %" SCNu64 "%n", &inode, &end) != 1 || !inode)
            continue;
        for (size_t k = 0; k < n; k++) {
            if (files[k].kind != OPEN_FILE_SOCKET || files[k].inode != inode)
                continue;
            line[strcspn(line, "\n")] = '\0';
            snprintf(files[k].name, sizeof(files[k].name), "%s", line[end] == ' ' ? line + end + 1 : "");
            files[k].protocol = "Unix";
            files[k].peer_inode = is_ours ? unix_peer(inode) : 0;
        }
    }
    if (in)
        fclose(in);
}

/* ---- one descriptor ---- */

static void read_link(pid_t pid, struct open_file *file)
{
    char path[64], *link = file->name;
    struct stat st;
    ssize_t len;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, file->fd);
    len = readlink(path, link, sizeof(file->name) - 1);
    if (len < 0)
        return;
    link[len] = '\0';
    if (lstat(path, &st) == 0) { /* the permissions of the link are those that the file was opened with */
        file->reads = st.st_mode & S_IRUSR;
        file->writes = st.st_mode & S_IWUSR;
    }
    if (sscanf(link, "pipe:[%" SCNu64 "]", &file->inode) == 1) {
        file->kind = OPEN_FILE_PIPE;
        link[0] = '\0';
    } else if (sscanf(link, "socket:[%" SCNu64 "]", &file->inode) == 1) {
        file->kind = OPEN_FILE_SOCKET;
        link[0] = '\0';
    } else if (strncmp(link, "anon_inode:", 11) == 0) {
        char *name = link + 11 + (link[11] == '[');

        file->kind = OPEN_FILE_KERNEL;
        name[strcspn(name, "]")] = '\0';
        memmove(link, name, strlen(name) + 1);
    } else {
        file->kind = OPEN_FILE_PATH;
    }
}

void open_files_read(pid_t pid, struct open_file *files, size_t n)
{
    bool has_sockets = false;

    for (size_t i = 0; i < n; i++) {
        files[i] = (struct open_file){.fd = files[i].fd};
        read_link(pid, &files[i]);
        has_sockets |= files[i].kind == OPEN_FILE_SOCKET;
    }
    if (!has_sockets)
        return;
    find_inet(pid, "tcp", true, files, n);
    find_inet(pid, "tcp6", true, files, n);
    find_inet(pid, "udp", false, files, n);
    find_inet(pid, "udp6", false, files, n);
    find_unix(pid, files, n);
}

size_t open_file_watched(pid_t pid, int epoll_fd, int *ret_fds, size_t max)
{
    char path[64], line[256];
    size_t n = 0;
    FILE *in;

    snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)pid, epoll_fd);
    in = fopen(path, "re");
    while (in && n < FDS_MAX && fgets(line, sizeof(line), in)) {
        size_t at = n < max ? n : max;
        int fd;

        if (sscanf(line, "tfd: %d", &fd) != 1)
            continue;
        for (; at > 0 && ret_fds[at - 1] > fd; at--)
            if (at < max)
                ret_fds[at] = ret_fds[at - 1];
        if (at < max)
            ret_fds[at] = fd;
        n++;
    }
    if (in)
        fclose(in);
    return n;
}

/* ---- the other end ---- */

static bool is_other_end(const char *link, bool reads, bool writes, const struct open_file *file)
{
    uint64_t inode;

    if (file->kind == OPEN_FILE_PIPE)
        return sscanf(link, "pipe:[%" SCNu64 "]", &inode) == 1 && inode == file->inode &&
               ((file->reads && writes) || (file->writes && reads));
    return file->kind == OPEN_FILE_SOCKET && file->peer_inode && sscanf(link, "socket:[%" SCNu64 "]", &inode) == 1 &&
           inode == file->peer_inode;
}

static void add_other(struct open_file *file, pid_t pid)
{
    if (file->n_others && file->others[file->n_others - 1] == pid)
        return;
    if (file->n_others < OPEN_FILE_OTHERS_MAX)
        file->others[file->n_others++] = pid;
}

/* Compares the descriptors of one process with all files. False if it may not be read. */
static bool search_process(pid_t pid, struct open_file *files, size_t n)
{
    char path[64], link[64];
    bool readable;
    DIR *dir;
    int count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    readable = dir || errno != EACCES;
    for (struct dirent *e; dir && count < FDS_MAX && (e = readdir(dir)); count++) {
        ssize_t len = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);
        struct stat st;

        if (len <= 0)
            continue;
        link[len] = '\0';
        if ((strncmp(link, "pipe:", 5) != 0 && strncmp(link, "socket:", 7) != 0) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (is_other_end(link, st.st_mode & S_IRUSR, st.st_mode & S_IWUSR, &files[i]))
                add_other(&files[i], pid);
    }
    if (dir)
        closedir(dir);
    return readable && count < FDS_MAX;
}

bool open_files_find_others(pid_t pid, struct open_file *files, size_t n, uint64_t limit_ns)
{
    uint64_t end = clock_cpu_ns() + limit_ns;
    bool complete = true, wanted = false;
    pid_t *pids;
    size_t n_pids;

    for (size_t i = 0; i < n; i++)
        wanted |= files[i].kind == OPEN_FILE_PIPE || files[i].peer_inode;
    if (!wanted)
        return true;
    if (proc_pids_read(&pids, &n_pids) < 0)
        return false;
    for (size_t i = 0; i < n_pids; i++) {
        if (clock_cpu_ns() > end) {
            complete = false;
            break;
        }
        if (pids[i] != pid)
            complete &= search_process(pids[i], files, n);
    }
    free(pids);
    return search_process(pid, files, n) && complete;
}

/* ---- locks ---- */

/*
 * "3: FLOCK  ADVISORY  WRITE 812 fe:00:1045 0 EOF" is a lock, and a line "3: -> FLOCK  ADVISORY  WRITE 913 …" below it someone who
 * waits for it.
 */
pid_t open_file_lock_holder(pid_t pid)
{
    FILE *in = fopen("/proc/locks", "re");
    char line[256];
    long holder_id = -1;
    int holder = 0, found = 0;
    bool several = false;

    for (int i = 0; in && !several && i < NET_LINES_MAX && fgets(line, sizeof(line), in); i++) {
        long id;
        int owner;

        if (sscanf(line, "%ld: -> %*s %*s %*s %d", &id, &owner) == 2) {
            if (owner == (int)pid && id == holder_id) {
                several = found && found != holder;
                found = holder;
            }
        } else if (sscanf(line, "%ld: %*s %*s %*s %d", &id, &owner) == 2) {
            holder_id = id;
            holder = owner;
        }
    }
    if (in)
        fclose(in);
    return found > 0 && !several ? (pid_t)found : 0;
}
