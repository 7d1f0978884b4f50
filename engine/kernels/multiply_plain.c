/* `linear` for any processor. */
#include "linear.h"

#include <string.h>

enum { ROWS = 4 };

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

static void spread(const uint8_t *w, int64_t next, int form, uint8_t *bytes)
{
    (void)next, (void)form; /* 7 bits are bytes already */
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < STEP; i++) {
            const int two = w[step % (STEPS / 2) * STEP + i];
            const int bit = w[STEPS / 2 * STEP + i] >> step & 1;
            bytes[step * STEP + i] = (uint8_t)((step < STEPS / 2 ? two & 15 : two >> 4) | bit << 4);
        }
}

static void add(const product *p, const piece *at, int64_t rows, float *y)
{
    uint8_t bytes[GROUP_BYTES7];
    const int64_t stride = at->form == STORED5 ? GROUP_BYTES5 : GROUP_BYTES7;
    memset(y, 0, (size_t)(rows * LANES) * sizeof(float));
    for (int64_t g = 0; g < p->groups; g++) {
        const uint8_t *w = at->w + g * stride;
        if (at->form == STORED5)
            spread(w, 0, STORED5, bytes), w = bytes;
        const uint16_t *scales = p->scales + (at->b * p->groups + g) * LANES;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t group = at->t * p->groups * ROWS + g * rows, row = group + r;
            for (int lane = 0; lane < LANES; lane++) {
                int32_t part = p->zeros[row];
                for (int i = 0; i < GROUP; i++)
                    part += (int32_t)w[i / 4 * STEP + lane * 4 + i % 4] *
                            p->codes[group * GROUP + (i / 4 * rows + r) * 4 + i % 4];
                y[r * LANES + lane] += (float)part * from_half(scales[lane]) * p->row_scales[row];
            }
        }
    }
}

const multiplier by_plain = {.rows = ROWS, .blocks = 1, .spread = spread, .add = add};
