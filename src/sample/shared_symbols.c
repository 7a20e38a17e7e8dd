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
static bool identify(const struct symbols_source *src, struct shared_module *ret)
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

static bool is_same(const struct shared_module *a, const struct shared_module *b, const char *path)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->changed_ns == b->changed_ns &&
           a->root_device == b->root_device && a->root_inode == b->root_inode && strcmp(a->path, path) == 0;
}

static void shared_module_free(struct shared_module *module)
{
    symbols_close(module->symbols);
    if (module->root_fd >= 0)
        close(module->root_fd);
    free(module->path);
    free(module);
}

/* Takes src->fd. A module that cannot be read has no symbols. */
static struct shared_module *shared_module_new(const struct symbols_source *src, const struct shared_module *identity)
{
    struct shared_module *module = malloc(sizeof(*module));
    struct symbols_source own = *src;

    if (!module) {
        if (src->fd >= 0)
            close(src->fd);
        return NULL;
    }
    *module = *identity;
    module->n_processes = 1;
    /* The process that opened it may end first. */
    own.root_fd = module->root_fd = src->root_fd < 0 ? -1 : fcntl(src->root_fd, F_DUPFD_CLOEXEC, 0);
    module->path = strdup(src->path);
    module->symbols = NULL;
    if (src->root_fd >= 0 && own.root_fd < 0) { /* -1 would be our own root */
        if (src->fd >= 0)
            close(src->fd);
    } else if (symbols_open(&own, &module->symbols) < 0) {
        own.fd = -1;
        own.image = NULL;
        if (symbols_open(&own, &module->symbols) < 0)
            module->symbols = NULL;
    }
    if (!module->symbols || !module->path) {
        shared_module_free(module);
        return NULL;
    }
    return module;
}

struct shared_module *shared_symbols_open(struct shared_symbols *all, const struct symbols_source *src)
{
    struct shared_module identity = {0}, *module;
    bool shares = identify(src, &identity);

    for (size_t i = 0; i < all->n && shares; i++)
        if (is_same(all->items[i], &identity, src->path)) {
            close(src->fd);
            all->items[i]->n_processes++;
            return all->items[i];
        }
    module = shared_module_new(src, &identity);
    if (module && shares &&
        grow_array((void **)&all->items, &all->cap, all->n + 1, sizeof(struct shared_module *)) == 0) {
        module->owner = all;
        all->items[all->n++] = module;
    }
    return module;
}

void shared_symbols_close(struct shared_module *module)
{
    struct shared_symbols *all = module->owner;

    if (--module->n_processes)
        return;
    for (size_t i = 0; all && i < all->n; i++)
        if (all->items[i] == module) {
            all->items[i] = all->items[--all->n];
            break;
        }
    if (all && !all->n) {
        free(all->items);
        *all = (struct shared_symbols){0};
    }
    shared_module_free(module);
}
