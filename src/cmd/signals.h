/*
 * What signals ask of a recording. SIGINT, SIGTERM, SIGHUP and SIGQUIT end it, SIGUSR1 wants what there is so far, SIGTSTP
 * wants us to stop when nothing is held. All but SIGUSR1 are passed on to a launched program, unless it has got them
 * already: what is typed at a terminal goes to everyone in the foreground.
 */
#ifndef CMD_SIGNALS_H
#define CMD_SIGNALS_H

#include "target/launch.h"

void signals_catch(const struct launch_origin *origin);

/* While a program is being started: signals wait, so that none is lost on the way to it. */
void signals_hold(sigset_t *ret_before);
/* They go on, to `pid` too; 0: there is none. */
void signals_release(pid_t pid, const sigset_t *before);
/* It has ended: its pid may become another's. */
void signals_forget_program(void);

/* The signal that ended the recording; 0: none. */
int signals_ended_by(void);
/* How often that was asked by signals that were sent, not typed; those of one moment are one. */
int signals_ended_times(void);

/* True once for each time it was asked for. */
bool signals_take_snapshot(void);
bool signals_take_stop(void);

/* Stops us, until someone lets us go on. */
void signals_stop_us(void);

#endif
