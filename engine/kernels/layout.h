/* How packed weights lie; packing.py describes it. */
#ifndef DLSP_LAYOUT_H
#define DLSP_LAYOUT_H

enum {
    GROUP = 32,   /* inputs that share a scale */
    LANES = 8,    /* outputs of a block */
    OFFSET7 = 64, /* a weight's code is stored with this added, by bits */
    OFFSET5 = 16,
    GROUP_BYTES7 = GROUP * LANES, /* of one group in a block */
    GROUP_BYTES5 = GROUP * LANES * 5 / 8,
};

#endif
