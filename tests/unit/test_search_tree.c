/*
 * The search trees that replace the part of elfutils that Debian 13 does not package.
 */
#include "elf/search_tree.h"

#include "test.h"

/* As in elfutils: a lock follows the root and must stay unchanged. */
struct locked_tree {
    struct search_tree tree;
    uint64_t lock;
};

static unsigned freed;

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static void count_freed(void *key)
{
    (void)key;
    freed++;
}

static void test_tree(void)
{
    static const int keys[] = {5, 2, 8, 1, 9, 3};
    static const int again = 8, other = 7;
    struct locked_tree t = {{(void *)&other}, UINT64_C(0x1122334455667788)};

    eu_search_tree_init(&t.tree);
    CHECK(!t.tree.root && !eu_tfind(&other, &t.tree, compare));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        CHECK(*(const int *const *)eu_tsearch(&keys[i], &t.tree, compare) == &keys[i]);
    CHECK(*(const int *const *)eu_tsearch(&again, &t.tree, compare) == &keys[2]);
    CHECK(*(const int *const *)eu_tfind(&again, &t.tree, compare) == &keys[2]);
    CHECK(!eu_tfind(&other, &t.tree, compare));
    CHECK(eu_tdelete(&again, &t.tree, compare) && !eu_tfind(&again, &t.tree, compare));
    CHECK(!eu_tdelete(&other, &t.tree, compare));
    eu_search_tree_fini(&t.tree, count_freed);
    CHECK(freed == 5 && !t.tree.root);
    eu_tdestroy(&t.tree, count_freed);
    CHECK(freed == 5 && t.lock == UINT64_C(0x1122334455667788));
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_tree);
    return test_finish("test_search_tree");
}
