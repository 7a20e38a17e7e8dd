/*
 * Reads the variables that programs agree on: no-color.org, bixense.com/clicolors, force-color.org.
 */
#include "cmd/color.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

static bool is_forced(const char *name)
{
    return is_set(name) && strcmp(getenv(name), "0") != 0;
}

bool color_is_wanted(FILE *out)
{
    const char *term = getenv("TERM");

    if (is_set("NO_COLOR"))
        return false;
    if (is_forced("FORCE_COLOR") || is_forced("CLICOLOR_FORCE"))
        return true;
    return isatty(fileno(out)) && term && *term && strcmp(term, "dumb") != 0;
}
