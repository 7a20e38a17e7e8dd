/*
 * The hash table and the seed of its hashes: what one seed makes collide, another spreads.
 */
#include "base/err.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "test.h"

#define N_KEYS 2000u

static const struct hash_seed seed_a = {0x0123456789abcdefull, 0xfedcba9876543210ull};
static const struct hash_seed seed_b = {0x5bd1e9955bd1e995ull, 0xc2b2ae3d27d4eb4full};

static void add_keys(struct hash_table *t, const uint64_t *keys, size_t n)
{
    if (hash_table_reserve(t, n) < 0)
        abort();
    for (size_t i = 0; i < n; i++)
        hash_table_add(t, hash_mix(0, keys[i]), (uint32_t)i);
}

/* HASH_TABLE_NONE when the key is missing. Adds the number of slots that were looked at to `*steps`. */
static uint32_t find_key(const struct hash_table *t, const uint64_t *keys, uint64_t key, size_t *steps)
{
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(t, hash_mix(0, key), &step)) != HASH_TABLE_NONE && keys[at] != key)
        continue;
    *steps += step;
    return at;
}

/* Slots that a lookup of one of the keys looks at, on average. */
static size_t cost_of(const uint64_t *keys, size_t n)
{
    struct hash_table t = {0};
    size_t steps = 0, wrong = 0;

    add_keys(&t, keys, n);
    for (size_t i = 0; i < n; i++)
        wrong += find_key(&t, keys, keys[i], &steps) != i;
    CHECK_INT(wrong, 0);
    hash_table_free(&t);
    return steps / n;
}

static void test_find(void)
{
    struct hash_table t = {0};
    uint64_t *keys = NULL;
    size_t cap = 0, n, steps = 0, wrong = 0;

    CHECK_INT(find_key(&t, keys, 7, &steps), HASH_TABLE_NONE);
    for (n = 0; n < 10000; n++) {
        if (hash_table_reserve_item(&t, (void **)&keys, &cap, n, sizeof(*keys)) < 0)
            abort();
        keys[n] = n * 4096;
        hash_table_add(&t, hash_mix(0, keys[n]), (uint32_t)n);
    }
    CHECK_INT(t.n, n);
    CHECK(t.n <= t.cap / 4 * 3);
    for (size_t i = 0; i < n; i++) {
        wrong += find_key(&t, keys, keys[i], &steps) != i;
        wrong += find_key(&t, keys, keys[i] + 1, &steps) != HASH_TABLE_NONE;
    }
    CHECK_INT(wrong, 0);
    hash_table_clear(&t);
    CHECK_INT(t.n, 0);
    CHECK_INT(find_key(&t, keys, keys[1], &steps), HASH_TABLE_NONE);
    hash_table_add(&t, hash_mix(0, keys[1]), 1);
    CHECK_INT(find_key(&t, keys, keys[1], &steps), 1);
    hash_table_free(&t);
    hash_table_free(&t);
    hash_table_clear(&t);
    CHECK_INT(find_key(&t, keys, keys[1], &steps), HASH_TABLE_NONE);
    free(keys);
}

/* Several items under one hash: a search meets each of them once, also around the end of the slots. */
static void test_equal_hashes(void)
{
    struct hash_table t = {0};
    unsigned char seen[40] = {0};
    size_t step = 0;
    uint32_t at;

    for (uint32_t i = 0; i < 40; i++) {
        if (hash_table_reserve(&t, 1) < 0)
            abort();
        hash_table_add(&t, i % 2 ? UINT64_MAX : 0, i);
    }
    while ((at = hash_table_next(&t, UINT64_MAX, &step)) != HASH_TABLE_NONE)
        seen[at]++;
    for (size_t i = 0; i < 40; i++)
        CHECK_INT(seen[i], i % 2);
    hash_table_free(&t);
}

static void test_reserve(void)
{
    struct hash_table t = {0};
    void *array = NULL;
    size_t cap = 0, room;

    CHECK_INT(hash_table_reserve(&t, 1000), 0);
    room = t.cap;
    for (uint32_t i = 0; i < 1000; i++)
        hash_table_add(&t, i, i);
    CHECK_INT(t.cap, room);
    CHECK_INT(hash_table_reserve(&t, SIZE_MAX), ERR_NOMEM);
    CHECK_INT(hash_table_reserve(&t, HASH_TABLE_NONE), ERR_NOMEM);
    CHECK_INT(hash_table_reserve_item(&t, &array, &cap, HASH_TABLE_NONE, 1), ERR_NOMEM);
    CHECK(t.cap == room && t.n == 1000 && array == NULL);
    hash_table_free(&t);
}

/* The positions in the order of the slots. */
static void list_order(struct hash_seed seed, const uint64_t *keys, size_t n, uint32_t *order)
{
    struct hash_table t = {0};
    size_t found = 0;

    hash_seed_set(seed);
    add_keys(&t, keys, n);
    for (size_t i = 0; i < t.cap; i++)
        if (t.slots[i].at)
            order[found++] = t.slots[i].at - 1;
    CHECK_INT(found, n);
    hash_table_free(&t);
}

static void test_seeds_give_orders(void)
{
    uint64_t keys[N_KEYS];
    uint32_t a[N_KEYS], b[N_KEYS], again[N_KEYS];
    size_t same = 0;

    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = i;
    list_order(seed_a, keys, N_KEYS, a);
    list_order(seed_b, keys, N_KEYS, b);
    list_order(seed_a, keys, N_KEYS, again);
    for (size_t i = 0; i < N_KEYS; i++)
        same += a[i] == b[i];
    CHECK(same < 20);
    CHECK(memcmp(a, again, sizeof(a)) == 0);
}

/* An attacker who knew seed A could put all keys into one slot. With seed B the same keys are as good as any others. */
static void test_collisions_end_with_seed(void)
{
    uint64_t keys[N_KEYS];
    size_t n = 0;

    hash_seed_set(seed_a);
    for (uint64_t key = 1; n < N_KEYS; key++)
        if ((hash_mix(0, key) & 4095) == 0)
            keys[n++] = key;
    CHECK(cost_of(keys, N_KEYS) > N_KEYS / 4);
    hash_seed_set(seed_b);
    CHECK(cost_of(keys, N_KEYS) < 4);
}

static size_t format_name(char name[32], uint32_t i)
{
    return (size_t)snprintf(name, 32, "function_%u", i);
}

/* Slots that a lookup of one of the names looks at, on average. */
static size_t cost_of_names(const uint32_t *names, size_t n)
{
    struct hash_table t = {0};
    size_t steps = 0;
    char name[32];
    uint32_t at;

    if (hash_table_reserve(&t, n) < 0)
        abort();
    for (size_t i = 0; i < n; i++)
        hash_table_add(&t, hash_bytes(name, format_name(name, names[i])), (uint32_t)i);
    for (size_t i = 0; i < n; i++) {
        size_t step = 0;

        do
            at = hash_table_next(&t, hash_bytes(name, format_name(name, names[i])), &step);
        while (at != i && at != HASH_TABLE_NONE);
        steps += step;
    }
    hash_table_free(&t);
    return steps / n;
}

/* Function names that a target chose to collide with the seed that is in the source. main() replaces it, so they do not. */
static void test_names_that_collide_without_seed(void)
{
    struct hash_seed constant = hash_seed;
    uint32_t names[N_KEYS];
    size_t n = 0;
    char name[32];

    for (uint32_t i = 0; n < N_KEYS; i++)
        if ((hash_bytes(name, format_name(name, i)) & 4095) == 0)
            names[n++] = i;
    CHECK(cost_of_names(names, N_KEYS) > N_KEYS / 4);
    hash_seed_randomize();
    CHECK(cost_of_names(names, N_KEYS) < 8);
    hash_seed_set(constant);
}

struct pair {
    uint32_t hash, key;
};

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    return (x->hash > y->hash) - (x->hash < y->hash);
}

static uint32_t hash_number(uint32_t i)
{
    return (uint32_t)hash_mix(0, (i + 1) * 0x9e3779b97f4a7c15ull);
}

static uint32_t hash_text(uint32_t i)
{
    char text[32];

    return (uint32_t)hash_bytes(text, format_name(text, i));
}

/* Keys that share all 32 bits with seed A differ with seed B. */
static void check_equal_hashes(uint32_t (*hash)(uint32_t i))
{
    size_t n = 400000, equal = 0, still = 0;
    struct pair *pairs = calloc(n, sizeof(*pairs));

    if (!pairs)
        abort();
    hash_seed_set(seed_a);
    for (uint32_t i = 0; i < n; i++)
        pairs[i] = (struct pair){hash(i), i};
    qsort(pairs, n, sizeof(*pairs), compare_pairs);
    hash_seed_set(seed_b);
    for (size_t i = 1; i < n; i++)
        if (pairs[i - 1].hash == pairs[i].hash) {
            equal++;
            still += hash(pairs[i - 1].key) == hash(pairs[i].key);
        }
    CHECK(equal > 2);
    CHECK_INT(still, 0);
    free(pairs);
}

static void test_equal_hashes_end_with_seed(void)
{
    check_equal_hashes(hash_number);
    check_equal_hashes(hash_text);
}

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Keys that differ in a few bits only, wherever those are: pages, aligned objects, ids in the upper half. */
static void test_patterns(void)
{
    uint64_t keys[N_KEYS], random = 1;
    size_t worst = 0;

    for (int s = 0; s < 20; s++) {
        struct hash_seed seed = s ? (struct hash_seed){next_random(&random), next_random(&random)} : seed_a;

        hash_seed_set(seed);
        for (unsigned shift = 0; shift <= 53; shift++) {
            size_t cost;

            for (uint64_t i = 0; i < N_KEYS; i++)
                keys[i] = i << shift;
            cost = cost_of(keys, N_KEYS);
            worst = cost > worst ? cost : worst;
        }
    }
    CHECK(worst <= 2);
}

static void test_randomize(void)
{
    struct hash_seed first, second;

    hash_seed_randomize();
    first = hash_seed;
    hash_seed_randomize();
    second = hash_seed;
    CHECK(first.a != second.a && first.b != second.b);
    CHECK(first.a != first.b && first.a != 0 && first.b != 0);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_names_that_collide_without_seed);
    TEST_RUN(test_find);
    TEST_RUN(test_equal_hashes);
    TEST_RUN(test_reserve);
    TEST_RUN(test_seeds_give_orders);
    TEST_RUN(test_collisions_end_with_seed);
    TEST_RUN(test_equal_hashes_end_with_seed);
    TEST_RUN(test_patterns);
    TEST_RUN(test_randomize);
    return test_finish("test_hash_table");
}
