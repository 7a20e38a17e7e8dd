/*
 * Opens a core file, with --root and --exe, as a process that can be sampled once.
 */
#include "cmd/postmortem.h"

#include "base/text.h"
#include "target/core_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void postmortem_close(struct postmortem *pm)
{
    process_free(pm->process);
    mem_close(pm->mem);
    if (pm->core)
        files_close(&pm->files);
    core_file_free(pm->core);
    *pm = (struct postmortem){0};
}

/* Checked first, so that a mistyped path is reported before any work is done. */
static int check_exe(const char *exe, struct error_text *text)
{
    if (access(exe, R_OK) == 0)
        return 0;
    error_text_what(text, ERR_CORE, "cannot read the executable %s: %s", exe, strerror(errno));
    error_text_hint(text, "Use --exe with a copy of the executable of the dumped process.");
    return ERR_CORE;
}

static int open_files(struct postmortem *pm, const char *root, const char *exe, struct err_note *note)
{
    const char *path = core_file_exe(pm->core);
    int r = files_open_root(root, &pm->files, note);

    if (r < 0) {
        pm->files = (struct files){.root = -1};
        return r;
    }
    pm->files.uid = pm->core->uid;
    pm->files.exe_override = exe;
    pm->files.exe_path = strdup(path);
    return pm->files.exe_path ? 0 : ERR_NOMEM;
}

static void hint_not_python(const struct core_file *core, struct error_text *text)
{
    error_text_hint(text, "The core file is from the program '%s'. Use the core file of a Python process.",
                    text_safe(core->name).s);
}

/* Turns an error from reading the process into one about the core file, which cannot be retried. */
static int explain(const struct postmortem *pm, int r, struct error_text *text)
{
    const struct core_file *core = pm->core;
    struct mem_core_missing lack;
    bool cut = core->size < core->expected_size, lacks = mem_core_find_missing(pm->mem, &lack);

    if (r == ERR_VERSION || r == ERR_NOMEM || r == ERR_CORE)
        return r;
    if (r == ERR_NOT_PYTHON)
        error_text_what(text, r, "%s contains no Python interpreter", core->path);
    else
        r = error_text_what(text, ERR_CORE, "%s contains a Python interpreter, but none of its threads", core->path);
    if (cut)
        error_text_hint(text,
                        "The file is truncated: copy the original again; if it is truncated too, raise ulimit -c.");
    else if (lacks)
        error_text_hint(text, "Files that the process had mapped are missing here: see the note above.");
    else if (r == ERR_NOT_PYTHON)
        hint_not_python(core, text);
    else
        error_text_hint(text, "Python may have been starting or exiting, or the core file omits its memory: see "
                              "/proc/PID/coredump_filter in core(5).");
    return r;
}

int postmortem_open(struct postmortem *pm, struct sampler *s, const char *path, const char *root, const char *exe,
                    struct error_text *text)
{
    struct err_note note = {0};
    int r = exe ? check_exe(exe, text) : 0;

    if (r == 0)
        r = core_file_open(path, &pm->core, &note);
    if (r == 0)
        r = open_files(pm, root, exe, &note);
    if (r == 0)
        r = mem_core_open(pm->core, &pm->files, &pm->mem);
    if (r < 0)
        return error_text_explain(text, r, &note.facts);
    if (exe)
        mem_core_check_file(pm->mem, pm->files.exe_path);
    r = process_open_core(s, pm->core, &pm->files, pm->mem, &pm->process, &note);
    error_text_explain(text, r, &note.facts);
    return r < 0 ? explain(pm, r, text) : 0;
}

int postmortem_sample(struct postmortem *pm, process_sink sink, void *arg, struct error_text *text)
{
    int r = process_sample(pm->process, sink, arg);

    return r < 0 ? explain(pm, r, text) : 0;
}

static void report_lack(const struct postmortem *pm, const struct mem_core_missing *lack)
{
    bool is_exe = strcmp(lack->path, core_file_exe(pm->core)) == 0;

    fputs("Note: ", stderr);
    if (is_exe && pm->files.exe_override)
        fputs("the file given with --exe is not the executable of the dumped process; ", stderr);
    else {
        text_print_safe(stderr, lack->path);
        fputs(lack->is_different ? " is not the file that the process had mapped" : " is missing here", stderr);
        if (lack->n > 1)
            fprintf(stderr, " (and %zu more)", lack->n - 1);
        fputs("; ", stderr);
    }
    fprintf(stderr, "could not read memory that is not in the core file. Use %s.\n",
            is_exe ? "--exe FILE, or --root DIR with the files of the original machine or container"
                   : "--root DIR with the files of the original machine or container");
}

void postmortem_report(const struct postmortem *pm)
{
    struct mem_core_missing lack;

    if (pm->core && pm->core->size < pm->core->expected_size)
        fprintf(stderr, "Note: the core file is truncated: it has %llu of %llu KB.\n",
                (unsigned long long)pm->core->size >> 10, (unsigned long long)pm->core->expected_size >> 10);
    if (pm->mem && mem_core_find_missing(pm->mem, &lack))
        report_lack(pm, &lack);
}
