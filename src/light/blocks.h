/* light/blocks.h - memory that no plan foresaw: 64-byte aligned blocks in size classes, kept for reuse when freed.
 * Private to light; one owner thread. */
#ifndef TD_LIGHT_BLOCKS_H
#define TD_LIGHT_BLOCKS_H

#include "base/compiler.h"

enum { TD_BLOCK_CLASSES = 64 * 4 };

typedef struct td_block td_block;

typedef struct td_blocks {
    td_block *free[TD_BLOCK_CLASSES];
} td_blocks;

void *td_blocks_take(td_blocks *blocks, size_t bytes); /* NULL: out of memory */
void td_blocks_give(td_blocks *blocks, void *memory);  /* NULL is fine */
void td_blocks_trim(td_blocks *blocks);                /* gives what is free back to the system */

#endif
