/* model/chat.h - the variables that a chat template sees. */
#ifndef TD_MODEL_CHAT_H
#define TD_MODEL_CHAT_H

#include "text/template.h"
#include "treadle/text.h"

/* special: tokenizer_config.json or NULL; its *_token members become variables. */
treadle_status td_chat_render(const td_template *parsed, const td_json *special, const char *messages_json,
                              const treadle_chat_options *options, td_buf *out, treadle_error *err);

#endif
