/*
 * A stdio stream on a descriptor that never sleeps in write(2): a reader that has stopped reading must not make us deaf to
 * signals.
 *
 *     struct output_sink sink = {.fd = fd, .stalled = stalled, .arg = arg};
 *     FILE *out = output_sink_open(&sink);
 */
#ifndef OUT_OUTPUT_SINK_H
#define OUT_OUTPUT_SINK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Called while a pipe, a socket or a terminal takes no data: after each signal, and every 100 ms. True: give up. */
typedef bool (*output_sink_stalled)(void *arg, uint64_t waited_ns);

struct output_sink {
    int fd;
    output_sink_stalled stalled; /* NULL: wait for ever */
    void *arg;
    int error;        /* of the first write that failed, since stdio does not keep it; ECANCELED: `stalled` gave up */
    uint64_t written; /* bytes */
    bool may_block;   /* write(2) may sleep: set by output_sink_open */
    bool is_socket;
};

/* NULL without memory. Check sink->error after fclose, which does not close the descriptor. */
FILE *output_sink_open(struct output_sink *sink);

/* Takes the descriptor of an inherited stream. Returns one that does not block, if the kernel permits to open it a second
 * time: O_NONBLOCK on the first would affect the processes that share it. Otherwise returns `fd` itself. */
int output_sink_unshare(int fd);

#endif
