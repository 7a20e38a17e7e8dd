/*
 * Runs a fuzz target as a plain test: on each file of its corpus, truncated at some lengths, and on mutations of it
 * that are the same in every run. Each input has its own allocation, so that ASan detects a read past its end.
 *
 *     test_fuzz_lines GOLDEN-DIRECTORY      # called like the unit tests: the corpus is relative to that directory
 */
#include "cost.h"
#include "fuzz.h"
#include "test.h"

#include <dirent.h>

#ifndef FUZZ_NAME
#error "FUZZ_NAME: the name of the target, and of the directory of its corpus"
#endif

#define CHANGES   10000
#define MAX_BYTES ((size_t)1 << 20)

struct input {
    uint8_t *bytes;
    size_t len;
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct input file_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct input in = {malloc(MAX_BYTES), 0};

    if (!file || !in.bytes)
        abort();
    in.len = fread(in.bytes, 1, MAX_BYTES, file);
    fclose(file);
    return in;
}

/* Seconds that the target took. */
static double run(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    double begin = cost_seconds();

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
    return cost_seconds() - begin;
}

/* Overwrites, duplicates or removes a few bytes or a word. */
static void change(struct input *in, size_t whole, uint64_t *random)
{
    static const uint64_t words[] = {0,          1,          0x7f,       0x80,       0xff,      0xffff,
                                     0x7fffffff, 0x80000000, 0xffffffff, 1ull << 63, UINT64_MAX};
    uint64_t word = words[random_next(random) % (sizeof(words) / sizeof(words[0]))];
    size_t at = in->len ? random_next(random) % in->len : 0, len = (size_t)1 << random_next(random) % 4;

    if (len > in->len - at)
        len = in->len - at;
    switch (random_next(random) % 5) {
    case 0:
        memcpy(in->bytes + at, &word, len);
        break;
    case 1:
        word = random_next(random);
        memcpy(in->bytes + at, &word, len);
        break;
    case 2:
        if (in->len)
            in->bytes[at] ^= (uint8_t)(1u << random_next(random) % 8);
        break;
    case 3:
        memmove(in->bytes + at, in->bytes + at + len, in->len - at - len);
        in->len -= len;
        break;
    default:
        if (in->len + len <= whole + 64) {
            memmove(in->bytes + at + len, in->bytes + at, in->len - at);
            in->len += len;
        }
        break;
    }
}

/* The longest duration so far. */
static double run_changes(const struct input *file)
{
    struct input now = {malloc(file->len + 64), 0};
    uint64_t random = 0x2545f4914f6cdd1dull ^ file->len;
    double longest = 0;

    if (!now.bytes)
        abort();
    for (int i = 0; i < CHANGES; i++) {
        double took;

        if (i % 16 == 0) { /* starts from the file again */
            memcpy(now.bytes, file->bytes, file->len);
            now.len = file->len;
        }
        for (uint64_t n = random_next(&random) % 4 + 1; n; n--)
            change(&now, file->len, &random);
        took = run(now.bytes, now.len);
        longest = took > longest ? took : longest;
    }
    free(now.bytes);
    return longest;
}

static void run_file(const char *path, const char *name)
{
    struct input file = file_read(path);
    unsigned failed_before = test_now.failed;
    double longest = run(file.bytes, file.len), took;

    for (size_t i = 0; i < 256; i++) {
        took = run(file.bytes, file.len * i / 256);
        longest = took > longest ? took : longest;
    }
    took = run_changes(&file);
    longest = took > longest ? took : longest;
    if (!CHECK(longest < COST_MAX))
        fprintf(stderr, "    %s: %.3f s\n", path, longest);
    free(file.bytes);
    test_report(name, failed_before);
}

int main(int argc, char **argv)
{
    char dir[4096], path[8192];
    struct dirent **entries;
    int n;

    test_start(argc, argv);
    test_now.running = FUZZ_NAME;
    snprintf(dir, sizeof(dir), "%s/../fuzz/corpus/%s", test_now.dir ? test_now.dir : "tests/golden", FUZZ_NAME);
    n = scandir(dir, &entries, NULL, alphasort);
    CHECK(n > 2); /* more than . and .. */
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            run_file(path, entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return test_finish("test_fuzz_" FUZZ_NAME);
}
