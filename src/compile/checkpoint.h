/* compile/checkpoint.h - what is compiled: a GGUF file, or a folder of Hugging Face. One is
 * set, `source` is its tensors. */
#ifndef TD_COMPILE_CHECKPOINT_H
#define TD_COMPILE_CHECKPOINT_H

#include "compile/gguf.h"
#include "compile/hf.h"

typedef struct td_checkpoint {
    td_gguf *gguf;
    td_hf *hf;
    const td_tensor_set *source;
} td_checkpoint;

/* Looks at what the path is: a file that starts as GGUF does, or a folder (config.json or model.safetensors in it stand
 * for the folder). Anything else is refused with what was expected. */
treadle_status td_checkpoint_open(const char *path, td_checkpoint *out, treadle_error *err);
void td_checkpoint_close(td_checkpoint *checkpoint);

/* Whether td_checkpoint_open would try; the contents are not checked. */
bool td_checkpoint_knows(const char *path);

#endif
