/*
 * Demangles symbols with libiberty. Against hostile names, limits the length of the input and of the output; libiberty
 * itself limits the recursion depth.
 */
#include "elf/demangle.h"

#include "base/utf8.h"

#include <ctype.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#define MANGLED_MAX 4096 /* libiberty uses about 100 bytes of stack for each byte */
#define OUTPUT_MAX  16384
#define LONG_NAME   160 /* bytes; longer names lose their template arguments */

/* Suffixes that compilers append after a dot; a number may follow. */
static const char *const suffixes[] = {
    "constprop", "isra", "part", "cold",  "lto_priv",  "localalias", "llvm",        "clone", "resolver", "ifunc",
    "unlikely",  "hot",  "warm", "split", "simdclone", "__uniq",     "specialized", "exit",  "startup",  "eh",
};

static bool is_number(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isdigit((unsigned char)s[i]))
            return false;
    return len > 0;
}

static bool is_compiler_suffix(const char *s, size_t len)
{
    if (is_number(s, len))
        return true;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
        if (strlen(suffixes[i]) == len && memcmp(suffixes[i], s, len) == 0)
            return true;
    return false;
}

size_t demangle_base_length(const char *symbol)
{
    size_t len = strcspn(symbol, "@");

    for (;;) {
        size_t dot = len;

        while (dot > 0 && symbol[dot - 1] != '.')
            dot--;
        if (dot < 2 || !is_compiler_suffix(symbol + dot, len - dot))
            return len;
        len = dot - 1;
    }
}

/* The output of libiberty so far. */
struct output {
    char text[OUTPUT_MAX];
    size_t len;
    jmp_buf full;
};

/*
 * A short symbol can expand to an exponentially long name. The callback cannot tell libiberty to stop, so it uses
 * longjmp; the callback API allocates no memory that this would leak.
 */
static void append_output(const char *s, size_t len, void *arg)
{
    struct output *out = arg;
    size_t room = sizeof(out->text) - out->len;

    if (len > room)
        len = room;
    memcpy(out->text + out->len, s, len);
    out->len += len;
    if (out->len == sizeof(out->text))
        longjmp(out->full, 1);
}

/* Tries Rust first, because legacy Rust symbols are valid C++ symbols that end in a hash. */
static bool demangle(const char *mangled, struct output *out)
{
    out->len = 0;
    if (setjmp(out->full))
        return true;
    if (rust_demangle_callback(mangled, DMGL_NO_OPTS, append_output, out))
        return true;
    out->len = 0;
    return cplus_demangle_v3_callback(mangled, DMGL_NO_OPTS, append_output, out) != 0;
}

static bool is_operator(const char *s, size_t at)
{
    while (at > 0 && strchr("<>=-", s[at - 1]))
        at--;
    return at >= 8 && memcmp(s + at - 8, "operator", 8) == 0;
}

/* std::function<void (int)>::operator() -> std::function<...>::operator(). Returns the new length. */
static size_t elide_template_arguments(char *s, size_t len)
{
    size_t n = 0, depth = 0;

    for (size_t i = 0; i < len; i++) {
        bool bracket = (s[i] == '<' || (s[i] == '>' && depth && i > 0 && s[i - 1] != '-')) && !is_operator(s, i);

        if (bracket && s[i] == '>' && --depth == 0 && n + 3 <= i) {
            memcpy(s + n, "...", 3);
            n += 3;
        }
        if (!depth)
            s[n++] = s[i];
        if (bracket && s[i] == '<')
            depth++;
    }
    return n;
}

/* Copies a name, replaces invalid UTF-8, and truncates it at a character boundary if it is too long. */
static size_t copy_clean(const char *s, size_t len, char ret[DEMANGLE_ROOM])
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        char bytes[4];
        uint32_t cp;
        size_t width;

        i += utf8_decode(s + i, len - i, &cp);
        width = utf8_encode(cp, bytes);
        if (n + width + sizeof("...") > DEMANGLE_ROOM) {
            memcpy(ret + n, "...", 3);
            n += 3;
            break;
        }
        memcpy(ret + n, bytes, width);
        n += width;
    }
    ret[n] = '\0';
    return n;
}

size_t demangle_name(const char *symbol, char ret[DEMANGLE_ROOM])
{
    size_t len = demangle_base_length(symbol);
    char mangled[MANGLED_MAX];
    struct output out;

    /* Only _Z and _R: we do not need Mach-O's extra underscore or D. */
    if (symbol[0] == '_' && (symbol[1] == 'Z' || symbol[1] == 'R') && len < sizeof(mangled)) {
        memcpy(mangled, symbol, len);
        mangled[len] = '\0';
        if (!demangle(mangled, &out) || !out.len)
            return copy_clean(symbol, len, ret);
        return copy_clean(out.text, out.len > LONG_NAME ? elide_template_arguments(out.text, out.len) : out.len, ret);
    }
    return copy_clean(symbol, len, ret);
}
