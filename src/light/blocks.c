/* light/blocks.c - see blocks.h. Four classes an octave: a block is at most a quarter larger than asked for, and what
 * nobody touches costs no memory. */
#include "light/blocks.h"

#include "base/alloc.h"

struct td_block { /* in front of the memory; 64 bytes so that the memory stays aligned */
    td_block *next;
    size_t class;
    char pad[64 - 2 * sizeof(void *)];
};

/* Rounds *bytes up to its class. false: too large to be true. */
static bool size_class(size_t *bytes, size_t *class) {
    size_t n = TD_MAX(*bytes, (size_t)1024);
    if (n > SIZE_MAX / 4) return false;
    size_t octave = 63 - (size_t)__builtin_clzll((unsigned long long)n);
    size_t quarter = (size_t)1 << (octave - 2);
    size_t steps = (n - ((size_t)1 << octave) + quarter - 1) / quarter; /* 0..4 */
    *bytes = ((size_t)1 << octave) + steps * quarter;
    *class = octave * 4 + steps;
    return *class < TD_BLOCK_CLASSES;
}

void *td_blocks_take(td_blocks *blocks, size_t bytes) {
    size_t class;
    if (!size_class(&bytes, &class)) return NULL;
    td_block *block = blocks->free[class];
    if (block) {
        blocks->free[class] = block->next;
    } else {
        block = td_alloc_aligned(sizeof *block + bytes);
        if (!block) return NULL;
        block->class = class;
    }
    return block + 1;
}

void td_blocks_give(td_blocks *blocks, void *memory) {
    if (!memory) return;
    td_block *block = (td_block *)memory - 1;
    block->next = blocks->free[block->class];
    blocks->free[block->class] = block;
}

void td_blocks_trim(td_blocks *blocks) {
    for (size_t i = 0; i < TD_BLOCK_CLASSES; i++) {
        while (blocks->free[i]) {
            td_block *next = blocks->free[i]->next;
            td_free_aligned(blocks->free[i]);
            blocks->free[i] = next;
        }
    }
}
