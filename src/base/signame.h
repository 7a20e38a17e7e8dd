#ifndef BASE_SIGNAME_H
#define BASE_SIGNAME_H

/* The name of a signal without "SIG": signame_of(SIGTERM) is "TERM". NULL for real-time signals and unknown numbers. */
const char *signame_of(int signal);

#endif
