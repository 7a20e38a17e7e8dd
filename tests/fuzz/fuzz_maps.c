/*
 * The text of a maps file.
 */
#include "fuzz.h"
#include "target/proc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct proc_maps maps;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (proc_maps_parse(text, &maps) < 0)
        return 0;
    for (size_t i = 0; i < maps.n; i++)
        if (maps.items[i].end <= maps.items[i].start || strlen(maps.items[i].path) > size)
            abort();
    proc_maps_free(&maps);
    return 0;
}
