/*
 * The command line of a process, short enough for a label in a picture.
 */
#ifndef PROFILE_PROCESS_LABEL_H
#define PROFILE_PROCESS_LABEL_H

#define PROCESS_LABEL_GROUP   40  /* longest text in brackets that is kept, in bytes */
#define PROCESS_LABEL_COLUMNS 240 /* of the whole label */

/* Replaces long text in brackets with dots: multiprocessing passes the whole sys.path in the command line of its fork
 * server. Cuts what is still too long. The caller frees the result; NULL if out of memory. */
char *process_label(const char *command);

#endif
