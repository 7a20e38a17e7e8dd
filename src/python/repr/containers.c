/*
 * tuple, list, dict, set, deque, range and slice objects. Lengths from the target need no bound of their
 * own: writing stops when there is no room left.
 */
#include "python/repr/containers.h"

#include "base/err.h"
#include "python/objects.h"
#include "python/repr/numbers.h"
#include "python/repr/str.h"
#include "python/strings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BATCH     64
#define ITEMS_MAX (1ull << 40)

int containers_put_items(struct repr *v, addr_t items, uint64_t n, bool *first)
{
    addr_t batch[BATCH];

    for (uint64_t i = 0; i < n; i++) {
        if (i % BATCH == 0) {
            size_t len = n - i < BATCH ? n - i : BATCH;
            int r = repr_read(v, items + i * 8, batch, len * sizeof(batch[0]));

            if (r < 0)
                return r;
        }
        if (!repr_next(v, first))
            return 0;
        repr_write(v, batch[i % BATCH]);
    }
    return 0;
}

/* ---- tuple ---- */

int containers_tuple(struct repr *v, addr_t object, uint64_t *ret_n, addr_t *ret_items)
{
    uint64_t n;
    int r = repr_word(v, object + 16, &n);

    if (r < 0 || n > ITEMS_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    *ret_n = n;
    *ret_items = object + (addr_t)v->py.layout.tu_items;
    return 0;
}

/* collections.namedtuple keeps the field names in the class, as a tuple of str. */
static bool find_namedtuple_fields(struct repr *v, const struct repr_type *t, uint64_t n, addr_t *ret_names)
{
    uint64_t n_names;
    addr_t fields;
    const struct repr_type *type;

    if (!repr_is_heap_type(t) || !t->dict || objects_dict_get(&v->py, t->dict, "_fields", &fields) < 0)
        return false;
    type = repr_type_of(v, fields);
    return type && type->row->write == containers_write_tuple &&
           containers_tuple(v, fields, &n_names, ret_names) == 0 && n_names == n;
}

/* `(x=1, y=2)` */
static void put_fields(struct repr *v, addr_t names, addr_t items, uint64_t n)
{
    bool first = true;

    for (uint64_t i = 0; i < n; i++) {
        char name[REPR_KEY_MAX];
        addr_t key, value;

        if (!repr_next(v, &first))
            return;
        if (repr_word(v, names + i * 8, &key) < 0 || repr_word(v, items + i * 8, &value) < 0 ||
            !str_read_key(v, key, name))
            return;
        repr_put(v, name);
        repr_put(v, "=");
        repr_write_named(v, name, value);
    }
}

/* A struct sequence (structseq.c), such as time.struct_time, has its field names in tp_members. */
static bool put_structseq_fields(struct repr *v, const struct repr_type *t, addr_t object, addr_t items, uint64_t n)
{
    bool first = true;

    for (uint64_t i = 0; i < n; i++) {
        struct {
            addr_t name;
            uint64_t type, offset, flags, doc;
        } member;
        char name[REPR_NAME_MAX];
        addr_t value;

        if (repr_read(v, t->members + i * sizeof(member), &member, sizeof(member)) < 0 || !member.name ||
            object + member.offset != items + i * 8 || repr_c_string(v, member.name, name, sizeof(name)) < 0 ||
            repr_word(v, items + i * 8, &value) < 0)
            return false;
        if (!repr_next(v, &first))
            return true;
        repr_printf(v, "%s=", name);
        repr_write_named(v, name, value);
    }
    return n > 0;
}

static int put_plain_tuple(struct repr *v, const struct repr_type *t, addr_t items, uint64_t n)
{
    bool first = true;
    int r;

    if (!t->exact)
        repr_put(v, t->name);
    repr_put(v, t->exact ? "(" : "((");
    r = containers_put_items(v, items, n, &first);
    if (n == 1)
        repr_put(v, ",");
    repr_put(v, t->exact ? ")" : "))");
    return r;
}

static int put_tuple(struct repr *v, addr_t object, const struct repr_type *t, addr_t items, uint64_t n)
{
    size_t start = v->len;
    addr_t names;

    if (t->exact)
        return put_plain_tuple(v, t, items, n);
    repr_printf(v, "%s(", t->name);
    if (find_namedtuple_fields(v, t, n, &names)) {
        put_fields(v, names, items, n);
    } else if (!t->members || !put_structseq_fields(v, t, object, items, n)) {
        v->len = start;
        return put_plain_tuple(v, t, items, n);
    }
    repr_put(v, ")");
    return 0;
}

int containers_write_tuple(struct repr *v, addr_t object, const struct repr_type *t)
{
    uint64_t n;
    addr_t items;
    int r = containers_tuple(v, object, &n, &items);

    if (r < 0)
        return r;
    if (!repr_enter(v, object)) {
        repr_put(v, "(...)");
        return 0;
    }
    r = put_tuple(v, object, t, items, n);
    repr_leave(v);
    return r;
}

/* ---- list ---- */

int containers_write_list(struct repr *v, addr_t object, const struct repr_type *t)
{
    bool first = true;
    uint64_t n;
    addr_t items;
    int r = repr_word(v, object + 16, &n);

    (void)t;
    if (r == 0)
        r = repr_word(v, object + (addr_t)v->py.layout.li_items, &items);
    if (r < 0 || n > ITEMS_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    if (!repr_enter(v, object)) {
        repr_put(v, "[...]");
        return 0;
    }
    repr_put(v, "[");
    r = containers_put_items(v, items, n, &first);
    repr_put(v, "]");
    repr_leave(v);
    return r;
}

/* ---- dict ---- */

struct pairs {
    struct repr *v;
    bool first;
    const char *open, *between, *close; /* around each pair */
};

static bool put_pair(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct pairs *p = arg;
    char name[REPR_KEY_MAX];
    bool named;

    (void)py;
    if (!repr_next(p->v, &p->first))
        return false;
    named = str_read_key(p->v, key, name);
    repr_put(p->v, p->open);
    repr_write(p->v, key);
    repr_put(p->v, p->between);
    repr_write_named(p->v, named ? name : NULL, value);
    repr_put(p->v, p->close);
    return true;
}

int containers_write_dict(struct repr *v, addr_t object, const struct repr_type *t)
{
    struct pairs pairs = {.v = v, .first = true, .open = "", .between = ": ", .close = ""};
    int r;

    (void)t;
    if (!repr_enter(v, object)) {
        repr_put(v, "{...}");
        return 0;
    }
    repr_put(v, "{");
    r = objects_dict_walk(&v->py, object, put_pair, &pairs);
    repr_put(v, "}");
    repr_leave(v);
    return r;
}

int containers_write_named_dict(struct repr *v, addr_t object, const struct repr_type *t)
{
    int r;

    repr_printf(v, "%s(", t->name);
    r = containers_write_dict(v, object, t);
    repr_put(v, ")");
    return r;
}

int containers_write_defaultdict(struct repr *v, addr_t object, const struct repr_type *t)
{
    const struct repr_type *dict = t;
    uint64_t size = 0;
    addr_t factory = 0;
    int r = 0;

    /* defdictobject: a dict, then the factory (_collectionsmodule.c) */
    for (int i = 0; dict && strcmp(dict->name, "dict") != 0 && i < 8; i++)
        dict = dict->base ? repr_type(v, dict->base) : NULL;
    if (!dict || repr_word(v, dict->addr + (addr_t)v->py.layout.ty_basicsize, &size) < 0 || size > 4096)
        return ERR_BOUNDS;
    r = repr_word(v, object + size, &factory);
    if (r < 0)
        return r;
    repr_printf(v, "%s(", repr_short_name(t));
    if (factory)
        repr_write(v, factory);
    else
        repr_put(v, "None");
    repr_put(v, ", ");
    r = containers_write_dict(v, object, t);
    repr_put(v, ")");
    return r;
}

/* ---- OrderedDict ---- */

#define NODES_MAX 4096

struct key_lookup {
    addr_t key, value;
};

static bool visit_same_key(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct key_lookup *s = arg;

    (void)py;
    if (key != s->key)
        return true;
    s->value = value;
    return false;
}

/* 3.x: a dict followed by a linked list that has the order: od_first comes after the dict, a node is key, hash, next
 * (odictobject.c). move_to_end() changes only the list, so small dicts are walked by it. */
static int walk_nodes(struct repr *v, addr_t object, uint64_t size, struct pairs *pairs)
{
    addr_t node;
    int r = repr_word(v, object + size, &node);

    for (int i = 0; r == 0 && node && i < NODES_MAX; i++) {
        addr_t words[3];
        struct key_lookup s = {0};

        r = repr_read(v, node, words, sizeof(words));
        if (r < 0)
            break;
        s.key = words[0];
        r = objects_dict_walk(&v->py, object, visit_same_key, &s);
        if (r == 0 && s.value && !put_pair(&v->py, s.key, s.value, pairs))
            break;
        node = words[2];
    }
    return r;
}

int containers_write_ordered(struct repr *v, addr_t object, const struct repr_type *t)
{
    const struct layout *l = &v->py.layout;
    bool as_pairs = l->repr_flags & REPR_ORDERED_PAIRS;
    struct pairs pairs = {.v = v,
                          .first = true,
                          .open = as_pairs ? "(" : "",
                          .between = as_pairs ? ", " : ": ",
                          .close = as_pairs ? ")" : ""};
    uint64_t used;
    int r = repr_word(v, object + (addr_t)l->di_used, &used);

    if (r < 0)
        return r;
    repr_printf(v, "%s(", repr_short_name(t));
    if (!repr_enter(v, object)) {
        repr_put(v, "...)");
        return 0;
    }
    if (used) {
        repr_put(v, as_pairs ? "[" : "{");
        if (l->di_keys == NO || used > NODES_MAX)
            r = objects_dict_walk(&v->py, object, put_pair, &pairs);
        else
            r = walk_nodes(v, object, (uint64_t)l->di_values + 8, &pairs);
        repr_put(v, as_pairs ? "]" : "}");
    }
    repr_put(v, ")");
    repr_leave(v);
    return r;
}

/* mappingproxy: the mapping is at 16 (descrobject.c). */
int containers_write_proxy(struct repr *v, addr_t object, const struct repr_type *t)
{
    addr_t mapping;
    int r = repr_word(v, object + 16, &mapping);

    if (r < 0)
        return r;
    repr_printf(v, "%s(", t->name);
    repr_write(v, mapping);
    repr_put(v, ")");
    return 0;
}

/* ---- set ---- */

/* A removed entry has hash -1 in 3.x; 2.7 replaces it by a marker str (setobject.c). */
static bool is_dummy(struct repr *v, addr_t key, uint64_t hash, bool has_dummies)
{
    if (v->py.layout.repr_flags & REPR_PY2)
        return has_dummies && strings_equal(&v->py, key, "<dummy key>");
    return hash == UINT64_MAX;
}

static int put_set_items(struct repr *v, addr_t table, uint64_t slots, bool has_dummies)
{
    int key_at = v->py.layout.se_key / 8;
    bool first = true;

    for (uint64_t i = 0; i < slots && i < PY_MAX_DICT; i++) {
        uint64_t entry[2]; /* key and hash; hash and key in 2.7 */
        int r = repr_read(v, table + i * sizeof(entry), entry, sizeof(entry));

        if (r < 0)
            return r;
        if (!entry[key_at] || is_dummy(v, entry[key_at], entry[1 - key_at], has_dummies))
            continue;
        if (!repr_next(v, &first))
            break;
        repr_write(v, entry[key_at]);
    }
    return 0;
}

static int put_set(struct repr *v, addr_t object, const struct repr_type *t, const uint64_t *counts)
{
    const struct layout *l = &v->py.layout;
    bool two = l->repr_flags & REPR_PY2, braces = !two && t->exact && strcmp(t->name, "set") == 0;
    uint64_t mask;
    addr_t table;
    int r = repr_word(v, object + (addr_t)l->se_mask, &mask);

    if (r == 0)
        r = repr_word(v, object + (addr_t)l->se_table, &table);
    if (r < 0 || mask > ITEMS_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    if (!braces)
        repr_printf(v, "%s(", t->name);
    repr_put(v, two ? "[" : "{");
    r = put_set_items(v, table, mask + 1, counts[0] > counts[1]);
    repr_put(v, two ? "]" : "}");
    if (!braces)
        repr_put(v, ")");
    return r;
}

int containers_write_set(struct repr *v, addr_t object, const struct repr_type *t)
{
    uint64_t counts[2]; /* fill, used */
    int r = repr_read(v, object + 16, counts, sizeof(counts));

    if (r < 0)
        return r;
    if (!counts[1]) {
        repr_printf(v, v->py.layout.repr_flags & REPR_PY2 ? "%s([])" : "%s()", t->name);
        return 0;
    }
    if (!repr_enter(v, object)) {
        repr_printf(v, "%s(...)", t->name);
        return 0;
    }
    r = put_set(v, object, t, counts);
    repr_leave(v);
    return r;
}

/* ---- deque ---- */

#define BLOCK 64

/* 3.x: a block is a link, 64 items and a link (_collectionsmodule.c). */
static int put_deque_items(struct repr *v, addr_t block, uint64_t at, uint64_t n)
{
    bool first = true;

    while (n) {
        uint64_t here = at < BLOCK ? BLOCK - at : 0;
        int r;

        if (!here)
            return ERR_BOUNDS;
        if (here > n)
            here = n;
        r = containers_put_items(v, block + 8 + at * 8, here, &first);
        if (r < 0 || !repr_room(v))
            return r;
        n -= here;
        at = 0;
        if (n && (r = repr_word(v, block + 8 + BLOCK * 8ull, &block)) < 0)
            return r;
    }
    return 0;
}

int containers_write_deque(struct repr *v, addr_t object, const struct repr_type *t)
{
    struct {
        uint64_t n;
        addr_t left, right;
        uint64_t left_at, right_at, state;
        int64_t max;
    } d;
    int r = repr_read(v, object + 16, &d, sizeof(d));

    if (r < 0 || d.n > ITEMS_MAX || v->py.layout.repr_flags & REPR_PY2) /* 2.7 has another layout */
        return r < 0 ? r : ERR_BOUNDS;
    repr_printf(v, "%s(", repr_short_name(t));
    if (!repr_enter(v, object)) {
        repr_put(v, "[...])");
        return 0;
    }
    repr_put(v, "[");
    r = put_deque_items(v, d.left, d.left_at, d.n);
    repr_put(v, "]");
    if (d.max >= 0)
        repr_printf(v, ", maxlen=%" PRId64, d.max);
    repr_put(v, ")");
    repr_leave(v);
    return r;
}

/* ---- range, slice ---- */

static bool is_one(struct repr *v, addr_t object)
{
    const struct repr_type *t = repr_type_of(v, object);
    int64_t value;

    return t && t->row->write == numbers_write_int && numbers_read_int(v, object, &value) == 0 && value == 1;
}

/* start, stop, step at 16, in range (rangeobject.c) and in slice (sliceobject.h) */
int containers_write_range(struct repr *v, addr_t object, const struct repr_type *t)
{
    addr_t parts[3];
    bool with_step;
    int r = repr_read(v, object + 16, parts, sizeof(parts));

    if (r < 0)
        return r;
    with_step = !is_one(v, parts[2]);
    repr_printf(v, "%s(", t->name);
    repr_write(v, parts[0]);
    repr_put(v, ", ");
    repr_write(v, parts[1]);
    if (with_step) {
        repr_put(v, ", ");
        repr_write(v, parts[2]);
    }
    repr_put(v, ")");
    return 0;
}

int containers_write_slice(struct repr *v, addr_t object, const struct repr_type *t)
{
    addr_t parts[3];
    int r = repr_read(v, object + 16, parts, sizeof(parts));

    if (r < 0)
        return r;
    repr_printf(v, "%s(", t->name);
    if (!repr_enter(v, object)) {
        repr_put(v, "...)");
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        repr_put(v, i ? ", " : "");
        repr_write(v, parts[i]);
    }
    repr_leave(v);
    repr_put(v, ")");
    return 0;
}

/* 2.7: start, step and length are C longs; repr() leaves out defaults. */
int containers_write_xrange(struct repr *v, addr_t object, const struct repr_type *t)
{
    uint64_t parts[3], stop;
    int r = repr_read(v, object + 16, parts, sizeof(parts));

    (void)t;
    if (r < 0)
        return r;
    stop = parts[0] + parts[1] * parts[2];
    if (parts[0] == 0 && parts[1] == 1)
        repr_printf(v, "xrange(%" PRId64 ")", (int64_t)stop);
    else if (parts[1] == 1)
        repr_printf(v, "xrange(%" PRId64 ", %" PRId64 ")", (int64_t)parts[0], (int64_t)stop);
    else
        repr_printf(v, "xrange(%" PRId64 ", %" PRId64 ", %" PRId64 ")", (int64_t)parts[0], (int64_t)stop,
                    (int64_t)parts[1]);
    return 0;
}
