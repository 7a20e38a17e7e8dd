/*
 * Places in the tree of processes, counted by who still names them. Called by family.c.
 */
#include "sample/kin.h"

#include "base/err.h"
#include "target/proc.h"

#include <stdlib.h>

struct kin *kin_new(struct kin *up, pid_t pid)
{
    struct kin *kin = calloc(1, sizeof(*kin));

    if (!kin)
        return NULL;
    *kin = (struct kin){.up = up, .depth = up ? up->depth + 1 : 0, .refs = 1};
    kin->info = (struct proc_info){.pid = pid, .command = "", .executable = "", .version_suffix = ""};
    if (up) {
        up->refs++;
        kin->info.parent = up->info.pid;
        kin->info.parent_info = &up->info;
    }
    return kin;
}

struct kin *kin_drop(struct kin *kin)
{
    while (kin && --kin->refs == 0) {
        struct kin *up = kin->up;

        free(kin->own_command);
        free(kin);
        kin = up;
    }
    return NULL;
}

void kin_pin(struct kin *kin, struct kin **all)
{
    if (kin->pinned)
        return;
    kin->pinned = true;
    kin->refs++;
    kin->previous = *all;
    *all = kin;
}

void kin_free_all(struct kin **all)
{
    while (*all) {
        struct kin *kin = *all;

        *all = kin->previous;
        kin_drop(kin);
    }
}

int kin_read_command(struct kin *kin)
{
    char *command;
    int r = proc_command_read(kin->info.pid, &command);

    if (r == ERR_NOMEM)
        return r;
    if (r < 0)
        return 0; /* it has gone: what was known of it stays */
    free(kin->own_command);
    kin->own_command = command;
    kin->info.command = command;
    return 0;
}
