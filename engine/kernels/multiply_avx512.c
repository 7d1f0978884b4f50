/* `linear` for processors with AVX-512 and its VNNI: two blocks side by side. */
#include "linear.h"

#ifdef WIDE

#include <string.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c"
#define ENTRY static __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((always_inline, target(TARGET)))
#define BLOCKS 2
#define ROWS 8

typedef __m512i whole;
typedef __m512 real;

INLINE whole load(const uint8_t *w, int64_t next)
{
    const __m256i second = _mm256_loadu_si256((const void *)(w + next));
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256((const void *)w)), second, 1);
}

INLINE whole all(int32_t number) { return _mm512_set1_epi32(number); }
INLINE real reals(float number) { return _mm512_set1_ps(number); }
INLINE void save(float *y, real sums) { _mm512_storeu_ps(y, sums); }

INLINE real scales_at(const uint16_t *scales, int64_t next)
{
    const __m128i second = _mm_loadu_si128((const void *)(scales + next));
    return _mm512_cvtph_ps(_mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const void *)scales)), second, 1));
}

INLINE real scaled(whole part, real scale, real total)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(part), scale, total);
}

INLINE void dot(whole *part, whole *pair, whole weights, whole four, const int bits, const int step)
{
    (void)pair, (void)bits, (void)step;
    *part = _mm512_dpbusd_epi32(*part, weights, four);
}

#include "multiply_rows.h"

const multiplier by_avx512 = {
    .rows = ROWS, .blocks = BLOCKS, .spreads7 = 1, .spread = spread, .add = add};

#endif
