/*
 * Bounds how long ptrace keeps a thread stopped if spyglass itself is stopped at that moment. The kernel resumes the
 * thread when its tracer dies, but not when its tracer is stopped (SIGSTOP).
 *
 * While a thread is stopped, kernel timers run. They send SIGCONT to spyglass, which takes effect even though spyglass
 * is stopped, and finally SIGKILL. While spyglass runs, they have no effect. SIGTSTP (Ctrl-Z) is blocked during this
 * time, so it takes effect afterwards.
 */
#ifndef PAUSE_HOLD_GUARD_H
#define PAUSE_HOLD_GUARD_H

/* Call it before attaching, and again to restart the timers. */
void hold_guard_begin(void);
/* Call it when no thread is attached any more. */
void hold_guard_end(void);

#endif
