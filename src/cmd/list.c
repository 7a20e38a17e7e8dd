/*
 * list: the Python processes on this machine that we can read, busiest first.
 */
#include "cmd/list.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/text.h"
#include "base/wildcard.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "out/json.h"
#include "sample/process.h"
#include "target/access.h"
#include "target/proc.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEASURE_NS      (200 * NS_PER_MS) /* CPU use is measured over at least this time */
#define COMMAND_COLUMNS 100
#define USER_COLUMNS    12

struct row {
    struct proc_info info; /* its texts belong to the sampler */
    uid_t uid;
    char user[33];
    size_t threads;
    uint64_t cpu_ns, at_ns; /* CPU time used when we first looked, and when that was */
    double cpu;             /* CPUs in use */
};

struct list {
    struct sampler *sampler;
    struct row *rows;
    size_t n, cap;
    size_t denied; /* look like Python, but cannot be read */
};

/* getpwuid would load plugins, which a static program cannot. */
static void find_user(uid_t uid, char *ret, size_t size)
{
    FILE *passwd = fopen("/etc/passwd", "re");
    const struct passwd *entry;

    snprintf(ret, size, "%u", (unsigned)uid);
    if (!passwd)
        return;
    while ((entry = fgetpwent(passwd)))
        if (entry->pw_uid == uid) {
            snprintf(ret, size, "%s", entry->pw_name);
            break;
        }
    fclose(passwd);
}

bool list_looks_like_python(pid_t pid)
{
    size_t len;
    char *name;
    bool found;

    if (proc_read_file(pid, 0, "comm", &name, &len) < 0)
        return false;
    found = strstr(name, "python") != NULL;
    free(name);
    return found;
}

static int add_row(struct list *l, pid_t pid)
{
    struct row row = {.cpu_ns = proc_cpu_ns(pid), .at_ns = clock_now_ns()};
    struct process *p = NULL;
    int r = process_attach(l->sampler, pid, 0, &p, NULL);
    struct proc_status status;
    pid_t *tids;

    if (r == ERR_NOMEM)
        return r;
    l->denied += r == ERR_PERMISSION && list_looks_like_python(pid);
    if (r < 0)
        return 0;
    row.info = *process_info(p);
    process_free(p);
    if (proc_status_read(pid, 0, &status) == 0) {
        row.uid = status.uid_effective;
        find_user(row.uid, row.user, sizeof(row.user));
    }
    if (proc_tasks_read(pid, &tids, &row.threads) == 0)
        free(tids);
    if (grow_array((void **)&l->rows, &l->cap, l->n + 1, sizeof(*l->rows)) < 0)
        return ERR_NOMEM;
    l->rows[l->n++] = row;
    return 0;
}

static void measure_cpu(struct list *l)
{
    if (l->n)
        clock_sleep_until_ns(l->rows[l->n - 1].at_ns + MEASURE_NS);
    for (size_t i = 0; i < l->n; i++) {
        struct row *row = &l->rows[i];
        uint64_t used = proc_cpu_ns(row->info.pid);

        if (used > row->cpu_ns)
            row->cpu = (double)(used - row->cpu_ns) / (double)(clock_now_ns() - row->at_ns);
    }
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->cpu != y->cpu)
        return x->cpu < y->cpu ? 1 : -1;
    return (x->info.pid > y->info.pid) - (x->info.pid < y->info.pid);
}

static int list_read(struct list *l)
{
    pid_t *pids = NULL;
    size_t n = 0;
    int r;

    l->sampler = sampler_new(&(struct sampler_options){0});
    r = l->sampler ? proc_pids_read(&pids, &n) : ERR_NOMEM;
    for (size_t i = 0; r == 0 && i < n; i++)
        if (pids[i] != getpid())
            r = add_row(l, pids[i]);
    free(pids);
    measure_cpu(l);
    if (l->n)
        qsort(l->rows, l->n, sizeof(*l->rows), compare_rows);
    return r;
}

static void list_free(struct list *l)
{
    free(l->rows);
    sampler_free(l->sampler);
    *l = (struct list){0};
}

/* "podman 3f9a1c", or "-" for a process outside of containers, or in our own. */
static void container_label(const struct proc_info *info, char *ret, size_t size)
{
    if (!info->runtime)
        snprintf(ret, size, "-");
    else
        snprintf(ret, size, "%s%s%.12s", info->runtime, info->container ? " " : "",
                 info->container ? info->container : "");
}

static void print_text(const struct list *l, size_t max, FILE *out)
{
    int width = (int)strlen("CONTAINER");
    char label[64];

    for (size_t i = 0; i < l->n && i < max; i++) {
        container_label(&l->rows[i].info, label, sizeof(label));
        if ((int)strlen(label) > width)
            width = (int)strlen(label);
    }
    fprintf(out, "%9s  %-10s  %-*s  %6s  %7s  %-*s  %s\n", "PID", "PYTHON", USER_COLUMNS, "USER", "CPU", "THREADS",
            width, "CONTAINER", "COMMAND");
    for (size_t i = 0; i < l->n && i < max; i++) {
        const struct row *row = &l->rows[i];
        const struct proc_info *info = &row->info;
        char command[4 * COMMAND_COLUMNS + 1], version[32];

        container_label(info, label, sizeof(label));
        snprintf(version, sizeof(version), "%d.%d.%d%s", info->major, info->minor, info->patch, info->version_suffix);
        /* Truncate long command lines, so that the list stays readable. */
        snprintf(command, sizeof(command), "%s", info->command);
        command[text_fit(command, COMMAND_COLUMNS)] = '\0';
        fprintf(out, "%9d  %-10s  %-*s  %5.0f%%  %7zu  %-*s  ", (int)info->pid, version, USER_COLUMNS,
                text_safe(row->user).s, 100 * row->cpu, row->threads, width, label);
        text_print_safe(out, command);
        fputc('\n', out);
    }
}

/* The fields are those of dump --json. */
static void print_json_container(const struct proc_info *info, FILE *out)
{
    if (!info->runtime && !info->inner_pid) {
        fputs("null", out);
        return;
    }
    if (info->inner_pid)
        fprintf(out, "{\"pid\": %d", (int)info->inner_pid);
    else
        fputs("{\"pid\": null", out);
    fputs(", \"runtime\": ", out);
    json_string(out, info->runtime);
    fputs(", \"id\": ", out);
    json_string(out, info->container);
    fputs("}", out);
}

static void print_json(const struct list *l, FILE *out)
{
    fputs("[", out);
    for (size_t i = 0; i < l->n; i++) {
        const struct row *row = &l->rows[i];
        const struct proc_info *info = &row->info;

        fprintf(out, "%s\n  {\"pid\": %d, \"python\": \"%d.%d.%d%s\", \"uid\": %u, \"user\": ", i ? "," : "",
                (int)info->pid, info->major, info->minor, info->patch, info->version_suffix, (unsigned)row->uid);
        json_string(out, row->user);
        fprintf(out, ", \"cpu_percent\": %.1f, \"threads\": %zu, \"container\": ", 100 * row->cpu, row->threads);
        print_json_container(info, out);
        fputs(", \"executable\": ", out);
        json_string(out, info->executable);
        fputs(", \"command\": ", out);
        json_string(out, info->command);
        fputs("}", out);
    }
    fputs(l->n ? "\n]\n" : "]\n", out);
}

int list_write(bool json, size_t max, FILE *out, struct list_counts *ret)
{
    struct list l = {0};
    int r = list_read(&l);

    *ret = (struct list_counts){.shown = l.n, .denied = l.denied};
    if (r == 0 && json)
        print_json(&l, out);
    else if (r == 0 && l.n)
        print_text(&l, max, out);
    list_free(&l);
    return r;
}

bool list_command_matches(const char *pattern, const char *command)
{
    return wildcard_in(pattern) ? wildcard_matches(pattern, command) : strstr(command, pattern) != NULL;
}

int list_matching(const char *pattern, void (*visit)(pid_t pid, const char *command, void *arg), void *arg,
                  struct list_counts *ret)
{
    struct list l = {0};
    int r = list_read(&l);

    *ret = (struct list_counts){.denied = l.denied};
    for (size_t i = 0; r == 0 && i < l.n; i++)
        if (list_command_matches(pattern, l.rows[i].info.command)) {
            visit(l.rows[i].info.pid, l.rows[i].info.command, arg);
            ret->shown++;
        }
    list_free(&l);
    return r;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "es";
}

int cmd_list(const struct options *o)
{
    struct error_text text = {0};
    struct list_counts counts;
    struct err_note note = {0};
    int r = error_text_explain(&text, access_check_proc(&note), &note.facts);

    if (r == 0)
        r = list_write(o->json, SIZE_MAX, stdout, &counts);
    if (r < 0)
        return error_text_print(stderr, r, &text);
    report_losses();
    if (counts.denied)
        fprintf(stderr, "%zu Python process%s of other users cannot be read: run %s list as root to see %s.\n",
                counts.denied, plural(counts.denied), args_name(o), counts.denied == 1 ? "it" : "them");
    else if (!counts.shown)
        fprintf(stderr, "There is no Python process that spyglass can read.\n");
    return 0;
}
