/* The inner loops of `linear`: tiles of rows times one block of 8 outputs.

   A sum over a group is an exact integer, and groups are added in one order: a row's bits depend
   neither on the other rows nor on the number of threads. */
#include "linear.h"

#include <string.h>

typedef float sums[ROWS][LANES];

/* Tile `t` of block `b`, whose weights lie at `w`: a byte each, or in 5 bits where not `spread`. */
typedef struct {
    const uint8_t *w;
    int64_t t, b;
    int spread;
} piece;

#ifdef WIDE

#define INLINE static inline __attribute__((always_inline))

/* 32 weights of one step, from the nibbles of two steps and a bit of `high` each. */
INLINE __m256i spread5(const uint8_t *w, __m256i high, const int step)
{
    const __m256i low = _mm256_set1_epi8(0x0f), fifth = _mm256_set1_epi8(0x10);
    __m256i two = _mm256_loadu_si256((const void *)(w + step % (STEPS / 2) * STEP));
    two = step < STEPS / 2 ? two : _mm256_srli_epi16(two, 4);
    const __m256i bit = step < 4 ? _mm256_slli_epi16(high, 4 - step)
                                 : _mm256_srli_epi16(high, step - 4);
    return _mm256_or_si256(_mm256_and_si256(two, low), _mm256_and_si256(bit, fifth));
}

INLINE void spread_group(const uint8_t *w, uint8_t *bytes)
{
    const __m256i high = _mm256_loadu_si256((const void *)(w + STEPS / 2 * STEP));
#pragma GCC unroll 8
    for (int step = 0; step < STEPS; step++)
        _mm256_storeu_si256((void *)(bytes + step * STEP), spread5(w, high, step));
    for (int i = 0; i < GROUP_BYTES5; i += 64)
        _mm_prefetch((const char *)w + AHEAD + i, _MM_HINT_T0);
}

/* 7 bits: 2 * 127 * 127 < 2^15, so pair sums never saturate in 16 bits. 5 bits: nor do the sums
   of four steps, 4 * 2 * 31 * 127. */
INLINE void add_piece(const product *p, const piece *at, const int bits, const int spread,
                      const int rows, sums y)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const int64_t stride = spread ? GROUP_BYTES7 : GROUP_BYTES5;
    const int64_t tile = at->t * p->groups * ROWS, line = at->t * p->lines * 64;
    const int64_t last_line = line + p->lines * 64 < stride ? line + p->lines * 64 : stride;
    const uint8_t *w = at->w;
    const uint16_t *scales = p->scales + at->b * p->groups * LANES;
    const int8_t *codes = p->codes + tile * GROUP;
    const float *row_scales = p->row_scales + tile;
    const int32_t *zeros = p->zeros + tile;
    __m256 total[ROWS];
    for (int r = 0; r < rows; r++)
        total[r] = _mm256_setzero_ps();
    for (int64_t g = 0; g < p->groups; g++) {
        __m256i parts[ROWS], pairs[ROWS];
        for (int r = 0; r < rows; r++)
            parts[r] = _mm256_set1_epi32(zeros[r]);
        for (int64_t i = line; i < last_line; i += 64)
            _mm_prefetch((const char *)w + p->ahead + i, _MM_HINT_T0);
        const __m256i high = spread ? ones : _mm256_loadu_si256((const void *)(w + STEPS / 2 * STEP));
#pragma GCC unroll 8
        for (int step = 0; step < STEPS; step++) {
            const __m256i eight = spread ? _mm256_loadu_si256((const void *)(w + step * STEP))
                                         : spread5(w, high, step);
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, codes + (step * rows + r) * 4, 4);
                const __m256i two = _mm256_maddubs_epi16(eight, _mm256_set1_epi32(four));
                pairs[r] = bits == 5 && step % 4 ? _mm256_add_epi16(pairs[r], two) : two;
                if (bits == 7 || step % 4 == 3)
                    parts[r] = _mm256_add_epi32(parts[r], _mm256_madd_epi16(pairs[r], ones));
            }
        }
        const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const void *)scales));
        for (int r = 0; r < rows; r++) {
            const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(row_scales[r]));
            total[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(parts[r]), both, total[r]);
        }
        w += stride, scales += LANES, codes += GROUP * rows, row_scales += rows, zeros += rows;
    }
    for (int r = 0; r < rows; r++)
        _mm256_storeu_ps(y[r], total[r]);
}

INLINE void add_rows(const product *p, const piece *at, const int bits, const int spread,
                     int64_t rows, sums y)
{
    switch (rows) {
    case 1: add_piece(p, at, bits, spread, 1, y); break;
    case 2: add_piece(p, at, bits, spread, 2, y); break;
    case 3: add_piece(p, at, bits, spread, 3, y); break;
    default: add_piece(p, at, bits, spread, 4, y);
    }
}

static void add(const product *p, const piece *at, int64_t rows, sums y)
{
    if (p->bits == 7)
        add_rows(p, at, 7, 1, rows, y);
    else if (at->spread)
        add_rows(p, at, 5, 1, rows, y);
    else
        add_rows(p, at, 5, 0, rows, y);
}

#else

static float from_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    float value;
    if (rest < 0x400) { /* zero or subnormal */
        value = (float)rest * 0x1p-24f;
        return sign ? -value : value;
    }
    const uint32_t bits = sign | ((rest << 13) + (112u << 23));
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void spread_group(const uint8_t *w, uint8_t *bytes)
{
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < STEP; i++) {
            const int two = w[step % (STEPS / 2) * STEP + i];
            const int bit = w[STEPS / 2 * STEP + i] >> step & 1;
            bytes[step * STEP + i] = (uint8_t)((step < STEPS / 2 ? two & 15 : two >> 4) | bit << 4);
        }
}

static void add(const product *p, const piece *at, int64_t rows, sums y)
{
    uint8_t bytes[GROUP_BYTES7];
    const int64_t stride = at->spread ? GROUP_BYTES7 : GROUP_BYTES5;
    for (int64_t g = 0; g < p->groups; g++) {
        const uint8_t *w = at->w + g * stride;
        if (!at->spread)
            spread_group(w, bytes), w = bytes;
        const uint16_t *scales = p->scales + (at->b * p->groups + g) * LANES;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t group = at->t * p->groups * ROWS + g * rows, row = group + r;
            for (int lane = 0; lane < LANES; lane++) {
                int32_t part = p->zeros[row];
                for (int i = 0; i < GROUP; i++)
                    part += (int32_t)w[i / 4 * STEP + lane * 4 + i % 4] *
                            p->codes[group * GROUP + (i / 4 * rows + r) * 4 + i % 4];
                y[r][lane] += (float)part * from_half(scales[lane]) * p->row_scales[row];
            }
        }
    }
}

#endif

static void store(const product *p, int64_t t, int64_t b, sums y)
{
    const int64_t at = b * LANES, count = p->outputs - at < LANES ? p->outputs - at : LANES;
    for (int64_t r = 0; r < rows_of(p, t); r++) {
        float *out = p->y + (t * ROWS + r) * p->outputs + at;
        for (int64_t lane = 0; lane < count; lane++)
            out[lane] = y[r][lane] + (p->bias ? p->bias[at + lane] : 0.0f);
    }
}

void multiply_block(const product *p, int64_t b, uint8_t *bytes)
{
    const uint8_t *w = p->weights + b * p->groups * p->group_bytes;
    if (bytes) {
        for (int64_t g = 0; g < p->groups; g++, w += p->group_bytes)
            spread_group(w, bytes + g * GROUP_BYTES7);
        w = bytes;
    }
    for (int64_t t = 0; t < p->tiles; t++) {
        sums y = {{0}};
        add(p, &(piece){.w = w, .t = t, .b = b, .spread = bytes || p->bits == 7}, rows_of(p, t), y);
        store(p, t, b, y);
    }
}
