/* light/packs.c - see packs.h. */
#include "light/packs.h"

#include "base/alloc.h"

treadle_status td_packs_take(td_packs *packs, const td_node *node, const char *what, size_t bytes, void **out,
                             bool *out_ready, treadle_error *err)
{
    (void)node;
    (void)what;
    void *block = td_alloc_aligned(bytes);
    if (!block || !td_vec_push(&packs->blocks, block)) {
        td_free_aligned(block);
        return td_fail_memory(err, "packed weights", bytes);
    }
    packs->bytes += bytes;
    *out = block;
    *out_ready = false;
    return TREADLE_OK;
}

void td_packs_free(td_packs *packs)
{
    for (size_t i = 0; i < packs->blocks.n; i++) td_free_aligned(packs->blocks.items[i]);
    td_vec_free(&packs->blocks);
    packs->bytes = 0;
}
