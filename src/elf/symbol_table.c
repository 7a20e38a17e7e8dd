/*
 * Reads and searches ELF symbol tables. Reading and sorting a million symbols takes a few tens of milliseconds, because
 * all other work per symbol is deferred: names and bindings are read when an address needs them.
 */
#include "elf/symbol_table.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define SYMBOLS_MAX    ((size_t)1 << 24)
#define STRINGS_MAX    ((size_t)1 << 28)
#define SOURCES_MAX    3
#define RANGES_MAX     256 /* executable sections */
#define CHUNK          8192
#define CANDIDATES_MAX 256 /* symbols compared for one address: aliases and nested functions */
#define NONE           UINT32_MAX
#define CACHE_SIZE     256

struct source {
    const struct elf_module *module;
    uint64_t symbols; /* file offset */
    GElf_Shdr strings;
    char *loaded; /* the bytes of `strings`, for symbol_table_each */
};

struct entry {
    uint64_t start;
    uint32_t size;   /* 0 for a label, which extends to the next symbol */
    uint32_t symbol; /* index in the source */
    uint32_t source;
    uint32_t enclosing; /* the last entry before this one that ends after this one's start, or NONE */
};

struct range {
    uint64_t start, end;
};

/* A cached result: `name` is valid for `addresses`, for which `entry` is the last entry at or before. */
struct cached_name {
    uint32_t entry;
    struct range addresses;
    uint64_t start; /* of the function */
    char *name;     /* NULL if the slot is empty */
};

struct symbol_table {
    struct source sources[SOURCES_MAX];
    size_t n_sources;
    struct entry *entries;
    size_t n, cap;
    struct range code[RANGES_MAX]; /* of executable sections */
    size_t n_code;
    struct cached_name cache[CACHE_SIZE]; /* direct-mapped by entry */
};

struct symbol_table *symbol_table_new(void)
{
    return calloc(1, sizeof(struct symbol_table));
}

struct symbol_table *symbol_table_free(struct symbol_table *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < t->n_sources; i++)
        free(t->sources[i].loaded);
    for (size_t i = 0; i < CACHE_SIZE; i++)
        free(t->cache[i].name);
    free(t->entries);
    free(t);
    return NULL;
}

static const struct range *find_code(const struct symbol_table *t, uint64_t vaddr)
{
    for (size_t i = 0; i < t->n_code; i++)
        if (vaddr >= t->code[i].start && vaddr < t->code[i].end)
            return &t->code[i];
    return NULL;
}

static void add_code(struct symbol_table *t, const struct elf_module *m)
{
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return;
    for (size_t i = 1; i < n && t->n_code < RANGES_MAX; i++) {
        GElf_Shdr s;

        if (elf_module_section_nth(m, i, &s) && (s.sh_flags & SHF_EXECINSTR) && (s.sh_flags & SHF_ALLOC) && s.sh_size &&
            !find_code(t, s.sh_addr))
            t->code[t->n_code++] = (struct range){s.sh_addr, s.sh_addr + s.sh_size};
    }
}

static bool find_section(const struct elf_module *m, uint32_t type, GElf_Shdr *ret, GElf_Shdr *ret_strings)
{
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return false;
    for (size_t i = 1; i < n; i++)
        if (elf_module_section_nth(m, i, ret) && ret->sh_type == type)
            return elf_module_section_nth(m, ret->sh_link, ret_strings) && ret_strings->sh_type == SHT_STRTAB;
    return false;
}

/* Functions written in assembler often have no type: accept such symbols if they are in an executable section. */
static bool is_function(const struct symbol_table *t, const Elf64_Sym *sym)
{
    unsigned type = ELF64_ST_TYPE(sym->st_info);

    if (sym->st_shndx == SHN_UNDEF || sym->st_shndx == SHN_ABS || sym->st_name == 0)
        return false;
    return (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) && find_code(t, sym->st_value);
}

size_t symbol_table_add(struct symbol_table *t, const struct elf_module *m, uint32_t type)
{
    GElf_Shdr section, strings;
    size_t count, before = t->n;
    Elf64_Sym *syms;

    if (t->n_sources == SOURCES_MAX || !find_section(m, type, &section, &strings) ||
        !(syms = malloc(CHUNK * sizeof(*syms))))
        return 0;
    add_code(t, m);
    t->sources[t->n_sources++] = (struct source){m, section.sh_offset, strings, NULL};
    count = section.sh_size / sizeof(*syms);
    count = count < SYMBOLS_MAX ? count : SYMBOLS_MAX;
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;

        if (elf_module_read(m, section.sh_offset + i * sizeof(*syms), syms, n * sizeof(*syms)) < 0 ||
            grow_array((void **)&t->entries, &t->cap, t->n + n, sizeof(*t->entries)) < 0)
            break;
        for (size_t k = 0; k < n; k++)
            if (is_function(t, &syms[k]))
                t->entries[t->n++] = (struct entry){
                    .start = syms[k].st_value,
                    .size = syms[k].st_size < UINT32_MAX ? (uint32_t)syms[k].st_size : UINT32_MAX,
                    .symbol = (uint32_t)(i + k),
                    .source = (uint32_t)t->n_sources - 1,
                };
    }
    free(syms);
    return t->n - before;
}

/* Radix sort, 11 bits at a time: several times faster than qsort. */
static int sort_entries(struct symbol_table *t)
{
    struct entry *other = malloc((t->n ? t->n : 1) * sizeof(*other));
    uint64_t all = 0;

    if (!other)
        return ERR_NOMEM;
    for (size_t i = 0; i < t->n; i++)
        all |= t->entries[i].start;
    for (unsigned shift = 0; shift < 64 && all >> shift; shift += 11) {
        uint32_t at[2048] = {0}, sum = 0;
        struct entry *sorted = other;

        for (size_t i = 0; i < t->n; i++)
            at[(t->entries[i].start >> shift) & 2047]++;
        for (size_t i = 0; i < 2048; i++) {
            uint32_t count = at[i];

            at[i] = sum;
            sum += count;
        }
        for (size_t i = 0; i < t->n; i++)
            sorted[at[(t->entries[i].start >> shift) & 2047]++] = t->entries[i];
        other = t->entries;
        t->entries = sorted;
        t->cap = t->n;
    }
    free(other);
    return 0;
}

static uint64_t entry_end(const struct entry *e)
{
    return e->size < UINT64_MAX - e->start ? e->start + e->size : UINT64_MAX;
}

int symbol_table_sort(struct symbol_table *t)
{
    if (sort_entries(t) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < t->n; i++) {
        uint32_t enclosing = i ? (uint32_t)i - 1 : NONE;

        while (enclosing != NONE && entry_end(&t->entries[enclosing]) <= t->entries[i].start)
            enclosing = t->entries[enclosing].enclosing;
        t->entries[i].enclosing = enclosing;
    }
    return 0;
}

/* A name for an address, and its symbol, which decides between several. */
struct candidate {
    Elf64_Sym sym;
    char name[SYMBOL_TABLE_NAME_ROOM];
};

static bool read_candidate(const struct symbol_table *t, const struct entry *e, struct candidate *ret)
{
    const struct source *s = &t->sources[e->source];

    if (elf_module_read(s->module, s->symbols + e->symbol * sizeof(ret->sym), &ret->sym, sizeof(ret->sym)) < 0 ||
        !elf_module_read_string(s->module, &s->strings, ret->sym.st_name, ret->name, sizeof(ret->name)))
        return false;
    /* Ignore ARM mapping symbols and local labels. */
    return ret->name[0] != '\0' && ret->name[0] != '$' && strncmp(ret->name, ".L", 2) != 0;
}

static size_t underscores(const char *name)
{
    if (strncmp(name, "_Z", 2) == 0 || strncmp(name, "_R", 2) == 0)
        return 0;
    return strspn(name, "_");
}

/* Positive if `a` is the better name. In this order, prefers functions, non-local, few leading underscores, non-weak,
 * short. */
static int compare_candidates(const struct candidate *a, const struct candidate *b)
{
    const struct candidate *both[2] = {a, b};
    long rank[2][5];

    for (int i = 0; i < 2; i++) {
        unsigned binding = ELF64_ST_BIND(both[i]->sym.st_info);

        rank[i][0] = ELF64_ST_TYPE(both[i]->sym.st_info) != STT_NOTYPE;
        rank[i][1] = binding != STB_LOCAL;
        rank[i][2] = -(long)underscores(both[i]->name);
        rank[i][3] = binding != STB_WEAK;
        rank[i][4] = -(long)strcspn(both[i]->name, "@");
    }
    for (int i = 0; i < 5; i++)
        if (rank[0][i] != rank[1][i])
            return rank[0][i] > rank[1][i] ? 1 : -1;
    return strcmp(b->name, a->name);
}

/* The last entry that starts at or before `vaddr`, or NONE. */
static uint32_t last_at_or_before(const struct symbol_table *t, uint64_t vaddr)
{
    size_t low = 0, high = t->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (t->entries[middle].start <= vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? (uint32_t)low - 1 : NONE;
}

/* The next entry, going backwards, that may name the address. */
static uint32_t next_candidate(const struct symbol_table *t, uint32_t i, bool sized)
{
    if (sized)
        return t->entries[i].enclosing;
    return i && t->entries[i - 1].start == t->entries[i].start ? i - 1 : NONE;
}

/* Finds the best name: if `sized`, of the innermost function that contains `vaddr`, else of the last label before it.
 * Narrows `same` to the addresses that have the same name. */
static bool find_best(const struct symbol_table *t, uint32_t i, uint64_t vaddr, bool sized, struct candidate *best,
                      struct range *same)
{
    bool found = false;
    struct candidate other;
    uint64_t start = 0;

    for (int steps = 0; i != NONE && steps < CANDIDATES_MAX; i = next_candidate(t, i, sized), steps++) {
        const struct entry *e = &t->entries[i];

        if (sized && vaddr >= entry_end(e) && entry_end(e) > same->start)
            same->start = entry_end(e);
        if (sized ? vaddr >= entry_end(e) : e->size != 0)
            continue;
        if (found && e->start != start)
            break;
        if (entry_end(e) < same->end)
            same->end = entry_end(e);
        if (!read_candidate(t, e, &other) || (found && compare_candidates(&other, best) <= 0))
            continue;
        *best = other;
        start = e->start;
        found = true;
    }
    return found;
}

/* Caches the name if it belongs to entry `i` itself, not to an enclosing function. */
static void cache_result(struct symbol_table *t, uint32_t i, const struct candidate *best, struct range same)
{
    struct cached_name *a = &t->cache[i % CACHE_SIZE];
    char *name = t->entries[i].start == best->sym.st_value ? strdup(best->name) : NULL;

    if (!name)
        return;
    free(a->name);
    *a = (struct cached_name){i, same, best->sym.st_value, name};
}

static bool find_uncached(struct symbol_table *t, uint32_t i, uint64_t vaddr, uint64_t *ret_start, char *ret_name)
{
    const struct range *code = find_code(t, vaddr);
    struct range same = {0, UINT64_MAX};
    struct candidate best;

    if (!code)
        return false;
    if (find_best(t, i, vaddr, true, &best, &same))
        cache_result(t, i, &best, same);
    /* A label extends to the next symbol, but not beyond its section. */
    else if (t->entries[i].start < code->start || !find_best(t, i, vaddr, false, &best, &same))
        return false;
    *ret_start = best.sym.st_value;
    memcpy(ret_name, best.name, strlen(best.name) + 1);
    return true;
}

bool symbol_table_find(struct symbol_table *t, uint64_t vaddr, uint64_t *ret_start,
                       char ret_name[SYMBOL_TABLE_NAME_ROOM])
{
    uint32_t i = last_at_or_before(t, vaddr);
    const struct cached_name *a = &t->cache[i % CACHE_SIZE];

    if (i == NONE)
        return false;
    if (!a->name || a->entry != i || vaddr < a->addresses.start || vaddr >= a->addresses.end)
        return find_uncached(t, i, vaddr, ret_start, ret_name);
    *ret_start = a->start;
    memcpy(ret_name, a->name, strlen(a->name) + 1);
    return true;
}

static bool load_strings(struct source *s)
{
    unsigned char *bytes;
    size_t len;

    if (s->loaded)
        return true;
    if (elf_module_read_section(s->module, &s->strings, STRINGS_MAX, &bytes, &len) < 0)
        return false;
    bytes[len - 1] = '\0';
    s->loaded = (char *)bytes;
    return true;
}

/* Reads the symbols again, in file order, which is nearly the order of their names. */
static void each_in_source(struct source *s, size_t count, const char *prefix, void (*each)(void *, const char *),
                           void *arg)
{
    Elf64_Sym *syms = malloc(CHUNK * sizeof(*syms));
    size_t len = strlen(prefix);

    for (size_t i = 0; syms && i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;

        if (elf_module_read(s->module, s->symbols + i * sizeof(*syms), syms, n * sizeof(*syms)) < 0)
            break;
        for (size_t k = 0; k < n; k++)
            if (syms[k].st_name < s->strings.sh_size && strncmp(s->loaded + syms[k].st_name, prefix, len) == 0)
                each(arg, s->loaded + syms[k].st_name);
    }
    free(syms);
}

void symbol_table_each(struct symbol_table *t, const char *prefix, void (*each)(void *arg, const char *name), void *arg)
{
    for (size_t i = 0; i < t->n_sources; i++) {
        size_t count = 0;

        for (size_t k = 0; k < t->n; k++)
            if (t->entries[k].source == i && t->entries[k].symbol >= count)
                count = (size_t)t->entries[k].symbol + 1;
        if (count && load_strings(&t->sources[i]))
            each_in_source(&t->sources[i], count, prefix, each, arg);
    }
}
