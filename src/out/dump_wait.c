/*
 * Why a thread waits, as one line of text and as JSON.
 */
#include "base/clock.h"
#include "base/text.h"
#include "out/dump_private.h"
#include "out/json.h"

#include <inttypes.h>
#include <string.h>

#define COMMAND_MAX 80
#define FILES_SHOWN 3 /* in text, to keep the line short */

static size_t at_most(size_t n, size_t max)
{
    return n < max ? n : max;
}

/* "0.4 s", "12 s", "3 min 20 s", "2 h 5 min". */
static void text_duration(uint64_t ns, FILE *out)
{
    uint64_t s = ns / NS_PER_S;

    if (s < 10)
        fprintf(out, "%.1f s", (double)ns / (double)NS_PER_S);
    else if (s < 60)
        fprintf(out, "%" PRIu64 " s", s);
    else if (s < 3600)
        fprintf(out, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else
        fprintf(out, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
}

static void text_command(pid_t pid, const char *command, FILE *out)
{
    char text[COMMAND_MAX];

    fprintf(out, "process %d", (int)pid);
    if (!command)
        return;
    text_copy_safe(text, sizeof(text), command);
    fprintf(out, " (%s)", text);
}

/* A process in state t may have been stopped by its tracer, or by a signal. */
static void text_tracer(const struct awaited_process *p, FILE *out)
{
    fputs(", which is stopped, traced by ", out);
    if (p->tracer)
        text_command(p->tracer, p->tracer_command, out);
    else
        fputs("a debugger", out);
}

void dump_text_process(const struct awaited_process *p, pid_t self, FILE *out)
{
    if (p->pid == self) {
        fputs("this process", out);
        return;
    }
    text_command(p->pid, p->command, out);
    if (p->state == 'T')
        fputs(", which is stopped by a signal", out);
    else if (p->state == 't')
        text_tracer(p, out);
    else if (p->state == 'Z')
        fputs(", which has exited", out);
    else if (p->call)
        fprintf(out, ", which waits in %s%s", p->call, p->awaits_us ? " for this process" : "");
}

static void text_processes(const struct awaited_process *items, size_t n, size_t max, pid_t self, FILE *out)
{
    for (size_t i = 0; i < at_most(n, max); i++) {
        fputs(i ? " and " : "", out);
        dump_text_process(&items[i], self, out);
    }
    if (n > max)
        fprintf(out, " and %zu more", n - max);
}

static void text_word(const char *before, const char *word, FILE *out)
{
    if (!word)
        return;
    fputs(before, out);
    text_print_safe(out, word);
}

static void text_file(const struct awaited_file *f, pid_t self, FILE *out)
{
    fprintf(out, "fd %d", f->fd);
    if (!f->kind)
        return;
    if (strcmp(f->kind, "file") == 0) {
        text_word(" ", f->name, out);
        return;
    }
    text_word(" ", f->kind, out);
    text_word(" ", f->name, out);
    text_word(" ", f->local, out);
    text_word(" -> ", f->peer, out);
    text_word(" ", f->state, out);
    if (f->n_others) {
        fputs(", other end in ", out);
        text_processes(f->others, f->n_others, AWAITED_OTHERS_MAX, self, out);
    } else if (f->no_others) {
        fputs(", which no process that spyglass can see has open", out);
    }
}

static const char *state_text(enum trace_state state)
{
    switch (state) {
    case TRACE_WAITING_FOR_DISK:
        return "waits for the disk";
    case TRACE_SLEEPING:
        return "sleeps";
    case TRACE_WAITING_FOR_LOCK:
        return "waits for a lock";
    case TRACE_WAITING_FOR_EVENTS:
        return "waits for events";
    case TRACE_WAITING_FOR_IO:
        return "waits for I/O";
    case TRACE_WAITING_FOR_CHILD:
        return "waits for a child process";
    case TRACE_STOPPED:
        return "is stopped";
    case TRACE_RUNNING: /* in a function of a library that waits for a GPU or for other ranks */
        return "spins";
    default:
        return "waits in the kernel";
    }
}

/* ---- locks and operations ---- */

static const struct {
    const char *text, *json;
} kinds[AWAITED_KINDS] = {
    [AWAITED_LOCK] = {"Lock", "Lock"},
    [AWAITED_RLOCK] = {"RLock", "RLock"},
    [AWAITED_IMPORT_LOCK] = {"the import lock of module", "import lock"},
    [AWAITED_SHARED_LOCK] = {"the multiprocessing lock", "multiprocessing lock"},
    [AWAITED_THREAD] = {"the end of thread", "thread"},
    [AWAITED_OPERATION] = {"", "operation"},
    [AWAITED_GPU] = {"", "GPU"},
    [AWAITED_COLLECTIVE] = {"", "collective"},
};

void dump_text_owner(const struct awaited_thread *thread, FILE *out)
{
    if (thread->name)
        text_print_safe(out, thread->name);
    else if (thread->os_thread_id > 0)
        fprintf(out, "thread %d", (int)thread->os_thread_id);
    else
        fprintf(out, "thread 0x%" PRIX64, thread->thread_id);
}

void dump_text_object(const struct awaited_object *object, FILE *out)
{
    if (object->operation && object->kind >= AWAITED_OPERATION) {
        text_print_safe(out, object->operation);
        if (object->name) {
            text_word(" (", object->name, out);
            putc(')', out);
        }
        return;
    }
    if (object->kind == AWAITED_IMPORT_LOCK && !object->name) { /* 2.7 */
        fputs("the import lock", out);
        return;
    }
    fputs(kinds[object->kind].text, out);
    if (object->name)
        text_word(" ", object->name, out);
    else
        fprintf(out, " at 0x%" PRIx64, object->addr);
}

void dump_text_wait_object(const struct wait_reason *w, FILE *out)
{
    const struct awaited_object *object = &w->object;

    fputs(object->kind == AWAITED_OPERATION    ? "waits in "
          : object->kind == AWAITED_GPU        ? "waits for the GPU: "
          : object->kind == AWAITED_COLLECTIVE ? "waits for other ranks: "
                                               : "waits for ",
          out);
    if (object->kind == AWAITED_THREAD && object->owner.known) {
        fputs("the end of thread ", out);
        dump_text_owner(&object->owner, out);
    } else {
        dump_text_object(object, out);
        if (object->owner.known) {
            fputs(object->owner.certain ? ", held by " : ", likely held by ", out);
            dump_text_owner(&object->owner, out);
        }
    }
    if (object->owner.exited)
        fputs(", which no longer exists", out);
}

/* ---- a thread ---- */

static void text_limit(const struct wait_reason *w, FILE *out)
{
    if (!w->has_left && !w->has_limit)
        return;
    fputs(w->has_left ? ", for another " : ", for at most ", out);
    text_duration(w->has_left ? w->left_ns : w->limit_ns, out);
}

static void text_reason(const struct wait_reason *w, pid_t self, FILE *out)
{
    if (w->call)
        fprintf(out, " (%s)", w->call);
    text_word(" in ", w->kernel_function, out);
    for (size_t i = 0; i < at_most(w->n_files, FILES_SHOWN); i++) {
        fputs(i ? "; " : ": ", out);
        text_file(&w->files[i], self, out);
    }
    if (w->n_files > FILES_SHOWN)
        fprintf(out, "; and %zu more", w->n_files - FILES_SHOWN);
    if (w->state == TRACE_STOPPED && !w->n_processes)
        fputs(" by a signal", out);
    if (w->n_processes) {
        fputs(w->state == TRACE_STOPPED ? ", traced by " : w->n_files ? ", held by " : ": ", out);
        text_processes(w->processes, w->n_processes, AWAITED_PROCESSES_MAX, self, out);
    }
}

void dump_text_wait_reason(const struct wait_reason *w, pid_t self, FILE *out)
{
    fputs(state_text(w->state), out);
    text_reason(w, self, out);
    text_limit(w, out);
}

void dump_text_wait(const struct wait_reason *w, pid_t self, const struct dump_options *options, FILE *out)
{
    fputs("  ", out);
    dump_style(options, STYLE_WAITING, out);
    if (w->object.kind != AWAITED_UNKNOWN)
        dump_text_wait_object(w, out);
    else
        fputs(state_text(w->state), out);
    dump_style(options, STYLE_NONE, out);
    if (w->object.kind == AWAITED_UNKNOWN)
        text_reason(w, self, out);
    text_limit(w, out);
    putc('\n', out);
}

/* ---- JSON ---- */

static void json_processes(const char *name, const struct awaited_process *items, size_t n, const char *indent,
                           FILE *out)
{
    fprintf(out, "\"%s\": [", name);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s\n%s  {\"pid\": %d, \"state\": ", i ? "," : "", indent, (int)items[i].pid);
        json_string(out, items[i].state ? (char[]){items[i].state, '\0'} : NULL);
        fputs(", \"command_line\": ", out);
        json_string(out, items[i].command);
        if (items[i].call) {
            fprintf(out, ", \"system_call\": \"%s\", \"waits_for_this_process\": %s", items[i].call,
                    items[i].awaits_us ? "true" : "false");
        }
        if (items[i].tracer) {
            fprintf(out, ", \"traced_by\": {\"pid\": %d, \"command_line\": ", (int)items[i].tracer);
            json_string(out, items[i].tracer_command);
            putc('}', out);
        }
        putc('}', out);
    }
    if (n)
        fprintf(out, "\n%s", indent);
    putc(']', out);
}

static void json_field(const char *name, const char *value, FILE *out)
{
    fprintf(out, ", \"%s\": ", name);
    json_string(out, value);
}

static void json_file(const struct awaited_file *f, FILE *out)
{
    fprintf(out, "        {\"fd\": %d", f->fd);
    json_field("kind", f->kind, out);
    json_field("name", f->name, out);
    json_field("local", f->local, out);
    json_field("peer", f->peer, out);
    json_field("state", f->state, out);
    fputs(", ", out);
    json_processes("other_end", f->others, at_most(f->n_others, AWAITED_OTHERS_MAX), "        ", out);
    putc('}', out);
}

static void json_time(const char *name, bool has, uint64_t ns, FILE *out)
{
    fprintf(out, ",\n      \"%s\": ", name);
    if (has)
        json_seconds(out, ns);
    else
        fputs("null", out);
}

/* null for a thread that does not wait for a lock, a thread or an operation of the standard library. */
static void json_object(const struct awaited_object *object, FILE *out)
{
    const struct awaited_thread *owner = &object->owner;

    if (object->kind == AWAITED_UNKNOWN) {
        fputs("null", out);
        return;
    }
    fprintf(out, "{\"kind\": \"%s\"", kinds[object->kind].json);
    json_field("operation", object->operation, out);
    json_field("name", object->name, out);
    if (object->addr)
        fprintf(out, ", \"address\": \"0x%" PRIx64 "\"", object->addr);
    else
        fputs(", \"address\": null", out);
    fprintf(out, ", \"certain\": %s, \"owner\": ", object->certain ? "true" : "false");
    if (!owner->known) {
        fputs("null}", out);
        return;
    }
    fprintf(out, "{\"thread_id\": %" PRIu64 ", \"os_thread_id\": ", owner->thread_id);
    if (owner->os_thread_id > 0)
        fprintf(out, "%d", (int)owner->os_thread_id);
    else
        fputs("null", out);
    json_field("thread_name", owner->name, out);
    fprintf(out, ", \"certain\": %s, \"exited\": %s}}", owner->certain ? "true" : "false",
            owner->exited ? "true" : "false");
}

void dump_json_wait(const struct wait_reason *w, FILE *out)
{
    size_t n = at_most(w->n_files, AWAITED_FILES_MAX);

    fputs("{\n      \"what\": ", out);
    json_string(out, state_text(w->state));
    fputs(",\n      \"system_call\": ", out);
    json_string(out, w->call);
    fputs(",\n      \"kernel_function\": ", out);
    json_string(out, w->kernel_function);
    json_time("seconds_left", w->has_left, w->left_ns, out);
    json_time("seconds_at_most", w->has_limit, w->limit_ns, out);
    fprintf(out, ",\n      \"n_files\": %zu,\n      \"files\": [", w->n_files);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ",\n" : "\n", out);
        json_file(&w->files[i], out);
    }
    fputs(n ? "\n      ],\n      " : "],\n      ", out);
    json_processes("processes", w->processes, at_most(w->n_processes, AWAITED_PROCESSES_MAX), "      ", out);
    fputs(",\n      \"object\": ", out);
    json_object(&w->object, out);
    fputs("\n    }", out);
}
