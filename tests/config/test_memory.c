/* Each allocation of reading a config fails in turn: TREADLE_OUT_OF_MEMORY, or a config as if nothing had happened;
 * nothing is leaked (the sanitizers look). */
#include <string.h>

#include "config/config.h"
#include "support/allocations.h"
#include "support/pipelines.h"
#include "support/test.h"

static treadle_status read_text(const char *text, size_t *n_messages) {
    static const treadle_setting settings[] = {{"/generation/stop/0", "\"x\""}, {"/search/top_k", "2"}};
    const td_config_options options = {.settings = settings, .n_settings = 2};
    treadle_error err = {0};
    td_arena arena;
    td_messages messages;
    td_config *config = NULL;
    td_arena_init(&arena);
    td_messages_init(&messages, &arena);
    treadle_status status =
        td_config_parse(td_str_from(text), "c.json", td_test_folder("concat"), &options, &messages, &config, &err);
    if (status == TREADLE_OK && messages.failed) status = TREADLE_OUT_OF_MEMORY;
    *n_messages = messages.list.n;
    td_config_free(config);
    td_messages_free(&messages);
    td_arena_free(&arena);
    return status;
}

TEST(every_allocation_may_fail) {
    static const char *const texts[] = {
        "{\"version\": 2, \"pipeline\": {\"extends\": \"autoregressive-decoder\", \"sessions\": {\"decoder\": {\"file\": "
        "\"model.onnx\", \"io\": {\"inputs\": {\"input_ids\": \"a\"}}}}, \"dataflow\": [], \"preprocessing\": {\"audio\": "
        "{\"config\": \"no.json\"}}, \"plugin\": {\"library\": \"x.so\"}, \"state\": {\"recurrent\": {\"input\": \"a\", "
        "\"output\": \"b\"}}}, \"tokens\": {\"eos\": [1, 2]}, \"generation\": {\"stop\": [\"a\"], \"transcription\": "
        "{\"alignment_heads\": [[1, 2]], \"languages\": {\"en\": 1}}}, \"wrong\": 1}",
        "{\"model\": {\"type\": \"qwen2_5_vl\", \"eos_token_id\": 2, \"vision\": {\"filename\": \"model.onnx\"}, \"embedding\": "
        "{\"filename\": \"model.onnx\", \"outputs\": {\"inputs_embeds\": \"e\"}}, \"decoder\": {\"filename\": \"no.onnx\", "
        "\"inputs\": {\"inputs_embeds\": \"f\", \"past_key_names\": \"a%d\", \"input_ids\": \"b\", \"oops\": \"c\"}, "
        "\"sliding_window\": {\"window_size\": 4}, \"session_options\": {\"provider_options\": [{\"cuda\": {}}]}}}, "
        "\"search\": {\"num_beams\": 2, \"do_sample\": true}}",
        ("{\"model\": {\"decoder\": {\"pipeline\": [{\"a\": {\"filename\": \"model.onnx\", \"output_names_forwarder\": {\"x\": "
         "\"y\"}}}, {\"b\": {\"filename\": \"model.onnx\", \"inputs\": [\"y\"], \"reset_session_idx\": 0}}]}}, \"model\": 1}"),
        "{\"version\": 2, \"pipeline\": {}, \"pipeline\": 1}",
    };
    for (size_t i = 0; i < TD_COUNT(texts); i++) {
        size_t n_messages, n_whole;
        td_test_fail_at = INT_MAX;
        REQUIRE(read_text(texts[i], &n_whole) == TREADLE_OK);
        for (int n = 1;; n++) {
            td_test_allocations = 0;
            td_test_fail_at = n;
            treadle_status status = read_text(texts[i], &n_messages);
            bool reached = td_test_allocations >= n;
            td_test_fail_at = INT_MAX;
            if (!reached) break;
            CHECK(status == TREADLE_OUT_OF_MEMORY || (status == TREADLE_OK && n_messages == n_whole));
        }
    }
}
