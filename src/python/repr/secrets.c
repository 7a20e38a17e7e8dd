/*
 * Guesses from a name whether the value is a secret. Errs on the side of masking; --show-secrets turns it
 * off.
 */
#include "python/repr/secrets.h"

#include <string.h>

static const char *const secret_words[] = {"password", "passwd", "passphrase", "secret", "token", "credential", "key"};

/* Ordinary words that contain one of those. */
static const char *const harmless_words[] = {
    "keyboard", "keyword", "keyframe", "keystroke", "keypress", "keynote",   "keypoint", "monkey",
    "turkey",   "donkey",  "hockey",   "jockey",    "whiskey",  "tokenizer", "tokenise", "tokenize",
};

/* Length of the word that `name` starts with, or 0. */
static size_t match_prefix(const char *name, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(words[i]);

        if (strncasecmp(name, words[i], len) == 0)
            return len;
    }
    return 0;
}

bool secrets_match(const char *name)
{
    while (*name) {
        size_t len = match_prefix(name, harmless_words, sizeof(harmless_words) / sizeof(harmless_words[0]));

        if (!len && match_prefix(name, secret_words, sizeof(secret_words) / sizeof(secret_words[0])))
            return true;
        name += len ? len : 1;
    }
    return false;
}
