/*
 * Names of symbols made readable, by libiberty. Called for each name that is shown. Hostile names are met by bounds: on
 * the length that goes in, on what comes out, and libiberty's own on its depth.
 */
#include "elf/demangle.h"

#include "base/utf8.h"

#include <ctype.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#define MANGLED_MAX 4096 /* libiberty takes about 100 bytes of stack for each */
#define SPELLED_MAX 16384
#define LONG        160 /* nobody reads more: what is between < and > is left out then */

/* What compilers put after a dot, with or without a number behind it. */
static const char *const endings[] = {
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

static bool is_ending(const char *s, size_t len)
{
    if (is_number(s, len))
        return true;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (strlen(endings[i]) == len && memcmp(endings[i], s, len) == 0)
            return true;
    return false;
}

size_t demangle_stem(const char *symbol)
{
    size_t len = strcspn(symbol, "@");

    for (;;) {
        size_t dot = len;

        while (dot > 0 && symbol[dot - 1] != '.')
            dot--;
        if (dot < 2 || !is_ending(symbol + dot, len - dot))
            return len;
        len = dot - 1;
    }
}

/* What libiberty has said so far. */
struct output {
    char text[SPELLED_MAX];
    size_t len;
    jmp_buf full;
};

/*
 * A short name can be made to mean an endless one, each part twice the part before it. The callback cannot say "enough",
 * so it jumps; libiberty's callback functions hold no memory that would be lost.
 */
static void take(const char *s, size_t len, void *arg)
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

/* Rust's old names look like those of C++, with a hash at the end: Rust first. */
static bool demangle(const char *mangled, struct output *out)
{
    out->len = 0;
    if (setjmp(out->full))
        return true;
    if (rust_demangle_callback(mangled, DMGL_NO_OPTS, take, out))
        return true;
    out->len = 0;
    return cplus_demangle_v3_callback(mangled, DMGL_NO_OPTS, take, out) != 0;
}

static bool is_operator(const char *s, size_t at)
{
    while (at > 0 && strchr("<>=-", s[at - 1]))
        at--;
    return at >= 8 && memcmp(s + at - 8, "operator", 8) == 0;
}

/* std::function<void (int)>::operator() -> std::function<...>::operator(). Returns the new length. */
static size_t fold_arguments(char *s, size_t len)
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

/* Copies with what is not UTF-8 replaced, and cuts at a whole character. */
static size_t write_clean(const char *s, size_t len, char ret[DEMANGLE_ROOM])
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
    size_t len = demangle_stem(symbol);
    char mangled[MANGLED_MAX];
    struct output out;

    /* Mach-O's extra underscore and D's names are not for us. */
    if (symbol[0] == '_' && (symbol[1] == 'Z' || symbol[1] == 'R') && len < sizeof(mangled)) {
        memcpy(mangled, symbol, len);
        mangled[len] = '\0';
        if (!demangle(mangled, &out) || !out.len)
            return write_clean(symbol, len, ret);
        return write_clean(out.text, out.len > LONG ? fold_arguments(out.text, out.len) : out.len, ret);
    }
    return write_clean(symbol, len, ret);
}
