/*
 * The command line: every form of every flag, every error with its text, the rules of the tables, and that help and
 * completions match the tables.
 */
#include "cmd/cmd.h"

#include "test.h"

struct parsed {
    int r;
    struct options o;
    struct error_text text;
    char *argv[32];
    char line[512];
};

/* Parses words split at single spaces; the first is the program's name. "''" is an empty word. */
static struct parsed *parse(const char *line)
{
    static struct parsed p;
    int argc = 0;

    memset(&p, 0, sizeof(p));
    snprintf(p.line, sizeof(p.line), "%s", line);
    for (char *word = strtok(p.line, " "); word && argc < 31; word = strtok(NULL, " "))
        p.argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    p.r = args_parse(argc, p.argv, &p.o, &p.text);
    return &p;
}

static void check_error(const char *line, const char *what, const char *hint)
{
    struct parsed *p = parse(line);

    CHECK_INT(p->r, ERR_USAGE);
    if (!CHECK_STR(p->text.what, what) || !CHECK_STR(p->text.hint, hint))
        fprintf(stderr, "    of: %s\n", line);
}

static void test_names(void)
{
    static const char *const spyglass[] = {"spyglass -V", "/usr/bin/spyglass -V", "py-spy/spyglass -V", "py-spy2 -V",
                                           "/ -V"};
    static const char *const py_spy[] = {"py-spy -V", "/usr/local/bin/py-spy -V", "./py-spy -V",
                                         "../x/py-spy --version"};

    for (size_t i = 0; i < sizeof(spyglass) / sizeof(spyglass[0]); i++)
        CHECK(!parse(spyglass[i])->o.as_py_spy);
    for (size_t i = 0; i < sizeof(py_spy) / sizeof(py_spy[0]); i++)
        CHECK(parse(py_spy[i])->o.as_py_spy);
    CHECK_STR(args_name(&(struct options){0}), "spyglass");
    CHECK_STR(args_prefix(&(struct options){0}), "spyglass> ");
    CHECK(strncmp(args_version(&(struct options){0}), "spyglass 0.", 11) == 0);
    CHECK_STR(args_name(&(struct options){.as_py_spy = true}), "py-spy");
    CHECK_STR(args_prefix(&(struct options){.as_py_spy = true}), "py-spy> ");
    CHECK(strncmp(args_version(&(struct options){.as_py_spy = true}), "py-spy 0.4.3 (spyglass 0.", 25) == 0);
}

static void test_no_argv(void)
{
    struct options o;
    char *none[] = {NULL};

    CHECK_INT(args_parse(0, none, &o, NULL), 0);
    CHECK(o.bare && o.show_help && !o.as_py_spy);
}

static void test_commands(void)
{
    static const struct {
        const char *line;
        enum args_command command;
    } rows[] = {
        {"spyglass record", ARGS_RECORD},
        {"spyglass r", ARGS_RECORD},
        {"spyglass rec", ARGS_RECORD},
        {"spyglass dump", ARGS_DUMP},
        {"spyglass d", ARGS_DUMP},
        {"spyglass dum", ARGS_DUMP},
        {"spyglass do", ARGS_DOCTOR},
        {"spyglass doctor --pid 5 --json", ARGS_DOCTOR},
        {"py-spy d -p 5", ARGS_DUMP},
        {"spyglass c bash", ARGS_COMPLETIONS},
        {"spyglass merge a.txt", ARGS_MERGE},
        {"spyglass completions fish", ARGS_COMPLETIONS},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct parsed *p = parse(rows[i].line);
        CHECK_INT(p->r, 0);
        CHECK_INT(p->o.command, rows[i].command);
        CHECK(!p->o.show_help && !p->o.show_version && !p->o.bare);
    }
}

/* All of its arguments go to the Python package; `r` still abbreviates record. */
static void test_ray(void)
{
    struct parsed *p = parse("spyglass ray record --help -p x -V");

    CHECK_INT(p->r, 0);
    CHECK_INT(p->o.command, ARGS_RAY);
    CHECK(!p->o.show_help && !p->o.show_version);
    CHECK_STR(p->o.program[0], "record");
    CHECK_STR(p->o.program[4], "-V");
    CHECK(p->o.program[5] == NULL);
    p = parse("spyglass ray");
    CHECK(p->r == 0 && p->o.bare && p->o.show_help);
    CHECK(parse("spyglass ray --help")->o.show_help && parse("spyglass ray -V")->o.show_version);
    CHECK_INT(parse("spyglass ray --address auto")->r, ERR_USAGE);
    CHECK_INT(parse("spyglass ra")->o.command, ARGS_RAY);
    p = parse("spyglass help ray");
    CHECK(p->r == 0 && p->o.show_help);
    CHECK_INT(p->o.command, ARGS_RAY);
}

static void test_help_and_version(void)
{
    static const struct {
        const char *line;
        enum args_command command;
        bool help, version, bare;
    } rows[] = {
        {"spyglass", ARGS_NONE, true, false, true},
        {"spyglass --", ARGS_NONE, true, false, true},
        {"spyglass -h", ARGS_NONE, true, false, false},
        {"spyglass --help", ARGS_NONE, true, false, false},
        {"spyglass help", ARGS_NONE, true, false, false},
        {"spyglass help help", ARGS_NONE, true, false, false},
        {"spyglass help record", ARGS_RECORD, true, false, false},
        {"spyglass h d", ARGS_DUMP, true, false, false},
        {"spyglass help -V", ARGS_NONE, false, true, false},
        {"spyglass help -h", ARGS_NONE, true, false, false},
        {"spyglass record -h", ARGS_RECORD, true, false, false},
        {"spyglass record -p 5 --help", ARGS_RECORD, true, false, false},
        {"spyglass dump -sh", ARGS_DUMP, true, false, false},
        {"spyglass completions --help", ARGS_COMPLETIONS, true, false, false},
        {"spyglass -V", ARGS_NONE, false, true, false},
        {"spyglass --version", ARGS_NONE, false, true, false},
        {"spyglass record -V", ARGS_RECORD, false, true, false},
        {"spyglass -h --bogus", ARGS_NONE, true, false, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct parsed *p = parse(rows[i].line);
        CHECK_INT(p->r, 0);
        CHECK_INT(p->o.command, rows[i].command);
        CHECK_INT(p->o.show_help, rows[i].help);
        CHECK_INT(p->o.show_version, rows[i].version);
        if (!CHECK_INT(p->o.bare, rows[i].bare))
            fprintf(stderr, "    of: %s\n", rows[i].line);
    }
    /* Arguments after the program belong to the program. */
    CHECK(!parse("spyglass record python -h")->o.show_help);
}

static void test_defaults(void)
{
    struct parsed *p = parse("spyglass record");

    CHECK(p->o.rate == 100 && p->o.duration == 0);
    CHECK(p->o.pid == 0 && !p->o.program && !p->o.core && !p->o.output && !p->o.format);
    CHECK(!p->o.idle && !p->o.gil && !p->o.native && !p->o.subprocesses && p->o.locals == 0);
}

static void test_pid(void)
{
    static const char *const forms[] = {"-p5", "-p 5", "-p=5", "--pid=5", "--pid 5", "-p 0x5", "--pid=0X5", "-p 005"};
    char line[64];

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        snprintf(line, sizeof(line), "spyglass dump %s", forms[i]);
        CHECK_INT(parse(line)->r, 0);
        CHECK_INT(parse(line)->o.pid, 5);
    }
    CHECK_INT(parse("spyglass d -p 2147483647")->o.pid, 2147483647);
    CHECK_INT(parse("spyglass d -p 0x7fffffff")->o.pid, 0x7fffffff);
    check_error("spyglass d -p abc", "'abc' is not a process ID", "");
    check_error("spyglass d -p 12x", "'12x' is not a process ID", "");
    check_error("spyglass d -p 0x", "'0x' is not a process ID", "");
    check_error("spyglass d -p 0xg", "'0xg' is not a process ID", "");
    check_error("spyglass d -p 1.5", "'1.5' is not a process ID", "");
    check_error("spyglass d -p -5", "'-5' is not a process ID", "");
    check_error("spyglass d -p +5", "'+5' is not a process ID", "");
    check_error("spyglass d -p f", "'f' is not a process ID", "");
    check_error("spyglass d -p 0", "process ID 0 is out of range", "");
    check_error("spyglass d -p 2147483648", "process ID 2147483648 is out of range", "");
    check_error("spyglass d -p 99999999999999999999999", "process ID 99999999999999999999999 is out of range", "");
}

static void test_status_fd(void)
{
    CHECK_INT(parse("spyglass record -p 5")->o.status_fd, -1);
    CHECK_INT(parse("spyglass record --status-fd 3 -p 5")->o.status_fd, 3);
    CHECK_INT(parse("py-spy dump --status-fd=2147483647 -p 5")->o.status_fd, 2147483647);
    CHECK_INT(parse("spyglass dump --status-fd 0 -p 5")->o.status_fd, 0);
    CHECK_INT(parse("spyglass record --status-fd 4 --bogus")->o.status_fd, 4); /* where the mistake is reported */
    check_error("spyglass d --status-fd x", "'x' is not a file descriptor: give a number", "");
    check_error("spyglass d --status-fd -1", "'-1' is not a file descriptor: give a number", "");
    check_error("spyglass d --status-fd 2147483648", "'2147483648' is not a file descriptor: give a number", "");
    check_error("spyglass merge --status-fd 3 x", "merge does not accept the flag '--status-fd'",
                "For the flags it accepts, run: spyglass merge --help");
}

static void test_rate(void)
{
    CHECK(parse("spyglass r -r 250")->o.rate == 250);
    CHECK(parse("spyglass r -r0.5")->o.rate == 0.5);
    CHECK(parse("spyglass r --rate=1e3")->o.rate == 1000);
    CHECK(parse("spyglass r --rate .25")->o.rate == .25);
    CHECK(parse("spyglass r --rate 1000000")->o.rate == 1e6);
    check_error("spyglass r -r 0", "the rate must be greater than 0, not 0", "");
    check_error("spyglass r -r 0.0", "the rate must be greater than 0, not 0.0", "");
    check_error("spyglass r -r -5", "the rate must be greater than 0, not -5", "");
    check_error("spyglass r -r=-5", "the rate must be greater than 0, not -5", "");
    check_error("spyglass r -r nan", "'nan' is not a rate: use a number of samples per second", "");
    check_error("spyglass r -r inf", "'inf' is not a rate: use a number of samples per second", "");
    check_error("spyglass r -r 1e999", "'1e999' is not a rate: use a number of samples per second", "");
    check_error("spyglass r -r 0x10", "'0x10' is not a rate: use a number of samples per second", "");
    check_error("spyglass r -r 10Hz", "'10Hz' is not a rate: use a number of samples per second", "");
    check_error("spyglass r -r 1e-7", "the rate must be between 0.000001 and 1000000, not 1e-7", "");
    check_error("spyglass r -r 1e7", "the rate must be between 0.000001 and 1000000, not 1e7", "");
}

static void test_duration(void)
{
    CHECK(parse("spyglass r -d 1.5")->o.duration == 1.5);
    CHECK(parse("spyglass r --duration=30")->o.duration == 30);
    CHECK(parse("spyglass r -d unlimited")->o.duration == 0);
    CHECK(parse("spyglass r -d Unlimited")->o.duration == 0);
    CHECK(parse("spyglass r -d 99999999999")->o.duration == 0);
    CHECK(parse("spyglass d -p 1")->o.deadline == -1);
    CHECK(parse("spyglass d -p 1 -t --deadline 0.25")->o.deadline == 0.25);
    CHECK(parse("spyglass d -p 1 --threads --deadline unlimited")->o.deadline == 0);
    check_error("spyglass d --core x --deadline 1", "--deadline and --core cannot be combined", "");
    check_error("spyglass r -d 0", "the duration must be greater than 0 seconds, not 0", "");
    check_error("spyglass r -d -1", "the duration must be greater than 0 seconds, not -1", "");
    check_error("spyglass r -d nan", "'nan' is not a duration: use a number of seconds, or 'unlimited'", "");
    check_error("spyglass r -d 5s", "'5s' is not a duration: use a number of seconds, or 'unlimited'", "");
    check_error("spyglass r -d 1.2.3", "'1.2.3' is not a duration: use a number of seconds, or 'unlimited'", "");
}

static void test_format(void)
{
    static const char *const words[] = {"raw", "RAW", "Speedscope", "chrometrace", "flameGraph"};
    char line[64];

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        snprintf(line, sizeof(line), "spyglass record -f %s", words[i]);
        CHECK_INT(parse(line)->r, 0);
        CHECK(parse(line)->o.format != NULL && parse(line)->o.format == format_by_name(words[i]));
    }
    struct parsed *p = parse("spyglass record -f speedscop");
    CHECK_STR(p->text.what, "unknown format 'speedscop'");
    CHECK(strncmp(p->text.hint, "Did you mean 'speedscope'? Available formats: ", 46) == 0);
    p = parse("spyglass record --format=xml");
    CHECK_STR(p->text.what, "unknown format 'xml'");
    CHECK(strncmp(p->text.hint, "Available formats: ", 19) == 0 && strstr(p->text.hint, "chrometrace"));
}

static void test_extension(void)
{
    static const char *const good[] = {"x.svg", "x.JSON",  "x.trace.json", "x",  "-",
                                       "a.b/x", ".hidden", "run.2",        "x.", "/dev/x.y"};
    static const char *const bad[] = {"x.html", "x.pb.gz", "a/x.7z", "x.svg.old"};
    char line[64];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(line, sizeof(line), "spyglass record -p 1 -o %s", good[i]);
        if (!CHECK_INT(parse(line)->r, 0))
            fprintf(stderr, "    of: %s\n", line);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(line, sizeof(line), "spyglass record -p 1 -o %s", bad[i]);
        if (!CHECK_INT(parse(line)->r, ERR_USAGE) ||
            !CHECK(strstr(parse(line)->text.hint, ".svg (flamegraph)") != NULL))
            fprintf(stderr, "    of: %s\n", line);
        snprintf(line, sizeof(line), "spyglass record -p 1 -f raw -o %s", bad[i]);
        CHECK_INT(parse(line)->r, 0);
        snprintf(line, sizeof(line), "py-spy record -p 1 -o %s", bad[i]);
        CHECK_INT(parse(line)->r, 0);
    }
}

static void test_text(void)
{
    CHECK_STR(parse("spyglass r -o out.svg")->o.output, "out.svg");
    CHECK_STR(parse("spyglass r -oout.svg")->o.output, "out.svg");
    CHECK_STR(parse("spyglass r -o=out.svg")->o.output, "out.svg");
    CHECK_STR(parse("spyglass r --output=a=b")->o.output, "a=b");
    CHECK_STR(parse("spyglass r -o -")->o.output, "-");
    CHECK_STR(parse("spyglass r --output -")->o.output, "-");
    CHECK_STR(parse("spyglass r --output=-x")->o.output, "-x");
    CHECK_STR(parse("spyglass d --core file")->o.core, "file");
    CHECK_STR(parse("spyglass d -c file")->o.core, "file");
    CHECK_STR(parse("spyglass d -c file --root /mnt --exe=p")->o.root, "/mnt");
    CHECK_STR(parse("spyglass d -c file --root /mnt --exe=p")->o.exe, "p");
}

static void test_booleans(void)
{
    struct options o = parse("spyglass record --full-filenames -s -n -g -i -F --nolineno -t --capture "
                             "--hideprogress -v")
                           ->o;

    CHECK(o.full_filenames && o.subprocesses && o.native && o.gil && o.idle && o.function);
    CHECK(o.nolineno && o.threads && o.capture && o.hide_progress && o.verbose);
    o = parse("spyglass record --subprocesses --native --gil --idle --function --threads --verbose")->o;
    CHECK(o.subprocesses && o.native && o.gil && o.idle && o.function && o.threads && o.verbose);
    CHECK(!o.full_filenames && !o.nonblocking && !o.nolineno && !o.capture && !o.hide_progress);
    o = parse("spyglass dump --json --locals --full-filenames --nonblocking -n -s -v")->o;
    CHECK(o.json && o.locals == 1 && o.full_filenames && o.nonblocking && o.native && o.subprocesses && o.verbose);
    CHECK_INT(parse("spyglass record -s -s --subprocesses")->r, 0);
}

static void test_filters(void)
{
    struct options o =
        parse("spyglass record --include json.* --exclude=a --include b --only-mine --min-percent 0.5")->o;
    char line[512] = "spyglass merge a.txt";

    CHECK_INT(o.filter.include.n, 2);
    CHECK_STR(o.filter.include.items[0], "json.*");
    CHECK_STR(o.filter.include.items[1], "b");
    CHECK_STR(o.filter.exclude.items[0], "a");
    CHECK(o.filter.only_mine && o.filter.min_percent > 0.49 && o.filter.min_percent < 0.51 && o.filter.thread.n == 0);
    CHECK_STR(parse("spyglass dump --thread worker* --thread 12")->o.filter.thread.items[1], "12");
    CHECK_INT(parse("py-spy record --thread a --threads -p 1")->r, 0);
    check_error("spyglass record --min-percent 101",
                "'101' is not a percentage: use a number from 0 to 100, such as 0.5", "");
    check_error("spyglass record --min-percent -1", "'-1' is not a percentage: use a number from 0 to 100, such as 0.5",
                "");
    check_error("spyglass record --min-percent 5%", "'5%' is not a percentage: use a number from 0 to 100, such as 0.5",
                "");
    check_error("spyglass record --include=", "--include requires a value: --include PATTERN", "");
    check_error("spyglass dump --min-percent 5", "dump does not accept the flag '--min-percent'",
                "For the flags it accepts, run: spyglass dump --help");
    for (int i = 0; i < 8; i++)
        strcat(line, " --thread=x");
    CHECK_INT(parse(line)->o.filter.thread.n, 8);
}

static void test_clusters(void)
{
    struct options o = parse("spyglass record -sn")->o;

    CHECK(o.subprocesses && o.native && !o.idle);
    o = parse("spyglass record -nsp 5")->o;
    CHECK(o.subprocesses && o.native && o.pid == 5);
    o = parse("spyglass record -nsp5")->o;
    CHECK(o.subprocesses && o.native && o.pid == 5);
    o = parse("spyglass record -sp=5 -id1.5")->o;
    CHECK(o.subprocesses && o.pid == 5 && o.idle && o.duration == 1.5);
    CHECK_INT(parse("spyglass dump -ll -p 1")->o.locals, 2);
    CHECK(!parse("spyglass dump -ll -p 1")->o.show_secrets);
    CHECK(parse("py-spy dump -l --show-secrets -p 1")->o.show_secrets);
    CHECK_INT(parse("spyglass dump -l -p 1 --locals -l")->o.locals, 3);
    CHECK(parse("spyglass dump -jlp 1")->o.json);
    check_error("spyglass record -sx", "unknown flag '-x'", "");
    check_error("spyglass record -s=1", "--subprocesses takes no value, but got '1'", "");
    check_error("spyglass record -sp", "--pid requires a value: --pid PID", "");
    check_error("spyglass dump -pid 5", "unknown flag '-pid'", "Did you mean '--pid'?");
}

static void test_program(void)
{
    struct parsed *p = parse("spyglass record -o x python prog.py -o y --pid 3 -- z");

    CHECK_INT(p->r, 0);
    CHECK_STR(p->o.output, "x");
    CHECK_INT(p->o.pid, 0);
    CHECK(p->o.program == &p->argv[4]);
    CHECK_STR(p->o.program[0], "python");
    CHECK_STR(p->o.program[6], "--");
    CHECK(p->o.program[8] == NULL);
    p = parse("spyglass record -- python -h");
    CHECK_STR(p->o.program[0], "python");
    CHECK(!p->o.show_help);
    CHECK_STR(parse("spyglass record -- -odd")->o.program[0], "-odd");
    CHECK_STR(parse("spyglass record -- 1234")->o.program[0], "1234");
    CHECK_STR(parse("spyglass record -s -- -- x")->o.program[0], "--");
    CHECK(parse("spyglass record -p 5 --")->o.program == NULL);
    check_error("spyglass record -p 5 python", "--pid cannot be combined with a program to launch ('python')",
                "Use one or the other.");
    check_error("py-spy record 1234", "'1234' is not a program",
                "To profile the process with that ID, run: py-spy record --pid 1234");
    check_error("spyglass dump -p 5 -c file", "--pid and --core cannot be combined", "");
    check_error("spyglass dump -p 5 --root /", "--root requires --core FILE", "");
    check_error("spyglass dump --exe python", "--exe requires --core FILE", "");
    check_error("py-spy dump 1234", "unexpected argument '1234'",
                "To dump the process with that ID, run: py-spy dump --pid 1234");
    check_error("py-spy dump python", "unexpected argument 'python'", "");
    check_error("py-spy doctor 5", "unexpected argument '5'",
                "To dump the process with that ID, run: py-spy dump --pid 5");
    check_error("spyglass -", "unexpected argument '-'", "");
}

/* Words instead of --pid and a program. Under the name py-spy there are none. */
static int count_pid(pid_t pid, void *arg)
{
    *(size_t *)arg += pid == 5 || pid == 6;
    return 0;
}

static void test_words(void)
{
    struct parsed *p = parse("spyglass 1234 --native");

    CHECK_INT(p->r, 0);
    CHECK_INT(p->o.command, ARGS_DUMP);
    CHECK(p->o.pid == 1234 && p->o.native && p->o.word == 1);
    CHECK_INT(parse("spyglass 0x10")->o.pid, 16);
    CHECK_INT(parse("spyglass dump -l 5 -j")->o.pid, 5);
    CHECK_INT(parse("spyglass doctor 5")->o.pid, 5);
    static const char *const several[] = {"spyglass 5 6", "spyglass 5,6", "spyglass dump 5 --pid 6",
                                          "spyglass dump --pid 5 6", "spyglass record 5 6"};
    for (size_t i = 0; i < sizeof(several) / sizeof(several[0]); i++) {
        size_t n = 0;

        p = parse(several[i]);
        CHECK(p->r == 0 && p->o.pid == 5 && p->o.several_pids);
        CHECK_INT(args_each_pid(&p->o, count_pid, &n), 0);
        CHECK_INT(n, 2);
    }
    p = parse("spyglass record -r 50 5 -d 2");
    CHECK(p->r == 0 && p->o.pid == 5 && p->o.duration == 2 && !p->o.program && p->o.word == 4);
    p = parse("spyglass dump -s worker -l");
    CHECK(p->r == 0 && p->o.pid == 0 && p->o.locals == 1 && p->o.word == 3);
    CHECK_STR(p->o.name, "worker");
    p = parse("spyglass record -s script.py -l 5");
    CHECK(p->r == 0 && p->o.word == 3 && p->o.program == &p->argv[3] && !p->o.name);
    CHECK_INT(parse("spyglass record -- script.py")->o.word, 0);
    for (int joined = 0; joined < 2; joined++) {
        p = parse(joined ? "spyglass record -t -mhttp.server -d 5" : "spyglass record -t -m http.server -d 5");
        CHECK(p->r == 0 && p->o.duration == 0 && p->o.threads && p->o.word == 0);
        CHECK_STR(p->o.module, "http.server");
        CHECK_STR(p->o.program[0], "-d");
    }
    p = parse("spyglass record --module x");
    CHECK(p->r == 0 && p->o.program && !p->o.program[0]);

    CHECK_INT(parse("spyglass worker --locals")->o.word, 1); /* main.c looks for a process of that name */
    CHECK_INT(parse("spyglass dmp")->o.word, 0);             /* like dump */
    CHECK_INT(parse("spyglass help worker")->o.word, 0);
    CHECK_INT(parse("py-spy worker")->o.word, 0);
    check_error("spyglass 0", "process ID 0 is out of range", "");
    check_error("spyglass 12x", "unknown command '12x'",
                "Available commands: record, dump, list, merge, group, ray, doctor, completions, help.");
    check_error("spyglass dump 5 worker", "unexpected argument 'worker'", "");
    check_error("spyglass dump worker 5", "unexpected argument 'worker'", "");
    check_error("spyglass dump worker --pid 5", "unexpected argument 'worker'", "");
    check_error("spyglass dump worker -c core", "unexpected argument 'worker'", "");
    check_error("spyglass dump ''", "dump does not accept an empty argument",
                "To list the Python processes, run: spyglass list");
    check_error("py-spy record -t ''", "record does not accept an empty argument",
                "To list the Python processes, run: py-spy list");
    check_error("spyglass dump 5,,6", "'5,,6' is not a list of process IDs",
                "Separate process IDs with commas, without spaces: --pid 12,34");
    check_error("spyglass dump 5 -c core", "--pid and --core cannot be combined", "");
    check_error("spyglass record 5 python", "--pid cannot be combined with a program to launch ('python')",
                "Use one or the other.");
    check_error("spyglass record 5 -m x", "--pid cannot be combined with a program to launch ('x')",
                "Use one or the other.");
    check_error("spyglass record -m", "--module requires a value: --module MODULE", "");
    check_error("spyglass a/b.py", "unknown command 'a/b.py'", "To record this script, run: spyglass record a/b.py");
    check_error("py-spy b.py", "unknown command 'b.py'", "To record this script, run: py-spy record -- python3 b.py");
    check_error("py-spy 1234", "unknown command '1234'",
                "To dump the process with that ID, run: py-spy dump --pid 1234");
}

static int collect(const char *word, void *arg)
{
    char *all = arg;

    if (strcmp(word, "stop") == 0)
        return 7;
    strcat(strcat(all, word), "|");
    return 0;
}

static void test_files(void)
{
    struct parsed *p = parse("spyglass merge a.txt -o out.svg n;w=b.txt --title=x -f raw - --rate 50 -- c=d=e");
    char all[256] = "";

    CHECK_INT(p->r, 0);
    CHECK_INT(p->o.n_files, 4);
    CHECK_STR(p->o.output, "out.svg");
    CHECK_STR(p->o.title, "x");
    CHECK_INT(p->o.rate, 50);
    CHECK_INT(args_each_file(&p->o, collect, all), 0);
    CHECK_STR(all, "a.txt|n;w=b.txt|-|c=d=e|");
    all[0] = '\0';
    p = parse("py-spy m -oout.svg a stop b");
    CHECK_INT(args_each_file(&p->o, collect, all), 7);
    CHECK_STR(all, "a|");
    check_error("spyglass merge -o x.svg", "merge requires at least one raw profile",
                "For example: spyglass merge -o all.svg 'node 1=one.txt' 'node 2=two.txt'");
    check_error("spyglass merge --pid 5 a", "merge does not accept the flag '--pid'",
                "For the flags it accepts, run: spyglass merge --help");
    CHECK(parse("spyglass merge -h")->o.show_help);
}

static int collect_pid(pid_t pid, void *arg)
{
    char word[32];

    snprintf(word, sizeof(word), "%d|", (int)pid);
    strcat(arg, word);
    return pid == 9 ? 7 : 0;
}

static void check_list(const char *value)
{
    char line[64], what[96];

    snprintf(line, sizeof(line), "spyglass record -p %s", value);
    snprintf(what, sizeof(what), "'%s' is not a list of process IDs", value);
    check_error(line, what, "Separate process IDs with commas, without spaces: --pid 12,34");
}

/* Each row of cmd/args_check.c that no other test has. */
static void test_contradictions(void)
{
    static const char native[] =
        "--native and --nonblocking cannot be combined: a recording must stop threads to read their registers";
    static const char remove[] = "Remove one of the two flags. dump accepts both.";

    check_error("spyglass dump --tasks --no-tasks", "--tasks and --no-tasks cannot be combined", "");
    check_error("spyglass record --nonblocking --async", "--async and --nonblocking cannot be combined", "");
    check_error("spyglass record --async all --idle", "--async all measures elapsed time, as --mode wall does",
                "Remove --idle.");
    check_error("spyglass record --mode cpu --async=all", "--async all measures elapsed time, as --mode wall does",
                "Remove --mode.");
    check_error("spyglass record -g --async=all", "--async all measures elapsed time, as --mode wall does",
                "Remove --gil.");
    check_error("spyglass record --async=every", "--async accepts only the value 'all', got 'every'", "");
    check_error("spyglass record --async=all -o x.trace.json",
                "chrometrace shows one stack at a time, but many tasks wait at the same time",
                "With --async all, use --format flamegraph or --format raw.");
    check_error("spyglass record --kill --wait x", "--wait and --kill cannot be combined", "");
    check_error("spyglass record --idle --mode wall", "--mode and --idle cannot be combined",
                "Remove --idle: --mode wall includes idle threads.");
    check_error("spyglass record -g --mode gil", "--mode and --gil cannot be combined",
                "Remove --gil: --mode gil measures the time that the GIL is held.");
    check_error("spyglass record -n --nonblocking", native, remove);
    check_error("py-spy record --native-all --nonblocking", native, remove);
    CHECK_INT(parse("spyglass dump -n --nonblocking -p 1")->r, 0);
    CHECK_INT(parse("spyglass record --wait --kill --help")->r, 0);
}

static void test_async(void)
{
    CHECK_INT(parse("spyglass record --pid 1")->o.async, ASYNC_NONE);
    CHECK_INT(parse("spyglass record --async 12")->o.async, ASYNC_RUNNING);
    CHECK_INT(parse("spyglass record --async 12")->o.pid, 12);
    CHECK_INT(parse("spyglass record --async all 12")->o.async, ASYNC_ALL);
    CHECK_INT(parse("spyglass record --async all 12")->o.pid, 12);
    CHECK_INT(parse("spyglass record --async=all -p 12")->o.mode, MODE_WALL);
    CHECK_STR(parse("spyglass record --async allow.py")->o.program[0], "allow.py");
    CHECK_INT(parse("spyglass record --async -- all")->o.async, ASYNC_RUNNING);
    CHECK_STR(parse("spyglass record --async -- all")->o.program[0], "all");
}

static void test_several_processes(void)
{
    struct parsed *p = parse("py-spy dump -p 5,0x10 --name app --pid=7 -l -p 5 --name *w?rker");
    char all[256] = "";

    CHECK_INT(p->r, 0);
    CHECK_INT(p->o.pid, 5);
    CHECK(p->o.several_pids && p->o.names && args_choose_process(&p->o) && args_choose_several(&p->o));
    CHECK_INT(args_each_pid(&p->o, collect_pid, all), 0);
    CHECK_STR(all, "5|16|7|5|");
    all[0] = '\0';
    CHECK_INT(args_each_name(&p->o, collect, all), 0);
    CHECK_STR(all, "app|*w?rker|");
    all[0] = '\0';
    p = parse("spyglass dump -p 8,9,10");
    CHECK_INT(args_each_pid(&p->o, collect_pid, all), 7);
    CHECK_STR(all, "8|9|");
    p = parse("spyglass record -p 5,5 -p 5");
    CHECK(p->r == 0 && p->o.pid == 5 && !args_choose_several(&p->o));
    p = parse("spyglass record --all");
    CHECK(p->r == 0 && p->o.all && args_choose_process(&p->o) && args_choose_several(&p->o));
    p = parse("spyglass record -- x -p 5,6 --all");
    CHECK(p->r == 0 && !args_choose_process(&p->o));
    check_list("1,,2");
    check_list("1,x");
    check_list(",1");
    check_list("1,");
    check_list(",");
    check_list("1,00000000000000000000000000000000002x");
    check_error("spyglass dump -p 1,0", "process ID 0 is out of range", "");
    check_error("spyglass dump -p 1,2147483648", "process ID 2147483648 is out of range", "");
    check_error("spyglass doctor -p 1,2", "doctor accepts only one process ID", "");
    check_error("spyglass dump --name", "--name requires a value: --name PATTERN", "");
    check_error("spyglass dump --name x -c f", "--name and --core cannot be combined", "");
    check_error("spyglass dump --all -c f", "--all and --core cannot be combined", "");
    check_error("spyglass dump --all -p 1", "--all and --pid cannot be combined", "Remove one of the two flags.");
    check_error("spyglass dump --all --name x", "--all and --name cannot be combined", "Remove one of the two flags.");
    check_error("spyglass record --all x", "--all cannot be combined with a program to launch ('x')",
                "Use one or the other.");
}

static void test_values_missing(void)
{
    check_error("spyglass dump -p", "--pid requires a value: --pid PID", "");
    check_error("spyglass dump --pid", "--pid requires a value: --pid PID", "");
    check_error("spyglass dump --pid=", "--pid requires a value: --pid PID", "");
    check_error("spyglass dump --pid ''", "--pid requires a value: --pid PID", "");
    check_error("spyglass dump -p=", "--pid requires a value: --pid PID", "");
    check_error("spyglass record -o -s", "--output requires a value, but the next argument is '-s'",
                "To pass a value that begins with a dash, write: --output=-s");
    check_error("spyglass record -d --idle", "--duration requires a value, but the next argument is '--idle'",
                "To pass a value that begins with a dash, write: --duration=--idle");
    check_error("spyglass dump --json=yes", "--json takes no value, but got 'yes'", "");
    check_error("spyglass record --with-parent 1 --with-parent 1", "--with-parent may be given only once", "");
    check_error("spyglass record -o a --output=b", "--output may be given only once", "");
}

static void test_unknown_flags(void)
{
    check_error("spyglass record --subproceses", "unknown flag '--subproceses'", "Did you mean '--subprocesses'?");
    check_error("spyglass record --sub", "unknown flag '--sub'", "Did you mean '--subprocesses'?");
    check_error("spyglass record --ouptut=x", "unknown flag '--ouptut'", "Did you mean '--output'?");
    check_error("spyglass record --Idle", "unknown flag '--Idle'", "Did you mean '--idle'?");
    check_error("spyglass dump --full-filename", "unknown flag '--full-filename'", "Did you mean '--full-filenames'?");
    check_error("spyglass dump --jsno", "unknown flag '--jsno'", "Did you mean '--json'?");
    check_error("spyglass record --zzz", "unknown flag '--zzz'", "");
    check_error("spyglass record -z", "unknown flag '-z'", "");
    check_error("spyglass dump --rate 5", "dump does not accept the flag '--rate'",
                "For the flags it accepts, run: spyglass dump --help");
    check_error("py-spy dump -r 5", "dump does not accept the flag '-r'",
                "For the flags it accepts, run: py-spy dump --help");
    check_error("spyglass record -ll", "record does not accept the flag '-l'",
                "For the flags it accepts, run: spyglass record --help");
    check_error("spyglass --pid 5", "unknown flag '--pid'", "Put the command before its flags: spyglass COMMAND --pid");
    check_error("spyglass --verbose dump", "unexpected argument 'dump'",
                "Put the command before its flags: spyglass dump FLAGS");
    check_error("spyglass -p 5", "unknown flag '-p'", "Put the command before its flags: spyglass COMMAND -p");
    check_error("spyglass --verion", "unknown flag '--verion'", "Did you mean '--version'?");
    check_error("spyglass record --a\033[31m\n", "unknown flag '--a\\x1b[31m\\n'", "");
    CHECK_INT(
        parse("spyglass record "
              "--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
            ->r,
        ERR_USAGE);
}

static void test_unknown_words(void)
{
    static const char all[] = "Available commands: record, dump, list, merge, group, ray, doctor, completions, help.";
    static const char shells[] = "Available shells: bash, zsh, fish, elvish, powershell.";
    char hint[128];

    check_error("spyglass top", "top is not available in this version", "");
    check_error("py-spy t -p 5", "top is not available in this version", "");
    check_error("spyglass frobnicate", "unknown command 'frobnicate'", all);
    check_error("spyglass ''", "unknown command ''", all);
    snprintf(hint, sizeof(hint), "Did you mean 'record'? %s", all);
    check_error("spyglass recrod -p 5", "unknown command 'recrod'", hint);
    check_error("spyglass Record", "unknown command 'Record'", hint);
    check_error("spyglass help recrod", "unknown command 'recrod'", hint);
    snprintf(hint, sizeof(hint), "Did you mean 'bash'? %s", shells);
    check_error("spyglass completions bsah", "unknown shell 'bsah'", hint);
    check_error("spyglass completions tcsh2", "unknown shell 'tcsh2'", shells);
    check_error("spyglass completions", "completions requires the name of a shell",
                "For example: spyglass completions bash");
    check_error("spyglass completions bash zsh", "completions accepts one shell; unexpected argument 'zsh'", "");
    CHECK_STR(parse("spyglass completions PowerShell")->o.shell, "powershell");
}

static void test_long_words_are_cut(void)
{
    char word[480], line[500];

    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    snprintf(line, sizeof(line), "spyglass doctor %s", word);
    struct parsed *p = parse(line);
    CHECK_INT(p->r, ERR_USAGE);
    CHECK(strlen(p->text.what) < 400 && strstr(p->text.what, "...'"));
}

/* The command lines that other tools use. */
static void test_callers(void)
{
    struct options o = parse("py-spy record -o /logs/a.svg -p 77 -d 5 -f flamegraph --native --idle --subprocesses")->o;

    CHECK(o.as_py_spy && o.pid == 77 && o.duration == 5 && o.native && o.idle && o.subprocesses && o.format);
    o = parse("py-spy record --pid 7 --output T --format speedscope --rate 100 --nonblocking")->o;
    CHECK(o.pid == 7 && o.nonblocking && o.rate == 100 && strcmp(o.output, "T") == 0);
    o = parse("py-spy dump --pid 7 --native")->o;
    CHECK(o.command == ARGS_DUMP && o.pid == 7 && o.native);
}

/* ---- the tables ---- */

static void test_table_rules(void)
{
    for (const struct args_flag *f = args_flags(); f->name; f++) {
        bool wants = f->kind != ARGS_BOOL && f->kind != ARGS_ASYNC && f->kind != ARGS_COUNT &&
                     f->kind != ARGS_SHOW_HELP && f->kind != ARGS_SHOW_VERSION;
        CHECK_INT(f->value != NULL, wants);
        CHECK(f->help && f->commands && strlen(f->name) <= 20);
        CHECK(f - args_flags() < 64);
        for (const struct args_flag *g = f + 1; g->name; g++) {
            CHECK(strcmp(f->name, g->name) != 0);
            CHECK(!f->letter || f->letter != g->letter || !(f->commands & g->commands));
        }
    }
}

/* Runs `write` into memory; the caller frees. */
static char *collect_help(enum args_command command)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    help_write(&(struct options){.command = command}, out);
    fclose(out);
    return text;
}

static void test_help(void)
{
    char needle[64];

    for (enum args_command c = ARGS_NONE; c < ARGS_COMMANDS_; c++) {
        char *text = collect_help(c);
        for (const struct args_flag *f = args_flags(); f->name; f++) {
            snprintf(needle, sizeof(needle), " --%s%s%s ", f->name, f->value ? " " : "", f->value ? f->value : "");
            CHECK_INT(strstr(text, needle) && strstr(text, f->help), (f->commands >> c) & 1);
        }
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            CHECK(strlen(line) <= 120);
        free(text);
    }
    char *text = collect_help(ARGS_NONE);
    CHECK(strstr(text, "record") && strstr(text, "dump") && strstr(text, "completions") && !strstr(text, "  top"));
    free(text);
}

static void test_completions(void)
{
    char needle[64];

    for (size_t i = 0; completions_shell(i); i++) {
        for (int named = 0; named < 2; named++) {
            char *text = NULL;
            size_t n;
            FILE *out = open_memstream(&text, &n);
            CHECK_INT(completions_write(completions_shell(i), named ? "py-spy" : "spyglass", out), 0);
            fclose(out);
            CHECK(strstr(text, named ? "py-spy" : "spyglass") && !strstr(text, named ? "spyglass" : "py-spy"));
            for (const struct args_flag *f = args_flags(); f->name; f++) {
                snprintf(needle, sizeof(needle), "%s%s", strcmp(completions_shell(i), "fish") == 0 ? "-l " : "--",
                         f->name);
                CHECK(strstr(text, needle) != NULL);
            }
            free(text);
        }
    }
    CHECK_INT(completions_write("csh", "spyglass", stdout), ERR_USAGE);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_names);
    TEST_RUN(test_no_argv);
    TEST_RUN(test_commands);
    TEST_RUN(test_ray);
    TEST_RUN(test_help_and_version);
    TEST_RUN(test_defaults);
    TEST_RUN(test_pid);
    TEST_RUN(test_status_fd);
    TEST_RUN(test_rate);
    TEST_RUN(test_duration);
    TEST_RUN(test_format);
    TEST_RUN(test_extension);
    TEST_RUN(test_text);
    TEST_RUN(test_booleans);
    TEST_RUN(test_filters);
    TEST_RUN(test_clusters);
    TEST_RUN(test_program);
    TEST_RUN(test_words);
    TEST_RUN(test_files);
    TEST_RUN(test_async);
    TEST_RUN(test_several_processes);
    TEST_RUN(test_contradictions);
    TEST_RUN(test_values_missing);
    TEST_RUN(test_unknown_flags);
    TEST_RUN(test_unknown_words);
    TEST_RUN(test_long_words_are_cut);
    TEST_RUN(test_callers);
    TEST_RUN(test_table_rules);
    TEST_RUN(test_help);
    TEST_RUN(test_completions);
    return test_finish("test_args");
}
