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

INLINE whole all(int32_t number) { return _mm256_set1_epi32(number); }
INLINE real reals(float number) { return _mm256_set1_ps(number); }
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
