/*
 * The process connector (drivers/connector/cn_proc.c).
 *
 * From Linux 6.6 on the kernel unregisters a listener when its socket is closed. On older kernels, a
 * listener that is killed leaves every later fork on the machine with the cost of a message, so we do not
 * use it there.
 */
#include "tree/proc_connector.h"

#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#define BUFFER_BYTES     (1024 * 1024)
#define ACK_MESSAGES_MAX 1000 /* messages to skip before the acknowledgement */
/* PROC_EVENT_FORK | PROC_EVENT_EXEC; 6.6 added event filters */
#define FORKS_AND_EXECS 3u

struct request {
    struct nlmsghdr head;
    struct cn_msg msg;
    uint32_t op, events;
};

static bool kernel_unregisters_closed(void)
{
    struct utsname name;
    int major = 0, minor = 0;

    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 6));
}

/* `events` 0: all events. */
static bool send_op(int fd, uint32_t op, uint32_t events)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct request r = {.msg = {.id = {CN_IDX_PROC, CN_VAL_PROC}}, .op = op, .events = events};
    size_t len = events ? sizeof(r) : offsetof(struct request, events);

    r.head = (struct nlmsghdr){.nlmsg_len = (uint32_t)len, .nlmsg_type = NLMSG_DONE};
    r.msg.len = (uint16_t)(len - offsetof(struct request, op));
    return sendto(fd, &r, len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) == (ssize_t)len;
}

/* Receives one message from the kernel: 1; 0 if there is none; ERR_BOUNDS. */
static int receive(int fd, struct proc_event *ret)
{
    _Alignas(struct nlmsghdr) char buf[1024];
    const struct nlmsghdr *head = (const struct nlmsghdr *)buf;
    size_t begin = NLMSG_HDRLEN + sizeof(struct cn_msg), least = offsetof(struct proc_event, event_data);
    struct sockaddr_nl from = {0};
    socklen_t from_len = sizeof(from);
    ssize_t got = recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);

    if (got < 0)
        return errno == ENOBUFS ? ERR_BOUNDS : 0;
    *ret = (struct proc_event){.what = PROC_EVENT_NONE};
    if (from.nl_pid != 0 || (size_t)got < begin + least || head->nlmsg_len > (size_t)got)
        return 1; /* not from the kernel, or of an unknown kind */
    memcpy(ret, buf + begin, (size_t)got - begin < sizeof(*ret) ? (size_t)got - begin : sizeof(*ret));
    return 1;
}

/* The kernel acknowledges at once, except in namespaces that get no events. It only does so while all events are
 * selected, so other events may come first. */
static bool subscribe(int fd)
{
    struct proc_event event;

    if (!send_op(fd, PROC_CN_MCAST_LISTEN, 0))
        return false;
    for (int i = 0; i < ACK_MESSAGES_MAX && receive(fd, &event) == 1; i++)
        if (event.what == PROC_EVENT_NONE)
            return event.event_data.ack.err == 0 && send_op(fd, PROC_CN_MCAST_LISTEN, FORKS_AND_EXECS);
    return false;
}

bool proc_connector_open(struct proc_connector *c)
{
    struct sockaddr_nl own = {.nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC};
    int size = BUFFER_BYTES;

    c->fd = -1;
    log_debug("tree", "process connector: %s", kernel_unregisters_closed() ? "trying" : "not used before Linux 6.6");
    if (!kernel_unregisters_closed())
        return false;
    c->fd = socket(PF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);
    log_debug("tree", "process connector: socket: %s", c->fd >= 0 ? "open" : strerror(errno));
    if (c->fd < 0)
        return false;
    if (setsockopt(c->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    if (bind(c->fd, (struct sockaddr *)&own, sizeof(own)) == 0 && subscribe(c->fd))
        return true;
    log_info("tree", "process connector: refused, or no answer in this namespace");
    proc_connector_close(c);
    return false;
}

void proc_connector_close(struct proc_connector *c)
{
    if (c->fd < 0)
        return;
    send_op(c->fd, PROC_CN_MCAST_IGNORE, 0);
    close(c->fd);
    c->fd = -1;
}

int proc_connector_next(struct proc_connector *c, struct process_event *ret)
{
    struct proc_event event;
    int r;

    while ((r = receive(c->fd, &event)) == 1) {
        const struct fork_proc_event *fork = &event.event_data.fork;

        if (event.what == PROC_EVENT_FORK && fork->child_pid == fork->child_tgid) { /* not a thread */
            *ret = (struct process_event){fork->parent_tgid, fork->child_tgid};
            return 1;
        }
        if (event.what == PROC_EVENT_EXEC) {
            *ret = (struct process_event){0, event.event_data.exec.process_tgid};
            return 1;
        }
    }
    return r;
}
