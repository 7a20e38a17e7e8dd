/*
 * The debug offsets of an interpreter, and its version string. If they are accepted, no field may be past the end of
 * what spyglass reads of its object.
 */
#include "fuzz.h"
#include "python/debug_offsets.h"
#include "python/search.h"

#include <stdlib.h>

static void check(const struct layout *l)
{
    if (l->fr_code + 8 > 512 || l->fr_back + 8 > 512 || l->fr_instr + 8 > 512 || l->fr_owner >= 512 || l->fr_size > 512)
        abort();
    if (l->co_filename + 8 > l->co_size || l->co_name + 8 > l->co_size || l->co_qualname + 8 > l->co_size ||
        l->co_lines + 8 > l->co_size || l->co_firstline + 4 > l->co_size || l->co_size > 512)
        abort();
    if (l->ts_frame >= 1024 || l->ts_chunk >= 1024 || l->str_length + 8 > l->str_state + 1 || l->str_state >= 64)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct debug_version v;

    search_parse_version((const char *)data, size, &v);
    for (int column = -1; column < DEBUG_OFFSETS_VERSIONS; column++) { /* -1: a version without debug offsets */
        struct layout l = *layout_of(3, DEBUG_OFFSETS_FIRST_MINOR + column);

        if (debug_offsets_apply(data, size, &l) == 0)
            check(&l);
    }
    if (debug_offsets_version(data, size, &v) && (v.major != 3 || v.suffix[sizeof(v.suffix) - 1]))
        abort();
    return 0;
}
