/* Any bytes as a genai_config.json: messages with places inside the text, never a crash; the same for what the plan
 * says of it, when sessions happen to name graphs of the folder (the test data of this tree). */
#include <stdio.h>
#include <stdlib.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *dir;
    if (!dir) {
        const char *source = getenv("TREADLE_SOURCE");
        static char path[1024];
        snprintf(path, sizeof path, "%s/tests/data/pipelines/concat", source ? source : ".");
        dir = path;
    }
    td_arena arena;
    td_messages messages;
    td_config *config = NULL;
    td_plan *plan = NULL;
    td_buf text = {0};
    td_arena_init(&arena);
    td_messages_init(&messages, &arena);
    if (td_config_parse((td_str){(const char *)data, size}, "fuzz.json", dir, NULL, &messages, &config, NULL) ==
            TREADLE_OK &&
        config->n_sessions <= 4 && td_plan_build(config, &messages, &plan, NULL) == TREADLE_OK) {
        td_json_writer w;
        td_json_writer_init(&w, &text, 0);
        td_plan_write_json(plan, &w);
        td_plan_write_text(plan, &text);
    }
    if (config && config->root) {
        td_json_writer w;
        td_json_writer_init(&w, &text, 0);
        td_json_begin_object(&w);
        td_tree_write_origins(config->root, &w);
        td_json_end_object(&w);
    }
    for (size_t i = 0; i < messages.list.n; i++)
        if (messages.list.items[i].place.column > size + 2) abort();
    td_buf_free(&text);
    td_plan_free(plan);
    td_config_free(config);
    td_messages_free(&messages);
    td_arena_free(&arena);
    return 0;
}
