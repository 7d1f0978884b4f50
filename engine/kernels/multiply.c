/* Blocks of outputs times all tiles of rows: the part of `linear` that every processor shares. */
#include "linear.h"

static void store(const product *p, int64_t t, int64_t b, const float *y)
{
    const int64_t at = b * LANES, lanes = p->by->blocks * LANES;
    const int64_t count = p->outputs - at < lanes ? p->outputs - at : lanes;
    for (int64_t r = 0; r < rows_of(p, t); r++) {
        float *out = p->y + (t * p->by->rows + r) * p->outputs + at;
        for (int64_t lane = 0; lane < count; lane++)
            out[lane] = y[r * lanes + lane] + (p->bias ? p->bias[at + lane] : 0.0f);
    }
}

void multiply_blocks(const product *p, int64_t b, uint8_t *bytes)
{
    const int64_t wide = GROUP_BYTES7 * p->by->blocks, block = p->groups * p->group_bytes;
    piece at = {.w = p->weights + b * block, .b = b, .form = p->bits == 7 ? STORED7 : STORED5,
                .next = p->by->blocks > 1 && b + 1 < p->blocks ? block : 0};
    if (bytes) {
        for (int64_t g = 0; g < p->groups; g++)
            p->by->spread(at.w + g * p->group_bytes, at.next, at.form, bytes + g * wide);
        at.w = bytes, at.form = SPREAD;
    }
    for (; at.t < p->tiles; at.t++) {
        float y[MOST_ROWS * MOST_BLOCKS * LANES];
        p->by->add(p, &at, rows_of(p, at.t), y);
        store(p, at.t, b, y);
    }
}
