/* model/text_part.h - the text side of a model folder: tokenizer and chat templates.
 *
 * Parts are read when first asked for, once, under a lock: work by ids never pays for them, and a part that is not
 * understood costs only the calls that need it. Afterwards immutable. Each part keeps the error of its loading. */
#ifndef TD_MODEL_TEXT_PART_H
#define TD_MODEL_TEXT_PART_H

#include <pthread.h>

#include "model/files.h"
#include "text/sink.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "treadle/text.h"

typedef struct td_named_template {
    td_str name, text;
} td_named_template;

struct treadle_text {
    pthread_mutex_t lock;
    td_arena arena;
    td_model_files own; /* used where files is not the caller's */
    const td_model_files *files;
    bool tokenizer_tried, templates_tried;
    td_tokenizer *tokenizer; /* NULL: error says why */
    treadle_error tokenizer_error;
    td_named_template *templates; /* [n_templates] */
    size_t n_templates;
    td_json *special;    /* tokenizer_config.json, or NULL: where bos_token and the like stand */
    td_template *parsed; /* of the default template, once used */
    treadle_error templates_error;
};

/* Over files that outlive it, or over a path that files are opened for. */
treadle_status td_text_part_open(const td_model_files *files, treadle_text **out, treadle_error *err);
treadle_status td_text_part_open_path(const char *path, treadle_text **out, treadle_error *err);
void td_text_part_close(treadle_text *text);
bool td_text_part_has_tokenizer(const treadle_text *text); /* looks at files only, unless it was loaded */
bool td_text_part_has_template(const treadle_text *text);

/* The tokenizer, loaded if need be; or the error that names what is missing or not understood. */
treadle_status td_text_part_tokenizer(const treadle_text *text, const td_tokenizer **out, treadle_error *err);
treadle_status td_text_part_render(const treadle_text *text, const char *messages_json,
                                   const treadle_chat_options *options, td_buf *out, treadle_error *err);

#endif
