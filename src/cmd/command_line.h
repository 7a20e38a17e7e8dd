/*
 * The command lines of programs: `record script.py` and `record -m module` run Python, and messages show lines that can be
 * pasted into a shell.
 */
#ifndef CMD_COMMAND_LINE_H
#define CMD_COMMAND_LINE_H

#include "cmd/args.h"

/* If record got a script or a module, *ret is the command line that runs it: with the interpreter in the first line of the
 * script, else with the Python that `python3` starts in a shell. Otherwise, *ret is NULL: run o->program as it is. Free it
 * with command_line_free. Returns 0, or ERR_LAUNCH or ERR_NOMEM with `text` filled. */
int command_line_of_python(const struct options *o, char ***ret, struct error_text *text);
char **command_line_free(char **line);

/* True if execvp would find this program: an executable file in PATH, or at this path if it has a slash. */
bool command_line_is_program(const char *name);

/* Prints the words with quotes where a shell needs them. Escapes what would control the terminal. */
void command_line_print(FILE *out, char *const words[]);

#endif
