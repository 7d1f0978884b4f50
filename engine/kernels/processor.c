/* What this processor can do for `linear`. */
#include "linear.h"
#include "pool.h"

#if defined(WIDE)
#include <cpuid.h>
#endif

enum { PLAIN, AVX2, AVXVNNI, AVX512 };

#ifdef WIDE
/* Which registers the operating system keeps. */
static uint32_t kept(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
#endif

/* The widest level that this processor has: 0 plain code, 1 AVX2, 2 AVX-VNNI, 3 AVX-512 with VNNI. */
EXPORT int widest_level(void)
{
#ifdef WIDE
    const uint32_t f = 1u << 16, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11, avx_vnni = 1u << 4;
    const uint32_t zmm = 0xe6; /* xmm, ymm, the masks and both parts of zmm */
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return AVX2;
    const uint32_t needed = f | bw | vl;
    if ((b & needed) == needed && (c & vnni) && (kept() & zmm) == zmm)
        return AVX512;
#ifdef AVXVNNI_KNOWN
    if (a && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & avx_vnni))
        return AVXVNNI;
#endif
    return AVX2;
#else
    return PLAIN;
#endif
}

const multiplier *multiplier_for(int level)
{
#ifdef WIDE
    switch (level) {
    case AVX512: return &by_avx512;
    case AVX2: return &by_avx2;
    }
#endif
#ifdef AVXVNNI_KNOWN
    if (level == AVXVNNI)
        return &by_avxvnni;
#endif
    (void)level;
    return &by_plain;
}
