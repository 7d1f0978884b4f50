/* The inner loop of `linear`, for any width of vectors. Who includes this defines

   BLOCKS, ROWS              blocks side by side; rows of a tile
   INLINE                    how its functions are declared
   whole, real               vectors of BLOCKS * LANES int32 and floats
   load(w, next)             STEP bytes at w, and for two blocks STEP bytes at w + next behind them
   all(int32), reals(float)  the same number in every lane
   dot(part, pair, weights, four, bits, step)    adds products of 4 inputs to every lane of part
   scales_at(scales, next)   half floats of the blocks, as real
   scaled(part, scale, total)       part as real * scale + total, rounded once
   save(float *, real)

   A sum over a group is an exact integer, and groups are added in one order: a row's bits depend
   neither on the other rows, nor on the number of threads, nor on the width. */

typedef uint16_t pairs16 __attribute__((vector_size(BLOCKS * STEP)));

/* The weights of one step in 5 bits, from the nibbles of two steps and a bit of `high` each. */
INLINE whole spread5(const uint8_t *w, int64_t next, whole high, const int step)
{
    const pairs16 two = (pairs16)load(w + step % (STEPS / 2) * STEP, next), bits = (pairs16)high;
    const pairs16 low = step < STEPS / 2 ? two : two >> 4;
    const pairs16 fifth = step < 4 ? bits << (4 - step) : bits >> (step - 4);
    return (whole)((low & 0x0f0f) | (fifth & 0x1010));
}

INLINE void add_piece(const product *p, const piece *at, const int form, const int bits,
                      const int rows, float *y)
{
    const int64_t stride = form == SPREAD    ? BLOCKS * GROUP_BYTES7
                           : form == STORED7 ? GROUP_BYTES7
                                             : GROUP_BYTES5;
    const int64_t step_bytes = form == SPREAD ? BLOCKS * STEP : STEP;
    const int64_t next = form == SPREAD ? STEP : at->next;
    const int64_t next_scale = at->next ? p->groups * LANES : 0;
    const int64_t tile = at->t * p->groups * ROWS, line = at->t * p->lines * 64;
    const int64_t last_line = line + p->lines * 64 < stride ? line + p->lines * 64 : stride;
    const uint8_t *w = at->w;
    const uint16_t *scales = p->scales + at->b * p->groups * LANES;
    const int8_t *codes = p->codes + tile * GROUP;
    const float *row_scales = p->row_scales + tile;
    const int32_t *zeros = p->zeros + tile;
    real total[ROWS];
    for (int r = 0; r < rows; r++)
        total[r] = (real){0};
    for (int64_t g = 0; g < p->groups; g++) {
        whole parts[ROWS], pairs[ROWS];
        for (int r = 0; r < rows; r++)
            parts[r] = all(zeros[r]);
        for (int64_t i = line; i < last_line; i += 64)
            for (int64_t beside = 0; beside < BLOCKS; beside++)
                _mm_prefetch((const char *)w + beside * next + p->ahead + i, _MM_HINT_T0);
        const whole high = form == STORED5 ? load(w + STEPS / 2 * STEP, next) : (whole){0};
#pragma GCC unroll 8
        for (int step = 0; step < STEPS; step++) {
            const whole weights = form == STORED5 ? spread5(w, next, high, step)
                                                  : load(w + step * step_bytes, next);
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, codes + (step * rows + r) * 4, 4);
                dot(&parts[r], &pairs[r], weights, all(four), bits, step);
            }
        }
        const real scale = scales_at(scales, next_scale);
        for (int r = 0; r < rows; r++)
            total[r] = scaled(parts[r], scale * reals(row_scales[r]), total[r]);
        w += stride, scales += LANES, codes += GROUP * rows, row_scales += rows, zeros += rows;
    }
    for (int r = 0; r < rows; r++)
        save(y + r * BLOCKS * LANES, total[r]);
}

INLINE void add_rows(const product *p, const piece *at, const int form, const int bits,
                     int64_t rows, float *y)
{
    switch (rows) {
    case 1: add_piece(p, at, form, bits, 1, y); break;
    case 2: add_piece(p, at, form, bits, 2, y); break;
    case 3: add_piece(p, at, form, bits, 3, y); break;
#if ROWS > 4
    case 4: add_piece(p, at, form, bits, 4, y); break;
    case 5: add_piece(p, at, form, bits, 5, y); break;
    case 6: add_piece(p, at, form, bits, 6, y); break;
    case 7: add_piece(p, at, form, bits, 7, y); break;
#endif
    default: add_piece(p, at, form, bits, ROWS, y);
    }
}

ENTRY void add(const product *p, const piece *at, int64_t rows, float *y)
{
    if (at->form == STORED7)
        add_rows(p, at, STORED7, 7, rows, y);
    else if (at->form == STORED5)
        add_rows(p, at, STORED5, 5, rows, y);
    else if (p->bits == 7)
        add_rows(p, at, SPREAD, 7, rows, y);
    else
        add_rows(p, at, SPREAD, 5, rows, y);
}

ENTRY void spread(const uint8_t *w, int64_t next, int form, uint8_t *bytes)
{
    const whole high = form == STORED5 ? load(w + STEPS / 2 * STEP, next) : (whole){0};
#pragma GCC unroll 8
    for (int step = 0; step < STEPS; step++) {
        const whole weights = form == STORED5 ? spread5(w, next, high, step)
                                              : load(w + step * STEP, next);
        memcpy(bytes + step * BLOCKS * STEP, &weights, sizeof weights);
    }
    const int64_t stride = form == STORED5 ? GROUP_BYTES5 : GROUP_BYTES7;
    for (int64_t beside = 0; beside < BLOCKS; beside++)
        for (int64_t i = 0; i < stride; i += 64)
            _mm_prefetch((const char *)w + beside * next + AHEAD + i, _MM_HINT_T0);
}
