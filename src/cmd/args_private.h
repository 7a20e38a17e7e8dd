/*
 * What the files that read the command line share: args.c has the tables, args_parse.c reads the words, args_values.c the value of a
 * flag, and args_check.c checks which flags go together.
 */
#ifndef CMD_ARGS_PRIVATE_H
#define CMD_ARGS_PRIVATE_H

#include "cmd/args.h"
#include "cmd/suggest.h"

#include <stdint.h>

/* The bit of a command in args_flag.commands. */
#define ARGS_IN(command) (1u << (command))
#define ARGS_IN_ALL      (ARGS_IN(ARGS_COMMANDS_) - 1)

struct args_parser {
    char *const *argv;
    int argc, next;
    uint64_t seen; /* the flags given so far: bit n is row n of the table */
    /* Set by args_each_file, args_each_pid and args_each_name, else NULL. */
    int (*visit)(const char *word, void *arg);
    int (*visit_pid)(pid_t pid, void *arg);
    int (*visit_name)(const char *pattern, void *arg);
    void *arg;
    struct options *o;
    struct error_text *text;
};

/* The flag with this name of n bytes or, unless `letter` is 0, with this letter, in one of the commands; NULL: none. */
const struct args_flag *args_find_flag(const char *name, size_t n, char letter, unsigned commands);

/* True if the value may begin with a dash, as -5. */
bool args_is_numeric(const struct args_flag *flag);

/* Sets the field of a flag from its value. Returns 0, or ERR_USAGE with p->text filled. */
int args_set_value(struct args_parser *p, const struct args_flag *flag, const char *value);

/* Reports that g->word is not a known `kind` ("format"). */
int args_fail_choice(struct args_parser *p, const char *kind, const struct suggest *g);

/* True for digits only. */
bool args_is_number(const char *word);

/* Checks the command line as a whole, after all of it is parsed. Returns 0, or ERR_USAGE with p->text filled. */
int args_check(const struct args_parser *p);

#endif
