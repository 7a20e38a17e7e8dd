/*
 * Traces of live processes -> groups, with the rank of each process and, for several rounds, the run counts of its threads.
 */
#include "cmd/dump_group.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/text.h"
#include "cmd/group_output.h"
#include "cmd/process_rank.h"
#include "target/proc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EVERY_SECONDS 5
#define NAMED_MAX     8 /* processes that could not be read */

struct dump_group {
    struct groups *groups;
    struct groups_unread unread[NAMED_MAX];
    size_t n_unread;
    pid_t *left_out; /* all of them */
    size_t n_left_out, cap_left_out;
    struct hash_table by_pid; /* index of `left_out` */
    bool with_runs;
    uint64_t next_ns; /* when the next round begins */
};

static double seconds_between(const struct options *o)
{
    return o->every > 0 ? o->every : EVERY_SECONDS;
}

struct dump_group *dump_group_new(const struct options *o)
{
    struct dump_group *group = calloc(1, sizeof(*group));

    if (!group)
        return NULL;
    group->groups = groups_new();
    group->with_runs = o->rounds > 1;
    group->next_ns = clock_now_ns();
    return group->groups ? group : dump_group_free(group);
}

struct dump_group *dump_group_free(struct dump_group *group)
{
    if (!group)
        return NULL;
    groups_free(group->groups);
    for (size_t i = 0; i < group->n_unread; i++)
        free((void *)(uintptr_t)group->unread[i].why);
    free(group->left_out);
    hash_table_free(&group->by_pid);
    free(group);
    return NULL;
}

/* Unknown without schedstat, or if the thread has ended. Also for a thread that is running now: it will have run. */
static struct group_run read_run(const struct trace *trace)
{
    struct group_run run = {0};
    char *text;
    size_t len;

    if (trace->active || trace->os_thread_id <= 0 ||
        proc_read_file(trace->process->pid, trace->os_thread_id, "schedstat", &text, &len) < 0)
        return run;
    run.known = sscanf(text, "%" SCNu64 " %*u %" SCNu64, &run.ns, &run.count) == 2;
    free(text);
    return run;
}

static bool is_unread(const struct trace *trace)
{
    return trace->n_frames == 1 && strcmp(trace->frames[0].func->name, "[not read in time]") == 0;
}

static int add_member(struct dump_group *group, const struct proc_info *info, uint32_t *ret)
{
    struct process_rank rank = process_rank_read(info->pid);
    struct group_member member = {
        .pid = info->pid, .command = info->command, .rank = rank.rank, .rank_variable = rank.variable};
    member.parent = process_python_parent(info->pid);
    return groups_add_member(group->groups, &member, ret);
}

int dump_group_add(struct dump_group *group, const struct trace *traces, size_t n, struct error_text *text)
{
    const struct proc_info *info = n ? traces[0].process : NULL;
    size_t n_unread = 0;
    uint32_t member = 0;
    int r = 0;

    for (size_t i = 0; i < n; i++)
        n_unread += is_unread(&traces[i]);
    if (n && n_unread == n) {
        dump_group_leave_out(group, info->pid, "not read in time");
        return 0;
    }
    if (n)
        r = add_member(group, info, &member);
    for (size_t i = 0; i < n && r == 0; i++) {
        struct group_run run = {0};

        if (is_unread(&traces[i]))
            continue;
        if (group->with_runs)
            run = read_run(&traces[i]);
        r = groups_add_thread(group->groups, member, &traces[i], &run);
    }
    if (r == ERR_BOUNDS)
        return error_text_what(text, ERR_UNSUPPORTED,
                               "more than %d processes, %d threads in all rounds, or 48 MB of names",
                               GROUPS_MAX_MEMBERS, GROUPS_MAX_THREADS);
    return r;
}

void dump_group_leave_out(struct dump_group *group, pid_t pid, const char *why)
{
    uint64_t hash = hash_mix(0, (uint64_t)pid);
    size_t step = 0;
    uint32_t at;
    char *copy;

    while ((at = hash_table_next(&group->by_pid, hash, &step)) != HASH_TABLE_NONE)
        if (group->left_out[at] == pid)
            return; /* in an earlier round */
    if (hash_table_reserve_item(&group->by_pid, (void **)&group->left_out, &group->cap_left_out, group->n_left_out,
                                sizeof(*group->left_out)) < 0)
        return;
    hash_table_add(&group->by_pid, hash, (uint32_t)group->n_left_out);
    group->left_out[group->n_left_out++] = pid;
    copy = group->n_unread < NAMED_MAX ? strdup(why) : NULL;
    if (copy)
        group->unread[group->n_unread++] = (struct groups_unread){.pid = pid, .why = copy};
}

void dump_group_say(const char *line, void *arg)
{
    const char *why = strrchr(line, ':');
    int pid;

    if (arg && sscanf(line, "skipped process %d", &pid) == 1 && why && why[1]) {
        dump_group_leave_out(arg, pid, why + 2);
        return;
    }
    fputs("Note: ", stderr);
    text_print_safe(stderr, line);
    fputc('\n', stderr);
}

void dump_group_next_round(struct dump_group *group, const struct options *o)
{
    uint64_t now = clock_now_ns();

    group->next_ns += (uint64_t)(seconds_between(o) * (double)NS_PER_S);
    if (group->next_ns > now)
        clock_sleep_ns(group->next_ns - now);
    else
        group->next_ns = now; /* a round took longer than the time between them */
    groups_next_round(group->groups);
}

int dump_group_stop(struct dump_group *group, int error, struct error_text *text)
{
    uint32_t kept;

    groups_drop_round(group->groups);
    kept = group->groups->rounds;
    fprintf(stderr, "Note: stopped after %" PRIu32 " round%s: ", kept, kept == 1 ? "" : "s");
    text_print_safe(stderr, *text->what ? text->what : err_name(error));
    fputs(error == ERR_GONE && *text->what ? " has exited.\n" : ".\n", stderr);
    *text = (struct error_text){0};
    return 0;
}

int dump_group_write(struct dump_group *group, const struct options *o, struct error_text *text)
{
    struct groups_output output = {.every = seconds_between(o),
                                   .unread = group->unread,
                                   .n_unread = group->n_unread,
                                   .all_unread = group->n_left_out};
    int r = groups_finish(group->groups);

    return r == 0 ? group_output_write(o, group->groups, &output, text) : r;
}

void dump_group_describe(struct proc_info *info, const char *hostname)
{
    struct process_rank rank = process_rank_read(info->pid);

    info->hostname = *hostname ? hostname : NULL;
    info->rank = rank.rank;
    info->rank_from = rank.variable;
    info->python_parent = process_python_parent(info->pid);
}
