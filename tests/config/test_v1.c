/* Version 1 files: what their fields mean (defaults and traps of ONNX Runtime GenAI's
 * parser), and where messages point. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "support/pipelines.h"
#include "support/test.h"

typedef struct translated {
    td_arena arena;
    td_messages messages;
    td_config *config;
} translated;

static void read_with(translated *t, const char *text, const td_config_options *options) {
    treadle_error err = {0};
    td_arena_init(&t->arena);
    td_messages_init(&t->messages, &t->arena);
    t->config = NULL;
    CHECK_OK(
        td_config_parse(td_str_from(text), "c.json", td_test_folder("concat"), options, &t->messages, &t->config, &err),
        &err);
}

static void read_v1(translated *t, const char *text) { read_with(t, text, NULL); }

static void done(translated *t) {
    td_config_free(t->config);
    td_messages_free(&t->messages);
    td_arena_free(&t->arena);
}

/* The value at a JSON pointer of the translated tree, as JSON text without spaces. */
static const char *value_at(const translated *t, const char *pointer) {
    static char text[1024];
    const td_json *at = t->config->root;
    while (at && *pointer == '/') {
        const char *end = strchr(++pointer, '/');
        td_str key = {pointer, end ? (size_t)(end - pointer) : strlen(pointer)};
        at = at->kind == TD_JSON_ARRAY ? td_json_at(at, (size_t)atoi(pointer)) : td_json_get_str(at, key);
        pointer += key.n;
    }
    if (!at) return "absent";
    td_buf buf = {0};
    td_json_writer w;
    td_json_writer_init(&w, &buf, 0);
    td_json_write_value(&w, at);
    size_t n = 0;
    for (size_t i = 0; i < buf.n && n + 1 < sizeof text; i++)
        if (buf.p[i] != ' ') text[n++] = buf.p[i];
    text[n] = 0;
    td_buf_free(&buf);
    return text;
}

static void check_message(const translated *t, const char *place, const char *part) {
    char got[600];
    for (size_t i = 0; i < t->messages.list.n; i++) {
        const td_message *m = &t->messages.list.items[i];
        snprintf(got, sizeof got, "%u:%u %s", m->place.line, m->place.column, m->place.pointer ? m->place.pointer : "");
        if (strcmp(got, place) == 0 && strstr(m->text, part)) return;
    }
    FAIL("no message at %s with \"%s\"; the first is %s", place, part,
         t->messages.list.n ? t->messages.list.items[0].text : "none");
}

#define DECODER "\"decoder\": {\"filename\": \"model.onnx\"}"

TEST(search_options_keep_their_meaning) {
    static const struct {
        const char *model, *search, *pointer, *want;
    } rows[] = {
        {"", "\"do_sample\": true", "/generation/sampling/top_k", "50"},
        {"", "\"do_sample\": true, \"top_k\": 7", "/generation/sampling/top_k", "7"},
        {"", "\"do_sample\": false", "/generation/sampling/top_k", "absent"},
        {"", "\"top_p\": 0", "/generation/sampling/top_p", "absent"},
        {"", "\"top_p\": 0.5", "/generation/sampling/top_p", "0.5"},
        {"", "\"random_seed\": -1", "/generation/sampling/seed", "absent"},
        {"", "\"random_seed\": 3", "/generation/sampling/seed", "3"},
        {"", "\"num_beams\": 3", "/generation/beam/early_stopping", "true"},
        {"", "\"num_beams\": 1, \"length_penalty\": 1.5", "/generation/beam/length_penalty", "1.5"},
        {"", "\"num_beams\": 1", "/generation/beam/early_stopping", "true"},
        {"", "\"num_beams\": 3, \"early_stopping\": false", "/generation/beam/early_stopping", "false"},
        {"\"context_length\": 64, ", "\"max_length\": 0", "/generation/max_length", "64"},
        {"\"context_length\": 64, ", "\"max_length\": 32", "/generation/max_length", "32"},
        {"", "\"chunk_size\": 16", "/generation/prefill_chunk", "16"},
        {"", "\"chunk_size\": -1", "/generation/prefill_chunk", "absent"},
        {"", "\"blank_penalty\": 1.5", "/generation/blank_penalty", "1.5"},
        {"\"pad_token_id\": 9, ", "\"top_k\": 1", "/tokens/eos", "9"},
        {"\"pad_token_id\": 9, \"eos_token_id\": [], ", "\"top_k\": 1", "/tokens/eos", "9"},
        {"\"pad_token_id\": 9, \"eos_token_id\": [3, 4], ", "\"top_k\": 1", "/tokens/eos", "[3,4]"},
        {"\"bot_token_id\": 5, \"eor_token_id\": 6, ", "\"top_k\": 1", "/tokens/tool_call_start", "5"},
        {"\"blank_id\": 8, \"tdt_durations\": [0, 1, 2], ", "\"top_k\": 1", "/generation/durations", "[0,1,2]"},
        {"\"type\": \"qwen3\", \"vocab_size\": 151936, ", "\"top_k\": 1", "/tokens/reasoning_start", "151667"},
        {"\"type\": \"qwen3\", \"vocab_size\": 100, ", "\"top_k\": 1", "/tokens/reasoning_start", "absent"},
        {"\"type\": \"phi3small\", ", "\"top_k\": 1", "/generation/reprefill_at", "8193"},
        {"\"type\": \"never heard of\", ", "\"top_k\": 1", "/generation/reprefill_at", "absent"},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        char text[512];
        translated t;
        snprintf(text, sizeof text, "{\"model\": {%s" DECODER "}, \"search\": {%s}}", rows[i].model, rows[i].search);
        read_v1(&t, text);
        CHECK_EQ_UINT(t.messages.n_errors, 0);
        CHECK_EQ_INT(t.config->version, 1);
        if (strcmp(value_at(&t, rows[i].pointer), rows[i].want) != 0)
            FAIL("row %zu: %s is %s, expected %s", i, rows[i].pointer, value_at(&t, rows[i].pointer), rows[i].want);
        done(&t);
    }
}

TEST(names_that_differ_are_declared_and_no_others) {
    translated t;
    read_v1(
        &t,
        "{\"model\": {\"encoder\": {\"filename\": \"model.onnx\", \"outputs\": {\"encoder_outputs\": \"enc\"}},"
        "\"decoder\": {\"filename\": \"model.onnx\", \"inputs\": {\"input_ids\": \"ids\", "
        "\"attention_mask\": \"attention_mask\", \"encoder_hidden_states\": \"states\", \"rnn_states_prev\": \"r0\","
        "\"past_key_names\": \"k_%d_in\", \"past_key_values_length\": \"n_past\"}, "
        "\"outputs\": {\"logits\": \"scores\", \"rnn_states\": \"r1\", \"present_key_names\": \"k_%d_out\"},"
        "\"sliding_window\": {\"window_size\": 16}}}}");
    CHECK_EQ_UINT(t.messages.n_errors, 0);
    CHECK_EQ_STR(
        value_at(&t, "/pipeline/sessions/decoder/io"),
        "{\"inputs\":{\"input_ids\":\"ids\",\"past_sequence_length\":\"n_past\"},\"outputs\":{\"logits\":\"scores\"}}");
    CHECK_EQ_STR(value_at(&t, "/pipeline/dataflow"), "[{\"from\":\"encoder.enc\",\"to\":\"decoder.states\"}]");
    CHECK_EQ_STR(value_at(&t, "/pipeline/state/recurrent"), "[{\"input\":\"decoder.r0\",\"output\":\"decoder.r1\"}]");
    CHECK_EQ_STR(value_at(&t, "/pipeline/state/kv_cache/past_key_pattern"), "\"k_{layer}_in\"");
    CHECK_EQ_STR(value_at(&t, "/pipeline/state/kv_cache/present_key_pattern"), "\"k_{layer}_out\"");
    CHECK_EQ_STR(value_at(&t, "/pipeline/state/kv_cache/past_value_pattern"), "absent");
    CHECK(t.config->state.window.size == 16 && t.config->state.window.slide_inputs &&
          t.config->state.window.slide_cache);
    CHECK_EQ_UINT(t.config->n_steps, 2);
    CHECK_EQ_INT(t.config->steps[0].when, TD_WHEN_ONCE);
    done(&t);
}

TEST(windows_that_hide_nothing_are_left_out) {
    translated t;
    read_v1(
        &t,
        "{\"model\": {\"type\": \"x\", \"context_length\": 256, \"decoder\": {\"filename\": \"model.onnx\", "
        "\"num_key_value_heads\": 2, \"head_size\": 16, \"sliding_window\": {\"window_size\": 4096, \"slide_inputs\": "
        "false}, \"state_groups\": [], \"inputs\": {\"past_recurrent_names\": \"past.%d.recurrent\"}}}}");
    CHECK_EQ_INT(t.messages.n_errors, 0);
    CHECK_EQ_STR(value_at(&t, "/pipeline/state/kv_cache"), "{\"heads\":2,\"head_dim\":16}");
    CHECK_HAS_STR(t.messages.list.items[0].text, "hides nothing");
    CHECK_EQ_UINT(t.messages.list.n, 1);
    done(&t);
}

TEST(stages_become_sessions_steps_and_wires) {
    translated t;
    read_v1(&t,
            "{\"model\": {\"decoder\": {\"session_options\": {\"intra_op_num_threads\": 2, \"provider_options\": []},"
            "\"pipeline\": [{\"embed\": {\"filename\": \"model.onnx\", \"outputs\": [\"e\"], "
            "\"output_names_forwarder\": {\"e\": \"hidden\"}}},"
            "{\"prompt\": {\"filename\": \"model.onnx\", \"inputs\": [\"hidden\"], \"run_on_token_gen\": false},"
            "\"token\": {\"filename\": \"model.onnx\", \"inputs\": [\"hidden\"], \"run_on_prompt\": false, "
            "\"reset_session_idx\": 1, \"session_options\": {\"provider_options\": [{\"qnn\": {\"a\": \"b\"}}]}}}]}}}");
    CHECK_EQ_UINT(t.messages.n_errors, 0);
    check_message(&t, "1:449 /model/decoder/pipeline/1/token/session_options/provider_options/0/qnn",
                  "the session runs on the CPU");
    CHECK_EQ_STR(value_at(&t, "/pipeline/flow"),
                 "[{\"run\":\"embed\",\"when\":\"always\"},{\"run\":\"prompt\",\"when\":\"prompt\"},"
                 "{\"run\":\"token\",\"when\":\"decode\",\"release\":\"prompt\"}]");
    CHECK_EQ_STR(value_at(&t, "/pipeline/dataflow"), "[{\"from\":\"embed.e\",\"to\":\"prompt.hidden\"},"
                                                     "{\"from\":\"embed.e\",\"to\":\"token.hidden\"}]");
    CHECK_EQ_STR(value_at(&t, "/pipeline/sessions/embed/session_options"), "{\"intra_op_num_threads\":2}");
    CHECK_EQ_STR(value_at(&t, "/pipeline/sessions/token/provider_options"), "{\"a\":\"b\"}");
    done(&t);
}

TEST(images_loop_as_the_type_or_the_inputs_say) {
    static const struct {
        const char *type, *inputs, *want;
    } rows[] = {
        {"qwen2_5_vl", "",
         "{\"run\":\"vision\",\"when\":\"prompt\",\"if_present\":\"image\",\"loop\":\"per_image\","
         "\"loop_over\":\"pixel_values\",\"loop_rows\":\"grid\"}"},
        {"mistral3", "\"pixel_values\": \"px\"",
         "{\"run\":\"vision\",\"when\":\"prompt\",\"if_present\":\"image\",\"loop\":\"per_image\",\"loop_over\":\"px\","
         "\"dynamic_shape\":{\"source\":\"image_sizes\",\"apply_to_dims\":[2,3]}}"},
        {"phi3v", "", "{\"run\":\"vision\",\"when\":\"prompt\",\"if_present\":\"image\"}"},
        {"unknown", "\"image_grid_thw\": \"image_grid_thw\"",
         "{\"run\":\"vision\",\"when\":\"prompt\",\"if_present\":\"image\",\"loop\":\"per_image\","
         "\"loop_over\":\"pixel_values\",\"loop_rows\":\"grid\"}"},
        {"unknown", "", "absent"}, /* the graphs decide */
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        char text[512];
        translated t;
        snprintf(text, sizeof text,
                 "{\"model\": {\"type\": \"%s\", " DECODER ", \"embedding\": {\"filename\": \"model.onnx\"},"
                 "\"vision\": {\"filename\": \"model.onnx\", \"inputs\": {%s}}}}",
                 rows[i].type, rows[i].inputs);
        read_v1(&t, text);
        CHECK_EQ_UINT(t.messages.n_errors, 0);
        CHECK_EQ_STR(value_at(&t, "/pipeline/flow/0"), rows[i].want);
        done(&t);
    }
}

TEST(messages_point_into_the_file) {
    translated t;
    read_v1(&t, "{\"model\": {\"type\": \"llama\", \"eos_token_id\": \"two\",\n"
                "\"decoder\": {\"filename\": \"no.onnx\", \"inputs\": {\"input_idz\": \"x\"}}},\n"
                "\"search\": {\"temperature\": -1, \"num_beams\": 2, \"num_return_sequences\": 5}}");
    check_message(&t, "1:45 /model/eos_token_id", "expected an array or an integer, found a string");
    check_message(&t, "2:25 /model/decoder/filename", "found no \"no.onnx\"");
    check_message(&t, "2:47 /model/decoder/inputs/input_idz", "Did you mean \"input_ids\"?");
    check_message(&t, "3:27 /search/temperature", "expected a number from 0");
    check_message(&t, "3:71 /search/num_return_sequences", "at most num_beams, which is 2, found 5");
    CHECK_EQ_UINT(t.messages.n_errors, 4);
    done(&t);
    read_v1(&t, "{\"model\": {" DECODER ", " DECODER "}}"); /* twice: the last wins, as it always did */
    CHECK_EQ_UINT(t.messages.n_errors, 0);
    CHECK_EQ_UINT(t.messages.list.n, 1);
    done(&t);
    read_v1(&t, "{\"mode\": {}}");
    check_message(&t, "1:1 ", "expected \"version\": 2, or a \"model\"");
    done(&t);
}

TEST(settings_may_point_into_both_trees) {
    static const treadle_setting settings[] = {
        {"/search/top_k", "3"},          {"/model/decoder/inputs/input_ids", "\"ids\""},
        {"/generation/stop/0", "\"a\""}, {"/generation/stop/1", "\"b\""},
        {"/generation/stop/1", "\"c\""}, {"/generation/stop/-", "\"d\""},
        {"/generation/stop/0", "null"},  {"/metadata/a~1b~0", "1"},
        {"/generation/stop/9", "\"x\""}, {"/generation/stop/0/x", "1"}};
    translated t;
    read_with(&t, "{\"model\": {" DECODER "}, \"search\": {\"top_k\": 1, \"do_sample\": true}}",
              &(td_config_options){.settings = settings, .n_settings = TD_COUNT(settings)});
    CHECK_EQ_STR(value_at(&t, "/generation/sampling/top_k"), "3");
    CHECK_EQ_STR(value_at(&t, "/pipeline/sessions/decoder/io/inputs/input_ids"), "\"ids\"");
    CHECK_EQ_STR(value_at(&t, "/generation/stop"), "[\"c\",\"d\"]");
    CHECK_EQ_INT(td_json_int_or(td_json_get(t.config->root, "metadata"), "a/b~", 0), 1);
    CHECK_EQ_UINT(t.messages.n_errors, 2);
    done(&t);
}

TEST(hostile_version_1_files_end_in_messages) {
    static const char *const texts[] = {
        "{\"model\": 1}",
        "{\"model\": {\"decoder\": []}}",
        "{\"model\": {\"decoder\": {\"filename\": 3, \"inputs\": [1], \"outputs\": null, \"sliding_window\": 5}}}",
        "{\"model\": {\"decoder\": {\"pipeline\": [1, [2], {\"a\": 3}, {\"b\": {\"filename\": {}}}]}}}",
        "{\"model\": {\"decoder\": {\"pipeline\": {\"a\": {\"reset_session_idx\": -5, \"output_names_forwarder\": [1]}}}}}",
        "{\"model\": {\"vision\": {\"pipeline\": 7, \"filename\": \"/model.onnx\"}}}",
        "{\"model\": {\"type\": 5, \"eos_token_id\": {}, \"tdt_durations\": \"x\", \"num_mels\": 1e9}}",
        "{\"model\": {\"decoder\": {\"filename\": \"../../etc/passwd\"}}, \"search\": [], \"engine\": 1}",
        "{\"model\": {\"decoder\": {\"inputs\": {\"past_key_names\": \"%s%n%d\", \"past_conv_names\": \"%\"},"
        "\"outputs\": {\"present_conv_names\": \"x%d\"}, \"layer_types\": [1, \"conv\"], \"filename\": \"model.onnx\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"model.onnx\", \"session_options\": {\"provider_options\": "
        "[1, {}, {\"x\": 1}]}}}, \"version\": 1}",
    };
    for (size_t i = 0; i < TD_COUNT(texts); i++) {
        translated t;
        read_v1(&t, texts[i]);
        done(&t);
    }
}

TEST(settings_make_and_widen_lists) {
    static const treadle_setting settings[] = {{"/generation/stop/1", "\"b\""}, /* "a" alone is a list of one */
                                               {"/tokens/eos/-", "5"},
                                               {"/pipeline/flow/0/when", "\"prompt\""},
                                               {"/pipeline/sessions/0/file", "\"model.onnx\""},
                                               {"/generation/durations/1", "5"}};
    translated t;
    read_with(&t,
              "{\"version\": 2, \"pipeline\": {\"sessions\": {\"0\": {\"file\": \"x\"}}, \"flow\": {\"run\": \"0\"}}, "
              "\"generation\": {\"stop\": \"a\"}}",
              &(td_config_options){.settings = settings, .n_settings = TD_COUNT(settings)});
    CHECK_EQ_STR(value_at(&t, "/generation/stop"), "[\"a\",\"b\"]");
    CHECK_EQ_STR(value_at(&t, "/tokens/eos"), "[5]");
    CHECK_EQ_STR(value_at(&t, "/pipeline/flow"), "[{\"run\":\"0\",\"when\":\"prompt\"}]");
    CHECK_EQ_STR(value_at(&t, "/pipeline/sessions"), "{\"0\":{\"file\":\"model.onnx\"}}");
    CHECK_EQ_UINT(t.messages.n_errors, 1); /* the list has no item 0 */
    done(&t);
}
