/* y = x W^T + b over 7-bit or 5-bit weights and 8-bit activations, all in groups of 32 inputs.

   Meaning: reference.py. Weights lie in blocks of 8 outputs (packing.py), activations in tiles of
   as many rows as the processor takes; a tile holds, per group, 8 steps of 4 inputs of each row. */
#include "linear.h"
#include "pool.h"

#include <stdlib.h>

enum {
    CHUNK_BLOCKS = 4,
    SPREAD_FROM = 2, /* for more tiles, weights are spread to bytes once */
    QUANTISE_ALONE = 4 /* up to so many rows one thread is quicker */
};

static int spreads(const product *p)
{
    return p->tiles > SPREAD_FROM && (p->bits == 5 || p->by->spreads7);
}

static void multiply_chunk(void *argument, int64_t chunk)
{
    const product *p = argument;
    const int64_t first = chunk * CHUNK_BLOCKS, end = first + CHUNK_BLOCKS;
    const int64_t room = p->groups * GROUP_BYTES7 * p->by->blocks;
    uint8_t *bytes = spreads(p) ? malloc((size_t)room) : 0;
    for (int64_t b = first; b < end && b < p->blocks; b += p->by->blocks)
        multiply_blocks(p, b, bytes);
    free(bytes);
}

/* x [rows][inputs] -> y [rows][outputs]; `bits` of a weight: 5 or 7; `level` of processor.c.
   Returns 0, or 1 when there is no memory. */
EXPORT int linear(const float *x, int64_t rows, int64_t inputs, int64_t bits,
                  const uint8_t *weights, const uint16_t *scales, const float *bias,
                  int64_t outputs, float *y, int level)
{
    if (rows == 0)
        return 0;
    product p = {.x = x, .weights = weights, .scales = scales, .bias = bias, .y = y,
                 .by = multiplier_for(level),
                 .rows = rows, .inputs = inputs, .outputs = outputs, .bits = bits,
                 .groups = (inputs + GROUP - 1) / GROUP, .blocks = (outputs + LANES - 1) / LANES,
                 .group_bytes = bits == 5 ? GROUP_BYTES5 : GROUP_BYTES7};
    p.tiles = (rows + p.by->rows - 1) / p.by->rows;
    /* the tiles of a block fetch the next block between them, while they multiply this one */
    const int64_t lines = (p.group_bytes + 63) / 64;
    p.lines = spreads(&p) ? 0 : (lines + p.tiles - 1) / p.tiles;
    p.ahead = p.tiles == 1 ? AHEAD : p.by->blocks * p.groups * p.group_bytes;
    const size_t count = (size_t)(rows * p.groups);
    char *scratch = malloc(count * (GROUP + sizeof(float) + sizeof(int32_t)));
    if (!scratch)
        return 1;
    p.row_scales = (float *)scratch;
    p.zeros = (int32_t *)(p.row_scales + count);
    p.codes = (int8_t *)(p.zeros + count);
    if (rows <= QUANTISE_ALONE)
        quantise_tile(&p, 0);
    else
        pool_run(quantise_tile, &p, p.tiles);
    pool_run(multiply_chunk, &p, (p.blocks + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS);
    free(scratch);
    return 0;
}
