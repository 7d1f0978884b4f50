/* What the parts of `linear` share. */
#ifndef DLSP_LINEAR_H
#define DLSP_LINEAR_H

#include "layout.h"

#include <stdint.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define WIDE 1
#if defined(__clang__) || __GNUC__ >= 11
#define AVXVNNI_KNOWN 1 /* to the compiler */
#endif
#endif

enum {
    MOST_ROWS = 8,     /* of a tile */
    MOST_BLOCKS = 2,   /* multiplied side by side */
    AHEAD = 2048,      /* bytes to prefetch ahead, where weights are read once */
    STEPS = GROUP / 4, /* of 4 inputs each */
    STEP = LANES * 4   /* weights of one step in a block */
};

typedef struct product product;

/* Where weights lie: in 7 bits (a byte each) or 5 as stored, or spread to bytes, with the steps of
   the blocks side by side. */
enum { STORED7, STORED5, SPREAD };

/* One tile of rows times the blocks from `b` on, whose weights lie at `w`. */
typedef struct {
    const uint8_t *w;
    int64_t next; /* bytes from a stored block to the one beside it; 0 where there is none */
    int64_t t, b;
    int form;
} piece;

/* The inner loops for one kind of processor. All give the same bits. */
typedef struct {
    int64_t rows;   /* of a tile, at most */
    int64_t blocks; /* side by side */
    int spreads7;   /* whether stored weights of 7 bits are spread for many tiles, too */
    /* One group of `blocks` blocks, 7 or 5 bits, to bytes. */
    void (*spread)(const uint8_t *w, int64_t next, int form, uint8_t *bytes);
    /* y [rows][blocks * LANES] of a tile that has so many rows. */
    void (*add)(const product *p, const piece *at, int64_t rows, float *y);
} multiplier;

struct product {
    const float *x;         /* [rows][inputs] */
    const uint8_t *weights; /* [blocks][groups][group_bytes] */
    const uint16_t *scales; /* [blocks][groups][LANES], half floats */
    const float *bias;      /* [outputs] or null */
    float *y;               /* [rows][outputs] */
    const multiplier *by;
    int64_t rows, inputs, outputs, groups, blocks, tiles, bits;
    int64_t group_bytes;  /* of a group in a block */
    int64_t ahead, lines; /* prefetch: how far, and cache lines per group of every tile */
    int8_t *codes;     /* [tiles][groups][STEPS][rows of the tile][4] */
    float *row_scales; /* [tiles][groups][rows of the tile] */
    int32_t *zeros;    /* [tiles][groups][rows of the tile]: -offset * sum of codes */
};

/* by->rows, but in the last tile what is left. */
static inline int64_t rows_of(const product *p, int64_t tile)
{
    const int64_t left = p->rows - tile * p->by->rows;
    return left < p->by->rows ? left : p->by->rows;
}

/* Rows of x as codes of 8 bits, one tile per chunk. */
void quantise_tile(void *argument, int64_t tile);

/* All rows times the outputs of by->blocks blocks from `b` on, into y. `bytes`: room for those
   blocks' weights, a byte each, where spreading them once for all tiles pays; or null. */
void multiply_blocks(const product *p, int64_t b, uint8_t *bytes);

/* For a level of processor.c, which must be one that this processor has. */
const multiplier *multiplier_for(int level);

extern const multiplier by_plain;
#ifdef WIDE
extern const multiplier by_avx2, by_avx512;
#endif
#ifdef AVXVNNI_KNOWN
extern const multiplier by_avxvnni;
#endif

#endif
