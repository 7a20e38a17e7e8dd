/*
 * What Cython made of a .pyx, read backwards: names from symbols, lines from the comments in the C file. Called for
 * names that start with __pyx_. Naming: Cython/Compiler/Naming.py and Symtab.py (mangle_internal), 0.29 to 3.2: a kind,
 * then each scope as its length and its name, then a number that is unique in that scope, then the function.
 */
#include "elf/cython.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_MAX 1000 /* of one part of a name, and its number */

static const struct kind {
    const char *prefix;
    enum cython_layer layer;
    const char *ending; /* of the Python name */
} kinds[] = {
    {"__pyx_pw_", CYTHON_WRAPPER, ""},
    {"__pyx_pf_", CYTHON_DEF, ""},
    {"__pyx_f_", CYTHON_CDEF, ""},
    {"__pyx_gb_", CYTHON_DEF, ""},
    {"__pyx_getprop_", CYTHON_WRAPPER, ".__get__"},
    {"__pyx_setprop_", CYTHON_WRAPPER, ".__set__"},
    {"__pyx_pymod_exec_", CYTHON_DEF, ".<module>"},
    {"__pyx_lambda_funcdef_", CYTHON_DEF, ""},
};

bool cython_rest_fits(const char *rest, bool whole)
{
    if (whole)
        return demangle_stem(rest) == 0 || rest[0] == '.';
    return rest[0] != '\0' && !isdigit((unsigned char)rest[0]);
}

bool cython_is_helper(const char *name)
{
    static const char *const prefixes[] = {"__Pyx_", "__pyx_FusedFunction", "__pyx_CyFunction", "__pyx_tp_",
                                           "__pyx_ff_"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* A number at `*s`, which moves past it; -1 when there is none, or one too large for any name. */
static int take_number(const char **s)
{
    int n = 0;

    if (!isdigit((unsigned char)**s))
        return -1;
    for (; isdigit((unsigned char)**s); (*s)++)
        n = n > LENGTH_MAX ? n : n * 10 + (**s - '0');
    return n > LENGTH_MAX ? -1 : n;
}

/* Is there a symbol of this kind, in the same scope, with that number and this name? A number of 0 is not written. */
static bool exists(const struct cython_symbols *symbols, const char *kind, const char *scope, size_t scope_len,
                   int number, const char *name, bool whole, char rest[DEMANGLE_ROOM])
{
    char text[DEMANGLE_ROOM], digits[16] = "";

    if (!symbols || number < 0)
        return false;
    if (number > 0)
        snprintf(digits, sizeof(digits), "%d", number);
    if (snprintf(text, sizeof(text), "%s%.*s%s%s", kind, (int)scope_len, scope, digits, name) >= (int)sizeof(text))
        return false;
    return symbols->find(symbols->arg, text, whole, rest);
}

/*
 * "4load_data" (`number` 4, `part` load_data) is a scope called load, or the function load_data with the number 4. A
 * wrapper has the number after that of its body, and has one always; so the one tells about the other.
 */
static bool is_scope(const struct kind *kind, const struct cython_symbols *symbols, const char *scopes,
                     size_t scopes_len, int number, const char *part)
{
    if (number <= 0 || strlen(part) < (size_t)number + 2 || part[number] != '_')
        return false;
    if (strcmp(kind->prefix, "__pyx_pw_") == 0)
        return isdigit((unsigned char)part[number + 1]) &&
               !exists(symbols, "__pyx_pf_", scopes, scopes_len, number - 1, part, true, NULL);
    if (strcmp(kind->prefix, "__pyx_gb_") == 0)
        return isdigit((unsigned char)part[number + 1]);
    if (strcmp(kind->prefix, "__pyx_pf_") == 0)
        return !exists(symbols, "__pyx_pw_", scopes, scopes_len, number + 1, part, true, NULL);
    return true;
}

struct name {
    char text[DEMANGLE_ROOM];
    size_t len;
};

static void name_add(struct name *n, const char *s, size_t len)
{
    if (n->len + len + 2 > sizeof(n->text))
        return;
    if (n->len)
        n->text[n->len++] = '.';
    memcpy(n->text + n->len, s, len);
    n->len += len;
    n->text[n->len] = '\0';
}

/* The body of a generator is called `generator`; its wrapper, or the function around it, is numbered before it. */
static void name_add_generator(struct name *n, const struct cython_symbols *symbols, const char *scopes, size_t len,
                               int number)
{
    char rest[DEMANGLE_ROOM];

    if (exists(symbols, "__pyx_pw_", scopes, len, number - 1, "", false, rest) ||
        exists(symbols, "__pyx_pf_", scopes, len, number - 2, "", false, rest))
        name_add(n, rest, demangle_stem(rest));
    else
        name_add(n, "generator", strlen("generator"));
}

/* What follows the kind: scopes, then a number, then the function. */
static void name_add_parts(struct name *n, const struct kind *kind, const struct cython_symbols *symbols,
                           const char *parts)
{
    const char *s = parts;
    int number;

    for (;;) {
        const char *part = s;

        number = take_number(&part);
        if (!is_scope(kind, symbols, parts, (size_t)(s - parts), number, part)) {
            if (strcmp(kind->prefix, "__pyx_gb_") == 0)
                name_add_generator(n, symbols, parts, (size_t)(s - parts), number);
            else if (part[0])
                name_add(n, part, strlen(part));
            return;
        }
        name_add(n, part, (size_t)number);
        s = part + number + 1;
    }
}

enum cython_layer cython_name(const char *name, const struct cython_symbols *symbols, char ret[DEMANGLE_ROOM])
{
    struct name n = {.len = 0};

    if (strncmp(name, "__pyx_fuse_", strlen("__pyx_fuse_")) == 0) {
        name = strstr(name + 1, "__pyx_"); /* behind the numbers of the types that were chosen */
        if (!name)
            return CYTHON_NONE;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t len = strlen(kinds[i].prefix);

        if (strncmp(name, kinds[i].prefix, len) != 0)
            continue;
        name_add_parts(&n, &kinds[i], symbols, name + len);
        if (n.len == 0 || n.len + strlen(kinds[i].ending) >= sizeof(n.text))
            return CYTHON_NONE;
        memcpy(n.text + n.len, kinds[i].ending, strlen(kinds[i].ending) + 1);
        memcpy(ret, n.text, sizeof(n.text));
        return kinds[i].layer;
    }
    return CYTHON_NONE;
}
