/*
 * The processes that --pid, --name and --all choose, if they may be several (args_choose_several).
 *
 *     struct selection chosen = {.o = o, .say = say, .arg = arg};
 *     r = selection_attach(&chosen, &tree, &text);       // instead of sampled_tree_add_root
 */
#ifndef CMD_SELECTION_H
#define CMD_SELECTION_H

#include "cmd/args.h"
#include "sample/sampled_tree.h"

struct selection {
    const struct options *o;
    /* Shows one line: a phrase that begins with a small letter and has no full stop. */
    void (*say)(const char *line, void *arg);
    void *arg;
    /* Results. */
    size_t left_out; /* processes that were chosen, and could not be read, */
    size_t failed;   /* those among them that were given with --pid: the command fails, though it reads the others */
    int error;       /* of the last of them */
    pid_t last;      /* its PID */
    pid_t refused;   /* the first of them that we have no permission to read; 0: none */
};

/* Attaches to the chosen processes, and adds them to the empty tree. Reports which ones cannot be read, and goes on without
 * them. 0, or an error with `text` filled: there is nothing to read, or memory is short. */
int selection_attach(struct selection *s, struct process_tree *tree, struct error_text *text);

/* Reports a process that is attached, and cannot be read after all. */
void selection_leave_out(struct selection *s, pid_t pid, int error);

/* The error of a command that had to leave out all of them. Fills in `text`. */
int selection_fail(const struct selection *s, struct error_text *text);

#endif
