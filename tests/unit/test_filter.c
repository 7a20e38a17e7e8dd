/*
 * Filters: what patterns match, who a function belongs to, and each filter on a profile, with sums that add up; golden files
 * for each filter on merged profiles.
 *
 *     test_filter tests/golden            compare
 *     test_filter tests/golden --update   rewrite them; read the diff
 */
#include "base/err.h"
#include "cost.h"
#include "out/format.h"
#include "profile/filter.h"
#include "profile/folded.h"
#include "profile/library.h"
#include "profile/pattern.h"
#include "test.h"

#define MS            1000000ull
#define N_ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

/* ---- patterns ---- */

static bool matches_text(const char *text, const char *against)
{
    struct pattern pattern = {0};
    bool r;

    CHECK_INT(pattern_init(&pattern, text), 0);
    r = pattern_matches(&pattern, against);
    pattern_free(&pattern);
    return r;
}

static void test_wildcards(void)
{
    static const struct {
        const char *pattern, *text;
        bool want;
    } rows[] = {
        {"", "", true},
        {"*", "", true},
        {"?", "", false},
        {"a", "a", true},
        {"a", "ab", false},
        {"a*", "ab", true},
        {"*b", "ab", true},
        {"a*c", "abcbc", true},
        {"a*c", "abcb", false},
        {"*a*b*", "xxayybzz", true},
        {"*a*b*", "xxbyyazz", false},
        {"a?c", "abc", true},
        {"a?c",
         "a\xc3\xa4"
         "c",
         true}, /* one character, two bytes */
        {"a?c", "ac", false},
        {"*?c",
         "\xc3\xa4"
         "c",
         true},
        {"[a-z]", "b", false}, /* brackets are literal */
        {"[sleeping]", "[sleeping]", true},
        {"*]", "[sleeping]", true},
        {"\\*", "\\x", true},
        {"a\xff", "a\xef\xbf\xbd", true}, /* as names are read */
        {"**", "ab", true},
        {"A", "a", false},
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++)
        if (!CHECK_INT(matches_text(rows[i].pattern, rows[i].text), rows[i].want))
            fprintf(stderr, "    '%s' on '%s'\n", rows[i].pattern, rows[i].text);
}

/* A matcher that tries each star again would take longer than the universe exists. */
static void test_many_stars(void)
{
    static char pattern[PATTERN_MAX + 1], text[4 * 4096 + 1];

    for (size_t i = 0; i + 1 < sizeof(pattern); i += 2)
        memcpy(pattern + i, "*a", 2);
    memset(text, 'a', sizeof(text) - 1);
    CHECK(matches_text(pattern, text));
    pattern[sizeof(pattern) - 2] = 'b';
    CHECK(!matches_text(pattern, text));
    memset(pattern, '?', sizeof(pattern) - 1);
    CHECK(!matches_text(pattern, text));
    memset(pattern, '*', sizeof(pattern) - 1);
    CHECK(matches_text(pattern, text));
}

static bool matches_func(const char *text, const struct func *func)
{
    struct pattern_texts texts = {0};
    struct pattern pattern = {0};
    bool r;

    CHECK_INT(pattern_init(&pattern, text), 0);
    CHECK_INT(pattern_texts_set(&texts, func), 0);
    r = pattern_matches_func(&pattern, &texts);
    pattern_texts_free(&texts);
    pattern_free(&pattern);
    return r;
}

/* Each pattern matches, or does not match if it begins with '!'. */
static void check_patterns(const struct func *func, const char *const *patterns, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool want = patterns[i][0] != '!';

        if (!CHECK_INT(matches_func(patterns[i] + !want, func), want))
            fprintf(stderr, "    '%s' on %s (%s)\n", patterns[i], func->name, func->filename);
    }
}

#define CHECK_PATTERNS(func, ...)                                                                                      \
    check_patterns((func), (const char *const[]){__VA_ARGS__}, N_ELEMENTS(((const char *const[]){__VA_ARGS__})))

static void test_functions(void)
{
    static const struct func decode = {"JSONDecoder.decode", "/usr/lib/python3.11/json/decoder.py", "json/decoder.py",
                                       NULL, 332},
                             loads = {"loads", "/usr/lib/python3.11/json/__init__.py", "json/__init__.py", NULL, 299},
                             inner = {"serve.<locals>.handle_order", "/app/shop/web.py", "shop/web.py", NULL, 3},
                             full = {"get", "/app/lib/python3.9/site-packages/requests/api.py",
                                     "/app/lib/python3.9/site-packages/requests/api.py", NULL, 0},
                             own = {"f", "/srv/app/main.py", "/srv/app/main.py", NULL, 0},
                             frozen = {"_find_and_load", "<frozen importlib._bootstrap>",
                                       "<frozen importlib._bootstrap>", NULL, 1},
                             native = {"std::sort", "/src/sort.cc", "sort.cc", "/usr/lib/libfast.so.1.2", 0},
                             name_only = {"foo", "", "", NULL, 0},
                             script = {"<module>", "<string>", "<string>", NULL, 1};

    CHECK_PATTERNS(&decode, "decode", "JSONDecoder", "JSONDecoder.decode", "json", "json.decoder", "decoder",
                   "json.decoder.JSONDecoder.decode", "decoder.py", "json/decoder.py", "json.*", "JSON*", "*decode",
                   "dec*", "*/json/*", "*.py", "python3.11/json", "/usr/lib", "/usr/lib/python3.11/json/decoder.py",
                   "json/", "!usr", "!lib", "!python3.11", "!py", "!JSON", "!deco", "!json.dec", "!json.decoder.decode",
                   "!?ecod", "!Decode");
    CHECK_PATTERNS(&loads, "json", "json.loads", "json.*", "loads", "__init__.py", "!__init__", "!json.__init__");
    CHECK_PATTERNS(&inner, "handle_order", "serve", "handle_*", "shop", "web", "shop.web", "shop/*", "/app/*", "/app",
                   "!app", "!handle", "<locals>");
    CHECK_PATTERNS(&full, "requests", "requests.api", "requests.api.get", "requests/api.py", "requests.*",
                   "*/site-packages/*", "site-packages/requests", "!app", "!site-packages", "!lib");
    CHECK_PATTERNS(&own, "main", "main.f", "main.py", "app/main.py", "*/app/*", "!app", "!srv");
    CHECK_PATTERNS(&frozen, "importlib", "importlib._bootstrap", "<frozen *", "_find*", "!frozen");
    CHECK_PATTERNS(&native, "sort", "std", "std::sort", "libfast.so.1.2", "libfast*", "/usr/lib/*", "sort.cc",
                   "lib/libfast.so.1.2", "!libfast");
    CHECK_PATTERNS(&name_only, "foo", "f*", "!fo");
    CHECK_PATTERNS(&script, "<module>", "<string>", "!string", "!module");
}

/* ---- libraries ---- */

static void test_libraries(void)
{
    static const struct {
        const char *path, *part;
    } rows[] = {
        {"/usr/lib/python3.11/json/decoder.py", "json/decoder.py"},
        {"/usr/lib64/python3.6/os.py", "os.py"},
        {"/opt/py/lib/python3.13t/os.py", "os.py"},
        {"/usr/lib/python2.7/os.py", "os.py"},
        {"/usr/lib/python311.zip/os.py", "os.py"},
        {"/usr/lib/python3/dist-packages/yaml/__init__.py", "yaml/__init__.py"},
        {"/v/lib/python3.11/site-packages/a/b.py", "a/b.py"},
        {"external/pip/site-packages/a/b.py", "a/b.py"},
        {"/eggs/a-1.0-py2.7.egg/a/b.py", "a/b.py"},
        {"/pex/a-1.0-py3-none-any.whl/a/b.py", "a/b.py"},
        {"/srv/app/main.py", NULL},
        {"/srv/python3.11/main.py", NULL}, /* not below lib */
        {"/usr/lib/python3.11x/main.py", NULL},
        {"/usr/lib/pythonista/main.py", NULL},
        {"/srv/site-packages.py", NULL},
        {"/srv/.egg/a.py", NULL},
        {"main.py", NULL},
        {"", NULL},
    };
    static const struct {
        struct func func;
        enum library_owner owner;
    } funcs[] = {
        {{"f", "/srv/app/main.py", "main.py", NULL, 1}, LIBRARY_NOT},
        {{"f", "<string>", "<string>", NULL, 1}, LIBRARY_NOT},
        {{"foo", "", "", NULL, 1}, LIBRARY_NOT},
        {{"dumps", "/usr/lib/python3.11/json/__init__.py", "json/__init__.py", NULL, 1}, LIBRARY_YES},
        {{"_find_and_load", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>", NULL, 1}, LIBRARY_YES},
        {{"_run_code", "<frozen runpy>", "<frozen runpy>", NULL, 1}, LIBRARY_STARTS},
        {{"Thread.run", "/usr/lib/python3.11/threading.py", "threading.py", NULL, 1}, LIBRARY_STARTS},
        {{"run", "/srv/threading.py", "threading.py", NULL, 1}, LIBRARY_NOT},
        {{"deflate", "deflate.c", "deflate.c", "/usr/lib/libz.so.1", 0}, LIBRARY_CALLER},
        {{"deflate", "libz.so.1.2.13", "libz.so.1.2.13", NULL, 0}, LIBRARY_CALLER},
        {{"main", "/usr/bin/python3.11", "python3.11", NULL, 0}, LIBRARY_CALLER},
        {{"[unverified]", "changed while being read", "changed while being read", NULL, 0}, LIBRARY_CALLER},
        {{"[sleeping]", "", "", NULL, 0}, LIBRARY_STATE},
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++)
        if (!CHECK_STR(library_part(rows[i].path), rows[i].part))
            fprintf(stderr, "    %s\n", rows[i].path);
    for (size_t i = 0; i < N_ELEMENTS(funcs); i++)
        if (!CHECK_INT(library_owner(&funcs[i].func), funcs[i].owner))
            fprintf(stderr, "    %s (%s)\n", funcs[i].func.name, funcs[i].func.filename);
}

/* ---- profiles ---- */

struct merged {
    struct profile *p, *shown;
    struct folded *f;
    struct filter_counts counts;
    const char *why;
};

#define LIB "/usr/lib/python3.11/"
#define WEB "/v/lib/python3.11/site-packages/web/"

/* A web server with a worker and a library's own thread; and a program of another profiler. Counts are powers of two, so a sum
 * says which lines it has. */
static const char *const lines[] = {
    "process 7:\"srv\";thread (7): MainThread;<module> (/srv/shop.py:9);serve (" WEB
    "app.py:5);handle (/srv/shop.py:4) 1",
    "process 7:\"srv\";thread (7): MainThread;<module> (/srv/shop.py:9);serve (" WEB
    "app.py:5);handle (/srv/shop.py:4);dumps (" LIB "json/__init__.py:231);encode (" LIB "json/encoder.py:199) 2",
    "process 7:\"srv\";thread (7): MainThread;<module> (/srv/shop.py:9);serve (" WEB "app.py:5);read (" WEB
    "app.py:7);poll (libc.so.6) 4",
    "process 7:\"srv\";thread (8): worker-1;_bootstrap (" LIB "threading.py:1);run (" LIB
    "threading.py:2);work (/srv/shop.py:7);qsort (libc.so.6) 8",
    "process 7:\"srv\";thread (8): worker-1;_bootstrap (" LIB "threading.py:1);run (" LIB
    "threading.py:2);work (/srv/shop.py:7);get (" LIB "queue.py:3);[sleeping] 16",
    "process 7:\"srv\";thread (9);_bootstrap (" LIB "threading.py:1);beat (" WEB "beat.py:1);wait (" LIB
    "threading.py:8);[sleeping] 32",
    "[unattributed CPU time] 64",
};

static struct merged open_merged(bool timeline)
{
    struct profile_options options = {.interval_ns = 10 * MS, .timeline = timeline};
    struct merged m = {.p = profile_new(&options)};

    m.f = folded_new(m.p);
    for (size_t i = 0; i < N_ELEMENTS(lines); i++)
        CHECK_INT(folded_add(m.f, "", lines[i], strlen(lines[i]), &m.why), 0);
    return m;
}

static void apply(struct merged *m, const struct filter_options *options, bool keep_threads)
{
    struct filter *f = filter_new(options);

    CHECK_INT(filter_profile(f, m->p, keep_threads, &m->shown, &m->counts), 0);
    filter_free(f);
}

static void close_merged(struct merged *m)
{
    profile_free(m->shown);
    profile_free(m->p);
    folded_free(m->f);
}

static char *write_as(const struct profile *p, const char *format)
{
    struct out_options options = {.title = "filtered", .exporter = "spyglass 0.1.0", .show_lines = true};
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    if (p->samples == 0)
        options.remark = "nothing is left";
    CHECK_INT(format_by_name(format)->write(p, &options, mem), 0);
    fclose(mem);
    return text;
}

static void check_golden(const char *name, const char *got)
{
    char path[4096], *want = NULL;
    size_t cap = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", test_now.dir ? test_now.dir : "tests/golden", name);
    if (test_now.update && (f = fopen(path, "w")) != NULL) {
        fputs(got, f);
        fclose(f);
    }
    f = fopen(path, "r");
    if (f != NULL && getdelim(&want, &cap, '\0', f) < 0 && want != NULL)
        want[0] = '\0';
    if (f != NULL)
        fclose(f);
    if (!test_count(want != NULL && strcmp(want, got) == 0, __FILE__, __LINE__, name))
        fprintf(stderr, "    %s differs; run with --update and read the difference\n", path);
    free(want);
}

#define ONE(pattern)                                                                                                   \
    {                                                                                                                  \
        1,                                                                                                             \
        {                                                                                                              \
            (pattern)                                                                                                  \
        }                                                                                                              \
    }

/* What each filter keeps of `lines`, by their counts. */
static void test_what_stays(void)
{
    static const struct {
        struct filter_options options;
        uint64_t kept;
    } rows[] = {
        {{.include = ONE("handle")}, 1 + 2},
        {{.include = ONE("json")}, 2},
        {{.include = ONE("json.*")}, 2},
        {{.include = ONE("*/site-packages/*")}, 1 + 2 + 4 + 32},
        {{.include = {2, {"qsort", "encode"}}}, 2 + 8},
        {{.include = ONE("process*")}, 0}, /* roots are no functions */
        {{.include = ONE("[unattributed CPU time]")}, 64},
        {{.exclude = ONE("[sleeping]")}, 1 + 2 + 4 + 8 + 64},
        {{.exclude = ONE("threading.py")}, 1 + 2 + 4 + 64},
        {{.include = ONE("web"), .exclude = ONE("json")}, 1 + 4 + 32},
        {{.include = ONE("web"), .exclude = ONE("*")}, 0},
        {{.thread = ONE("worker*")}, 8 + 16},
        {{.thread = {2, {"worker*", "MainThread"}}}, 1 + 2 + 4 + 8 + 16},
        {{.thread = ONE("9")}, 32},
        {{.thread = ONE("worker")}, 0}, /* the whole name */
        {{.thread = ONE("*")}, 1 + 2 + 4 + 8 + 16 + 32},
        {{.thread = ONE("MainThread"), .include = ONE("json")}, 2},
        {{.only_mine = true}, 127},
        {{.only_mine = true, .include = ONE("web")}, 1 + 2 + 4 + 32},
        {{.min_percent = 10}, 127},
        {{.min_percent = 100}, 127},
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        struct merged m = open_merged(true);
        uint64_t selves = 0, samples = 0, weights = 0;

        apply(&m, &rows[i].options, true);
        for (size_t k = 0; k < m.shown->n_nodes; k++) {
            selves += m.shown->nodes[k].self;
            samples += m.shown->nodes[k].samples;
            CHECK(k == 0 || m.shown->nodes[k].parent < k);
        }
        for (size_t k = 0; k < m.shown->n_threads; k++)
            for (size_t n = 0; n < m.shown->threads[k].n_spans; n++)
                weights += m.shown->threads[k].spans[n].weight_ns;
        if (!CHECK_INT(m.shown->total, rows[i].kept))
            fprintf(stderr, "    of row %zu\n", i);
        CHECK_INT(selves, rows[i].kept);
        CHECK_INT(samples, rows[i].kept);
        CHECK_INT(weights, rows[i].kept * 10 * MS);
        CHECK_INT(m.shown->samples, rows[i].kept);
        CHECK_INT(m.counts.kept_total, rows[i].kept);
        CHECK_INT(m.counts.total, 127);
        CHECK_INT(m.p->total, 127); /* the profile itself is unchanged */
        close_merged(&m);
    }
}

static void test_goldens(void)
{
    static const struct {
        const char *name;
        struct filter_options options;
        bool keep_threads;
    } rows[] = {
        {"include", {.include = ONE("json")}, true},
        {"exclude", {.exclude = {2, {"[sleeping]", "[unattributed*"}}}, true},
        {"thread", {.thread = ONE("worker*")}, true},
        {"thread-merged", {.thread = {2, {"worker*", "9"}}}, false},
        {"only-mine", {.only_mine = true}, true},
        {"only-mine-web", {.only_mine = true, .include = ONE("web")}, true},
        {"min-percent", {.min_percent = 12}, true},
        {"nothing", {.include = ONE("nothing")}, true},
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        struct merged m = open_merged(false);
        char name[64], *got;

        apply(&m, &rows[i].options, rows[i].keep_threads);
        got = write_as(m.shown, "raw");
        snprintf(name, sizeof(name), "filter-%s.raw", rows[i].name);
        check_golden(name, got);
        free(got);
        close_merged(&m);
    }
}

/* No format shows a name that is not in the result. */
static void test_formats(void)
{
    static const struct filter_options options = {.include = ONE("json"), .only_mine = true};

    for (const struct format *const *f = format_all(); *f; f++) {
        struct merged m = open_merged((*f)->timeline);
        char *got;

        apply(&m, &options, true);
        got = write_as(m.shown, (*f)->name);
        CHECK(strstr(got, "handle") != NULL && strstr(got, "encode") != NULL);
        CHECK(strstr(got, "qsort") == NULL && strstr(got, "serve") == NULL && strstr(got, "beat") == NULL);
        free(got);
        close_merged(&m);
    }
}

static void test_counts(void)
{
    struct merged m = open_merged(false);
    struct filter *f = filter_new(&(struct filter_options){.include = {2, {"json", "jason"}}, .exclude = ONE("web")});
    const char *flag = NULL;

    CHECK_INT(filter_profile(f, m.p, true, &m.shown, &m.counts), 0);
    CHECK_STR(filter_unused(f, &flag), "jason");
    CHECK_STR(flag, "include");
    CHECK(m.counts.has_threads && m.counts.has_full_paths);
    CHECK_INT(m.counts.samples, 127);
    m.shown = profile_free(m.shown);
    f = filter_free(f);
    apply(&m, &(struct filter_options){.only_mine = true, .thread = ONE("9")}, false);
    CHECK_INT(m.counts.library_total, 32);
    CHECK_INT(m.counts.threads_total, 32);
    CHECK_INT(m.counts.n_mine, 0);
    m.shown = profile_free(m.shown);
    apply(&m, &(struct filter_options){.only_mine = true}, false);
    CHECK_INT(m.counts.library_total, 32);
    CHECK_INT(m.counts.n_mine, 2);
    close_merged(&m);
    CHECK(filter_is_empty(&(struct filter_options){0}));
    CHECK(!filter_is_empty(&(struct filter_options){.min_percent = 0.1}));
}

/* ---- single stacks ---- */

static const struct func f_module = {"<module>", "/srv/shop.py", "shop.py", NULL, 1},
                         f_work = {"work", "/srv/shop.py", "shop.py", NULL, 7},
                         f_get = {"get", LIB "queue.py", "queue.py", NULL, 3},
                         f_wait = {"wait", LIB "threading.py", "threading.py", NULL, 8},
                         f_run = {"run", LIB "threading.py", "threading.py", NULL, 2},
                         f_beat = {"beat", WEB "beat.py", "web/beat.py", NULL, 1},
                         f_futex = {"futex", "libc.so.6", "libc.so.6", "/usr/lib/libc.so.6", 0};

/* Filters a stack, innermost first; `want` are the functions that stay, NULL at the end. */
static void check_stack(const struct filter_options *options, const char *name, const struct func *const *funcs,
                        int want_r, const struct func *const *want)
{
    struct frame frames[8] = {{0}};
    struct trace trace = {.os_thread_id = 12, .thread_name = name};
    struct filter *f = filter_new(options);
    size_t n = 0;

    for (; funcs[trace.n_frames] != NULL; trace.n_frames++)
        frames[trace.n_frames].func = funcs[trace.n_frames];
    trace.frames = frames;
    CHECK_INT(filter_frames(f, &trace, frames, &n), want_r);
    for (size_t i = 0; want_r > 0 && (i < n || want[i] != NULL); i++)
        if (!CHECK(i < n && want[i] == frames[i].func))
            break;
    filter_free(f);
}

#define FUNCS(...)                                                                                                     \
    (const struct func *const[])                                                                                       \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

static void test_stacks(void)
{
    const struct func *const *worker = FUNCS(&f_futex, &f_wait, &f_get, &f_work, &f_run, &f_run);
    const struct filter_options mine = {.only_mine = true};

    check_stack(&mine, "w", worker, 1, FUNCS(&f_work));
    check_stack(&mine, "w", FUNCS(&f_futex, &f_work, &f_get, &f_module), 1, FUNCS(&f_futex, &f_work, &f_module));
    check_stack(&mine, "w", FUNCS(&f_wait, &f_beat, &f_run), 1, FUNCS(&f_beat));
    check_stack(&mine, "w", FUNCS(&f_wait, &f_run), 1, FUNCS(&f_wait));
    check_stack(&mine, "w", FUNCS(&f_futex), 1, FUNCS(&f_futex));
    check_stack(&mine, "w", (const struct func *const[]){NULL}, 1, (const struct func *const[]){NULL});
    check_stack(&(struct filter_options){.only_mine = true, .include = ONE("queue")}, "w", worker, 1,
                FUNCS(&f_get, &f_work));
    check_stack(&(struct filter_options){.include = ONE("work")}, "w", worker, 1, worker);
    check_stack(&(struct filter_options){.include = ONE("beat")}, "w", worker, 0, NULL);
    check_stack(&(struct filter_options){.exclude = ONE("libc.so.6")}, "w", worker, 0, NULL);
    check_stack(&(struct filter_options){.thread = ONE("w*")}, "w", worker, 1, worker);
    check_stack(&(struct filter_options){.thread = ONE("12")}, NULL, worker, 1, worker);
    check_stack(&(struct filter_options){.thread = ONE("1")}, NULL, worker, 0, NULL);
}

/* ---- bounds ---- */

/* A million stacks with names that many stars match almost. */
static void test_many(void)
{
    struct merged m = open_merged(true);
    char name[2048], line[4096];
    struct filter_options options = {.exclude = {2, {"*a*a*a*a*a*a*a*b", "*z*a*a*a*a*a*a*b"}}, .only_mine = true};

    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(line, sizeof(line), "f (/srv/a.py:%u);g (" LIB "b.py:%u);h (/srv/%s%u.py:1) 1", i + 1, i % 7 + 1,
                 i % 100 == 0 ? name : "", i);
        CHECK_INT(folded_add(m.f, "", line, strlen(line), &m.why), 0);
    }
    apply(&m, &options, true);
    CHECK_INT(m.shown->total, 20127);
    free(write_as(m.shown, "speedscope"));
    CHECK(cost_resident_mb() < 1000);
    close_merged(&m);
}

/* A stack deeper than any real one. */
static void test_deep(void)
{
    struct merged m = open_merged(false);
    size_t n = 300000, len = 0;
    char *line = malloc(24 * n + 64);

    for (size_t i = 0; i < n; i++)
        len += (size_t)sprintf(line + len, i % 2 ? "x (/srv/a.py:1);" : "y (/lib/python3/a.py:1);");
    strcpy(line + len, "f (/srv/a.py:1) 1");
    CHECK_INT(folded_add(m.f, "", line, strlen(line), &m.why), 0);
    free(line);
    apply(&m, &(struct filter_options){.only_mine = true, .include = ONE("f")}, false);
    CHECK_INT(m.shown->total, 1);
    CHECK_INT(m.shown->n_nodes, n / 2 + 2);
    close_merged(&m);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_wildcards);
    TEST_RUN(test_many_stars);
    TEST_RUN(test_functions);
    TEST_RUN(test_libraries);
    TEST_RUN(test_what_stays);
    TEST_RUN(test_goldens);
    TEST_RUN(test_formats);
    TEST_RUN(test_counts);
    TEST_RUN(test_stacks);
    TEST_RUN(test_many);
    TEST_RUN(test_deep);
    return test_finish("test_filter");
}
