/*
 * Runs a fuzz target as a plain test: on each file of its corpus, truncated at some lengths, and on mutations of it
 * that are the same in every run. Each input has its own allocation, so that ASan detects a read past its end.
 *
 *     test_fuzz_lines GOLDEN-DIRECTORY      # called like the unit tests: the corpus is relative to that directory
 *     test_fuzz_lines GOLDEN-DIRECTORY SECONDS SEED CURRENT KEPT
 *     test_fuzz_lines GOLDEN-DIRECTORY INPUT
 *
 * The second form runs other mutations for that long and prints a summary; tests/fuzz/run.py uses it. KEPT is a directory with
 * more inputs; mutations that reach new code are added to it (see coverage.h). The file CURRENT has the input that is being run:
 * its length in eight bytes, then the input. The third form runs one input.
 */
#include "cost.h"
#include "coverage.h"
#include "fuzz.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef FUZZ_NAME
#error "FUZZ_NAME: the name of the target, and of the directory of its corpus"
#endif

#ifndef FUZZ_CHANGES
#define FUZZ_CHANGES 10000
#endif
#ifdef FUZZ_IN_PLACE /* an input that loses its structure if bytes are added or removed */
#define KINDS 3
#else
#define KINDS 5
#endif
#define MAX_BYTES ((size_t)2 << 20)
#define MORE      64                 /* bytes that mutations may add to a file */
#define LONG      1.0                /* seconds of CPU time; with SECONDS, an input that takes longer fails */
#define MAX_KEPT  ((size_t)64 << 20) /* bytes of inputs; beyond that, no more are kept */

struct input {
    uint8_t *bytes;
    size_t len;
};

struct corpus {
    struct input *files;
    size_t n, bytes;
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
    in.bytes = realloc(in.bytes, in.len + 1);
    if (!in.bytes)
        abort();
    fclose(file);
    return in;
}

/* Seconds that the target took. */
static double run_result(const uint8_t *bytes, size_t len, int *ret)
{
    uint8_t *copy = malloc(len ? len : 1);
    double begin = cost_seconds();

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    *ret = LLVMFuzzerTestOneInput(copy, len);
    free(copy);
    return cost_seconds() - begin;
}

static double run(const uint8_t *bytes, size_t len)
{
    int ignored;

    return run_result(bytes, len, &ignored);
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
    switch (random_next(random) % KINDS) {
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
        if (in->len + len <= whole + MORE) {
            memmove(in->bytes + at + len, in->bytes + at, in->len - at);
            in->len += len;
        }
        break;
    }
}

/* The longest duration so far. */
static double run_changes(const struct input *file)
{
    struct input now = {malloc(file->len + MORE), 0};
    uint64_t random = 0x2545f4914f6cdd1dull ^ file->len;
    double longest = 0;

    if (!now.bytes)
        abort();
    for (int i = 0; i < FUZZ_CHANGES; i++) {
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
    int result;
    double longest = run_result(file.bytes, file.len, &result), took;

    CHECK_INT(result, 0);
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

static void corpus_append(struct corpus *corpus, struct input in)
{
    corpus->files = realloc(corpus->files, (corpus->n + 1) * sizeof(*corpus->files));
    if (!corpus->files)
        abort();
    corpus->files[corpus->n++] = in;
    corpus->bytes += in.len;
}

static void corpus_add(struct corpus *corpus, const char *dir)
{
    struct dirent **entries;
    char path[8192];
    int n = scandir(dir, &entries, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            corpus_append(corpus, file_read(path));
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

/* Adds an input to the corpus, and to its directory, under a name made from its bytes. */
static void corpus_keep(struct corpus *corpus, const char *dir, const struct input *in)
{
    struct input copy = {malloc(in->len + 1), in->len};
    uint64_t hash = 0xcbf29ce484222325ull;
    char path[8192];
    FILE *file;

    if (!copy.bytes)
        abort();
    memcpy(copy.bytes, in->bytes, in->len);
    corpus_append(corpus, copy);
    for (size_t i = 0; i < in->len; i++)
        hash = (hash ^ in->bytes[i]) * 0x100000001b3ull;
    snprintf(path, sizeof(path), "%s/new-%016" PRIx64, dir, hash);
    file = fopen(path, "wb");
    if (!file || fwrite(in->bytes, 1, in->len, file) != in->len || fclose(file) != 0)
        abort();
}

static void corpus_free(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->n; i++)
        free(corpus->files[i].bytes);
    free(corpus->files);
}

/* Maps the file that has the current input: whatever ends this process, the input is there. */
static uint8_t *current_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    void *map;

    if (fd < 0 || ftruncate(fd, (off_t)(8 + MAX_BYTES + MORE)) < 0)
        abort();
    map = mmap(NULL, 8 + MAX_BYTES + MORE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        abort();
    close(fd);
    return map;
}

static double run_noted(uint8_t *current, const struct input *in)
{
    uint64_t len = in->len;
    double took;

    memcpy(current, &len, sizeof(len));
    memcpy(current + sizeof(len), in->bytes, in->len);
    took = run(in->bytes, in->len);
    if (took > LONG) /* perhaps the machine: again */
        took = run(in->bytes, in->len);
    return took;
}

/* A copy of a file of the corpus, changed a little or a lot, sometimes with the end of another file or cut off. */
static void mutate(struct input *now, const struct corpus *corpus, uint64_t *random)
{
    const struct input *file = &corpus->files[random_next(random) % corpus->n];
    const struct input *other = &corpus->files[random_next(random) % corpus->n];
    size_t at;

    memcpy(now->bytes, file->bytes, file->len);
    now->len = file->len;
    switch (random_next(random) % 16) {
    case 0:
        at = now->len && other->len ? random_next(random) % (now->len < other->len ? now->len : other->len) : 0;
        memcpy(now->bytes + at, other->bytes + at, other->len - at);
        now->len = other->len;
        break;
    case 1:
        now->len = now->len ? random_next(random) % now->len : 0;
        break;
    default:
        break;
    }
    for (uint64_t n = (uint64_t)1 << random_next(random) % 6; n; n--)
        change(now, now->len < MAX_BYTES ? now->len : MAX_BYTES, random);
}

static double wall_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Runs the corpus itself, so that only what it does not reach is new. Returns the longest time that an input took. */
static double run_corpus(const struct corpus *corpus, uint8_t *current)
{
    double longest = 0;

    for (size_t i = 0; i < corpus->n; i++) {
        double took = run_noted(current, &corpus->files[i]);

        longest = took > longest ? took : longest;
    }
    coverage_is_new();
    return longest;
}

/* Runs mutations for so many seconds. Returns the exit status. */
static int run_for(const char *dir, double seconds, uint64_t seed, const char *current_path, const char *kept)
{
    struct input now = {malloc(MAX_BYTES + MORE), 0};
    uint8_t *current = current_open(current_path);
    uint64_t random = seed * 0x9e3779b97f4a7c15ull | 1, inputs = 0, n_new = 0;
    double longest, begin = wall_seconds();
    struct corpus corpus = {0};

    if (!now.bytes)
        abort();
    corpus_add(&corpus, dir);
    corpus_add(&corpus, kept);
    longest = run_corpus(&corpus, current);
    /* On a busy machine the corpus can take all the time: run one new input all the same. */
    while (corpus.n && longest <= LONG && (!inputs || wall_seconds() - begin < seconds)) {
        double took;

        mutate(&now, &corpus, &random);
        took = run_noted(current, &now);
        longest = took > longest ? took : longest;
        inputs++;
        if (coverage_is_new() && corpus.bytes + now.len <= MAX_KEPT) {
            corpus_keep(&corpus, kept, &now);
            n_new++;
        }
    }
    printf("%s: %" PRIu64 " inputs in %.1f s, longest %.3f s, %zu MB, %" PRIu64 " kept, %zu branches\n", FUZZ_NAME,
           inputs, wall_seconds() - begin, longest, cost_resident_mb(), n_new, coverage_count());
    corpus_free(&corpus);
    free(now.bytes);
    munmap(current, 8 + MAX_BYTES + MORE);
    return inputs && longest <= LONG ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_one(const char *path)
{
    struct input in = file_read(path);
    int result;
    double took = run_result(in.bytes, in.len, &result);

    printf("%s: %.3f s%s\n", FUZZ_NAME, took, result ? ", rejected" : "");
    free(in.bytes);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    char dir[4096], path[8192];
    struct dirent **entries;
    int n;

    test_start(argc, argv);
    test_now.running = FUZZ_NAME;
    snprintf(dir, sizeof(dir), "%s/../fuzz/corpus/%s", test_now.dir ? test_now.dir : "tests/golden", FUZZ_NAME);
    if (argc == 3)
        return run_one(argv[2]);
    if (argc > 5)
        return run_for(dir, atof(argv[2]), strtoull(argv[3], NULL, 10), argv[4], argv[5]);
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
