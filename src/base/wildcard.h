/*
 * Patterns that users write: `*` stands for any characters, `?` for one; everything else, brackets too, is literal.
 *
 *     wildcard_matches("json.*", "json.decoder");     // true
 */
#ifndef BASE_WILDCARD_H
#define BASE_WILDCARD_H

#include <stdbool.h>

#define WILDCARD_TEXT_MAX 65536 /* bytes of a text that are compared */

bool wildcard_in(const char *pattern);

/* True if the pattern matches the whole text. Both are valid UTF-8. Takes at most the product of the two lengths, however
 * many stars there are. */
bool wildcard_matches(const char *pattern, const char *text);

#endif
