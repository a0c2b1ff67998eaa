/* light/packs.h - the memory of packed weights of one session: mapped from the cache (quant/pack_cache.h) when this
 * model was packed before, written to it otherwise, and plain memory without a cache. Private to light.
 *
 * A pack's name is what the op calls it, its constant inputs, and its node's first output: passes may fuse and move
 * nodes, their packs stay the same. Within a session equal nodes with the same constants share one pack: the branches
 * of an If often read the same weights. */
#ifndef TD_LIGHT_PACKS_H
#define TD_LIGHT_PACKS_H

#include "light/ir.h"
#include "quant/pack_cache.h"

typedef enum td_packs_mode { TD_PACKS_MEMORY, TD_PACKS_READING, TD_PACKS_WRITING } td_packs_mode;

typedef struct td_shared_pack {
    const void *data;
    size_t bytes;
    char meta[TD_PACK_META_BYTES];
} td_shared_pack;

typedef struct td_packs {
    td_packs_mode mode;
    td_pack_file file;     /* READING, and after commit */
    td_pack_writer writer; /* WRITING */
    bool on_disk;          /* file is mapped from one that stays */
    TD_VEC(void *) blocks; /* td_free_aligned: what is in no file */
    size_t bytes;          /* in blocks */
    td_map shared;         /* what, node and constants as bytes -> index of `all` */
    td_arena keys;
    TD_VEC(td_shared_pack) all;
} td_packs;

/* Looks for the model's packs in the cache, or begins to write them. Trouble means MEMORY, never an error. */
void td_packs_begin(td_packs *packs, const td_onnx_model *model);
/* What the session or the cache holds under that name; NULL: nothing. meta gets meta_bytes of what was stored with it.
 * *no_memory: the answer is not to be trusted. */
const void *td_packs_find(td_packs *packs, const td_graph *graph, const td_node *node, const char *what, void *meta,
                          size_t meta_bytes, size_t *bytes, bool *no_memory);
/* Zeroed memory for what `node` packs, in execution order of the calls. */
treadle_status td_packs_add(td_packs *packs, const td_graph *graph, const td_node *node, const char *what,
                            const void *meta, size_t meta_bytes, size_t bytes, void **out, treadle_error *err);
void td_packs_commit(td_packs *packs);     /* all packed: the file is finished */
void td_packs_drop(const td_packs *packs); /* pages that come back from the cache go */
void td_packs_free(td_packs *packs);

#endif
