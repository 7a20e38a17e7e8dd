/*
 * Help texts. Flags and commands come from the tables in args.c; only the examples are here.
 */
#include "cmd/cmd.h"

#include <string.h>

struct example {
    enum args_command command;
    bool overview; /* also shown in the overview */
    const char *what;
    const char *line; /* without the program name */
};

static const struct example examples[] = {
    {ARGS_LIST, true, "Which Python processes are there?", "list"},
    {ARGS_DUMP, true, "Where is a hung process stuck?", "dump --pid 1234"},
    {ARGS_DUMP, false, "Include its child processes and write JSON", "dump --pid 1234 --subprocesses --json"},
    {ARGS_DUMP, false, "Every Python process with 'gunicorn' in its command line", "dump --name gunicorn"},
    {ARGS_DUMP, false, "Show local variables and native functions", "dump --pid 1234 --locals --native"},
    {ARGS_DUMP, false, "Where was a program when it crashed?", "dump --core core --native"},
    {ARGS_DUMP, false, "All ranks of a job on this machine: which one is elsewhere?", "dump --name train.py --group"},
    {ARGS_DUMP, false, "Which of them move? Read them three times, 5 seconds apart",
     "dump --name train.py --group --rounds 3 --every 5"},
    {ARGS_RECORD, true, "Record 30 seconds, then open the file in a browser",
     "record --pid 1234 --duration 30 --output profile.svg"},
    {ARGS_RECORD, true, "Launch a program under the profiler",
     "record -o profile.svg -- python program.py --its-own flags"},
    {ARGS_RECORD, false, "Launch a Python module; a script works the same way: record script.py",
     "record -o profile.svg -m http.server 8000"},
    {ARGS_RECORD, false, "A server and its workers, each thread separately, including idle ones",
     "record --pid 1234 --subprocesses --threads --idle -d 10 -o profile.svg"},
    {ARGS_RECORD, false, "Two processes, each with its own root", "record --pid 1234,5678 -d 30 -o profile.svg"},
    {ARGS_RECORD, false, "Include C, C++, Rust and Cython functions",
     "record --pid 1234 --native -d 30 -o profile.svg"},
    {ARGS_RECORD, false, "Record the first minute of a server, then let it run",
     "record --subprocesses -d 60 -o start.svg --wait -- gunicorn app:app"},
    {ARGS_RECORD, false, "A timeline for https://www.speedscope.app",
     "record --pid 1234 -d 30 -f speedscope -o profile.json"},
    {ARGS_MERGE, false, "Two workers in one flame graph",
     "merge -o all.svg 'node 1;worker 7=a.txt' 'node 2;worker 9=b.txt'"},
    {ARGS_MERGE, false, "Convert a profile recorded with -f raw for https://www.speedscope.app",
     "merge -o profile.json profile.txt"},
    {ARGS_GROUP, false, "Dumps from several machines, as `dump --json` or `dump` wrote them",
     "group node1.json node2.json"},
    {ARGS_GROUP, false, "All workers of a Ray cluster", "ray dump --json | spyglass group -"},
    {ARGS_RAY, false, "What is every worker of the cluster doing right now?", "ray dump --address auto"},
    {ARGS_RAY, false, "All workers in one flame graph; for the flags, see `ray record --help`",
     "ray record --address auto --duration 10 -o cluster.svg"},
    {ARGS_DOCTOR, true, "Why is access to this process denied?", "doctor --pid 1234"},
    {ARGS_COMPLETIONS, false, "Enable completion in this bash; add the line to ~/.bashrc to keep it",
     "completions bash > ~/.spyglass.bash && source ~/.spyglass.bash"},
};

/* Prints one usage line for each alternative; '|' separates them. */
static void write_usage(const struct options *o, const struct args_command_row *row, FILE *out)
{
    const char *program = args_name(o);
    const char *part = args_usage(o);
    const char *lead = "Usage: ";

    while (part) {
        const char *bar = strchr(part, '|');
        int n = (int)(bar ? (size_t)(bar - part) : strlen(part));
        while (n > 0 && part[n - 1] == ' ')
            n--;
        fprintf(out, "%s%s %s %.*s\n", lead, program, row->name, n, part);
        lead = "       ";
        part = bar ? bar + 1 + strspn(bar + 1, " ") : NULL;
    }
}

static void write_choices(FILE *out)
{
    const char *comma = "";

    fputs(": ", out);
    for (const struct format *const *f = format_all(); *f; f++) {
        fprintf(out, "%s%s", comma, (*f)->name);
        comma = ", ";
    }
    fputs(" [default: by the extension of FILE]", out);
}

static int flag_width(const struct args_flag *f)
{
    return (int)strlen(f->name) + (f->value ? 1 + (int)strlen(f->value) : 0);
}

static void write_flags(enum args_command command, FILE *out)
{
    int width = 0;

    for (const struct args_flag *f = args_flags(); f->name; f++)
        if ((f->commands & 1u << command) && flag_width(f) > width)
            width = flag_width(f);
    fputs("\nFlags:\n", out);
    for (const struct args_flag *f = args_flags(); f->name; f++) {
        if (!(f->commands & 1u << command))
            continue;
        fputs("  ", out);
        if (f->letter)
            fprintf(out, "-%c, ", f->letter);
        else
            fputs("    ", out);
        fprintf(out, "--%s%s%s%*s  %s", f->name, f->value ? " " : "", f->value ? f->value : "", width - flag_width(f),
                "", f->help);
        if (f->kind == ARGS_FORMAT)
            write_choices(out);
        fputc('\n', out);
    }
}

static void write_examples(const char *program, enum args_command command, FILE *out)
{
    bool any = false;

    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const struct example *e = &examples[i];
        if (command == ARGS_NONE ? !e->overview : e->command != command)
            continue;
        if (!any)
            fputs("\nExamples:\n", out);
        any = true;
        fprintf(out, "  # %s\n  %s %s\n", e->what, program, e->line);
    }
}

static void write_overview(const struct options *o, FILE *out)
{
    const char *program = args_name(o);

    fprintf(out,
            "%s\nA sampling profiler for Python. Attaches to a running program without restarting or changing it.\n",
            args_version(o));
    fprintf(out, "\nUsage: %s COMMAND [FLAGS]\n", program);
    if (!o->as_py_spy)
        fprintf(out,
                "       %s PID... [FLAGS]    the same as %s dump PID...\n"
                "       %s NAME              list the Python processes with NAME in their command line\n",
                program, program, program);
    fputs("\nCommands:\n", out);
    for (int c = 0; c < ARGS_COMMANDS_; c++) {
        const struct args_command_row *row = args_command_row((enum args_command)c);
        if (row->name)
            fprintf(out, "  %-12s %s\n", row->name, row->summary);
    }
    write_flags(ARGS_NONE, out);
    write_examples(program, ARGS_NONE, out);
    fprintf(out, "\nFor the flags of a command, run: %s COMMAND --help\n", program);
}

void help_write(const struct options *options, FILE *out)
{
    const struct args_command_row *row = args_command_row(options->command);

    if (!row->name) {
        write_overview(options, out);
        return;
    }
    fprintf(out, "%s\n\n", row->summary);
    write_usage(options, row, out);
    if (options->command == ARGS_COMPLETIONS) {
        fputs("\nShells:", out);
        for (size_t i = 0; completions_shell(i); i++)
            fprintf(out, "%s %s", i ? "," : "", completions_shell(i));
        fputc('\n', out);
    }
    write_flags(options->command, out);
    write_examples(args_name(options), options->command, out);
}
