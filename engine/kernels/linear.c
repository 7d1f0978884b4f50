/* y = x W^T + b over 7-bit weights and 8-bit activations, both in groups of 32 inputs.

   Meaning: reference.py. Weights lie in blocks of 8 outputs; a block holds, per group, 8 steps of 4
   inputs of 8 outputs (32 bytes), as unsigned bytes q + 64; scales are half floats, 8 per group and
   block. Activations lie in tiles of 4 rows; a tile holds, per group, 8 steps of 4 inputs of 4 rows.
   2 * 127 * 127 < 2^15: the 16-bit pair sums of AVX2 never saturate. A sum over a group is an exact
   integer, and groups are added in one order: a row's bits depend neither on other rows nor on the
   number of threads. */
#include "layout.h"
#include "pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define WIDE 1
#endif

enum {
    ROWS = 4,
    STEPS = GROUP / 4,
    WEIGHT_GROUP = GROUP * LANES, /* bytes of one group in a block */
    CODE_GROUP = GROUP * ROWS,    /* bytes of one group in a tile */
    LINES = WEIGHT_GROUP / 64,    /* cache lines of one group in a block */
    AHEAD = 2048,                 /* bytes to prefetch ahead when there is one tile */
    CHUNK_BLOCKS = 4,
    QUANTISE_ALONE = 4 /* up to so many rows one thread is quicker */
};

typedef struct {
    const float *x;         /* [rows][inputs] */
    const uint8_t *weights; /* [blocks][groups][STEPS][LANES][4] */
    const uint16_t *scales; /* [blocks][groups][LANES], half floats */
    const float *bias;      /* [outputs] or null */
    float *y;               /* [rows][outputs] */
    int64_t rows, inputs, outputs, groups, blocks;
    int64_t ahead, lines; /* prefetch: how far, and cache lines per group of every tile */
    int8_t *codes;     /* [tiles][groups][STEPS][ROWS][4] */
    float *row_scales; /* [tiles][groups][ROWS] */
    int32_t *zeros;    /* [tiles][groups][ROWS]: -64 * sum of codes */
} product;

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

/* One group of one row: its codes, 4 at each of `steps`, its scale and its zero. */
static inline void quantise_group(const float *x, int8_t *steps, float *scale, int32_t *zero)
{
    int8_t codes[GROUP];
    *zero = -OFFSET * encode(x, scale, codes);
    for (int step = 0; step < STEPS; step++)
        memcpy(steps + step * ROWS * 4, codes + step * 4, 4);
}

static void quantise_tile(void *argument, int64_t t)
{
    const product *p = argument;
    const int64_t first = t * ROWS, rows = p->rows - first < ROWS ? p->rows - first : ROWS;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = p->x + (first + r) * p->inputs;
        for (int64_t g = 0; g < p->groups; g++) {
            const int64_t at = (t * p->groups + g) * ROWS + r, left = p->inputs - g * GROUP;
            int8_t *steps = p->codes + (t * p->groups + g) * CODE_GROUP + r * 4;
            if (left >= GROUP) {
                quantise_group(x + g * GROUP, steps, p->row_scales + at, p->zeros + at);
            } else {
                float part[GROUP] = {0};
                memcpy(part, x + g * GROUP, (size_t)left * sizeof(float));
                quantise_group(part, steps, p->row_scales + at, p->zeros + at);
            }
        }
    }
}

#ifdef WIDE

/* `rows` rows of tile `t`, outputs of block `b` -> y[rows][LANES]. */
static inline __attribute__((always_inline)) void
multiply(const product *p, int64_t t, int64_t b, const int rows, float (*y)[LANES])
{
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *w = p->weights + b * p->groups * WEIGHT_GROUP;
    const uint16_t *scales = p->scales + b * p->groups * LANES;
    const int8_t *codes = p->codes + t * p->groups * CODE_GROUP;
    const float *row_scales = p->row_scales + t * p->groups * ROWS;
    const int32_t *zeros = p->zeros + t * p->groups * ROWS;
    const int64_t line = t * p->lines;
    const int64_t last_line = line + p->lines < LINES ? line + p->lines : LINES;
    __m256 sums[ROWS];
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_setzero_ps();
    for (int64_t g = 0; g < p->groups; g++) {
        __m256i parts[ROWS];
        for (int r = 0; r < rows; r++)
            parts[r] = _mm256_set1_epi32(zeros[r]);
        for (int64_t i = line; i < last_line; i++)
            _mm_prefetch((const char *)w + p->ahead + i * 64, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int step = 0; step < STEPS; step++) {
            const __m256i eight = _mm256_loadu_si256((const void *)(w + step * 4 * LANES));
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, codes + step * 4 * ROWS + r * 4, 4);
                const __m256i pairs = _mm256_maddubs_epi16(eight, _mm256_set1_epi32(four));
                parts[r] = _mm256_add_epi32(parts[r], _mm256_madd_epi16(pairs, ones));
            }
        }
        const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const void *)scales));
        for (int r = 0; r < rows; r++)
            sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(parts[r]),
                                      _mm256_mul_ps(scale, _mm256_set1_ps(row_scales[r])), sums[r]);
        w += WEIGHT_GROUP, scales += LANES, codes += CODE_GROUP, row_scales += ROWS, zeros += ROWS;
    }
    for (int r = 0; r < rows; r++)
        _mm256_storeu_ps(y[r], sums[r]);
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

static inline void multiply(const product *p, int64_t t, int64_t b, const int rows,
                            float (*y)[LANES])
{
    const uint8_t *w = p->weights + b * p->groups * WEIGHT_GROUP;
    const uint16_t *scales = p->scales + b * p->groups * LANES;
    const int8_t *codes = p->codes + t * p->groups * CODE_GROUP;
    const int64_t at = t * p->groups * ROWS;
    memset(y, 0, sizeof(float[ROWS][LANES]));
    for (int64_t g = 0; g < p->groups; g++) {
        for (int r = 0; r < rows; r++) {
            int32_t parts[LANES];
            for (int lane = 0; lane < LANES; lane++)
                parts[lane] = p->zeros[at + g * ROWS + r];
            for (int step = 0; step < STEPS; step++)
                for (int lane = 0; lane < LANES; lane++)
                    for (int i = 0; i < 4; i++)
                        parts[lane] += (int32_t)w[(step * LANES + lane) * 4 + i] *
                                       codes[(step * ROWS + r) * 4 + i];
            for (int lane = 0; lane < LANES; lane++)
                y[r][lane] += (float)parts[lane] * from_half(scales[lane]) *
                              p->row_scales[at + g * ROWS + r];
        }
        w += WEIGHT_GROUP, scales += LANES, codes += CODE_GROUP;
    }
}

#endif

static void multiply_block(const product *p, int64_t t, int64_t b)
{
    float y[ROWS][LANES];
    const int64_t left = p->rows - t * ROWS, rows = left < ROWS ? left : ROWS;
    switch (rows) {
    case 1: multiply(p, t, b, 1, y); break;
    case 2: multiply(p, t, b, 2, y); break;
    case 3: multiply(p, t, b, 3, y); break;
    default: multiply(p, t, b, 4, y);
    }
    const int64_t at = b * LANES, count = p->outputs - at < LANES ? p->outputs - at : LANES;
    for (int64_t r = 0; r < rows; r++) {
        float *out = p->y + (t * ROWS + r) * p->outputs + at;
        for (int64_t lane = 0; lane < count; lane++)
            out[lane] = y[r][lane] + (p->bias ? p->bias[at + lane] : 0.0f);
    }
}

static void multiply_chunk(void *argument, int64_t chunk)
{
    const product *p = argument;
    const int64_t first = chunk * CHUNK_BLOCKS, end = first + CHUNK_BLOCKS;
    for (int64_t b = first; b < end && b < p->blocks; b++)
        for (int64_t t = 0; t * ROWS < p->rows; t++)
            multiply_block(p, t, b);
}

/* x [rows][inputs] -> y [rows][outputs]. Returns 0, or 1 when there is no memory. */
EXPORT int linear(const float *x, int64_t rows, int64_t inputs, const uint8_t *weights,
                  const uint16_t *scales, const float *bias, int64_t outputs, float *y)
{
    product p = {.x = x, .weights = weights, .scales = scales, .bias = bias, .y = y,
                 .rows = rows, .inputs = inputs, .outputs = outputs,
                 .groups = (inputs + GROUP - 1) / GROUP, .blocks = (outputs + LANES - 1) / LANES};
    const int64_t tiles = (rows + ROWS - 1) / ROWS;
    /* the tiles of a block fetch the next block between them, while they multiply this one */
    p.lines = (LINES + tiles - 1) / tiles;
    p.ahead = tiles == 1 ? AHEAD : p.groups * WEIGHT_GROUP;
    const size_t count = (size_t)(tiles * ROWS * p.groups);
    char *scratch = malloc(count * (GROUP + sizeof(float) + sizeof(int32_t)));
    if (!scratch)
        return 1;
    p.row_scales = (float *)scratch;
    p.zeros = (int32_t *)(p.row_scales + count);
    p.codes = (int8_t *)(p.zeros + count);
    if (rows <= QUANTISE_ALONE)
        quantise_tile(&p, 0);
    else
        pool_run(quantise_tile, &p, tiles);
    pool_run(multiply_chunk, &p, (p.blocks + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS);
    free(scratch);
    return 0;
}
