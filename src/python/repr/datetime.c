/*
 * date, time, datetime, timedelta and timezone objects.
 *
 * Except for timedelta and timezone, the byte at 24 says whether there is a tzinfo, and the fields are
 * packed big-endian from 25 on (datetime.h). The layout is the same in 2.7 and 3.6 to 3.15.
 */
#include "python/repr/datetime.h"

#include "base/err.h"

#include <inttypes.h>

#define HAS_ZONE 24
#define FIELDS   25

int datetime_write_date(struct repr *v, addr_t object, const struct repr_type *t)
{
    unsigned char b[4];
    int r = repr_read(v, object + FIELDS, b, sizeof(b));

    if (r == 0)
        repr_printf(v, "%s(%u, %u, %u)", t->name, b[0] << 8u | b[1], (unsigned int)b[2], (unsigned int)b[3]);
    return r;
}

/* Writes `, 4, 5, 6)`: seconds and microseconds unless they are 0, the fold, and the tzinfo at `zone_at`. */
static int put_seconds_and_zone(struct repr *v, addr_t object, const unsigned char *seconds, int fold, addr_t zone_at)
{
    unsigned int us = (unsigned int)seconds[1] << 16 | (unsigned int)seconds[2] << 8 | seconds[3];
    unsigned char has_zone;
    addr_t zone;
    int r = repr_read(v, object + HAS_ZONE, &has_zone, 1);

    if (r == 0)
        r = repr_word(v, object + zone_at, &zone);
    if (r < 0 && has_zone)
        return r;
    if (seconds[0] || us)
        repr_printf(v, ", %u", (unsigned int)seconds[0]);
    if (us)
        repr_printf(v, ", %u", us);
    if (fold == 1)
        repr_put(v, ", fold=1");
    if (has_zone) {
        repr_put(v, ", tzinfo=");
        repr_write(v, zone);
    }
    repr_put(v, ")");
    return 0;
}

/* fold was added in 3.6; in 2.7 the byte is padding. */
static int fold_of(const struct repr *v, unsigned char fold)
{
    return v->py.layout.repr_flags & REPR_PY2 ? 0 : fold;
}

int datetime_write(struct repr *v, addr_t object, const struct repr_type *t)
{
    unsigned char b[11];
    int r = repr_read(v, object + FIELDS, b, sizeof(b));

    if (r < 0)
        return r;
    repr_printf(v, "%s(%u, %u, %u, %u, %u", t->name, b[0] << 8u | b[1], (unsigned int)b[2], (unsigned int)b[3],
                (unsigned int)b[4], (unsigned int)b[5]);
    return put_seconds_and_zone(v, object, b + 6, fold_of(v, b[10]), 40);
}

int datetime_write_time(struct repr *v, addr_t object, const struct repr_type *t)
{
    unsigned char b[7];
    int r = repr_read(v, object + FIELDS, b, sizeof(b));

    if (r < 0)
        return r;
    repr_printf(v, "%s(%u, %u", t->name, (unsigned int)b[0], (unsigned int)b[1]);
    return put_seconds_and_zone(v, object, b + 2, fold_of(v, b[6]), 32);
}

/* Up to 3.6: positional arguments, without trailing zeroes. */
static void put_positional_delta(struct repr *v, const int32_t *parts)
{
    repr_printf(v, "%" PRId32, parts[0]);
    if (parts[1] || parts[2])
        repr_printf(v, ", %" PRId32, parts[1]);
    if (parts[2])
        repr_printf(v, ", %" PRId32, parts[2]);
}

static void put_delta(struct repr *v, const int32_t *parts)
{
    static const char *const names[] = {"days", "seconds", "microseconds"};
    const char *comma = "";

    for (int i = 0; i < 3; i++) {
        if (!parts[i])
            continue;
        repr_printf(v, "%s%s=%" PRId32, comma, names[i], parts[i]);
        comma = ", ";
    }
    if (!*comma)
        repr_put(v, "0");
}

/* days, seconds, microseconds at 24 */
int datetime_write_delta(struct repr *v, addr_t object, const struct repr_type *t)
{
    int32_t parts[3];
    int r = repr_read(v, object + 24, parts, sizeof(parts));

    if (r < 0)
        return r;
    repr_printf(v, "%s(", t->name);
    if (v->py.layout.repr_flags & REPR_DELTA_PLAIN)
        put_positional_delta(v, parts);
    else
        put_delta(v, parts);
    repr_put(v, ")");
    return 0;
}

static bool is_zero(struct repr *v, addr_t delta)
{
    int32_t parts[3];

    return repr_read(v, delta + 24, parts, sizeof(parts)) == 0 && !parts[0] && !parts[1] && !parts[2];
}

/* offset at 16, name or NULL at 24 (_datetimemodule.c). UTC has no name and offset 0. */
int datetime_write_zone(struct repr *v, addr_t object, const struct repr_type *t)
{
    addr_t offset_and_name[2];
    int r = repr_read(v, object + 16, offset_and_name, sizeof(offset_and_name));

    if (r < 0)
        return r;
    if (t->exact && !offset_and_name[1] && is_zero(v, offset_and_name[0])) {
        repr_printf(v, "%s.utc", t->name);
        return 0;
    }
    repr_printf(v, "%s(", t->name);
    repr_write(v, offset_and_name[0]);
    if (offset_and_name[1]) {
        repr_put(v, ", ");
        repr_write(v, offset_and_name[1]);
    }
    repr_put(v, ")");
    return 0;
}

/* key at 16 (_zoneinfo.c, 3.9+) */
int datetime_write_zoneinfo(struct repr *v, addr_t object, const struct repr_type *t)
{
    addr_t key;
    int r = repr_word(v, object + 16, &key);

    if (r < 0)
        return r;
    repr_printf(v, "%s(key=", t->name);
    repr_write(v, key);
    repr_put(v, ")");
    return 0;
}
