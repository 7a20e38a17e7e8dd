/*
 * Why a process does not continue, in a sentence, and as JSON.
 */
#include "base/text.h"
#include "out/dump_private.h"
#include "out/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static size_t listed(const struct verdict *v)
{
    return v->n < VERDICT_THREADS_MAX ? v->n : VERDICT_THREADS_MAX;
}

static void text_thread(const struct trace *t, FILE *out)
{
    struct awaited_thread thread = {.os_thread_id = t->os_thread_id, .thread_id = t->thread_id, .name = t->thread_name};

    dump_text_owner(&thread, out);
}

/* "waits for Lock stock, likely held by ": what comes next is the holder. */
static void text_link(const struct trace *t, FILE *out)
{
    const struct awaited_object *object = t->wait ? &t->wait->object : NULL;

    if (t->waits_for_gil) {
        fputs("waits for the GIL, held by ", out);
        return;
    }
    if (!object)
        return;
    if (object->kind == AWAITED_THREAD) {
        fputs("waits for the end of thread ", out);
        return;
    }
    fputs("waits for ", out);
    dump_text_object(object, out);
    fputs(object->owner.certain ? ", held by " : ", likely held by ", out);
}

static void text_place(const struct trace *t, FILE *out)
{
    if (!t->n_frames)
        return;
    fputs(" in ", out);
    text_print_safe(out, t->frames[0].func->name);
    fputs(" (", out);
    text_print_safe(out, t->frames[0].func->short_filename);
    if (t->frames[0].line > 0)
        fprintf(out, ":%d", t->frames[0].line);
    putc(')', out);
}

/* What the last thread of a chain does. */
static void text_last(const struct trace *t, FILE *out)
{
    if (t->waits_for_gil) {
        fputs("waits for the GIL", out);
    } else if (!t->wait) {
        fputs(t->active ? "runs" : "is idle", out);
        text_place(t, out);
    } else if (t->wait->object.kind != AWAITED_UNKNOWN) {
        dump_text_wait_object(t->wait, out);
    } else {
        dump_text_wait_reason(t->wait, t->process->pid, out);
    }
}

static void text_chain(const struct verdict *v, FILE *out)
{
    size_t n = listed(v);

    text_thread(v->threads[0], out);
    for (size_t i = 0; i < n; i++) {
        bool last = i + 1 == v->n;

        fputs(i ? ", which " : " ", out);
        if (!last || v->kind == VERDICT_DEADLOCK)
            text_link(v->threads[i], out);
        else
            text_last(v->threads[i], out);
        if (!last && i + 1 < n)
            text_thread(v->threads[i + 1], out);
        else if (!last)
            fprintf(out, "a chain of %zu more threads", v->n - n);
        else if (v->kind == VERDICT_DEADLOCK && v->n > 1)
            text_thread(v->threads[0], out);
        else if (v->kind == VERDICT_DEADLOCK)
            fputs("itself", out);
    }
}

static void text_others(const struct verdict *v, FILE *out)
{
    if (v->n_others == 1)
        fputs(" 1 more thread waits for this.", out);
    else if (v->n_others)
        fprintf(out, " %zu more threads wait for this.", v->n_others);
}

static bool is_collection(const struct func *f)
{
    const char *file = strrchr(f->module, '/');

    if (!strstr(file ? file : f->module, "python"))
        return false;
    return strncmp(f->name, "gc_collect_", 11) == 0 ||
           (strcmp(f->name, "collect") == 0 && strcmp(f->short_filename, "gcmodule.c") == 0); /* up to 3.8 */
}

/* With --native, one of the functions that the innermost Python function has called is the collector. */
static bool collects_garbage(const struct trace *t)
{
    for (size_t i = 0; i < t->n_frames && t->frames[i].func->module; i++)
        if (is_collection(t->frames[i].func))
            return true;
    return false;
}

static void text_gil(const struct verdict *v, FILE *out)
{
    if (v->all_others && v->n_others > 1)
        fprintf(out, "All %zu other threads wait for the GIL, held by ", v->n_others);
    else if (v->n_others > 1)
        fprintf(out, "%zu threads wait for the GIL, held by ", v->n_others);
    else
        fputs(v->all_others ? "The other thread waits for the GIL, held by " : "1 thread waits for the GIL, held by ",
              out);
    text_thread(v->threads[0], out);
    text_place(v->threads[0], out);
    if (collects_garbage(v->threads[0]))
        fputs(", collecting garbage", out);
    if (v->threads[0]->wait) { /* C code that waits without releasing it */
        fputs(", which ", out);
        text_last(v->threads[0], out);
    }
    putc('.', out);
}

static void text_stopped(const struct verdict *v, FILE *out)
{
    const struct trace *t = v->threads[0];

    if (v->process) {
        fputs(v->certain ? "Everything waits for " : "Likely, everything waits for ", out);
        dump_text_process(v->process, t->process->pid, out);
        putc('.', out);
        return;
    }
    fputs("The process ", out);
    dump_text_wait_reason(t->wait, t->process->pid, out);
    putc('.', out);
}

void dump_text_verdict(const struct verdict *v, FILE *out)
{
    switch (v->kind) {
    case VERDICT_NONE:
        return;
    case VERDICT_DEADLOCK:
        fputs(v->certain ? "Deadlock: " : "Likely deadlock: ", out);
        text_chain(v, out);
        putc('.', out);
        break;
    case VERDICT_CHILD:
        fputs(v->certain ? "Deadlock: " : "Likely deadlock: ", out);
        text_chain(v, out);
        putc('.', out);
        break;
    case VERDICT_ORPHAN:
        text_chain(v, out);
        fputs(". Nothing will release it.", out);
        break;
    case VERDICT_GIL:
        text_gil(v, out);
        return;
    case VERDICT_STOPPED:
        text_stopped(v, out);
        return;
    case VERDICT_WAITS:
        fputs("No cycle found: ", out);
        text_chain(v, out);
        putc('.', out);
        break;
    }
    text_others(v, out);
}

void dump_json_verdict(const struct verdict *v, FILE *out)
{
    static const char *const kinds[] = {[VERDICT_NONE] = NULL,        [VERDICT_DEADLOCK] = "deadlock",
                                        [VERDICT_CHILD] = "child",    [VERDICT_ORPHAN] = "exited holder",
                                        [VERDICT_GIL] = "GIL",        [VERDICT_WAITS] = "no cycle",
                                        [VERDICT_STOPPED] = "stopped"};
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    if (mem) {
        dump_text_verdict(v, mem);
        fclose(mem);
    }
    fputs(",\n    \"verdict\": {\n      \"kind\": ", out);
    json_string(out, kinds[v->kind]);
    fprintf(out, ",\n      \"certain\": %s,\n      \"text\": ", v->certain ? "true" : "false");
    json_string(out, text);
    fputs(",\n      \"threads\": [", out);
    for (size_t i = 0; i < listed(v); i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", v->threads[i]->thread_id);
    fprintf(out, "],\n      \"others\": %zu\n    }", v->n_others);
    free(text);
}
