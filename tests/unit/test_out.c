/*
 * The writers: escaped text, JSON strings, each format and dump against golden files made from one fixed set of traces
 * with hostile names, and each format with very deep and very many stacks.
 *
 *     test_out tests/golden            compare
 *     test_out tests/golden --update   rewrite them; read the diff
 */
#include "base/err.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cmd/size_limit.h"
#include "out/assets.h"
#include "out/dump.h"
#include "out/format.h"
#include "out/json.h"
#include "test.h"

#define MS            1000000ull
#define ESC           "\x1b"
#define ZWJ           "\xe2\x80\x8d"
#define TAG_A         "\xf3\xa0\x81\x81" /* U+E0041 */
#define ASTRAL        "\xf0\x9d\x94\x98" /* U+1D518 */
#define BIDI          "\xe2\x80\xae"     /* U+202E */
#define C1_CSI        "\xc2\x9b"         /* U+009B */
#define LINE_SEP      "\xe2\x80\xa8"     /* U+2028 */
#define N_ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

static const struct func funcs[] = {
    {"<module>", "/srv/app/main.py", "main.py", NULL, 1},
    {"handle", "/srv/app/web/views.py", "web/views.py", NULL, 10},
    {"JSONDecoder.decode", "/usr/lib/python3.11/json/decoder.py", "json/decoder.py", NULL, 332},
    {"</script><script>alert(1)</script>", "/srv/]]>/x.py", "]]>/x.py", NULL, 2},
    {"\" onload=\"alert(1)", "/srv/' & <b>.py", "' & <b>.py", NULL, 3},
    {"esc" ESC "]0;owned\a\r\nnext;part" C1_CSI "31m", "/srv/esc.py", "esc.py", NULL, 4},
    {"astral_" ASTRAL "_" BIDI "gnp.exe" LINE_SEP, "/srv/na\xc3\xafve.py", "na\xc3\xafve.py", NULL, 5},
    {"clock_nanosleep", "/usr/lib/libc.so.6", "libc.so.6", "/usr/lib/libc.so.6", 0},
    {"invalid\xff\xed\xa0\x80utf8", "<string>", "<string>", NULL, 1},
};

static const struct proc_info server = {
    .pid = 100,
    .command = "python main.py --title=</title>]]>",
    .executable = "/usr/bin/python3.11",
    .major = 3,
    .minor = 11,
    .patch = 7,
    .version_suffix = "",
};
static const struct proc_info worker = {
    .pid = 200,
    .parent = 100,
    .command = "python " ESC "[2Jworker.py",
    .executable = "/opt/" BIDI "python3.13",
    .major = 3,
    .minor = 13,
    .patch = 0,
    .version_suffix = "rc1",
    .parent_info = &server,
};

static const struct local variables[] = {
    {.name = "request", .value = "<Request at 0x7f0000005010>", .addr = 0x7f0000005010, .is_arg = true},
    {.name = "n", .value = "3", .addr = 0x7f0000005030, .is_arg = true},
    {.name = "esc" ESC "[31m", .value = "'" BIDI "\"</script>\n'", .addr = 0x7f0000005050},
};

/* Stacks, innermost first. */
static const struct frame stack_main[] = {
    {.func = &funcs[2], .line = 340, .is_entry = false, .locals = variables + 2},
    {.func = &funcs[1], .line = 14, .locals = variables, .n_locals = N_ELEMENTS(variables)},
    {.func = &funcs[0], .line = 6, .is_entry = true, .is_shim_entry = true},
};
static const struct frame stack_sleep[] = {
    {.func = &funcs[7], .line = 0},
    {.func = &funcs[1], .line = 14},
    {.func = &funcs[0], .line = 6, .is_entry = true},
};
static const struct frame stack_hostile[] = {
    {.func = &funcs[8], .line = 1}, {.func = &funcs[6], .line = 9}, {.func = &funcs[5], .line = 8},
    {.func = &funcs[4], .line = 7}, {.func = &funcs[3], .line = 6},
};

#define STACK(s) .frames = (s), .n_frames = N_ELEMENTS(s)
static const struct trace traces[] = {
    {.process = &server,
     .thread_id = 0x7f0000001000,
     .os_thread_id = 100,
     .thread_name = "MainThread",
     .active = true,
     .owns_gil = true,
     STACK(stack_main)},
    {.process = &server,
     .thread_id = 0x7f0000002000,
     .os_thread_id = 101,
     .thread_name = "</script>" ESC "[31m",
     .active = true,
     STACK(stack_hostile)},
    {.process = &server, .thread_id = 0x7f0000003000, STACK(stack_sleep)},
    {.process = &worker,
     .thread_id = 0x7f0000004000,
     .os_thread_id = 200,
     .thread_name = "\" onload=",
     STACK(stack_sleep)},
    {.process = &worker, .thread_id = 0x7f0000005000, .os_thread_id = 201, .thread_name = NULL, .waits_for_gil = true},
};

static const struct out_options plain = {
    .title = "python main.py --title=</title>]]>" ESC, .exporter = "spyglass 0.1.0", .show_lines = true};

/* The output of a writer. */
struct written {
    char *text;
    size_t len;
    FILE *file;
};

static void written_open(struct written *w)
{
    *w = (struct written){0};
    w->file = open_memstream(&w->text, &w->len);
    if (w->file == NULL)
        abort();
}

static char *written_close(struct written *w)
{
    fclose(w->file);
    return w->text;
}

static char *read_golden(const char *path)
{
    char *text = NULL;
    size_t cap = 0;
    FILE *f = fopen(path, "r");

    if (f == NULL)
        return NULL;
    if (getdelim(&text, &cap, '\0', f) < 0 && text != NULL)
        text[0] = '\0';
    fclose(f);
    return text;
}

static void check_golden(const char *name, const char *got)
{
    char path[4096], *want;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", test_now.dir ? test_now.dir : "tests/golden", name);
    if (test_now.update && (f = fopen(path, "w")) != NULL) {
        fputs(got, f);
        fclose(f);
    }
    want = read_golden(path);
    if (!test_count(want != NULL && strcmp(want, got) == 0, __FILE__, __LINE__, name))
        fprintf(stderr, "    %s differs; run with --update and read the difference\n", path);
    free(want);
}

/* 30 ticks of 10 ms: main and hostile each tick, sleep until a gap, the worker in the second half. */
static struct profile *make_profile(struct profile_options options)
{
    struct profile *p;

    options.interval_ns = 10 * MS;
    p = profile_new(&options);
    for (uint64_t tick = 0; tick < 30; tick++) {
        struct trace t = traces[0];

        if (tick % 10 >= 5)
            t.frames++, t.n_frames--; /* handle itself */
        profile_add(p, &t, tick * 10 * MS);
        profile_add(p, &traces[1], tick * 10 * MS);
        if (tick < 5 || tick > 20)
            profile_add(p, &traces[2], tick * 10 * MS);
        if (tick >= 15)
            profile_add(p, &traces[3], tick * 10 * MS);
    }
    p->duration_ns = 300 * MS;
    return p;
}

static char *write_format(const char *name, const struct profile *p, const struct out_options *options, int want)
{
    struct written w;

    written_open(&w);
    CHECK_INT(format_by_name(name)->write(p, options, w.file), want);
    return written_close(&w);
}

static void check_format(const char *format, const struct profile *p, const struct out_options *options,
                         const char *golden)
{
    char *got = write_format(format, p, options, 0);

    check_golden(golden, got);
    free(got);
}

static void check_safe(const char *in, const char *want)
{
    struct written w;

    written_open(&w);
    text_print_safe(w.file, in);
    written_close(&w);
    CHECK_STR(w.text, want);
    free(w.text);
}

static void test_text_safe(void)
{
    check_safe("", "");
    check_safe("plain \xc3\xa4 " ASTRAL, "plain \xc3\xa4 " ASTRAL);
    check_safe("a\n\t\r\x1b\x7f\x01\v", "a\\n\\t\\r\\x1b\\x7f\\x01\\x0b");
    check_safe(C1_CSI BIDI LINE_SEP "\xef\xbb\xbf\xd8\x9c", "\\u009b\\u202e\\u2028\\ufeff\\u061c");
    check_safe("\xe2\x80\x8e\xe2\x81\xa6", "\\u200e\\u2066");
    check_safe("\xff\xc3", "\\xff\\xc3");
    check_safe("\xed\xa0\x80|\xc0\x80|\xf5\x80\x80\x80", "\\xed\\xa0\\x80|\\xc0\\x80|\\xf5\\x80\\x80\\x80");
    check_safe("\xef\xbf\xbd", "\xef\xbf\xbd");
    check_safe("a\xe2\x80\x8b" ZWJ "b\xc2\xad", "a\\u200b\\u200db\\u00ad");
    check_safe("\xe2\x81\xa0\xe2\x81\xaf\xe3\x85\xa4", "\\u2060\\u206f\\u3164");
    check_safe(TAG_A "x", "\\U000e0041x");
    check_safe("\xe2\x9d\xa4\xef\xb8\x8f", "\xe2\x9d\xa4\xef\xb8\x8f"); /* an emoji with its variation selector */
}

/* Every character of Unicode: those on each list are escaped, whatever is beside them. */
static void test_text_hidden(void)
{
    static const uint32_t hidden[][2] = {{0x1, 0x1f},      {0x7f, 0x9f},      {0xad, 0xad},     {0x61c, 0x61c},
                                         {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f}, {0xfeff, 0xfeff},
                                         {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    static const uint32_t shown[][2] = {{0x20, 0x7e},     {0xa0, 0xac},     {0xae, 0x34e},     {0x2010, 0x2027},
                                        {0x2030, 0x205f}, {0x2070, 0x2fff}, {0x4e00, 0x9fff},  {0xac00, 0xd7a3},
                                        {0xfe00, 0xfe0f}, {0xff01, 0xff9f}, {0x1f300, 0x1faff}};

    for (size_t i = 0; i < N_ELEMENTS(hidden); i++)
        for (uint32_t cp = hidden[i][0]; cp <= hidden[i][1]; cp++)
            CHECK(text_is_hidden(cp));
    for (size_t i = 0; i < N_ELEMENTS(shown); i++)
        for (uint32_t cp = shown[i][0]; cp <= shown[i][1]; cp++)
            CHECK(!text_is_hidden(cp));
}

static void test_text_safe_value(void)
{
    char word[1000];
    struct text_safe cut;

    CHECK_STR(text_safe("").s, "");
    CHECK_STR(text_safe("a b\xc3\xa9").s, "a b\xc3\xa9");
    CHECK_STR(text_safe("a\n\x1b[31m\xff" BIDI).s, "a\\n\\x1b[31m\\xff\\u202e");
    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    cut = text_safe(word);
    CHECK_INT(strlen(cut.s), sizeof(cut.s) - 1);
    CHECK_STR(cut.s + sizeof(cut.s) - 5, "a...");
    for (size_t from = 300; from < 330; from++) { /* an escape is whole, or not there */
        memset(word, 'a', from);
        memset(word + from, '\x1b', sizeof(word) - 1 - from);
        cut = text_safe(word);
        CHECK(strlen(cut.s) < sizeof(cut.s));
        CHECK(strcmp(cut.s + strlen(cut.s) - 4, "b...") == 0 || strcmp(cut.s + strlen(cut.s) - 4, "a...") == 0);
    }
}

static void test_text_fit(void)
{
    CHECK_INT(text_fit("abc", 3), 3);
    CHECK_INT(text_fit("abcd", 3), 3);
    CHECK_INT(text_fit("\xe6\xbc\xa2\xe6\xbc\xa2", 3), 3); /* two wide characters */
    CHECK_INT(text_fit("", 3), 0);
    CHECK_INT(text_safe_columns("abc", 2), 2);
    CHECK_INT(text_safe_columns("a\xe6\xbc\xa2", 4), 3);
    CHECK_INT(text_safe_columns("e\xcc\x81x", 4), 2); /* a combining mark */
    CHECK_INT(text_safe_columns("\x1b[", 2), 5);      /* as \x1b */
    CHECK_INT(text_safe_columns("ab", 9), 2);
}

/* Every two-byte string: the output has no control byte and is valid UTF-8. */
static void test_text_all_pairs(void)
{
    unsigned bad = 0;

    for (unsigned i = 1; i < 0x10000; i++) {
        char in[] = {(char)(i & 0xff), (char)(i >> 8), 'x', '\0'};
        struct written w;
        uint32_t cp;

        written_open(&w);
        text_print_safe(w.file, in);
        written_close(&w);
        for (size_t at = 0, n; (n = utf8_next(w.text + at, &cp)) > 0; at += n)
            bad += text_is_hidden(cp) || (cp == UTF8_REPLACEMENT && n == 1);
        free(w.text);
    }
    CHECK_INT(bad, 0);
}

static void check_json(const char *in, const char *want)
{
    struct written w;

    written_open(&w);
    json_string(w.file, in);
    written_close(&w);
    CHECK_STR(w.text, want);
    free(w.text);
}

static void test_json_string(void)
{
    check_json(NULL, "null");
    check_json("a\"b\\c/</script>", "\"a\\\"b\\\\c/</script>\"");
    check_json("\b\f\n\r\t\x1b\x7f", "\"\\b\\f\\n\\r\\t\\u001b\\u007f\"");
    check_json(LINE_SEP BIDI C1_CSI ASTRAL, "\"\\u2028\\u202e\\u009b" ASTRAL "\"");
    check_json("a" ZWJ TAG_A "b\xf3\xa0\xbf\xbf", "\"a\\u200d\\udb40\\udc41b\\udb43\\udfff\"");
    check_json("\xff|\xed\xa0\x80", "\"\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void check_seconds(uint64_t ns, const char *want)
{
    struct written w;

    written_open(&w);
    json_seconds(w.file, ns);
    written_close(&w);
    CHECK_STR(w.text, want);
    free(w.text);
}

static void test_json_seconds(void)
{
    check_seconds(0, "0.0");
    check_seconds(950 * MS, "0.95");
    check_seconds(3000 * MS, "3.0");
    check_seconds(1, "0.000000001");
}

static void test_lookups(void)
{
    size_t n = 0;

    while (format_all()[n] != NULL) {
        CHECK(format_by_name(format_all()[n]->name) == format_all()[n]);
        n++;
    }
    CHECK_INT(n, 4);
    CHECK(format_by_name("SpeedScope") == format_by_name("speedscope"));
    CHECK(format_by_name("svg") == NULL);
    CHECK(format_by_path("/tmp/a.SVG") == format_by_name("flamegraph"));
    CHECK(format_by_path("a.json") == format_by_name("speedscope"));
    CHECK(format_by_path("a.trace.json") == format_by_name("chrometrace"));
    CHECK(format_by_path("a.chrometrace.json") == format_by_name("chrometrace"));
    CHECK(format_by_path("a.folded") == format_by_name("raw"));
    CHECK(format_by_path("a.txt") == format_by_name("raw"));
    CHECK(format_by_path("a") == NULL);
    CHECK(format_by_path("") == NULL);
}

static void test_goldens(void)
{
    struct profile *p = make_profile((struct profile_options){.timeline = true});
    struct out_options full = plain, each = plain;

    each.each_sample = true;
    full.full_filenames = true;
    full.show_lines = false;
    check_format("raw", p, &plain, "plain.raw");
    check_format("raw", p, &full, "full.raw");
    check_format("speedscope", p, &plain, "plain.speedscope.json");
    check_format("speedscope", p, &each, "each.speedscope.json");
    check_format("chrometrace", p, &plain, "plain.trace.json");
    check_format("flamegraph", p, &plain, "plain.svg");
    profile_free(p);
}

static void test_goldens_with_roots(void)
{
    struct profile *p = make_profile((struct profile_options){.timeline = true, .processes = true, .threads = true});

    check_format("raw", p, &plain, "roots.raw");
    check_format("speedscope", p, &plain, "roots.speedscope.json");
    check_format("chrometrace", p, &plain, "roots.trace.json");
    check_format("flamegraph", p, &plain, "roots.svg");
    profile_free(p);
}

/* Seconds instead of samples, and gaps where a thread was not seen. */
static void test_goldens_of_time(void)
{
    struct profile *p =
        make_profile((struct profile_options){.timeline = true, .threads = true, .measure = "CPU time"});
    struct out_options options = plain;

    options.gaps = true;
    CHECK_INT(profile_add_unattributed(p, 7 * MS), 0);
    check_format("raw", p, &options, "time.raw");
    check_format("speedscope", p, &options, "time.speedscope.json");
    check_format("flamegraph", p, &options, "time.svg");
    profile_free(p);
}

/* raw has whole samples: a third of one is rounded up in about a third of the lines. A line that is there stays. */
static void test_raw_rounds(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .measure = "CPU time"});
    struct frame frame = {.func = &funcs[1]};
    struct trace trace = {.process = &server, .frames = &frame, .n_frames = 1, .weight_ns = 10 * MS / 3};
    char present[300] = {0};

    for (int round = 1; round <= 3; round++) {
        int n = 0, lost = 0;
        char *text;

        for (frame.line = 1; frame.line <= 300; frame.line++)
            CHECK_INT(profile_add(p, &trace, (uint64_t)round * 10 * MS), 0);
        text = write_format("raw", p, &plain, 0);
        for (int line = 1; line <= 300; line++) {
            char end[32];
            bool found;

            snprintf(end, sizeof(end), ":%d) 1\n", line);
            found = strstr(text, end) != NULL;
            n += found;
            lost += present[line - 1] && !found;
            present[line - 1] = found;
        }
        CHECK(n >= round * 100 - 30 && n <= round * 100 + 30);
        CHECK_INT(lost, 0);
        free(text);
    }
    profile_free(p);
}

/* Of stacks with so little time that every count is rounded to 0, the one with the most time is written. */
static void test_raw_is_not_empty(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .measure = "CPU time"});
    struct frame frame = {.func = &funcs[1]};
    struct trace trace = {.process = &server, .frames = &frame, .n_frames = 1};
    char *text;

    for (frame.line = 1; frame.line <= 5; frame.line++) {
        trace.weight_ns = frame.line == 3 ? 3 : 1;
        CHECK_INT(profile_add(p, &trace, 10 * MS), 0);
    }
    text = write_format("raw", p, &plain, 0);
    CHECK(strstr(text, ":3) 1\n") != NULL);
    CHECK(strchr(text, '\n') == strrchr(text, '\n'));
    free(text);
    profile_free(p);
}

/* No order in the output comes from a hash table. */
static void test_goldens_with_seeds(void)
{
    struct hash_seed before = hash_seed;

    for (uint64_t i = 1; i <= 5; i++) {
        hash_seed_set((struct hash_seed){i * 0x9e3779b97f4a7c15ull, i * 0xc2b2ae3d27d4eb4full});
        test_goldens();
        test_goldens_with_roots();
    }
    hash_seed_set(before);
}

/* A profile of many stacks that was pruned, as `format` writes it. */
static char *write_pruned(const char *format)
{
    struct frame frames[10];
    struct trace trace = {.process = &server, .thread_id = 1, .frames = frames, .n_frames = N_ELEMENTS(frames)};
    struct profile *p = profile_new(
        &(struct profile_options){.interval_ns = 10 * MS, .timeline = true, .threads = true, .max_nodes = 2000});
    uint64_t random = 1;
    char *text;

    for (uint64_t i = 0; i < 20000; i++) {
        trace.thread_id = 1 + i % 5;
        for (size_t f = 0; f < N_ELEMENTS(frames); f++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            frames[f] = (struct frame){.func = &funcs[(random >> 40) % 7], .line = (int)(random >> 50) % 3};
        }
        if (profile_add(p, &trace, i * 10 * MS) != 0 || profile_enforce_limits(p) != 0)
            abort();
    }
    CHECK(p->pruned > 0);
    text = write_format(format, p, &plain, 0);
    profile_free(p);
    return text;
}

static void test_pruned_with_seeds(void)
{
    struct hash_seed before = hash_seed;

    for (size_t i = 0; format_all()[i] != NULL; i++) {
        char *one = write_pruned(format_all()[i]->name), *other;

        hash_seed_set((struct hash_seed){before.b, before.a});
        other = write_pruned(format_all()[i]->name);
        hash_seed_set(before);
        CHECK(strcmp(one, other) == 0);
        free(one);
        free(other);
    }
}

/* One entry per sample: equal samples in a row have one each, and the weights add up to the same end, without a remainder. */
static void test_speedscope_each_sample(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});
    struct frame frame = {.func = &funcs[0], .line = 1};
    struct trace trace = {.process = &server, .frames = &frame, .n_frames = 1, .weight_ns = 10 * MS};
    struct out_options options = plain;
    char *text;

    CHECK_INT(profile_add(p, &trace, 0), 0);
    trace.weight_ns = 10 * MS + 1;
    CHECK_INT(profile_add(p, &trace, 10 * MS), 0);
    CHECK_INT(profile_add(p, &trace, 20 * MS), 0);
    text = write_format("speedscope", p, &options, 0);
    CHECK(strstr(text, "\"endValue\":0.030000002,\"samples\":[[0]],\"weights\":[0.030000002]") != NULL);
    free(text);
    options.each_sample = true;
    text = write_format("speedscope", p, &options, 0);
    CHECK(strstr(text, "\"endValue\":0.030000002,\"samples\":[[0],[0],[0]],"
                       "\"weights\":[0.01,0.01,0.010000002]") != NULL);
    free(text);
    profile_free(p);
}

static void test_nothing_sampled(void)
{
    struct profile *p = profile_new(&(struct profile_options){.timeline = true});
    char *text;

    text = write_format("raw", p, &plain, 0);
    CHECK_STR(text, "");
    free(text);
    text = write_format("chrometrace", p, &plain, 0);
    CHECK_STR(text, "[]\n");
    free(text);
    text = write_format("speedscope", p, &plain, 0);
    CHECK(strstr(text, "\"profiles\":[]") != NULL);
    free(text);
    text = write_format("flamegraph", p, &plain, ERR_NO_SAMPLES);
    CHECK_STR(text, "");
    free(text);
    profile_free(p);
}

/* A remark appears where people read it, and breaks no format. */
static void test_nothing_sampled_remark(void)
{
    struct profile *p = profile_new(&(struct profile_options){.timeline = true});
    struct out_options options = plain;
    char *text;

    options.remark = "all <9>; were" ESC " idle";
    text = write_format("raw", p, &options, 0);
    CHECK(strncmp(text, "[all <9>: were", 14) == 0 && strchr(text, ';') == NULL && strstr(text, " idle] 0\n") != NULL);
    CHECK(strchr(text, '\x1b') == NULL);
    free(text);
    text = write_format("chrometrace", p, &options, 0);
    CHECK_STR(text, "[]\n");
    free(text);
    text = write_format("speedscope", p, &options, 0);
    CHECK(strstr(text, "\"profiles\":[]") != NULL && strstr(text, "[all <9>; were\\u001b idle]\"}") != NULL);
    free(text);
    text = write_format("flamegraph", p, &options, 0);
    CHECK(strstr(text, "all &lt;9&gt;; were") != NULL && strstr(text, "all (0 samples, 100%)") != NULL);
    free(text);
    profile_free(p);
}

static void test_dump_text(void)
{
    struct written w;

    written_open(&w);
    dump_text(&server, traces, 3, &(struct dump_options){0}, true, w.file);
    dump_text(&worker, traces + 3, 2, &(struct dump_options){.full_filenames = true}, false, w.file);
    written_close(&w);
    check_golden("dump.txt", w.text);
    for (const char *s = w.text; *s != '\0'; s++)
        if (*s < ' ' && *s > 0 && *s != '\n')
            CHECK(!"a control byte in dump's text");
    free(w.text);
    written_open(&w);
    dump_text(&worker, traces + 4, 1, &(struct dump_options){.as_py_spy = true}, true, w.file);
    written_close(&w);
    CHECK(strstr(w.text, "Thread 201 (idle)\n") != NULL);
    free(w.text);
}

/* Source lines and what is underlined: in text, in JSON, and with colors. */
static const struct frame_source sources[] = {
    {.text = "    total = add(a) + add(b)", .end_line = 7, .column = 12, .end_column = 18},
    {.text = "\t\tx =\t{\"gr\xc3\xb6\xc3\x9f"
             "e\": '\xe6\xbc\xa2'}[\xc3\xb6]  # \xe6\xbc\xa2",
     .end_line = 7,
     .column = 24,
     .end_column = 28},
    {.text = "    return call(", .end_line = 9, .column = 11, .end_column = 5},
    {.text = "    the_whole_line()", .end_line = 7, .column = 4, .end_column = 20},
    {.text = "a" ESC "[31m" BIDI "b(c)", .end_line = 7, .column = 9, .end_column = 13},
    {.text = "'e\xcc\x81' + f()", .end_line = 7, .column = 8, .end_column = 11},
    {.text = "latin \xef\xbf\xbd and f()", .end_line = 7, .column = 12, .end_column = 15},
    {.text = "    no_columns() or f()", .column = -1, .end_column = -1},
    {.text = "short", .end_line = 7, .column = 40, .end_column = 60},
    {.text = "   ", .end_line = 7, .column = 0, .end_column = 2},
    {.text = NULL, .end_line = 7, .column = 4, .end_column = 8},
    {.text = "backwards = f()", .end_line = 6, .column = 12, .end_column = 15},
    {.text = "inside \xe6\xbc\xa2 and f()", .end_line = 7, .column = 8, .end_column = 9},
};

static void test_dump_source(void)
{
    struct frame frames[N_ELEMENTS(sources)];
    struct trace shown[3];
    struct written w;

    for (size_t i = 0; i < N_ELEMENTS(sources); i++)
        frames[i] = (struct frame){.func = &funcs[1], .line = 7, .source = &sources[i]};
    for (size_t i = 0; i < N_ELEMENTS(shown); i++)
        shown[i] = (struct trace){.process = &server, .os_thread_id = 100, .active = i == 0, .waits_for_gil = i == 2};
    shown[0].frames = frames;
    shown[0].n_frames = N_ELEMENTS(frames);
    written_open(&w);
    dump_text(&server, shown, 1, &(struct dump_options){0}, true, w.file);
    written_close(&w);
    check_golden("source.txt", w.text);
    free(w.text);
    written_open(&w);
    dump_text(&server, shown, N_ELEMENTS(shown), &(struct dump_options){.color = true}, true, w.file);
    shown[0].owns_gil = true;
    shown[0].n_frames = 0;
    dump_text(&server, shown, 1, &(struct dump_options){.color = true}, true, w.file);
    written_close(&w);
    check_golden("source.color.txt", w.text);
    free(w.text);
    shown[0].n_frames = N_ELEMENTS(frames);
    written_open(&w);
    dump_json(shown, 1, NULL, 0, &(struct dump_options){0}, w.file);
    written_close(&w);
    check_golden("source.json", w.text);
    free(w.text);
}

static void test_dump_json(void)
{
    struct written w;

    written_open(&w);
    dump_json(traces, N_ELEMENTS(traces), NULL, 0, &(struct dump_options){0}, w.file);
    written_close(&w);
    check_golden("dump.json", w.text);
    free(w.text);
    written_open(&w);
    dump_json(traces, 1, NULL, 0, &(struct dump_options){.several = true}, w.file); /* of several processes */
    written_close(&w);
    CHECK(strstr(w.text, "\"process_info\": {\n      \"pid\": ") &&
          strstr(w.text, "\"parent\": null\n    }\n  }\n]\n"));
    free(w.text);
    written_open(&w);
    dump_json(NULL, 0, NULL, 0, &(struct dump_options){0}, w.file);
    written_close(&w);
    CHECK_STR(w.text, "[]\n");
    free(w.text);
}

/* Not strstr: under ASan it measures the whole text at each call. */
static size_t count_of(const char *text, const char *what)
{
    size_t n = 0, len = strlen(what);

    for (const char *s = text; *s != '\0'; s++)
        n += *s == *what && strncmp(s, what, len) == 0;
    return n;
}

/* Nothing in the assets may end the CDATA section that contains them. */
static void test_assets(void)
{
    CHECK(strstr(asset_flamegraph_js, "addEventListener") != NULL);
    CHECK(strstr(asset_flamegraph_css, ".head") != NULL);
    CHECK(strstr(asset_flamegraph_js, "]]>") == NULL);
    CHECK(strstr(asset_flamegraph_css, "]]>") == NULL);
    CHECK_INT(strlen(asset_flamegraph_js), asset_flamegraph_js_len);
    CHECK_INT(strlen(asset_flamegraph_css), asset_flamegraph_css_len);
}

static void test_svg_hostile(void)
{
    struct profile *p = make_profile((struct profile_options){.processes = true, .threads = true});
    char *svg = write_format("flamegraph", p, &plain, 0);

    CHECK_INT(count_of(svg, "<script"), 1);
    CHECK_INT(count_of(svg, "]]>"), 2);
    CHECK_INT(count_of(svg, "\" onload"), 0);
    CHECK_INT(count_of(svg, "\x1b"), 0);
    CHECK(strstr(svg, "<title>all (89 samples, 100%)</title>") != NULL);
    CHECK_INT(count_of(svg, "http"), count_of(asset_flamegraph_js, "http") + 2); /* the DTD's name, the namespace */
    free(svg);
    profile_free(p);
}

/* "1 sample", not "1 samples"; what a frame spent itself is beside its total. */
static void test_svg_one_sample(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS});
    char *svg;

    CHECK_INT(profile_add(p, &traces[0], 0), 0);
    svg = write_format("flamegraph", p, &plain, 0);
    CHECK(strstr(svg, "<title>all (1 sample, 100%)</title>") != NULL && strstr(svg, ">1 sample<") != NULL);
    CHECK_INT(count_of(svg, "<g class=\"f\" data-self=\"1 sample, 100.00%\"><title>JSONDecoder.decode"), 1);
    CHECK_INT(count_of(svg, " data-self=\""), count_of(asset_flamegraph_js, " data-self=\"") + 1);
    free(svg);
    profile_free(p);
}

static void check_big_flamegraph(const struct profile *p)
{
    char *svg = write_format("flamegraph", p, &plain, 0);

    CHECK(strlen(svg) < 4000000);
    CHECK(strstr(svg, "smallest or deepest frames omitted") != NULL);
    CHECK_INT(count_of(svg, "<g "), count_of(svg, "</g>"));
    free(svg);
}

static void check_big_chrometrace(const struct profile *p)
{
    char *json = write_format("chrometrace", p, &plain, 0);

    CHECK(count_of(json, "\"ph\":\"B\"") > 0);
    CHECK_INT(count_of(json, "\"ph\":\"B\""), count_of(json, "\"ph\":\"E\""));
    free(json);
}

/* The others would only fill memory. */
static void check_big(const struct profile *p)
{
    FILE *nowhere = fopen("/dev/null", "w");

    check_big_flamegraph(p);
    check_big_chrometrace(p);
    CHECK_INT(format_by_name("raw")->write(p, &plain, nowhere), 0);
    CHECK_INT(format_by_name("speedscope")->write(p, &plain, nowhere), 0);
    fclose(nowhere);
}

static void test_deep_stack(void)
{
    static struct frame frames[20000];
    struct trace trace = {.process = &server, .thread_id = 1, .frames = frames, .n_frames = N_ELEMENTS(frames)};
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});

    for (size_t i = 0; i < N_ELEMENTS(frames); i++)
        frames[i] = (struct frame){.func = &funcs[1 + i % 2], .line = 7};
    for (uint64_t tick = 0; tick < 50; tick++) {
        frames[0].line = (int)tick / 5 + 1;
        CHECK_INT(profile_add(p, &trace, tick * 10 * MS), 0);
    }
    check_big(p);
    profile_free(p);
}

/* Ray's limit: each format fits, a list says that it was made coarser, and no sample is lost. */
static void check_limit(struct profile *p, const char *format)
{
    struct options o = {.as_py_spy = true, .output = "/logs/raw_1_cpu_profiling.txt"};
    struct written w;
    uint64_t samples = p->samples, sum = 0;

    written_open(&w);
    CHECK_INT(size_limit_write(format_by_name(format), p, &plain, size_limit_of(&o), w.file), 0);
    written_close(&w);
    CHECK(w.len > 100000 && w.len < 4 << 20);
    CHECK_INT(p->samples, samples);
    if (strcmp(format, "flamegraph") != 0)
        CHECK(strstr(w.text, "reduced to stay below") != NULL);
    for (char *line = strtok(w.text, "\n"); strcmp(format, "raw") == 0 && line; line = strtok(NULL, "\n"))
        sum += strtoull(strrchr(line, ' '), NULL, 10);
    CHECK_INT(sum, strcmp(format, "raw") == 0 ? samples : 0);
    free(w.text);
}

static void test_limit(void)
{
    static const char *const formats[] = {"flamegraph", "raw", "speedscope"};
    struct frame frames[40];
    struct trace trace = {.process = &server, .thread_id = 1, .frames = frames, .n_frames = N_ELEMENTS(frames)};

    for (size_t f = 0; f < N_ELEMENTS(formats); f++) {
        struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});
        int failed = 0;

        for (size_t i = 0; i < N_ELEMENTS(frames); i++)
            frames[i] = (struct frame){.func = &funcs[i % 7], .line = 7};
        for (int i = 0; i < 40000; i++) {
            frames[0].line = i + 1;
            frames[39].line = i / 200 + 1;
            failed += profile_add(p, &trace, (uint64_t)i * 10 * MS) != 0;
        }
        CHECK_INT(failed, 0);
        check_limit(p, formats[f]);
        profile_free(p);
    }
    CHECK(size_limit_of(&(struct options){.output = "raw_1_cpu_profiling.txt"}) >
          0); /* Ray with docs/patches/ray.patch */
    CHECK_INT(size_limit_of(&(struct options){.as_py_spy = true, .output = "x.txt"}), 0);
    CHECK_INT(size_limit_of(&(struct options){.as_py_spy = true}), 0);
}

/* A limit that one entry per sample would exceed: equal samples share an entry, and nothing is left out. */
static void test_limit_each_sample(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});
    struct frame frame = {.func = &funcs[0], .line = 1};
    struct trace trace = {.process = &server, .frames = &frame, .n_frames = 1};
    struct out_options options = plain;
    struct written w;

    options.each_sample = true;
    for (uint64_t i = 0; i < 1000; i++)
        CHECK_INT(profile_add(p, &trace, i * 10 * MS), 0);
    written_open(&w);
    CHECK_INT(size_limit_write(format_by_name("speedscope"), p, &options, 2000, w.file), 0);
    written_close(&w);
    CHECK(strstr(w.text, "\"endValue\":10.0,\"samples\":[[0]],\"weights\":[10.0]") && !strstr(w.text, "reduced"));
    free(w.text);
    profile_free(p);
}

/* A dump within a limit: the innermost and outermost frames of each thread stay, and the gap is shown. */
static void test_limit_dump(void)
{
    static struct frame frames[1000];
    struct trace trace = {.process = &server, .thread_id = 1, .frames = frames, .n_frames = N_ELEMENTS(frames)};
    size_t sizes[] = {1000000, 9000, 600};

    for (size_t i = 0; i < N_ELEMENTS(frames); i++)
        frames[i] = (struct frame){.func = &funcs[1], .line = (int)i + 1};
    for (size_t i = 0; i < N_ELEMENTS(sizes); i++) {
        struct written w;
        size_t used;

        written_open(&w);
        used = size_limit_dump(&server, &trace, 1, &(struct dump_options){0}, true, sizes[i], w.file);
        written_close(&w);
        CHECK_INT(used, w.len);
        CHECK(w.len <= sizes[i]);
        CHECK_INT(strstr(w.text, "frames omitted") != NULL, i > 0);
        CHECK(strstr(w.text, "views.py:1)\n") != NULL && strstr(w.text, "views.py:1000)\n") != NULL);
        CHECK_INT(strstr(w.text, "views.py:500)\n") != NULL, i == 0);
        free(w.text);
    }
}

/* Two hundred thousand stacks of similar width, forty frames deep. */
static void test_many_stacks(void)
{
    struct frame frames[40];
    struct trace trace = {.process = &server, .thread_id = 1, .frames = frames, .n_frames = N_ELEMENTS(frames)};
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});
    int failed = 0;

    for (size_t i = 0; i < N_ELEMENTS(frames); i++)
        frames[i] = (struct frame){.func = &funcs[i % 7], .line = 7};
    for (int i = 0; i < 200000; i++) {
        frames[0].line = i % 200 + 1;
        frames[39].line = i / 200 + 1;
        failed += profile_add(p, &trace, (uint64_t)i * 10 * MS) != 0;
    }
    CHECK_INT(failed, 0);
    CHECK_INT(p->n_nodes, 1 + 1000 * 39 + 200000);
    check_big(p);
    profile_free(p);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_text_safe);
    TEST_RUN(test_text_hidden);
    TEST_RUN(test_text_safe_value);
    TEST_RUN(test_text_fit);
    TEST_RUN(test_text_all_pairs);
    TEST_RUN(test_json_string);
    TEST_RUN(test_json_seconds);
    TEST_RUN(test_lookups);
    TEST_RUN(test_goldens);
    TEST_RUN(test_goldens_with_roots);
    TEST_RUN(test_goldens_of_time);
    TEST_RUN(test_raw_rounds);
    TEST_RUN(test_raw_is_not_empty);
    TEST_RUN(test_goldens_with_seeds);
    TEST_RUN(test_pruned_with_seeds);
    TEST_RUN(test_speedscope_each_sample);
    TEST_RUN(test_nothing_sampled);
    TEST_RUN(test_nothing_sampled_remark);
    TEST_RUN(test_dump_text);
    TEST_RUN(test_dump_json);
    TEST_RUN(test_dump_source);
    TEST_RUN(test_assets);
    TEST_RUN(test_svg_hostile);
    TEST_RUN(test_svg_one_sample);
    TEST_RUN(test_deep_stack);
    TEST_RUN(test_limit);
    TEST_RUN(test_limit_each_sample);
    TEST_RUN(test_limit_dump);
    TEST_RUN(test_many_stacks);
    return test_finish("test_out");
}
