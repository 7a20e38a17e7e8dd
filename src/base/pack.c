/*
 * Each item starts with a word: the number itself, or the length of the bytes that follow.
 */
#include "base/pack.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define NO_TEXT UINT64_MAX

static void append(struct pack *p, const void *bytes, size_t len)
{
    if (p->failed || grow_array((void **)&p->bytes, &p->cap, p->len + len, 1) < 0) {
        p->failed = true;
        return;
    }
    if (bytes && len)
        memcpy(p->bytes + p->len, bytes, len);
    else if (len)
        memset(p->bytes + p->len, 0, len);
    p->len += len;
}

void pack_number(struct pack *p, uint64_t value)
{
    append(p, &value, sizeof(value));
}

void pack_bytes(struct pack *p, const void *bytes, size_t len)
{
    pack_number(p, len);
    append(p, bytes, len);
}

void pack_text(struct pack *p, const char *text)
{
    if (text)
        pack_bytes(p, text, strlen(text) + 1);
    else
        pack_number(p, NO_TEXT);
}

void pack_free(struct pack *p)
{
    free(p->bytes);
    *p = (struct pack){0};
}

static const void *take(struct unpack *u, uint64_t len)
{
    const unsigned char *at = u->at;

    if (u->failed || len > u->left) {
        u->failed = true;
        return NULL;
    }
    u->at += len;
    u->left -= (size_t)len;
    return at;
}

uint64_t unpack_number(struct unpack *u)
{
    const void *at = take(u, sizeof(uint64_t));
    uint64_t value = 0;

    if (at)
        memcpy(&value, at, sizeof(value));
    return value;
}

const void *unpack_bytes(struct unpack *u, size_t *ret_len)
{
    uint64_t len = unpack_number(u);
    const void *at = take(u, len);

    *ret_len = at ? (size_t)len : 0;
    return at;
}

const char *unpack_text(struct unpack *u)
{
    uint64_t len = unpack_number(u);
    const char *text;

    if (len == NO_TEXT)
        return NULL;
    text = take(u, len);
    if (text && (len == 0 || text[len - 1] != '\0'))
        u->failed = true;
    return u->failed ? NULL : text;
}
