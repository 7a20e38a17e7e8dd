/*
 * int, float, complex and Decimal objects.
 *
 * The digits of an int have 30 bits each (longintrepr.h). Before 3.12 ob_size is their number, negated
 * for a negative int. From 3.12 on a tag word holds the number above three bits; the low two bits are the
 * sign (1: zero, 2: negative).
 */
#include "python/repr/numbers.h"

#include "base/err.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 1024 /* 9,248 decimal digits, twice as many as Python itself shows */
#define GROUP      1000000000u
#define GROUPS_MAX (DIGITS_MAX * 30 / 29 + 2)

struct int_shape {
    uint64_t n; /* number of digits */
    bool negative;
};

static int int_shape(struct repr *v, addr_t object, struct int_shape *ret)
{
    const struct layout *l = &v->py.layout;
    uint64_t word;
    int r = repr_word(v, object + (addr_t)(l->lo_tag == NO ? 16 : l->lo_tag), &word);

    if (r < 0)
        return r;
    if (l->lo_tag == NO)
        *ret = (struct int_shape){.n = word > INT64_MAX ? 0 - word : word, .negative = word > INT64_MAX};
    else
        *ret = (struct int_shape){.n = word >> 3, .negative = (word & 3) == 2};
    return ret->n > INT32_MAX ? ERR_BOUNDS : 0;
}

int numbers_read_int(struct repr *v, addr_t object, int64_t *ret)
{
    uint32_t digits[3];
    struct int_shape shape;
    uint64_t value = 0;
    int r = int_shape(v, object, &shape);

    if (r == 0 && shape.n > 2)
        r = ERR_BOUNDS;
    if (r == 0)
        r = repr_read(v, object + (addr_t)v->py.layout.lo_digits, digits, shape.n * sizeof(digits[0]));
    if (r < 0)
        return r;
    for (size_t i = shape.n; i > 0; i--)
        value = value << 30 | (digits[i - 1] & 0x3fffffff);
    *ret = shape.negative ? -(int64_t)value : (int64_t)value;
    return 0;
}

/* Converts 30-bit digits to groups of nine decimal digits, least significant first. Returns the number of groups. */
static size_t to_groups(const uint32_t *digits, size_t n, uint32_t *groups)
{
    size_t n_groups = 0;

    for (size_t i = n; i > 0; i--) {
        uint64_t carry = digits[i - 1] & 0x3fffffff;

        for (size_t k = 0; k < n_groups; k++) {
            carry += (uint64_t)groups[k] << 30;
            groups[k] = (uint32_t)(carry % GROUP);
            carry /= GROUP;
        }
        for (; carry; carry /= GROUP)
            groups[n_groups++] = (uint32_t)(carry % GROUP);
    }
    return n_groups;
}

/* Writes as much of a long number as there is room for. */
static void put_truncated(struct repr *v, const char *text, size_t len)
{
    size_t room = repr_room(v);

    if (room < 40)
        room = 40;
    repr_put_bytes(v, text, len < room ? len : room);
    if (len > room)
        repr_put(v, "...");
}

static void put_groups(struct repr *v, const uint32_t *groups, size_t n, bool negative)
{
    char text[GROUPS_MAX * 9 + 16];
    int len = snprintf(text, sizeof(text), "%s%" PRIu32, negative ? "-" : "", n ? groups[n - 1] : 0);

    for (size_t i = n; i > 1; i--)
        len += snprintf(text + len, sizeof(text) - (size_t)len, "%09" PRIu32, groups[i - 2]);
    put_truncated(v, text, (size_t)len);
}

static int write_digits(struct repr *v, addr_t object, const char *suffix)
{
    uint32_t digits[DIGITS_MAX], groups[GROUPS_MAX];
    struct int_shape shape;
    int64_t small;
    int r = int_shape(v, object, &shape);

    if (r < 0)
        return r;
    if (numbers_read_int(v, object, &small) == 0) {
        repr_printf(v, "%" PRId64 "%s", small, suffix);
        return 0;
    }
    if (shape.n > DIGITS_MAX || shape.n * shape.n > v->work) {
        repr_printf(v, "<int of %" PRIu64 " bits>", shape.n * 30);
        return 0;
    }
    v->work -= shape.n * shape.n;
    r = repr_read(v, object + (addr_t)v->py.layout.lo_digits, digits, shape.n * sizeof(digits[0]));
    if (r < 0)
        return r;
    put_groups(v, groups, to_groups(digits, shape.n, groups), shape.negative);
    repr_put(v, suffix);
    return 0;
}

int numbers_write_int(struct repr *v, addr_t object, const struct repr_type *t)
{
    uint64_t word;
    int r;

    (void)t;
    if (!(v->py.layout.repr_flags & REPR_PY2))
        return write_digits(v, object, "");
    r = repr_word(v, object + 16, &word); /* a C long */
    if (r == 0)
        repr_printf(v, "%" PRId64, (int64_t)word);
    return r;
}

int numbers_write_long(struct repr *v, addr_t object, const struct repr_type *t)
{
    (void)t;
    return write_digits(v, object, "L");
}

int numbers_write_bool(struct repr *v, addr_t object, const struct repr_type *t)
{
    uint64_t word;
    int64_t value = 0;
    int r;

    (void)t;
    if (v->py.layout.repr_flags & REPR_PY2) {
        r = repr_word(v, object + 16, &word);
        value = r == 0 && word;
    } else {
        r = numbers_read_int(v, object, &value);
    }
    if (r == 0)
        repr_put(v, value ? "True" : "False");
    return r;
}

/* ---- float ---- */

static bool round_trips(const char *text, double value, int digits)
{
    double back = strtod(text, NULL);
    int exponent;

    if (digits == 17)
        return !(back < value || back > value);
    if (digits == 9)
        return !((float)back < (float)value || (float)back > (float)value);
    frexp(value, &exponent); /* half precision: 11 bits, fewer below 2^-14 */
    return fabs(back - value) < ldexp(1, (exponent < -13 ? -13 : exponent) - 12);
}

/* Increments the last digit of "1.2345e+10"; false if that would carry past the first digit. */
static bool increment_last_digit(char *text)
{
    for (char *p = strchr(text, 'e'); p > text;) {
        p--;
        if (*p == '.')
            continue;
        if (*p != '9') {
            ++*p;
            return true;
        }
        *p = '0';
    }
    return false;
}

/* The format_shortest digits that round-trip, as "1.2345e+10". At a power of two the nearest decimal of that length can
 * round to a different number while the next one above rounds to this one. */
static void format_shortest(char out[NUMBERS_FLOAT_MAX], double value, int digits)
{
    for (int n = 0; n < digits; n++) {
        snprintf(out, NUMBERS_FLOAT_MAX, "%.*e", n, value);
        if (round_trips(out, value, digits))
            return;
        if (increment_last_digit(out) && round_trips(out, value, digits))
            return;
    }
    snprintf(out, NUMBERS_FLOAT_MAX, "%.*e", digits - 1, value);
}

void numbers_print_float(char out[NUMBERS_FLOAT_MAX], double value, int digits, const char *whole)
{
    char text[NUMBERS_FLOAT_MAX], mantissa[24];
    int exponent, n = 0, len = 0;

    if (isnan(value) || isinf(value)) {
        snprintf(out, NUMBERS_FLOAT_MAX, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    format_shortest(text, fabs(value), digits);
    for (const char *p = text; *p != 'e' && n < 20; p++)
        if (*p != '.')
            mantissa[n++] = *p;
    while (n > 1 && mantissa[n - 1] == '0')
        n--;
    exponent = atoi(strchr(text, 'e') + 1);
    if (signbit(value))
        out[len++] = '-';
    /* float_repr_style 'short': fixed notation from 1e-4 to below 1e16 (pystrtod.c) */
    if (exponent < -4 || exponent >= 16)
        snprintf(out + len, (size_t)(NUMBERS_FLOAT_MAX - len), "%c%s%.*se%c%02d", mantissa[0], n > 1 ? "." : "", n - 1,
                 mantissa + 1, exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(out + len, (size_t)(NUMBERS_FLOAT_MAX - len), "0.%.*s%.*s", -exponent - 1, "0000", n, mantissa);
    else if (n > exponent + 1)
        snprintf(out + len, (size_t)(NUMBERS_FLOAT_MAX - len), "%.*s.%.*s", exponent + 1, mantissa, n - exponent - 1,
                 mantissa + exponent + 1);
    else
        snprintf(out + len, (size_t)(NUMBERS_FLOAT_MAX - len), "%.*s%.*s%s", n, mantissa, exponent + 1 - n,
                 "0000000000000000", whole);
}

int numbers_write_float(struct repr *v, addr_t object, const struct repr_type *t)
{
    char text[NUMBERS_FLOAT_MAX];
    double value;
    int r = repr_read(v, object + 16, &value, sizeof(value));

    (void)t;
    if (r < 0)
        return r;
    numbers_print_float(text, value, 17, ".0");
    repr_put(v, text);
    return 0;
}

/* complex_repr (complexobject.c) omits a real part of +0, and the parentheses with it. */
void numbers_put_complex(struct repr *v, double real, double imag, int digits)
{
    char text[NUMBERS_FLOAT_MAX];
    bool alone = !(real < 0 || real > 0 || isnan(real)) && !signbit(real);

    if (!alone) {
        numbers_print_float(text, real, digits, "");
        repr_printf(v, "(%s", text);
    }
    numbers_print_float(text, imag, digits, "");
    repr_printf(v, "%s%sj%s", alone || text[0] == '-' ? "" : "+", text, alone ? "" : ")");
}

int numbers_write_complex(struct repr *v, addr_t object, const struct repr_type *t)
{
    double parts[2];
    int r = repr_read(v, object + 16, parts, sizeof(parts));

    (void)t;
    if (r == 0)
        numbers_put_complex(v, parts[0], parts[1], 17);
    return r;
}

/* ---- Decimal ---- */

#define MPD_NEGATIVE  1
#define MPD_INFINITE  2
#define MPD_NAN       4
#define MPD_SNAN      8
#define MPD_WORDS_MAX 512
#define MPD_DIGITS    19 /* decimal digits per word */

/* PyDecObject (_decimal.c): a hash at 16, then mpd_t (mpdecimal.h). */
struct decimal {
    uint64_t flags; /* only the low byte */
    int64_t exponent, digits, len, alloc;
    addr_t data;
};

static int read_coefficient(struct repr *v, const struct decimal *d, char *out)
{
    uint64_t words[MPD_WORDS_MAX];
    int len = 0, r;

    if (d->len < 0 || d->len > MPD_WORDS_MAX || d->digits < 0)
        return ERR_BOUNDS;
    r = repr_read(v, d->data, words, (size_t)d->len * sizeof(words[0]));
    if (r < 0)
        return r;
    for (int64_t i = d->len; i > 0; i--)
        len += sprintf(out + len, i == d->len ? "%" PRIu64 : "%019" PRIu64, words[i - 1]);
    out[len] = '\0';
    return 0;
}

/* Scientific notation of the decimal specification: 123.45, 1E+5, 0.000001, 1E-7. */
static void put_decimal(struct repr *v, const char *digits, int64_t exponent)
{
    int64_t n = (int64_t)strlen(digits), left = n + exponent;
    bool plain = exponent <= 0 && left > -6;
    int64_t dot = plain ? left : 1;

    if (dot <= 0)
        repr_printf(v, "0.%.*s", (int)-dot, "000000");
    put_truncated(v, digits, (size_t)(dot > 0 && dot < n ? dot : n));
    if (dot > 0 && dot < n) {
        repr_put(v, ".");
        put_truncated(v, digits + dot, (size_t)(n - dot));
    }
    if (left != dot)
        repr_printf(v, "E%+" PRId64, left - dot);
}

int numbers_write_decimal(struct repr *v, addr_t object, const struct repr_type *t)
{
    char digits[MPD_WORDS_MAX * (MPD_DIGITS + 1) + 1];
    struct decimal d;
    int r = repr_read(v, object + 24, &d, sizeof(d));

    if (r == 0)
        r = read_coefficient(v, &d, digits);
    if (r < 0 || d.exponent > INT32_MAX * 1000000000ll || d.exponent < INT32_MIN * 1000000000ll)
        return r < 0 ? r : ERR_BOUNDS;
    repr_printf(v, "%s('%s", repr_short_name(t), d.flags & MPD_NEGATIVE ? "-" : "");
    if (d.flags & MPD_INFINITE)
        repr_put(v, "Infinity");
    else if (d.flags & (MPD_NAN | MPD_SNAN))
        repr_printf(v, "%s%s", d.flags & MPD_SNAN ? "sNaN" : "NaN", d.len ? digits : "");
    else
        put_decimal(v, digits, d.exponent);
    repr_put(v, "')");
    return 0;
}
