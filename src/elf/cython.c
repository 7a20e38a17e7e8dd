/*
 * Decodes the symbols that Cython generates. Cython 0.29 to 3.2 builds them (Cython/Compiler/Naming.py and Symtab.py,
 * mangle_internal) from a prefix, each scope as its length and its name, a number that is unique in that scope, and the
 * name of the function.
 */
#include "elf/cython.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_MAX 1000 /* for the length of a scope's name and for the number of a function */

static const struct prefix_kind {
    const char *prefix;
    enum cython_layer layer;
    const char *suffix; /* appended to the Python name */
} prefix_kinds[] = {
    {"__pyx_pw_", CYTHON_WRAPPER, ""},
    {"__pyx_pf_", CYTHON_DEF, ""},
    {"__pyx_f_", CYTHON_CDEF, ""},
    {"__pyx_gb_", CYTHON_DEF, ""},
    {"__pyx_getprop_", CYTHON_WRAPPER, ".__get__"},
    {"__pyx_setprop_", CYTHON_WRAPPER, ".__set__"},
    {"__pyx_pymod_exec_", CYTHON_DEF, ".<module>"},
    {"__pyx_lambda_funcdef_", CYTHON_DEF, ""},
};

bool cython_suffix_matches(const char *rest, bool exact)
{
    if (exact)
        return demangle_base_length(rest) == 0 || rest[0] == '.';
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

/* Parses the number at `*s` and advances past it. Returns -1 if there is none, or if it exceeds NUMBER_MAX. */
static int parse_number(const char **s)
{
    int n = 0;

    if (!isdigit((unsigned char)**s))
        return -1;
    for (; isdigit((unsigned char)**s); (*s)++)
        n = n > NUMBER_MAX ? n : n * 10 + (**s - '0');
    return n > NUMBER_MAX ? -1 : n;
}

/* True if the module has the symbol with this prefix, scope, number and name. Cython omits the number 0. */
static bool symbol_exists(const struct cython_symbols *symbols, const char *prefix, const char *scope, size_t scope_len,
                          int number, const char *name, bool exact, char rest[DEMANGLE_ROOM])
{
    char text[DEMANGLE_ROOM], digits[16] = "";

    if (!symbols || number < 0)
        return false;
    if (number > 0)
        snprintf(digits, sizeof(digits), "%d", number);
    if (snprintf(text, sizeof(text), "%s%.*s%s%s", prefix, (int)scope_len, scope, digits, name) >= (int)sizeof(text))
        return false;
    return symbols->find(symbols->arg, text, exact, rest);
}

/*
 * "4load_data" (`number` 4, `part` load_data) is either a scope called load or the function load_data with number 4. A
 * wrapper always has a body, whose number is one lower, so the existence of the other symbol decides.
 */
static bool is_scope(const struct prefix_kind *prefix_kind, const struct cython_symbols *symbols, const char *scopes,
                     size_t scopes_len, int number, const char *part)
{
    if (number <= 0 || strlen(part) < (size_t)number + 2 || part[number] != '_')
        return false;
    if (strcmp(prefix_kind->prefix, "__pyx_pw_") == 0)
        return isdigit((unsigned char)part[number + 1]) &&
               !symbol_exists(symbols, "__pyx_pf_", scopes, scopes_len, number - 1, part, true, NULL);
    if (strcmp(prefix_kind->prefix, "__pyx_gb_") == 0)
        return isdigit((unsigned char)part[number + 1]);
    if (strcmp(prefix_kind->prefix, "__pyx_pf_") == 0)
        return !symbol_exists(symbols, "__pyx_pw_", scopes, scopes_len, number + 1, part, true, NULL);
    return true;
}

struct name {
    char text[DEMANGLE_ROOM];
    size_t len;
};

static void name_append(struct name *n, const char *s, size_t len)
{
    if (n->len + len + 2 > sizeof(n->text))
        return;
    if (n->len)
        n->text[n->len++] = '.';
    memcpy(n->text + n->len, s, len);
    n->len += len;
    n->text[n->len] = '\0';
}

/* The symbol of a generator's body says just `generator`. Its wrapper or enclosing function, which has the number
 * before it, has the name. */
static void name_append_generator(struct name *n, const struct cython_symbols *symbols, const char *scopes, size_t len,
                                  int number)
{
    char rest[DEMANGLE_ROOM];

    if (symbol_exists(symbols, "__pyx_pw_", scopes, len, number - 1, "", false, rest) ||
        symbol_exists(symbols, "__pyx_pf_", scopes, len, number - 2, "", false, rest))
        name_append(n, rest, demangle_base_length(rest));
    else
        name_append(n, "generator", strlen("generator"));
}

/* Decodes what follows the prefix: scopes, then a number, then the function. */
static void name_append_parts(struct name *n, const struct prefix_kind *prefix_kind,
                              const struct cython_symbols *symbols, const char *parts)
{
    const char *s = parts;
    int number;

    for (;;) {
        const char *part = s;

        number = parse_number(&part);
        if (!is_scope(prefix_kind, symbols, parts, (size_t)(s - parts), number, part)) {
            if (strcmp(prefix_kind->prefix, "__pyx_gb_") == 0)
                name_append_generator(n, symbols, parts, (size_t)(s - parts), number);
            else if (part[0])
                name_append(n, part, strlen(part));
            return;
        }
        name_append(n, part, (size_t)number);
        s = part + number + 1;
    }
}

enum cython_layer cython_name(const char *name, const struct cython_symbols *symbols, char ret[DEMANGLE_ROOM])
{
    struct name n = {.len = 0};

    if (strncmp(name, "__pyx_fuse_", strlen("__pyx_fuse_")) == 0) {
        name = strstr(name + 1, "__pyx_"); /* skips the indexes of the fused types */
        if (!name)
            return CYTHON_NONE;
    }
    for (size_t i = 0; i < sizeof(prefix_kinds) / sizeof(prefix_kinds[0]); i++) {
        size_t len = strlen(prefix_kinds[i].prefix);

        if (strncmp(name, prefix_kinds[i].prefix, len) != 0)
            continue;
        name_append_parts(&n, &prefix_kinds[i], symbols, name + len);
        if (n.len == 0 || n.len + strlen(prefix_kinds[i].suffix) >= sizeof(n.text))
            return CYTHON_NONE;
        memcpy(n.text + n.len, prefix_kinds[i].suffix, strlen(prefix_kinds[i].suffix) + 1);
        memcpy(ret, n.text, sizeof(n.text));
        return prefix_kinds[i].layer;
    }
    return CYTHON_NONE;
}
