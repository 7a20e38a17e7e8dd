/*
 * capget(2) and capset(2), for which the C library has no wrappers.
 */
#include "target/caps.h"

#include "base/err.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

struct sets {
    uint64_t effective, permitted;
};

static struct sets get_sets(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    if (syscall(SYS_capget, &head, data) < 0)
        return (struct sets){0, 0};
    return (struct sets){(uint64_t)data[1].effective << 32 | data[0].effective,
                         (uint64_t)data[1].permitted << 32 | data[0].permitted};
}

uint64_t caps_effective(void)
{
    return get_sets().effective;
}

uint64_t caps_permitted(void)
{
    return get_sets().permitted;
}

int caps_set(uint64_t permitted, uint64_t effective)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
        {.effective = (uint32_t)effective, .permitted = (uint32_t)permitted},
        {.effective = (uint32_t)(effective >> 32), .permitted = (uint32_t)(permitted >> 32)}};

    return syscall(SYS_capset, &head, data) < 0 ? ERR_PERMISSION : 0;
}
