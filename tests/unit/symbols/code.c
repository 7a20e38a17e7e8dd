/*
 * A library whose addresses test_symbols looks up. SITE puts a label on an instruction: the test finds the address by
 * the label and the line by the label's position in this file.
 */
#define SITE(name) __asm__ volatile(#name ": nop")
#define NOINLINE   __attribute__((noinline, noclone))

extern int puts(const char *);
extern int system(const char *);

int fixture_outer(int x);
int fixture_weak(int x);
int __fixture_weak(int x);
int fixture_calls(const char *s);
int fixture_versioned_1(int x);
int fixture_split(int x) __asm__("fixture_split.constprop.0.isra.1");
int fixture_cold(int x) __asm__("fixture_split.cold");
int fixture_choose(int x);

static inline __attribute__((always_inline)) int inner(int x)
{
    SITE(site_inner);
    return x * 3;
}

static inline __attribute__((always_inline)) int middle(int x)
{
    int y = inner(x + 1); /* call_inner */
    SITE(site_middle);
    return y;
}

NOINLINE int fixture_outer(int x)
{
    x = middle(x) + 1; /* call_middle */
    SITE(site_outer);
    return x;
}

static NOINLINE int local_one(int x)
{
    SITE(site_local);
    return x + 7;
}

/* Two names at one address: the public one without underscores is shown. */
NOINLINE int __fixture_weak(int x)
{
    SITE(site_weak);
    return local_one(x) - 1;
}
int fixture_weak(int x) __attribute__((weak, alias("__fixture_weak")));

NOINLINE int fixture_calls(const char *s)
{
    return puts(s) + system(s);
}

NOINLINE int fixture_versioned_1(int x)
{
    SITE(site_versioned);
    return x ^ 5;
}
__asm__(".symver fixture_versioned_1, fixture_versioned@@FIXTURE_1");

NOINLINE int fixture_split(int x)
{
    SITE(site_split);
    return x + 11;
}

NOINLINE int fixture_cold(int x)
{
    SITE(site_cold);
    return x + 13;
}

/* As in assembler code: a label without type and size, alone in its section. */
__asm__(".pushsection .text.labels, \"ax\", @progbits\n"
        ".globl fixture_label\n"
        "fixture_label:\n"
        "nop\n"
        "nop\n"
        "ret\n"
        ".popsection\n");

static int chosen(int x)
{
    return x;
}
static int (*resolve(void))(int)
{
    return chosen;
}
int fixture_choose(int x) __attribute__((ifunc("resolve")));
