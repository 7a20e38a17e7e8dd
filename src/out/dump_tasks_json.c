/*
 * Prints the event loops of a thread as JSON, each with its tasks, and its greenlets.
 */
#include "out/dump_private.h"
#include "out/json.h"

#include <inttypes.h>
#include <string.h>

static void put_addr(FILE *out, const char *key, uint64_t addr)
{
    if (addr)
        fprintf(out, "\"%s\": \"0x%" PRIx64 "\"", key, addr);
    else
        fprintf(out, "\"%s\": null", key);
}

static void put_links(const struct task_set *set, const uint32_t *links, size_t n, FILE *out)
{
    putc('[', out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s\"0x%" PRIx64 "\"", i ? ", " : "", set->tasks[links[i]].addr);
    putc(']', out);
}

static void put_wait(const struct task_set *set, const struct task_wait *w, FILE *out)
{
    if (!w->kind) {
        fputs("null", out);
        return;
    }
    fputs("{\"kind\": ", out);
    json_string(out, w->kind);
    fputs(", \"what\": ", out);
    json_string(out, w->what);
    fputs(", ", out);
    put_addr(out, "address", w->object);
    if (w->has_fd)
        fprintf(out, ", \"fd\": %" PRId64, w->number);
    if (strcmp(w->kind, "process") == 0 && w->number > 0)
        fprintf(out, ", \"pid\": %" PRId64, w->number);
    if (w->seconds >= 0 && w->seconds < 1e15)
        fprintf(out, ", \"%s\": %.6f", w->is_left ? "seconds_left" : "seconds", w->seconds);
    if (strcmp(w->kind, "executor") == 0)
        fprintf(out, ", \"started\": %s", w->is_queued ? "false" : "true");
    if (w->protocol || w->peer) {
        fputs(", \"protocol\": ", out);
        json_string(out, w->protocol);
        fputs(", \"local\": ", out);
        json_string(out, w->local);
        fputs(", \"peer\": ", out);
        json_string(out, w->peer);
    }
    if (strcmp(w->kind, "lock") == 0) {
        fputs(", \"held_by\": ", out);
        put_links(set, w->held_by, w->n_held_by, out);
        fprintf(out, ", \"is_owner\": %s", w->is_owner ? "true" : "false");
    }
    putc('}', out);
}

static void put_frames(const struct async_task *task, FILE *out)
{
    fputs(",\n          \"frames\": [", out);
    for (size_t i = 0; i < task->n_frames; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        dump_json_frame(&task->frames[i], out);
    }
    fputs(task->n_frames > 0 ? "\n          ]\n        }" : "]\n        }", out);
}

static void put_task(const struct task_set *set, const struct async_task *task, FILE *out)
{
    static const char *const states[] = {
        [TASK_NEW] = "new", [TASK_READY] = "ready", [TASK_RUNNING] = "running", [TASK_WAITING] = "waiting"};
    bool is_suspended = task->type && task->state == TASK_WAITING;

    fputs("        {\n          \"name\": ", out);
    json_string(out, task->name);
    fputs(",\n          ", out);
    put_addr(out, "address", task->addr);
    fprintf(out, ",\n          \"state\": \"%s\",\n          \"sure\": %s,\n          \"waits_for\": ",
            is_suspended ? "suspended" : states[task->state], task->unsure ? "false" : "true");
    put_wait(set, &task->wait, out);
    if (task->type) {
        fputs(",\n          \"type\": ", out);
        json_string(out, task->type);
        fputs(",\n          ", out);
        put_addr(out, "parent", task->parent);
        fprintf(out, ",\n          \"is_main\": %s", task->is_main ? "true" : "false");
        put_frames(task, out);
        return;
    }
    fputs(",\n          \"awaits\": ", out);
    put_links(set, task->awaits, task->n_awaits, out);
    fputs(",\n          \"awaited_by\": ", out);
    put_links(set, task->awaited_by, task->n_awaited_by, out);
    if (task->has_deadline)
        fprintf(out, ",\n          \"seconds_to_cancel\": %.6f", task->seconds_to_cancel);
    if (task->is_cancelled)
        fputs(",\n          \"cancelled\": true", out);
    put_frames(task, out);
}

static void put_loop(const struct task_set *set, const struct task_loop *loop, FILE *out)
{
    fprintf(out, "      {\n        \"kind\": \"%s\",\n        \"type\": ", loop->is_trio ? "trio" : "asyncio");
    json_string(out, loop->type);
    fputs(",\n        ", out);
    put_addr(out, "address", loop->addr);
    fprintf(out, ",\n        \"running\": %s,\n        \"complete\": %s,\n        \"tasks\": [\n",
            loop->running ? "true" : "false", set->incomplete ? "false" : "true");
    for (size_t i = 0; i < loop->n; i++) {
        fputs(i ? ",\n" : "", out);
        put_task(set, &set->tasks[loop->first + i], out);
    }
    fputs("\n        ]\n      }", out);
}

static void put_greenlets(const struct task_set *set, const struct task_loop *loop, FILE *out)
{
    fputs(",\n    \"greenlets\": [\n", out);
    for (size_t i = 0; i < loop->n; i++) {
        fputs(i ? ",\n" : "", out);
        put_task(set, &set->tasks[loop->first + i], out);
    }
    fputs("\n    ]", out);
}

/* A loop that no thread runs is listed with the first thread. */
static bool belongs(const struct task_loop *loop, const struct trace *trace, bool first)
{
    return loop->running ? loop->thread_id == trace->thread_id : first;
}

void dump_json_tasks(const struct task_set *set, const struct trace *trace, bool first, FILE *out)
{
    size_t n = 0;

    for (size_t i = 0; i < set->n_loops; i++) {
        if (set->loops[i].is_greenlets || !belongs(&set->loops[i], trace, first))
            continue;
        fputs(n++ ? ",\n" : ",\n    \"event_loops\": [\n", out);
        put_loop(set, &set->loops[i], out);
    }
    fputs(n ? "\n    ]" : "", out);
    for (size_t i = 0; i < set->n_loops; i++)
        if (set->loops[i].is_greenlets && belongs(&set->loops[i], trace, first))
            put_greenlets(set, &set->loops[i], out);
}
