/* Vectors of 256 bits, for multiply_rows.h: one block at a time. */
#ifndef DLSP_VECTORS256_H
#define DLSP_VECTORS256_H

#include "linear.h"

#include <string.h>

#define BLOCKS 1
#define ROWS 4

typedef __m256i whole;
typedef __m256 real;

INLINE whole load(const uint8_t *w, int64_t next)
{
    (void)next;
    return _mm256_loadu_si256((const void *)w);
}

INLINE whole spread5(const uint8_t *w, int64_t next, whole high, const int step)
{
    const whole low = _mm256_set1_epi8(0x0f), fifth = _mm256_set1_epi8(0x10);
    whole two = load(w + step % (STEPS / 2) * STEP, next);
    two = step < STEPS / 2 ? two : _mm256_srli_epi16(two, 4);
    const whole bit = step < 4 ? _mm256_slli_epi16(high, 4 - step)
                               : _mm256_srli_epi16(high, step - 4);
    return _mm256_or_si256(_mm256_and_si256(two, low), _mm256_and_si256(bit, fifth));
}

INLINE whole nothing(void) { return _mm256_setzero_si256(); }
INLINE real noughts(void) { return _mm256_setzero_ps(); }
INLINE whole all(int32_t number) { return _mm256_set1_epi32(number); }
INLINE real reals(float number) { return _mm256_set1_ps(number); }
INLINE real times(real a, real b) { return _mm256_mul_ps(a, b); }
INLINE void save(float *y, real sums) { _mm256_storeu_ps(y, sums); }

INLINE real scales_at(const uint16_t *scales, int64_t next)
{
    (void)next;
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)scales));
}

INLINE real scaled(whole part, real scale, real total)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(part), scale, total);
}

#endif
