// C++ for test_symbols: the label site_NAME is in the function whose name the test expects.
#define SITE(name) __asm__ volatile(#name ": nop")
#define NOINLINE __attribute__((noinline, noclone, used))

namespace shop {
template <typename T> struct Basket {
    T sum;
    NOINLINE T add(T x)
    {
        SITE(site_method);
        return sum += x;
    }
};

namespace {
inline __attribute__((always_inline)) int hidden(int x)
{
    SITE(site_hidden);
    return x + 2;
}
}

NOINLINE int pay(int x)
{
    auto twice = [](int y) __attribute__((noinline)) {
        SITE(site_lambda);
        return y * 2;
    };
    return hidden(twice(x));
}
}

extern "C" int fixture_plus(int x)
{
    shop::Basket<int> b{x};
    return b.add(1) + shop::pay(x);
}
