/*
 * Our own capabilities, as sets of bits: bit 19 is CAP_SYS_PTRACE (capabilities(7)).
 *
 *     if (!(caps_effective() & CAPS_PTRACE)) …
 */
#ifndef TARGET_CAPS_H
#define TARGET_CAPS_H

#include <stdint.h>

#define CAPS_SETGID (UINT64_C(1) << 6)
#define CAPS_SETUID (UINT64_C(1) << 7)
#define CAPS_PTRACE (UINT64_C(1) << 19)
#define CAPS_ADMIN  (UINT64_C(1) << 21)
#define CAPS_NICE   (UINT64_C(1) << 23)

uint64_t caps_effective(void);
uint64_t caps_permitted(void);

/* 0, or ERR_PERMISSION. What is not permitted cannot become effective, and what was given up does not come back;
 * nothing is handed on to programs that we start. */
int caps_set(uint64_t permitted, uint64_t effective);

#endif
