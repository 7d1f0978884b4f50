/* Eight floats at once, in the compiler's own vectors: AVX2, two NEON registers, or plain code. */
#ifndef DLSP_LANES_H
#define DLSP_LANES_H

#include <stdint.h>

enum { LANES = 8 };

typedef float f8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i8 __attribute__((vector_size(32)));

static inline f8 larger(f8 a, f8 b)
{
    const i8 first = a > b;
    return (f8)(((i8)a & first) | ((i8)b & ~first));
}

/* e^x for x <= 0, to about one unit in the last place: a power of two times a polynomial. */
static inline f8 exp8(f8 x)
{
    x = larger(x, (f8){0} - 87.0f);
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    const f8 biased = x * 1.44269504f + magic;
    const f8 n = biased - magic;
    const f8 r = x - n * 0.693359375f - n * -2.12194440e-4f; /* ln 2 in two parts */
    f8 p = r * (1.0f / 720) + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return p * (f8)(((i8)biased - 0x4b400000 + 127) << 23);
}

#endif
