/*
 * A variable's, key's or attribute's name -> whether its value is to be hidden. Called by values.c.
 * Rather too often than too seldom: --show-secrets shows all.
 */
#include "python/repr/secrets.h"

#include <string.h>

static const char *const secret_words[] = {"password", "passwd", "passphrase", "secret", "token", "credential", "key"};

/* Ordinary words with one of these inside. */
static const char *const harmless_words[] = {
    "keyboard", "keyword", "keyframe", "keystroke", "keypress", "keynote",   "keypoint", "monkey",
    "turkey",   "donkey",  "hockey",   "jockey",    "whiskey",  "tokenizer", "tokenise", "tokenize",
};

/* Length of the word when `name` goes on with it, else 0. */
static size_t goes_on(const char *name, const char *const *words, size_t n)
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
        size_t len = goes_on(name, harmless_words, sizeof(harmless_words) / sizeof(harmless_words[0]));

        if (!len && goes_on(name, secret_words, sizeof(secret_words) / sizeof(secret_words[0])))
            return true;
        name += len ? len : 1;
    }
    return false;
}
