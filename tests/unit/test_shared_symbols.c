/*
 * Processes that map the same file share its symbols; other files, paths and roots do not.
 */
#include "sample/shared_symbols.h"

#include "test.h"

#include <fcntl.h>
#include <unistd.h>

static struct symbols_source source_of(const char *path, int root_fd)
{
    return (struct symbols_source){
        .root_fd = root_fd, .path = path, .fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
}

static struct shared_module *open_shared(struct shared_symbols *all, const char *path, int root_fd)
{
    struct symbols_source src = source_of(path, root_fd);

    return shared_symbols_open(all, &src);
}

static void test_same_file(void)
{
    struct shared_symbols all = {0};
    struct shared_module *first = open_shared(&all, "/app", -1), *second = open_shared(&all, "/app", -1);
    struct symbols_name names[4];

    CHECK(first && first == second);
    CHECK_INT(all.n, 1);
    shared_symbols_close(first);
    CHECK_INT(all.n, 1);
    CHECK(!symbols_in_memory(second->symbols));
    CHECK_INT(symbols_lookup(second->symbols, 0, names, 4), 0); /* still open */
    shared_symbols_close(second);
    CHECK_INT(all.n, 0);
}

static void test_other_place(void)
{
    struct shared_symbols all = {0};
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), other = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct shared_module *a = open_shared(&all, "/app", root), *b = open_shared(&all, "/lib", root),
                         *c = open_shared(&all, "/app", other), *d = open_shared(&all, "/app", -1);

    CHECK(a && b && c && a != b && a != c && b != c);
    CHECK(d == a); /* no root means ours */
    CHECK_INT(all.n, 3);
    /* It does not depend on the descriptors of the process that opened it first. */
    close(root);
    close(other);
    CHECK(fcntl(a->root_fd, F_GETFD) >= 0);
    shared_symbols_close(d);
    shared_symbols_close(b);
    shared_symbols_close(a);
    shared_symbols_close(c);
    CHECK_INT(all.n, 0);
}

/* Without a file there is nothing to compare. */
static void test_no_file(void)
{
    struct shared_symbols all = {0};
    struct symbols_source src = {.root_fd = -1, .path = "[vdso]", .fd = -1};
    struct shared_module *a = shared_symbols_open(&all, &src), *b = shared_symbols_open(&all, &src);

    CHECK(a && b && a != b);
    CHECK_INT(all.n, 0);
    shared_symbols_close(a);
    shared_symbols_close(b);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_same_file);
    TEST_RUN(test_other_place);
    TEST_RUN(test_no_file);
    return test_finish("test_shared_symbols");
}
