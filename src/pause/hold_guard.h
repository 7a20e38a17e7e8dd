/*
 * Bounds how long a thread stays held by ptrace if spyglass itself is stopped in that moment. The kernel resumes a held thread
 * when its tracer dies, but not when its tracer is stopped (SIGSTOP).
 *
 * While a thread is held, kernel timers run. They send SIGCONT to spyglass, which works although it is stopped, and SIGKILL
 * in the end. They do nothing as long as spyglass runs. SIGTSTP (Ctrl-Z) is blocked meanwhile, so it takes effect afterwards.
 */
#ifndef PAUSE_HOLD_GUARD_H
#define PAUSE_HOLD_GUARD_H

/* Call it before attaching; again to start the timers over. */
void hold_guard_begin(void);
/* Call it when no thread is attached any more. */
void hold_guard_end(void);

#endif
