/* light/packs.h - the memory of packed weights of one session. Private to light. */
#ifndef TD_LIGHT_PACKS_H
#define TD_LIGHT_PACKS_H

#include "light/ir.h"

typedef struct td_packs {
    TD_VEC(void *) blocks; /* td_free_aligned */
    size_t bytes;
} td_packs;

/* Memory for what `node` packs, in execution order of the calls. *out_ready: the bytes are there already. */
treadle_status td_packs_take(td_packs *packs, const td_node *node, const char *what, size_t bytes, void **out,
                             bool *out_ready, treadle_error *err);
void td_packs_free(td_packs *packs);

#endif
