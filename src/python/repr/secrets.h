/*
 * Recognises names of secrets.
 */
#ifndef PYTHON_REPR_SECRETS_H
#define PYTHON_REPR_SECRETS_H

#include <stdbool.h>

/* True if the name contains password, passwd, passphrase, secret, token, credential or key, in upper or lower case:
 * `api_key`, `APIKey`, `userPassword`. False if that is part of an ordinary word such as `monkey` or `tokenizer`. */
bool secrets_match(const char *name);

#endif
