/* compile/hf.h - a checkpoint folder as Hugging Face libraries write it: config.json, and the weights as
 * model.safetensors or in several files behind model.safetensors.index.json.
 *
 * The folder may be a cache of the hub, whose files are links into its blobs folder; no other link that leads out is
 * followed. Weight files are mapped for as long as this is open. */
#ifndef TD_COMPILE_HF_H
#define TD_COMPILE_HF_H

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "compile/tensor_set.h"

typedef struct td_hf {
    td_arena arena;
    char *dir;
    td_json *config; /* an object */
    td_tensor_set source;
    td_mmap *maps;
    size_t n_maps;
    TD_VEC(char *) texts; /* of the JSON trees */
} td_hf;

/* Whether a folder holds a config.json and weights as safetensors. */
bool td_hf_is_checkpoint(const char *dir);

treadle_status td_hf_open(const char *dir, td_hf **out, treadle_error *err);
void td_hf_close(td_hf *hf);

/* A JSON file of the folder, which must hold an object; *out is NULL where there is no such file. */
treadle_status td_hf_json(td_hf *hf, const char *name, td_json **out, treadle_error *err);

#endif
