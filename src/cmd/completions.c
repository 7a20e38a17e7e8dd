/*
 * Generates shell completion scripts from the tables in args.c, for the name under which this program was invoked.
 * ADD A SHELL HERE: a function and a row in `shells`.
 */
#include "cmd/cmd.h"

#include <string.h>

/* Iterates over the commands that have a name. */
#define FOR_COMMANDS(c, row)                                                                                           \
    for (enum args_command c = ARGS_NONE; c < ARGS_COMMANDS_; c++)                                                     \
        for (const struct args_command_row *row = args_command_row(c); row && row->name; row = NULL)

#define FOR_FLAGS(f, c)                                                                                                \
    for (const struct args_flag *f = args_flags(); f->name; f++)                                                       \
        if (f->commands & 1u << (c))

/* Writes `text` with a backslash before each character of `special`, and `quote` for each single quote. */
static void put_escaped(const char *text, const char *special, const char *quote, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, out);
            continue;
        }
        if (strchr(special, *text))
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void put_formats(const char *between, FILE *out)
{
    for (const struct format *const *f = format_all(); *f; f++)
        fprintf(out, "%s%s", f == format_all() ? "" : between, (*f)->name);
}

static void put_log_levels(FILE *out)
{
    for (enum log_level level = LOG_LEVEL_ERROR; log_level_name(level); level++)
        fprintf(out, "%s%s", level == LOG_LEVEL_ERROR ? "" : " ", log_level_name(level));
}

static void put_modes(FILE *out)
{
    for (enum args_mode mode = MODE_CPU; args_mode_name(mode); mode++)
        fprintf(out, "%s%s", mode == MODE_CPU ? "" : " ", args_mode_name(mode));
}

static bool is_pid(const struct args_flag *f)
{
    return f->kind == ARGS_PID || f->kind == ARGS_PIDS;
}

/* The kinds of flags whose value is a word from a list. */
static const enum args_kind choices[] = {ARGS_FORMAT, ARGS_LOG_LEVEL, ARGS_MODE};

static bool has_choices(enum args_kind kind)
{
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++)
        if (choices[i] == kind)
            return true;
    return false;
}

static void put_choices(enum args_kind kind, FILE *out)
{
    if (kind == ARGS_FORMAT)
        put_formats(" ", out);
    else if (kind == ARGS_LOG_LEVEL)
        put_log_levels(out);
    else if (kind == ARGS_MODE)
        put_modes(out);
}

static void put_shells(const char *between, FILE *out)
{
    for (size_t i = 0; completions_shell(i); i++)
        fprintf(out, "%s%s", i ? between : "", completions_shell(i));
}

static void put_commands(const char *between, FILE *out)
{
    const char *lead = "";

    FOR_COMMANDS(c, row)
    {
        fprintf(out, "%s%s", lead, row->name);
        lead = between;
    }
}

/* A program name as a shell identifier: py-spy -> py_spy. */
struct identifier {
    char text[32];
};

static struct identifier identifier_of(const char *name)
{
    struct identifier id = {0};

    for (size_t i = 0; name[i] && i < sizeof(id.text) - 1; i++)
        id.text[i] = name[i] == '-' ? '_' : name[i];
    return id;
}

/* Lists the PIDs of Python processes, one per line. `spyglass list` would find more, but takes longer than one waits for a
 * completion. */
#define PYTHON_PIDS "cd /proc && grep -il python [0-9]*/comm 2>/dev/null | cut -d/ -f1"

/* The flags of `ray`, which the Python package parses (python/spyglass/ray.py). */
#define RAY_FLAGS                                                                                                      \
    "--address --node --actor --task --pid --subprocesses --native --nonblocking --timeout --hideprogress --help"
#define RAY_DUMP_FLAGS   RAY_FLAGS " --locals --full-filenames --json"
#define RAY_RECORD_FLAGS RAY_FLAGS " --output --format --duration --rate --idle --gil --threads --function"

/* ---- bash ---- */

/* Writes a case pattern, "--pid|-p|…", of all flags of `kind`; for ARGS_BOOL, of all flags that take a value. */
static void put_bash_pattern(enum args_kind kind, FILE *out)
{
    const char *lead = "";

    for (const struct args_flag *f = args_flags(); f->name; f++) {
        if (kind == ARGS_BOOL ? !f->value : f->kind != kind)
            continue;
        fprintf(out, "%s--%s", lead, f->name);
        if (f->letter)
            fprintf(out, "|-%c|-[!-]*%c", f->letter, f->letter);
        lead = "|";
    }
}

/* Completes the value of the flag in $prev. File names are bash's default. */
static void put_bash_values(FILE *out)
{
    fputs("    case $prev in\n    ", out);
    put_bash_pattern(ARGS_PIDS, out);
    fputs(")\n        [[ $cur == *,* ]] && list=${cur%,*},\n"
          "        COMPREPLY=($(compgen -P \"$list\" -W \"$(" PYTHON_PIDS ")\" -- \"${cur##*,}\"))\n"
          "        return ;;\n    ",
          out);
    put_bash_pattern(ARGS_PID, out);
    fputs(")\n        COMPREPLY=($(compgen -W \"$(" PYTHON_PIDS ")\" -- \"$cur\"))\n"
          "        return ;;\n    ",
          out);
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        put_bash_pattern(choices[i], out);
        fputs(")\n        COMPREPLY=($(compgen -W \"", out);
        put_choices(choices[i], out);
        fputs("\" -- \"$cur\"))\n        return ;;\n    ", out);
    }
    put_bash_pattern(ARGS_DURATION, out);
    fputs(")\n        COMPREPLY=($(compgen -W unlimited -- \"$cur\"))\n        return ;;\n    ", out);
    put_bash_pattern(ARGS_BOOL, out);
    fputs(")\n        return ;;\n    esac\n", out);
}

/* Sets `program` if a word before the cursor is the program of record, whose arguments are not ours to complete. */
static void put_bash_program(FILE *out)
{
    fputs("    if [[ $command == record ]]; then\n"
          "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "            case ${COMP_WORDS[i]} in\n"
          "            --) program=1; break ;;\n"
          "            -m|--module) program=2; break ;;\n"
          "            ",
          out);
    put_bash_pattern(ARGS_BOOL, out);
    fputs(")\n"
          "                [[ ${COMP_WORDS[i + 1]} == '=' ]] && ((i++))\n"
          "                ((i++)) ;;\n"
          "            -*) ;;\n"
          "            *) program=2; break ;;\n"
          "            esac\n"
          "        done\n"
          "    fi\n"
          "    if [[ $program == 1 && i -eq COMP_CWORD-1 ]]; then\n"
          "        COMPREPLY=($(compgen -c -- \"$cur\"))\n"
          "    fi\n"
          "    [[ $program ]] && return\n",
          out);
}

static void put_bash_words(FILE *out)
{
    fputs("    case $command in\n", out);
    FOR_COMMANDS(c, row)
    {
        if (c == ARGS_RAY) {
            fputs("    ray)\n"
                  "        case ${COMP_WORDS[2]} in\n"
                  "        dump) words=\"" RAY_DUMP_FLAGS "\" ;;\n"
                  "        record) words=\"" RAY_RECORD_FLAGS "\" ;;\n"
                  "        esac\n"
                  "        ((COMP_CWORD == 2)) && words=\"dump record --help\" ;;\n",
                  out);
            continue;
        }
        fprintf(out, "    %s) words=\"", row->name);
        FOR_FLAGS(f, c)
        {
            if (f->letter)
                fprintf(out, "-%c ", f->letter);
            fprintf(out, "--%s ", f->name);
        }
        if (c == ARGS_COMPLETIONS)
            put_shells(" ", out);
        if (c == ARGS_HELP)
            put_commands(" ", out);
        fputs("\" ;;\n", out);
    }
    fputs("    *) words=\"", out);
    put_commands(" ", out);
    FOR_FLAGS(f, ARGS_NONE)
    fprintf(out, " --%s", f->name);
    fputs("\" ;;\n    esac\n", out);
}

static void write_bash(const char *name, FILE *out)
{
    struct identifier id = identifier_of(name);

    fprintf(out, "_%s() {\n", id.text);
    fputs("    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= program= words= list= i "
          "c\n"
          "    COMPREPLY=()\n"
          "    # bash splits --flag=value into three words.\n"
          "    if [[ $cur == '=' ]]; then cur=; elif [[ $prev == '=' ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
          "    if ((COMP_CWORD > 1)); then\n"
          "        for c in ",
          out);
    put_commands(" ", out);
    fputs("; do [[ ! $command && $c == \"${COMP_WORDS[1]}\"* ]] && command=$c; done\n"
          "    fi\n",
          out);
    put_bash_program(out);
    put_bash_values(out);
    put_bash_words(out);
    fputs("    [[ ( $command == merge || $command == group ) && $cur != -* ]] && return\n"
          "    if [[ $command == record && $cur != -* ]]; then\n"
          "        COMPREPLY=($(compgen -c -- \"$cur\"))\n"
          "    else\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "    fi\n"
          "}\n",
          out);
    fprintf(out, "complete -o default -F _%s %s\n", id.text, name);
}

/* ---- zsh ---- */

static void put_zsh_value(const struct args_flag *f, const struct identifier *id, FILE *out)
{
    fprintf(out, ":%s:", f->value);
    if (is_pid(f))
        fprintf(out, "_%s_pids", id->text);
    else if (f->kind == ARGS_FILE)
        fputs("_files", out);
    else if (f->kind == ARGS_DURATION)
        fputs("(unlimited)", out);
    else if (has_choices(f->kind)) {
        fputc('(', out);
        put_choices(f->kind, out);
        fputc(')', out);
    }
}

static void put_zsh_flag(const struct args_flag *f, const struct identifier *id, FILE *out)
{
    const char *joined = f->value ? "=" : "";

    fputs("            ", out);
    if (f->kind == ARGS_COUNT)
        fprintf(out, "'*'{-%c,--%s}'", f->letter, f->name);
    else if (args_may_repeat(f) && f->letter)
        fprintf(out, "'*'{-%c+,--%s=}'", f->letter, f->name);
    else if (args_may_repeat(f))
        fprintf(out, "'*--%s=", f->name);
    else if (f->letter)
        fprintf(out, "'(-%c --%s)'{-%c%s,--%s%s}'", f->letter, f->name, f->letter, f->value ? "+" : "", f->name,
                joined);
    else
        fprintf(out, "'--%s%s", f->name, joined);
    fputc('[', out);
    put_escaped(f->help, "[]:\\", "'\\''", out);
    fputc(']', out);
    if (f->value)
        put_zsh_value(f, id, out);
    fputs("' \\\n", out);
}

static void put_zsh_words(enum args_command c, FILE *out)
{
    fputs("            ", out);
    if (c == ARGS_RECORD)
        fputs("'(-)1:program: _command_names -e' '*::argument:_normal'", out);
    else if (c == ARGS_MERGE || c == ARGS_GROUP)
        fputs("'*:file:_files'", out);
    else if (c == ARGS_COMPLETIONS) {
        fputs("'1:shell:(", out);
        put_shells(" ", out);
        fputs(")'", out);
    } else if (c == ARGS_HELP) {
        fputs("'1:command:(", out);
        put_commands(" ", out);
        fputs(")'", out);
    } else
        fputs("'*:: :'", out);
    fputs(" ;;\n", out);
}

static void write_zsh(const char *name, FILE *out)
{
    struct identifier id = identifier_of(name);

    fprintf(out,
            "#compdef %s\n\n_%s_pids() {\n"
            "    local -a pids\n"
            "    compset -P '*,'\n"
            "    for p in ${(f)\"$(" PYTHON_PIDS ")\"}; do\n"
            "        pids+=(\"$p:$(tr '\\0\\n' '  ' 2>/dev/null </proc/$p/cmdline)\")\n"
            "    done\n"
            "    _describe 'Python process' pids\n}\n\n_%s() {\n",
            name, id.text, id.text);
    fputs("    local curcontext=$curcontext state line c\n"
          "    local -a subcommands\n    subcommands=(\n",
          out);
    FOR_COMMANDS(c, row)
    {
        fprintf(out, "        '%s:", row->name);
        put_escaped(row->summary, ":\\", "'\\''", out);
        fputs("'\n", out);
    }
    fputs("    )\n    _arguments -C \\\n", out);
    FOR_FLAGS(f, ARGS_NONE)
    put_zsh_flag(f, &id, out);
    fputs("            '1: :->command' '*:: :->rest' && return\n"
          "    case $state in\n"
          "    command) _describe command subcommands ;;\n"
          "    rest)\n"
          "        # Expand an abbreviated command.\n"
          "        for c in $subcommands; do [[ ${c%%:*} == $line[1]* ]] && words[1]=${c%%:*}; done\n"
          "        case $words[1] in\n",
          out);
    FOR_COMMANDS(c, row)
    {
        if (c == ARGS_RAY) {
            fputs("        ray)\n"
                  "            local -A ray_flags=(dump '" RAY_DUMP_FLAGS "' record '" RAY_RECORD_FLAGS "')\n"
                  "            if ((CURRENT == 2)); then\n"
                  "                compadd -- dump record --help\n"
                  "            else\n"
                  "                compadd -- ${=ray_flags[$words[2]]}\n"
                  "            fi ;;\n",
                  out);
            continue;
        }
        fprintf(out, "        %s) _arguments -s -S -A '-*' \\\n", row->name);
        FOR_FLAGS(f, c)
        put_zsh_flag(f, &id, out);
        put_zsh_words(c, out);
    }
    fputs("        esac ;;\n    esac\n}\n\n", out);
    fprintf(out,
            "# Autoloaded from fpath, this file is the function body; sourced, it registers the function.\n"
            "if [[ $funcstack[1] == _%s ]]; then\n    _%s \"$@\"\nelse\n    compdef _%s %s\nfi\n",
            id.text, id.text, id.text, name);
}

/* ---- fish ---- */

static void put_fish_flag(const char *name, const struct args_flag *f, const char *when, FILE *out)
{
    fprintf(out, "complete -c %s -n '%s' -l %s", name, when, f->name);
    if (f->letter)
        fprintf(out, " -s %c", f->letter);
    if (f->kind == ARGS_FILE)
        fputs(" -r -F", out);
    else if (f->value)
        fputs(" -x", out);
    if (is_pid(f))
        fprintf(out, " -a '(__%s_pids)'", identifier_of(name).text);
    if (f->kind == ARGS_DURATION)
        fputs(" -a unlimited", out);
    if (has_choices(f->kind)) {
        fputs(" -a '", out);
        put_choices(f->kind, out);
        fputc('\'', out);
    }
    fputs(" -d '", out);
    put_escaped(f->help, "\\", "\\'", out);
    fputs("'\n", out);
}

static void write_fish(const char *name, FILE *out)
{
    struct identifier id = identifier_of(name);
    char when[128];

    fprintf(out,
            "function __%s_pids\n"
            "    set -l list (commandline -ct | string replace -r '^-[^=]*=' '' | string match -r '^.*,')\n"
            "    for p in (sh -c '" PYTHON_PIDS "')\n"
            "        printf '%%s\\t%%s\\n' \"$list$p\" (tr '\\0\\n' '  ' 2>/dev/null </proc/$p/cmdline | cut -c1-80)\n"
            "    end\nend\n"
            "complete -c %s -f\n",
            id.text, name);
    FOR_FLAGS(f, ARGS_NONE)
    put_fish_flag(name, f, "__fish_use_subcommand", out);
    FOR_COMMANDS(c, row)
    {
        fprintf(out, "complete -c %s -n __fish_use_subcommand -a %s -d '", name, row->name);
        put_escaped(row->summary, "\\", "\\'", out);
        fputs("'\n", out);
        if (c == ARGS_RAY)
            continue;
        snprintf(when, sizeof(when), "not __fish_seen_subcommand_from ray; and __fish_seen_subcommand_from %s",
                 row->name);
        FOR_FLAGS(f, c)
        put_fish_flag(name, f, when, out);
    }
    fprintf(out,
            "complete -c %s -n 'not __fish_seen_subcommand_from ray; and __fish_seen_subcommand_from record' "
            "-a '(__fish_complete_subcommand --fcs-skip=2)'\n",
            name);
    fprintf(
        out,
        "complete -c %s -n '__fish_seen_subcommand_from ray; and not __fish_seen_subcommand_from dump record' "
        "-a 'dump record'\n"
        "complete -c %s -n '__fish_seen_subcommand_from ray; and __fish_seen_subcommand_from dump' -a '" RAY_DUMP_FLAGS
        "'\n"
        "complete -c %s -n '__fish_seen_subcommand_from ray; and __fish_seen_subcommand_from record' "
        "-a '" RAY_RECORD_FLAGS "'\n",
        name, name, name);
    fprintf(out, "complete -c %s -n '__fish_seen_subcommand_from merge group' -F\n", name);
    fprintf(out, "complete -c %s -n '__fish_seen_subcommand_from completions' -a '", name);
    put_shells(" ", out);
    fprintf(out, "'\ncomplete -c %s -n '__fish_seen_subcommand_from help' -a '", name);
    put_commands(" ", out);
    fputs("'\n", out);
}

/* ---- elvish and PowerShell: a word list per command ---- */

/* Writes one candidate and its description. `form` has a '|' in place of each. */
static void put_pair(const char *form, const char *text, const char *help, FILE *out)
{
    const char *gap = strchr(form, '|');
    const char *end = strrchr(form, '|');

    fprintf(out, "%.*s%s%.*s", (int)(gap - form), form, text, (int)(end - gap - 1), gap + 1);
    put_escaped(help, "", "''", out);
    fprintf(out, "%s\n", end + 1);
}

static void put_pairs(const char *form, enum args_command command, FILE *out)
{
    char text[64];

    FOR_FLAGS(f, command)
    {
        snprintf(text, sizeof(text), "--%s", f->name);
        put_pair(form, text, f->help, out);
        snprintf(text, sizeof(text), "-%c", f->letter);
        if (f->letter)
            put_pair(form, text, f->help, out);
    }
    for (size_t i = 0; command == ARGS_COMPLETIONS && completions_shell(i); i++)
        put_pair(form, completions_shell(i), "", out);
    if (command != ARGS_NONE && command != ARGS_HELP)
        return;
    FOR_COMMANDS(c, row)
    put_pair(form, row->name, row->summary, out);
}

static void write_elvish(const char *name, FILE *out)
{
    static const char form[] = "            edit:complex-candidate '|' &display='|'";
    static const char files[] = "            edit:complete-filename $words[-1]\n";

    fprintf(out, "set edit:completion:arg-completer[%s] = {|@words|\n", name);
    fputs("    var command = ''\n"
          "    if (> (count $words) 2) { set command = $words[1] }\n"
          "    var candidates = [\n",
          out);
    for (enum args_command c = ARGS_NONE; c < ARGS_COMMANDS_; c++) {
        const struct args_command_row *row = args_command_row(c);
        fprintf(out, "        &'%s'={\n", row->name ? row->name : "");
        put_pairs(form, c, out);
        if (c == ARGS_RECORD || c == ARGS_DUMP || c == ARGS_MERGE || c == ARGS_GROUP)
            fputs(files, out);
        fputs("        }\n", out);
    }
    fputs("    ]\n    if (has-key $candidates $command) { $candidates[$command] }\n}\n", out);
}

static void write_powershell(const char *name, FILE *out)
{
    static const char form[] = "            , @('|', '|')";

    fprintf(out, "Register-ArgumentCompleter -Native -CommandName '%s' -ScriptBlock {\n", name);
    fputs("    param($wordToComplete, $commandAst, $cursorPosition)\n"
          "    $words = @($commandAst.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursorPosition } |\n"
          "        ForEach-Object { $_.ToString() })\n"
          "    $command = if ($words.Count -gt 1) { $words[1] } else { '' }\n"
          "    $candidates = switch ($command) {\n",
          out);
    for (enum args_command c = ARGS_NONE; c < ARGS_COMMANDS_; c++) {
        const struct args_command_row *row = args_command_row(c);
        fprintf(out, "        '%s' {\n", row->name ? row->name : "");
        put_pairs(form, c, out);
        fputs("        }\n", out);
    }
    fputs("    }\n"
          "    $candidates | Where-Object { $_[0].StartsWith($wordToComplete) } | ForEach-Object {\n"
          "        $tip = if ($_[1]) { $_[1] } else { $_[0] }\n"
          "        [System.Management.Automation.CompletionResult]::new($_[0], $_[0], 'ParameterValue', $tip)\n"
          "    }\n}\n",
          out);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    void (*write)(const char *name, FILE *out);
} shells[] = {
    {"bash", write_bash},
    {"zsh", write_zsh},
    {"fish", write_fish},
    {"elvish", write_elvish},
    {"powershell", write_powershell},
};

const char *completions_shell(size_t i)
{
    return i < sizeof(shells) / sizeof(shells[0]) ? shells[i].name : NULL;
}

int completions_write(const char *shell, const char *name, FILE *out)
{
    for (size_t i = 0; completions_shell(i); i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(name, out);
            return 0;
        }
    }
    return ERR_USAGE;
}

int cmd_completions(const struct options *o)
{
    int r = completions_write(o->shell, args_name(o), stdout);
    return r < 0 ? error_text_print(stderr, r, NULL) : 0;
}
