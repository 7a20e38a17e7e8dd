/*
 * Shared by the files of record: record.c samples and writes the profile, record_program.c manages the program that it
 * launches, record_empty.c explains an empty profile.
 */
#ifndef CMD_RECORD_PRIVATE_H
#define CMD_RECORD_PRIVATE_H

#include "cmd/args.h"
#include "cmd/filtered.h"
#include "cmd/selection.h"
#include "profile/profile.h"
#include "sample/loop.h"
#include "target/cpu_limit.h"
#include "target/launch.h"
#include "target/sudo_caller.h"
#include "ui/progress.h"

#include <stdio.h>

struct output_file;

struct record {
    const struct options *o;
    const char *name;       /* the program, script or module, as it was given; NULL: a process */
    char **line;            /* the command line that was made from a script or a module, or NULL */
    struct options options; /* with `line` as the program */
    const struct format *format;
    FILE *messages;
    struct sampler *sampler;
    struct process_tree tree;
    struct selection chosen; /* with `several` */
    bool several;            /* --pid, --name or --all may mean more than one process */
    size_t n_chosen;         /* how many there are */
    struct err_note refusal; /* of the tree */
    struct launch launch;
    struct sudo_caller caller;
    bool has_caller;          /* we run under sudo */
    uint64_t launched_ns;     /* when the program was launched */
    uint64_t stopped_ns;      /* when the launched program was first seen stopped; 0: not stopped */
    uint64_t ended_ns;        /* when it was first seen to have exited; 0: still running */
    bool killed;              /* we have sent SIGTERM to the program */
    bool said_still_sampling; /* printed that children are still running */
    bool said_waiting;        /* printed that no Python runs yet */
    bool said_stalled;        /* printed that the output is not being read */
    pid_t announced_pid;      /* the child that was announced last */
    struct profile *profile;
    struct filtered filtered; /* what the file shows of it */
    uint64_t folded;          /* profile->folded when processes were last forgotten */
    struct output_file *place;
    struct progress *progress;
    struct loop loop;
    struct cpu_limit cpu_limit; /* of the root process */
    struct cpu_use cpu;         /* of the target, after the loop */
    struct error_text *text;
    char remark[2 * sizeof(struct error_text)]; /* why the profile is empty; "" otherwise */
};

/* Prints one message. */
__attribute__((format(printf, 2, 3))) void record_say(struct record *rec, const char *fmt, ...);
/* True if the parent process exited. If it exited before our first check, it never was our parent. */
bool record_is_orphan(const struct record *rec);
/* The process that is sampled, or the root of the tree; NULL before there is one. */
const struct tree_entry *record_target(const struct record *rec);

/* Fills in rec->text if there are no samples: says why, and which flag helps. ERR_NO_SAMPLES if the recording failed, 0 if there
 * was nothing to sample. */
int record_explain_empty(struct record *rec);
/* Decides what o->program is: a program, a script or module for Python, or the name of a process. 0 for those that can be
 * launched, else an error with rec->text filled. */
int record_program_find(struct record *rec);

/* 0, or ERR_LAUNCH with rec->text filled. */
int record_program_start(struct record *rec);
/* Attaches to the program or, until it is Python itself, to the first Python process that it starts, however long that
 * takes. 0, or an error with rec->text filled: it has exited, or a signal has ended the wait. */
int record_program_attach(struct record *rec);
/* Attaching to the program failed with `r`. With --subprocesses, its children may still run Python: 0. */
int record_program_failed(struct record *rec, int r);

/* Checks on the program between samples. Says which process is sampled when that changes. */
void record_program_check(struct record *rec);
/* Stops spyglass between samples, when no thread is paused, so that the target keeps running. */
void record_suspend_if_asked(struct record *rec);

/* After the recording: 0, or ERR_GONE if the program has exited without running Python. */
int record_program_ran_python(struct record *rec);
/* Waits for the program or terminates it, as the options and our name say. Returns the exit status for spyglass: that of the program
 * if it is not 0, else `status`. Callers of py-spy always get `status`. */
int record_program_finish(struct record *rec, int status);

#endif
