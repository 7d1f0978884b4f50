/* What happens to rows between the products: norm, gate, rotation. Meaning: reference.py. */
#include "lanes.h"
#include "pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_ALONE = 4 /* up to so many rows one thread is quicker */ };

typedef struct {
    const float *x, *weight, *cos, *sin;
    float *y, *keys, *values;
    int64_t rows, size, heads, kv_heads, dim, stride;
    float eps;
} job;

static void run(pool_task task, job *j)
{
    if (j->rows > ROWS_ALONE) {
        pool_run(task, j, j->rows);
        return;
    }
    for (int64_t row = 0; row < j->rows; row++)
        task(j, row);
}

static void norm_row(void *argument, int64_t row)
{
    const job *j = argument;
    const float *x = j->x + row * j->size;
    float *y = j->y + row * j->size;
    const int64_t whole = j->size / LANES * LANES;
    f8 sums = {0};
    for (int64_t i = 0; i < whole; i += LANES)
        sums += *(const f8 *)(x + i) * *(const f8 *)(x + i);
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += sums[i];
    for (int64_t i = whole; i < j->size; i++)
        sum += x[i] * x[i];
    const float inverse = 1.0f / sqrtf(sum / (float)j->size + j->eps);
    for (int64_t i = 0; i < whole; i += LANES)
        *(f8 *)(y + i) = *(const f8 *)(x + i) * inverse * *(const f8 *)(j->weight + i);
    for (int64_t i = whole; i < j->size; i++)
        y[i] = x[i] * inverse * j->weight[i];
}

/* x [rows][size], weight [size] -> y [rows][size] of unit root mean square, times weight. */
EXPORT void rms_norm(const float *x, const float *weight, float eps, int64_t rows, int64_t size,
                     float *y)
{
    job j = {.x = x, .weight = weight, .eps = eps, .rows = rows, .size = size, .y = y};
    run(norm_row, &j);
}

static inline f8 silu(f8 x)
{
    const i8 positive = x > 0;
    const f8 small = exp8(-larger(x, -x)); /* e^-|x| */
    const f8 one = (f8){0} + 1.0f;
    const f8 top = (f8)(((i8)one & positive) | ((i8)small & ~positive));
    return x * top / (one + small);
}

static void gate_row(void *argument, int64_t row)
{
    const job *j = argument;
    const float *gate = j->x + row * 2 * j->size, *up = gate + j->size;
    float *y = j->y + row * j->size;
    for (int64_t i = 0; i < j->size; i += LANES) {
        f8 g = {0}, u = {0};
        const int64_t left = j->size - i;
        if (left >= LANES) {
            *(f8 *)(y + i) = silu(*(const f8 *)(gate + i)) * *(const f8 *)(up + i);
            continue;
        }
        memcpy(&g, gate + i, (size_t)left * sizeof(float));
        memcpy(&u, up + i, (size_t)left * sizeof(float));
        g = silu(g) * u;
        memcpy(y + i, &g, (size_t)left * sizeof(float));
    }
}

/* x [rows][2 * size], gate and up -> y [rows][size]: silu(gate) * up. */
EXPORT void swiglu(const float *x, int64_t rows, int64_t size, float *y)
{
    job j = {.x = x, .rows = rows, .size = size, .y = y};
    run(gate_row, &j);
}

static inline void rotate(const float *x, const float *cos, const float *sin, int64_t half,
                          float *y)
{
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        y[i] = a * cos[i] - b * sin[i];
        y[i + half] = b * cos[i] + a * sin[i];
    }
}

static void rope_row(void *argument, int64_t row)
{
    const job *j = argument;
    const int64_t half = j->dim / 2;
    const float *x = j->x + row * (j->heads + 2 * j->kv_heads) * j->dim;
    const float *cos = j->cos + row * half, *sin = j->sin + row * half;
    for (int64_t h = 0; h < j->heads; h++, x += j->dim)
        rotate(x, cos, sin, half, j->y + (h * j->rows + row) * j->dim);
    for (int64_t h = 0; h < j->kv_heads; h++, x += j->dim)
        rotate(x, cos, sin, half, j->keys + h * j->stride + row * j->dim);
    for (int64_t h = 0; h < j->kv_heads; h++, x += j->dim)
        memcpy(j->values + h * j->stride + row * j->dim, x, (size_t)j->dim * sizeof(float));
}

/* x [rows][heads + 2 kv_heads][dim], q then k then v; cos, sin [rows][dim / 2]. Rotated q to
   q [heads][rows][dim], rotated k and plain v to the cache, `stride` floats from head to head.
   shape: rows, heads, kv_heads, dim, stride. */
EXPORT void rope_cache(const float *x, const float *cos, const float *sin, float *q, float *keys,
                       float *values, const int64_t shape[5])
{
    job j = {.x = x, .cos = cos, .sin = sin, .y = q, .keys = keys, .values = values,
             .rows = shape[0], .heads = shape[1], .kv_heads = shape[2], .dim = shape[3],
             .stride = shape[4]};
    run(rope_row, &j);
}
