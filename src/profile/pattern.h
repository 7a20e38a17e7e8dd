/*
 * Patterns that users write for functions, files, modules and threads, with the wildcards of base/wildcard.h.
 *
 *     struct pattern pattern;
 *     pattern_init(&pattern, "json.*");
 *     pattern_matches(&pattern, "json.decoder");     // true
 *     pattern_free(&pattern);
 */
#ifndef PROFILE_PATTERN_H
#define PROFILE_PATTERN_H

#include "sample/trace.h"

#define PATTERN_MAX 4096 /* bytes; longer patterns are for the caller to reject */

struct pattern {
    char *text; /* valid UTF-8 */
    bool has_wildcard, has_slash;
};

/* 0 or ERR_NOMEM. */
int pattern_init(struct pattern *pattern, const char *text);
void pattern_free(struct pattern *pattern);

/* True if the pattern matches the whole text. */
bool pattern_matches(const struct pattern *pattern, const char *text);

/* The texts by which a function can be found. All zeros at first; may be reused; pattern_texts_free. */
struct pattern_texts {
    const struct func *func;
    const char *last;       /* of the qualified name: "decode" */
    const char *base;       /* of the file: "decoder.py" */
    const char *short_file; /* below its outermost package; NULL if that is unknown */
    char *module;           /* "json.decoder"; "" if it has none */
    char *dotted;           /* with the name: "json.decoder.JSONDecoder.decode" */
    size_t cap_module, cap_dotted;
};

/* 0 or ERR_NOMEM. */
int pattern_texts_set(struct pattern_texts *texts, const struct func *func);
void pattern_texts_free(struct pattern_texts *texts);

/*
 * With a wildcard: the pattern matches one of the texts as a whole: the name, with or without its class and module, the module,
 * the file name, short or full, or the library of a native function. Without: it is one or several components of them, such as
 * "decode", "JSONDecoder.decode", "json.decoder", "json" or "json/decoder.py". Only patterns with a slash match directories above
 * the package: "app" must not match everything in /srv/app.
 */
bool pattern_matches_func(const struct pattern *pattern, const struct pattern_texts *texts);

#endif
