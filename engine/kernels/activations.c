/* Activations in 8 bits: a group of 32 inputs of a row shares a scale. Meaning: reference.py. */
#include "linear.h"

#include <math.h>
#include <string.h>

/* 32 inputs -> codes in order; returns their sum. */
static inline int32_t encode(const float *x, float *scale, int8_t *codes)
{
#ifdef WIDE
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 part[4], most = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        part[i] = _mm256_loadu_ps(x + i * 8);
        most = _mm256_max_ps(most, _mm256_andnot_ps(sign, part[i]));
    }
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    const float largest = _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
    const __m256 inverse = _mm256_set1_ps(largest > 0 ? 127.0f / largest : 0);
    __m256i whole[4];
    for (int i = 0; i < 4; i++)
        whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(part[i], inverse));
    const __m256i low = _mm256_packs_epi32(whole[0], whole[1]);
    const __m256i high = _mm256_packs_epi32(whole[2], whole[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
    _mm256_storeu_si256((void *)codes, bytes);
    const __m256i sums = _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    *scale = largest / 127.0f;
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
#else
    float largest = 0;
    for (int i = 0; i < GROUP; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    const float inverse = largest > 0 ? 127.0f / largest : 0;
    int32_t sum = 0;
    for (int i = 0; i < GROUP; i++) {
        codes[i] = (int8_t)rintf(x[i] * inverse);
        sum += codes[i];
    }
    *scale = largest / 127.0f;
    return sum;
#endif
}

void quantise_tile(void *argument, int64_t tile)
{
    const product *p = argument;
    const int64_t rows = rows_of(p, tile), offset = p->bits == 5 ? OFFSET5 : OFFSET7;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < p->groups; g++) {
            const float *x = p->x + (tile * p->by->rows + r) * p->inputs + g * GROUP;
            const int64_t left = p->inputs - g * GROUP;
            const int64_t group = tile * p->groups * p->by->rows + g * rows;
            float part[GROUP] = {0};
            int8_t codes[GROUP];
            if (left < GROUP)
                x = memcpy(part, x, (size_t)left * sizeof(float));
            const int32_t sum = encode(x, p->row_scales + group + r, codes);
            p->zeros[group + r] = (int32_t)-offset * sum;
            for (int step = 0; step < STEPS; step++)
                memcpy(p->codes + group * GROUP + (step * rows + r) * 4, codes + step * 4, 4);
        }
}
