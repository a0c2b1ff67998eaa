/* compile/tokenizer.h - tokenizer.json from a vocabulary of kind BPE or SPM. */
#ifndef TD_COMPILE_TOKENIZER_H
#define TD_COMPILE_TOKENIZER_H

#include "base/json.h"
#include "compile/vocab.h"

treadle_status td_tokenizer_write(const td_vocab *v, td_buf *out, treadle_error *err);

#endif
