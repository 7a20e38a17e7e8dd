/*
 * Which names are those of secrets.
 */
#ifndef PYTHON_REPR_SECRETS_H
#define PYTHON_REPR_SECRETS_H

#include <stdbool.h>

/* True for names that have password, passwd, passphrase, secret, token, credential or key in them, in any case:
 * `api_key`, `APIKey`, `userPassword`. False where that is a part of another word, as in `monkey` or `tokenizer`. */
bool secrets_match(const char *name);

#endif
