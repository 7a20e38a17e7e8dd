/*
 * Finds the Python for `record script.py` and `record -m module`, and prints command lines.
 */
#include "cmd/command_line.h"

#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_LINE_MAX 256 /* the kernel reads as much of a script (BINPRM_BUF_SIZE) */
#define DEFAULT_PATH   "/bin:/usr/bin"

static bool is_file(const char *path, int access_mode)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, access_mode) == 0;
}

/* Finds a program in PATH, where an empty entry is the current directory. */
static bool find_in_path(const char *name, char ret[PATH_MAX])
{
    const char *path = getenv("PATH"), *end;

    for (path = path ? path : DEFAULT_PATH; path; path = *end ? end + 1 : NULL) {
        int n;

        end = strchrnul(path, ':');
        n = snprintf(ret, PATH_MAX, "%.*s%s%s", (int)(end - path), path, end == path ? "" : "/", name);
        if (n > 0 && n < PATH_MAX && is_file(ret, X_OK))
            return true;
    }
    return false;
}

bool command_line_is_program(const char *name)
{
    char path[PATH_MAX];

    return strchr(name, '/') ? is_file(name, X_OK) : find_in_path(name, path);
}

/* The Python that a user would get: that of the active virtual environment, else of PATH. */
static bool find_python(char ret[PATH_MAX])
{
    const char *environment = getenv("VIRTUAL_ENV");

    if (environment && environment[0] == '/' && snprintf(ret, PATH_MAX, "%s/bin/python", environment) < PATH_MAX &&
        is_file(ret, X_OK))
        return true;
    return find_in_path("python3", ret) || find_in_path("python", ret);
}

static bool is_python_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash ? slash + 1 : path, "python", 6) == 0;
}

/* The first line of a script, "#!INTERPRETER [ARGUMENT]", as the kernel splits it: the rest of the line is one argument. */
struct shebang {
    char line[FIRST_LINE_MAX];
    char *interpreter; /* NULL: there is none */
    char *argument;    /* or NULL */
};

static void read_shebang(const char *path, struct shebang *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, ret->line, sizeof(ret->line) - 1);
    char *end;

    ret->interpreter = ret->argument = NULL;
    if (fd >= 0)
        close(fd);
    if (n < 3 || memcmp(ret->line, "#!", 2) != 0)
        return;
    ret->line[n] = '\0';
    ret->line[strcspn(ret->line, "\n")] = '\0';
    for (end = ret->line + strlen(ret->line); end > ret->line && strchr(" \t\r", end[-1]); end--)
        end[-1] = '\0';
    ret->interpreter = ret->line + 2 + strspn(ret->line + 2, " \t");
    end = ret->interpreter + strcspn(ret->interpreter, " \t");
    if (*end) {
        *end++ = '\0';
        ret->argument = end + strspn(end, " \t");
    }
    if (!*ret->interpreter)
        ret->interpreter = NULL;
}

/* "/usr/bin/python3.12 -u", or "/usr/bin/env python3" with or without flags of env. */
static bool runs_python(const struct shebang *s)
{
    const char *slash;

    if (!s->interpreter || is_python_name(s->interpreter))
        return s->interpreter != NULL;
    slash = strrchr(s->interpreter, '/');
    if (strcmp(slash ? slash + 1 : s->interpreter, "env") != 0)
        return false;
    for (const char *word = s->argument; word && *word; word += strspn(word, " \t")) {
        if (is_python_name(word))
            return true;
        word += strcspn(word, " \t");
    }
    return false;
}

static bool has_ending(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);

    return n > m && strcmp(path + n - m, ending) == 0;
}

/* Prepends the words before the first NULL to o->program. */
static int prepend(const struct options *o, const char *const before[3], char ***ret)
{
    size_t n = 0, used = 0;
    char **line;

    while (o->program[n])
        n++;
    line = calloc(n + 4, sizeof(*line));
    if (!line)
        return ERR_NOMEM;
    for (int i = 0; i < 3 && before[i]; i++)
        line[used++] = strdup(before[i]);
    for (size_t i = 0; i < n; i++)
        line[used++] = strdup(o->program[i]);
    for (size_t i = 0; i < used; i++)
        if (!line[i]) {
            command_line_free(line);
            return ERR_NOMEM;
        }
    *ret = line;
    return 0;
}

int command_line_of_python(const struct options *o, char ***ret, struct error_text *text)
{
    const char *script = o->module ? NULL : o->program[0];
    struct shebang first;
    char python[PATH_MAX];

    *ret = NULL;
    if (script) {
        if (!o->word || o->as_py_spy || !is_file(script, F_OK) ||
            (!strchr(script, '/') && command_line_is_program(script)))
            return 0;
        read_shebang(script, &first);
        if (strchr(script, '/') && first.interpreter && access(script, X_OK) == 0)
            return 0; /* the kernel does the same */
        if (runs_python(&first))
            return prepend(o, (const char *const[]){first.interpreter, first.argument, NULL}, ret);
        if (!has_ending(script, ".py") && !has_ending(script, ".pyz"))
            return 0;
    }
    if (find_python(python))
        return prepend(o, (const char *const[]){python, o->module ? "-m" : NULL, o->module}, ret);
    error_text_what(text, ERR_LAUNCH, "there is no python3 in PATH to run '%s' with",
                    text_safe(o->module ? o->module : script).s);
    error_text_hint(text, "Put a Python before it: spyglass record -- /path/to/python %s%s", o->module ? "-m " : "",
                    text_safe(o->module ? o->module : script).s);
    return ERR_LAUNCH;
}

char **command_line_free(char **line)
{
    for (char **word = line; word && *word; word++)
        free(*word);
    free(line);
    return NULL;
}

void command_line_print(FILE *out, char *const words[])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

    for (size_t i = 0; words[i]; i++) {
        const char *word = words[i];

        fputs(i ? " " : "", out);
        if (*word && word[strspn(word, plain)] == '\0') {
            fputs(word, out);
            continue;
        }
        fputc('\'', out);
        for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1) {
            char part[PATH_MAX];

            snprintf(part, sizeof(part), "%.*s", (int)(quote - word), word);
            text_print_safe(out, part);
            fputs("'\\''", out);
        }
        text_print_safe(out, word);
        fputc('\'', out);
    }
}
