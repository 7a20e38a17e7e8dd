/*
 * Matches a pattern with wildcards against a text.
 */
#include "base/wildcard.h"

#include <stddef.h>
#include <string.h>

bool wildcard_in(const char *pattern)
{
    return strpbrk(pattern, "*?") != NULL;
}

static const char *next_character(const char *s, const char *end)
{
    for (s++; s < end && ((unsigned char)*s & 0xc0) == 0x80; s++)
        continue;
    return s;
}

/* Only the last star is ever tried again: if the text after an earlier one matched further on, it would match here too. */
bool wildcard_matches(const char *pattern, const char *text)
{
    const char *s = text, *end = text + strnlen(text, WILDCARD_TEXT_MAX), *after_star = NULL, *again = NULL;

    while (s < end) {
        if (*pattern == '*') {
            after_star = ++pattern;
            again = s;
        } else if (*pattern == '?') {
            pattern++;
            s = next_character(s, end);
        } else if (*pattern == *s) {
            pattern++;
            s++;
        } else if (after_star != NULL) {
            pattern = after_star;
            s = again = next_character(again, end);
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}
