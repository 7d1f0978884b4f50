/* What the parts of `linear` share. */
#ifndef DLSP_LINEAR_H
#define DLSP_LINEAR_H

#include "layout.h"

#include <stdint.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define WIDE 1
#endif

enum {
    ROWS = 4,          /* of a tile, at most */
    AHEAD = 2048,      /* bytes to prefetch ahead, where weights are read once */
    STEPS = GROUP / 4, /* of 4 inputs each */
    STEP = LANES * 4   /* weights of one step in a block */
};

typedef struct {
    const float *x;         /* [rows][inputs] */
    const uint8_t *weights; /* [blocks][groups][group_bytes] */
    const uint16_t *scales; /* [blocks][groups][LANES], half floats */
    const float *bias;      /* [outputs] or null */
    float *y;               /* [rows][outputs] */
    int64_t rows, inputs, outputs, groups, blocks, tiles, bits;
    int64_t group_bytes;  /* of a group in a block */
    int64_t ahead, lines; /* prefetch: how far, and cache lines per group of every tile */
    int8_t *codes;     /* [tiles][groups][STEPS][rows of the tile][4] */
    float *row_scales; /* [tiles][groups][rows of the tile] */
    int32_t *zeros;    /* [tiles][groups][rows of the tile]: -offset * sum of codes */
} product;

/* ROWS, but in the last tile what is left. */
static inline int64_t rows_of(const product *p, int64_t tile)
{
    const int64_t left = p->rows - tile * ROWS;
    return left < ROWS ? left : ROWS;
}

/* Rows of x as codes of 8 bits, one tile per chunk. */
void quantise_tile(void *argument, int64_t tile);

/* All rows times the LANES outputs of block `b`, into y. `bytes`: room for a block's weights, a
   byte each, where spreading them once for all tiles pays; or null. */
void multiply_block(const product *p, int64_t b, uint8_t *bytes);

#endif
