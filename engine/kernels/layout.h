/* How packed weights lie; packing.py describes it. */
#ifndef DLSP_LAYOUT_H
#define DLSP_LAYOUT_H

enum {
    GROUP = 32,  /* inputs that share a scale */
    LANES = 8,   /* outputs of a block */
    OFFSET = 64, /* a weight's code is stored with this added */
};

#endif
