/*
 * Our own capabilities as bit sets: bit 19 is CAP_SYS_PTRACE (capabilities(7)).
 */
#ifndef TARGET_CAPS_H
#define TARGET_CAPS_H

#include <stdint.h>

#define CAPS_SETGID (UINT64_C(1) << 6)
#define CAPS_DAC    (UINT64_C(3) << 1) /* read any file: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH */
#define CAPS_SETUID (UINT64_C(1) << 7)
#define CAPS_PTRACE (UINT64_C(1) << 19)
#define CAPS_ADMIN  (UINT64_C(1) << 21)

uint64_t caps_effective(void);
uint64_t caps_permitted(void);

/* 0 or ERR_PERMISSION. Effective capabilities must be permitted; dropped capabilities cannot be regained. Programs
 * that we start inherit none. */
int caps_set(uint64_t permitted, uint64_t effective);

#endif
