/* float32 weights to codes, a byte each, in the order of linear.c. Meaning: packing.py. */
#include "layout.h"
#include "pool.h"

#include <math.h>
#include <string.h>

typedef struct {
    const float *weights, *scales, *others;
    int64_t outputs, inputs, groups, offset; /* a code lies from -offset to offset - 1 */
    uint8_t *codes;
    float *chosen;
} job;

/* Codes of one group for one scale; returns the squared error. */
static inline float code(const float *w, float scale, float offset, float *codes)
{
    const float inverse = scale != 0 ? 1.0f / scale : 0;
    float error = 0;
    for (int i = 0; i < GROUP; i++) {
        const float whole = rintf(w[i] * inverse);
        codes[i] = whole > offset - 1 ? offset - 1 : whole < -offset ? -offset : whole;
        const float off = codes[i] * scale - w[i];
        error += off * off;
    }
    return error;
}

static void pack_block(void *argument, int64_t block)
{
    const job *j = argument;
    const float offset = (float)j->offset;
    for (int64_t lane = 0; lane < LANES; lane++) {
        const int64_t row = block * LANES + lane;
        for (int64_t g = 0; g < j->groups; g++) {
            float w[GROUP] = {0}, first[GROUP], second[GROUP], scale = 0;
            const float *codes = first;
            const int64_t left = j->inputs - g * GROUP;
            if (row < j->outputs) {
                const int64_t at = row * j->groups + g;
                memcpy(w, j->weights + row * j->inputs + g * GROUP,
                       (size_t)(left < GROUP ? left : GROUP) * sizeof(float));
                scale = j->scales[at];
                if (code(w, j->others[at], offset, second) < code(w, scale, offset, first))
                    codes = second, scale = j->others[at];
            } else {
                code(w, 0, offset, first);
            }
            uint8_t *to = j->codes + (block * j->groups + g) * GROUP * LANES + lane * 4;
            for (int i = 0; i < GROUP; i++)
                to[i / 4 * 4 * LANES + i % 4] = (uint8_t)((int)codes[i] + (int)j->offset);
            j->chosen[(block * j->groups + g) * LANES + lane] = scale;
        }
    }
}

/* weights [outputs][inputs]; scales, others [outputs][groups], two candidates: the one of smaller
   error is chosen. codes [blocks][groups][8][8][4], from 0 to 2 * offset - 1; chosen
   [blocks][groups][8]. */
EXPORT void pack(const float *weights, const float *scales, const float *others, int64_t offset,
                 int64_t outputs, int64_t inputs, uint8_t *codes, float *chosen)
{
    job j = {.weights = weights, .scales = scales, .others = others, .outputs = outputs,
             .inputs = inputs, .groups = (inputs + GROUP - 1) / GROUP, .offset = offset,
             .codes = codes, .chosen = chosen};
    pool_run(pack_block, &j, (outputs + LANES - 1) / LANES);
}
