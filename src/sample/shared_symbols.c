/*
 * Finds open symbols by the identity of their file.
 */
#include "sample/shared_symbols.h"

#include "base/clock.h"
#include "base/grow.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* False if the symbols cannot be shared. */
static bool identify(const struct symbols_source *src, struct symbols_user *ret)
{
    struct stat file, root;

    if (src->fd < 0 || fstat(src->fd, &file) < 0)
        return false;
    if ((src->root_fd < 0 ? stat("/", &root) : fstat(src->root_fd, &root)) < 0)
        return false;
    ret->device = file.st_dev;
    ret->inode = file.st_ino;
    ret->size = (uint64_t)file.st_size;
    ret->changed_ns = (uint64_t)file.st_ctim.tv_sec * NS_PER_S + (uint64_t)file.st_ctim.tv_nsec;
    ret->root_device = root.st_dev;
    ret->root_inode = root.st_ino;
    return true;
}

static bool is_same(const struct symbols_user *a, const struct symbols_user *b, const char *path)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->changed_ns == b->changed_ns &&
           a->root_device == b->root_device && a->root_inode == b->root_inode && strcmp(a->path, path) == 0;
}

static void user_free(struct symbols_user *user)
{
    symbols_close(user->symbols);
    if (user->root_fd >= 0)
        close(user->root_fd);
    free(user->path);
    free(user);
}

/* Takes src->fd. A module that cannot be read has no symbols. */
static struct symbols_user *user_new(const struct symbols_source *src, const struct symbols_user *identity)
{
    struct symbols_user *user = malloc(sizeof(*user));
    struct symbols_source own = *src;

    if (!user) {
        if (src->fd >= 0)
            close(src->fd);
        return NULL;
    }
    *user = *identity;
    user->n_users = 1;
    /* The process that opened it may end first. */
    own.root_fd = user->root_fd = src->root_fd < 0 ? -1 : fcntl(src->root_fd, F_DUPFD_CLOEXEC, 0);
    user->path = strdup(src->path);
    if (symbols_open(&own, &user->symbols) < 0) {
        own.fd = -1;
        own.image = NULL;
        if (symbols_open(&own, &user->symbols) < 0)
            user->symbols = NULL;
    }
    if (!user->symbols || !user->path) {
        user_free(user);
        return NULL;
    }
    return user;
}

struct symbols_user *shared_symbols_open(struct shared_symbols *all, const struct symbols_source *src)
{
    struct symbols_user identity = {0}, *user;
    bool shares = identify(src, &identity);

    for (size_t i = 0; i < all->n && shares; i++)
        if (is_same(all->items[i], &identity, src->path)) {
            close(src->fd);
            all->items[i]->n_users++;
            return all->items[i];
        }
    user = user_new(src, &identity);
    if (user && shares && grow_array((void **)&all->items, &all->cap, all->n + 1, sizeof(struct symbols_user *)) == 0) {
        user->owner = all;
        all->items[all->n++] = user;
    }
    return user;
}

void shared_symbols_close(struct symbols_user *user)
{
    struct shared_symbols *all = user->owner;

    if (--user->n_users)
        return;
    for (size_t i = 0; all && i < all->n; i++)
        if (all->items[i] == user) {
            all->items[i] = all->items[--all->n];
            break;
        }
    user_free(user);
}

void shared_symbols_free(struct shared_symbols *all)
{
    free(all->items);
    *all = (struct shared_symbols){0};
}
