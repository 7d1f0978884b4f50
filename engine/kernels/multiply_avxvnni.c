/* `linear` for processors with AVX-VNNI: sums of four products in one instruction. */
#include "linear.h"

#ifdef AVXVNNI_KNOWN

#define ENTRY static __attribute__((target("avxvnni,avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline, target("avxvnni,avx2,fma,f16c")))
#include "vectors256.h"

INLINE void dot(whole *part, whole *pair, whole weights, whole four, const int bits, const int step)
{
    (void)pair, (void)bits, (void)step;
    *part = _mm256_dpbusd_avx_epi32(*part, weights, four);
}

#include "multiply_rows.h"

const multiplier by_avxvnni = {.rows = ROWS, .blocks = BLOCKS, .spread = spread, .add = add};

#endif
