/*
 * Signal handling of record. SIGINT, SIGTERM, SIGHUP and SIGQUIT end the recording. SIGUSR1 writes the profile so far.
 * SIGTSTP stops us once no thread is paused. All but SIGUSR1 are forwarded to a launched program, unless it already got
 * them: signals typed at a terminal reach the whole foreground process group.
 */
#ifndef CMD_SIGNALS_H
#define CMD_SIGNALS_H

#include "target/launch.h"

void signals_catch(const struct launch_origin *origin);

/* Blocks all signals while a program is being launched, so that none is lost. */
void signals_hold(sigset_t *ret_before);
/* Restores the mask and forwards signals to the program from now on; NULL: no program. */
void signals_release(const struct launch *program, const sigset_t *before);
/* Stops forwarding. Call it before the program is reaped, because its PID may be reused then, and before its pidfd is closed. */
void signals_forget_program(void);

/* The signal that ended the recording; 0: none. */
int signals_ended_by(void);
/* Number of requests to end. Signals within 200 ms count as one. */
int signals_ended_times(void);

/* True once per request. */
bool signals_take_snapshot(void);
bool signals_take_stop(void);

/* Stops this process until SIGCONT. */
void signals_stop_us(void);

#endif
