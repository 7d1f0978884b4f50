/* Attention of rows over cached keys and values, heads in groups; each row sees as many as it says.

   Meaning: reference.py. A row's sums run over dimensions, then over keys, in one order: its bits
   depend neither on other rows nor on the number of threads. */
#include "lanes.h"
#include "pool.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 8,         /* new rows of one task */
    WIDE = 2 * LANES, /* keys scored at a time */
    MOST_DIM = 256,   /* of a head */
    MOST_QUERIES = 512 /* rows times heads of a group */
};

typedef struct {
    const float *q;      /* [heads][rows][dim] */
    const float *keys;   /* [kv_heads][..][dim], `stride` floats between heads */
    const float *values; /* as keys */
    float *out;          /* [rows][heads * dim] */
    const int64_t *visible; /* [rows] */
    int64_t rows, heads, kv_heads, dim, stride;
    float scale;
    atomic_int failed; /* no memory */
} context;

/* WIDE keys [WIDE][dim] -> [dim][WIDE] */
static void transpose(const float *keys, int64_t dim, float (*out)[WIDE])
{
    for (int64_t d = 0; d < dim; d++)
        for (int k = 0; k < WIDE; k++)
            out[d][k] = keys[k * dim + d];
}

/* `count` queries times WIDE keys */
static inline __attribute__((always_inline)) void
score(float (*keys)[WIDE], const float *const *q, int64_t dim, float *out, int64_t width,
      const int count)
{
    f8 near[4], far[4];
    for (int i = 0; i < count; i++)
        near[i] = far[i] = (f8){0};
    for (int64_t d = 0; d < dim; d++) {
        const f8 first = *(const f8 *)keys[d], second = *(const f8 *)(keys[d] + LANES);
        for (int i = 0; i < count; i++) {
            near[i] += first * q[i][d];
            far[i] += second * q[i][d];
        }
    }
    for (int i = 0; i < count; i++) {
        *(f8 *)(out + i * width) = near[i];
        *(f8 *)(out + i * width + LANES) = far[i];
    }
}

/* scores [length] -> weights that sum to one, and zeros behind them up to `end`, whole lanes. */
static void softmax(float *scores, int64_t length, int64_t end, float scale)
{
    const int64_t whole = length / LANES * LANES;
    for (int64_t t = length; t < end; t++)
        scores[t] = -INFINITY;
    f8 tops = *(f8 *)scores;
    for (int64_t t = LANES; t < length; t += LANES)
        tops = larger(*(f8 *)(scores + t), tops);
    float top = tops[0];
    for (int i = 1; i < LANES; i++)
        top = tops[i] > top ? tops[i] : top;
    f8 sums = {0};
    for (int64_t t = 0; t < length; t += LANES) {
        f8 part = exp8((*(f8 *)(scores + t) - top) * scale);
        for (int64_t i = length - t; t >= whole && i < LANES; i++)
            part[i] = 0;
        *(f8 *)(scores + t) = part;
        sums += part;
    }
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += sums[i];
    const float inverse = 1.0f / sum;
    for (int64_t t = 0; t < length; t += LANES)
        *(f8 *)(scores + t) *= inverse;
    for (int64_t t = (length + LANES - 1) / LANES * LANES; t < end; t++)
        scores[t] = 0;
}

/* out[count][vectors * 8] = weights over values, for `count` query rows that see `length` keys. */
static inline __attribute__((always_inline)) void
mix(const float *values, int64_t dim, const float *weights, int64_t width, int64_t length,
    float *const *out, const int count, const int vectors)
{
    f8 sums[3][4];
    for (int i = 0; i < count; i++)
        for (int v = 0; v < vectors; v++)
            sums[i][v] = (f8){0};
    for (int64_t t = 0; t < length; t++)
        for (int v = 0; v < vectors; v++) {
            const f8 value = *(const f8 *)(values + t * dim + v * LANES);
            for (int i = 0; i < count; i++)
                sums[i][v] += value * weights[i * width + t];
        }
    for (int i = 0; i < count; i++)
        for (int v = 0; v < vectors; v++)
            *(f8 *)(out[i] + v * LANES) = sums[i][v];
}

static int64_t most(const int64_t *counts, int64_t rows)
{
    int64_t found = 0;
    for (int64_t i = 0; i < rows; i++)
        found = counts[i] > found ? counts[i] : found;
    return found;
}

static void score_all(const context *c, const float *keys, const float **q, int64_t count,
                      float *scores, int64_t end)
{
    float turned[MOST_DIM][WIDE];
    for (int64_t t = 0; t < end; t += WIDE) {
        transpose(keys + t * c->dim, c->dim, turned);
        int64_t i = 0;
        for (; i + 4 <= count; i += 4)
            score(turned, q + i, c->dim, scores + i * end + t, end, 4);
        for (; i < count; i++)
            score(turned, q + i, c->dim, scores + i * end + t, end, 1);
    }
}

static void mix_all(const context *c, const float *values, const float *weights, float **out,
                    int64_t count, int64_t end, int64_t length)
{
    for (int64_t d = 0; d < c->dim;) {
        const int wide = d + 4 * LANES <= c->dim;
        int64_t i = 0;
        for (; i + 3 <= count; i += 3) {
            float *to[3] = {out[i] + d, out[i + 1] + d, out[i + 2] + d};
            if (wide)
                mix(values + d, c->dim, weights + i * end, end, length, to, 3, 4);
            else
                mix(values + d, c->dim, weights + i * end, end, length, to, 3, 1);
        }
        for (; i < count; i++) {
            float *to[1] = {out[i] + d};
            if (wide)
                mix(values + d, c->dim, weights + i * end, end, length, to, 1, 4);
            else
                mix(values + d, c->dim, weights + i * end, end, length, to, 1, 1);
        }
        d += wide ? 4 * LANES : LANES;
    }
}

/* One key head and up to ROWS rows. */
static void attend(void *argument, int64_t task)
{
    context *c = argument;
    const int64_t group = c->heads / c->kv_heads, kv = task % c->kv_heads;
    const int64_t first = task / c->kv_heads * ROWS;
    const int64_t rows = c->rows - first < ROWS ? c->rows - first : ROWS;
    const int64_t count = rows * group, length = most(c->visible + first, rows);
    const int64_t end = (length + WIDE - 1) / WIDE * WIDE;
    const float *q[MOST_QUERIES];
    float *out[MOST_QUERIES];
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = first + i / group, head = kv * group + i % group;
        q[i] = c->q + (head * c->rows + row) * c->dim;
        out[i] = c->out + (row * c->heads + head) * c->dim;
    }
    float *scores = malloc((size_t)(count * end) * sizeof(float));
    if (!scores) {
        atomic_store(&c->failed, 1);
        return;
    }
    score_all(c, c->keys + kv * c->stride, q, count, scores, end);
    for (int64_t i = 0; i < count; i++)
        softmax(scores + i * end, c->visible[first + i / group], end, c->scale);
    mix_all(c, c->values + kv * c->stride, scores, out, count, end, length);
    free(scores);
}

/* q [heads][rows][dim]; keys and values [kv_heads][capacity][dim] with `stride` floats from head to
   head, capacity a multiple of 16; row i sees the first visible[i] of them, and those up to the
   largest of `visible` must be finite. out [rows][heads * dim].
   shape: rows, heads, kv_heads, dim, stride, capacity.
   Returns 0; 1 when there is no memory; 2 for heads it cannot do; 3 for a wrong count of keys. */
EXPORT int attention(const float *q, const float *keys, const float *values, float *out,
                     const int64_t *visible, const int64_t shape[6], float scale)
{
    context c = {.q = q, .keys = keys, .values = values, .out = out, .visible = visible,
                 .rows = shape[0], .heads = shape[1], .kv_heads = shape[2], .dim = shape[3],
                 .stride = shape[4], .scale = scale};
    const int64_t capacity = shape[5];
    if (c.dim % LANES || c.dim > MOST_DIM || c.heads / c.kv_heads * ROWS > MOST_QUERIES)
        return 2;
    if (capacity % WIDE || most(visible, c.rows) > capacity)
        return 3;
    for (int64_t i = 0; i < c.rows; i++)
        if (visible[i] < 1)
            return 3;
    pool_run(attend, &c, (c.rows + ROWS - 1) / ROWS * c.kv_heads);
    return atomic_load(&c.failed);
}
