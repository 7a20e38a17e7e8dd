/*
 * Reference-counted nodes of the process tree.
 */
#include "tree/process_node.h"

#include "base/err.h"
#include "target/proc.h"

#include <stdlib.h>

struct process_node *process_node_new(struct process_node *up, pid_t pid)
{
    struct process_node *node = calloc(1, sizeof(*node));

    if (!node)
        return NULL;
    *node = (struct process_node){.up = up, .depth = up ? up->depth + 1 : 0, .refs = 1};
    node->info = (struct proc_info){.pid = pid, .command = "", .executable = "", .version_suffix = ""};
    if (up) {
        up->refs++;
        node->info.parent = up->info.pid;
        node->info.parent_info = &up->info;
    }
    return node;
}

struct process_node *process_node_retain(struct process_node *node)
{
    node->refs++;
    return node;
}

struct process_node *process_node_release(struct process_node *node)
{
    while (node && --node->refs == 0) {
        struct process_node *up = node->up;

        free(node->own_command);
        free(node);
        node = up;
    }
    return NULL;
}

void process_node_pin(struct process_node *node, struct process_node **all)
{
    if (node->pinned)
        return;
    node->pinned = true;
    node->refs++;
    node->previous = *all;
    *all = node;
}

void process_node_free_all(struct process_node **all)
{
    while (*all) {
        struct process_node *node = *all;

        *all = node->previous;
        process_node_release(node);
    }
}

static int compare_info(const void *key, const void *item)
{
    uintptr_t x = (uintptr_t)key, y = (uintptr_t) * (const struct proc_info *const *)item;

    return (x > y) - (x < y);
}

void process_node_unpin(struct process_node **all, const struct proc_info *const *used, size_t n)
{
    while (*all) {
        struct process_node *node = *all;

        if (n && bsearch(&node->info, used, n, sizeof(*used), compare_info)) {
            all = &node->previous;
            continue;
        }
        *all = node->previous;
        node->pinned = false;
        process_node_release(node);
    }
}

int process_node_read_command(struct process_node *node)
{
    char *command;
    int r = proc_command_read(node->info.pid, &command);

    if (r == ERR_NOMEM)
        return r;
    if (r < 0)
        return 0; /* it has exited: keep the old command line */
    free(node->own_command);
    node->own_command = command;
    node->info.command = command;
    return 0;
}
