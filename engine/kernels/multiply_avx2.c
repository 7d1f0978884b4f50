/* `linear` for processors with AVX2. */
#include "linear.h"

#ifdef WIDE

#define INLINE static inline __attribute__((always_inline))
#define ENTRY static
#include "vectors256.h"

/* Products of neighbours are summed in 16 bits. 7 bits: 2 * 127 * 127 < 2^15 never saturates.
   5 bits: nor do the sums of four steps, 4 * 2 * 31 * 127, so they are widened once for four. */
INLINE void dot(whole *part, whole *pair, whole weights, whole four, const int bits, const int step)
{
    const whole two = _mm256_maddubs_epi16(weights, four);
    *pair = bits == 5 && step % 4 ? _mm256_add_epi16(*pair, two) : two;
    if (bits == 7 || step % 4 == 3)
        *part = _mm256_add_epi32(*part, _mm256_madd_epi16(*pair, _mm256_set1_epi16(1)));
}

#include "multiply_rows.h"

const multiplier by_avx2 = {.rows = ROWS, .blocks = BLOCKS, .spread = spread, .add = add};

#endif
