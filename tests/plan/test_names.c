/* Plans of graphs under other names: caches, masks, logits, features, as further exporters call them. The graphs have
 * no nodes; what is expected follows from shapes alone. */
#include "support/graphs.h"
#include "support/test.h"

#include <stdio.h>

#define PAST "past_key_values.{2}.key:f[batch,4,past,16] past_key_values.{2}.value:f[batch,4,past,16]"
#define PRESENT "present.{2}.key:f[batch,4,total,16] present.{2}.value:f[batch,4,total,16]"
#define EMBEDS "inputs_embeds:f[batch,seq,64] attention_mask:i[batch,total] position_ids:i[batch,seq] " PAST
#define LOGITS "logits:f[batch,seq,100] " PRESENT
#define V2 "{\"version\": 2, "
#define CHECK_FINE(p) (CHECK_EQ_STR(td_test_first_message(p, TREADLE_MESSAGE_ERROR), ""))

static const td_plan_session *session_of(const td_planned *p, const char *name) {
    int32_t s = td_plan_find_session(p->plan, td_str_from(name));
    REQUIRE(s >= 0);
    return &p->plan->sessions[s];
}

static const td_feed *feed_of(const td_planned *p, const char *session, const char *input) {
    const td_plan_session *s = session_of(p, session);
    int32_t i = td_plan_input_index(s, td_str_from(input));
    REQUIRE(i >= 0);
    return &s->feeds[i];
}

TEST(masks_of_the_source) {
    static const char *const names[] = {"memory_mask", "src_mask", "source_mask", "encoder_mask"};
    for (size_t k = 0; k < TD_COUNT(names); k++) {
        char inputs[512], folder[64];
        snprintf(inputs, sizeof inputs,
                 "input_ids:i[batch,seq] encoder_hidden_states:f[batch,source,64] %s:i[batch,source] " PAST, names[k]);
        snprintf(folder, sizeof folder, "names-mask-%s", names[k]);
        const td_test_graph files[] = {{"encoder.onnx", "input_ids:i[batch,source] attention_mask:i[batch,source]",
                                        "last_hidden_state:f[batch,source,64]"},
                                       {"decoder.onnx", inputs, LOGITS},
                                       {0}};
        td_planned p;
        td_test_plan(&p, folder, files, NULL);
        CHECK_FINE(&p);
        CHECK_EQ_INT(feed_of(&p, "decoder", names[k])->kind, TD_FEED_ROLE);
        CHECK_EQ_INT(feed_of(&p, "decoder", names[k])->index, TD_ROLE_ENCODER_ATTENTION_MASK);
        CHECK_EQ_INT(feed_of(&p, "decoder", "encoder_hidden_states")->kind, TD_FEED_WIRE);
        td_test_plan_done(&p);
    }
}

TEST(embeddings_of_a_decoder_with_combined_caches) {
    const td_test_graph files[] = {
        {"vision.onnx", "pixel_values:f[images,3,16,16]", "image_features:f[images,n,64]"},
        {"embedding.onnx", "input_ids:i[batch,seq] image_features:f[n0,n1,64]", "embeds:f[batch,seq,64]"},
        {"decoder.onnx", "embeds:f[batch,seq,64] attention_mask:i[batch,total] past_{2}:f[2,batch,4,past,16]",
         "logits:f[batch,seq,100] present_{2}:f[2,batch,4,total,16]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "names-embeds", files, V2 "\"tokens\": {\"image_token\": 5}}");
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_steps == 3);
    CHECK_EQ_INT(p.plan->steps[0].when, TD_WHEN_PROMPT);
    CHECK_EQ_INT(p.plan->steps[1].when, TD_WHEN_ALWAYS);
    CHECK_EQ_INT(p.plan->steps[2].when, TD_WHEN_ALWAYS);
    td_test_plan_done(&p);
}

TEST(keys_and_values_of_a_kv_cache) {
    const td_test_graph files[] = {
        {"model.onnx", "input_ids:i[b,s] kv_cache.{2}.key_in:f[b,4,48,16] kv_cache.{2}.value_in:f[b,4,48,16]",
         "logits:f[b,s,9] kv_cache.{2}.key_out:f[b,4,48,16] kv_cache.{2}.value_out:f[b,4,48,16]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "names-kv", files, NULL);
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_states == 4);
    for (size_t k = 0; k < 4; k++) CHECK_EQ_INT(p.plan->states[k].kind, TD_STATE_STATIC);
    CHECK_EQ_INT(p.plan->states[0].part, TD_PART_KEY);
    CHECK_EQ_INT(p.plan->states[3].part, TD_PART_VALUE);
    td_test_plan_done(&p);
}

TEST(logits_of_two_graphs_that_take_turns) {
    const td_test_graph files[] = {
        {"prefill.onnx", "input_ids:j[1,4] attention_mask:j[1,total] position_ids:j[1,4] " PAST,
         "output:f[1,4,100] " PRESENT},
        {"decode.onnx", "input_ids:j[1,1] attention_mask:j[1,total] position_ids:j[1,1] " PAST,
         "output:f[1,1,100] " PRESENT},
        {0}};
    td_planned p;
    td_test_plan(&p, "names-turns", files, NULL);
    CHECK_FINE(&p);
    CHECK_EQ_INT(session_of(&p, "prefill")->logits, 0);
    CHECK_EQ_INT(session_of(&p, "decode")->logits, 0);
    CHECK(p.plan->window.masked);
    td_test_plan_done(&p);
}

TEST(logits_beside_caches_that_do_not_come_back) {
    const td_test_graph files[] = {
        {"encoder.onnx", "input_ids:i[batch,source]", "last_hidden_state:f[batch,source,64]"},
        {"decoder.onnx",
         "input_ids:i[batch,seq] encoder_hidden_states:f[batch,source,64] " PAST
         " past_key_values.{2}.cross.key:f[batch,4,source,16]",
         "output:f[batch,seq,100] " PRESENT " present.{2}.cross.key:f[batch,source,64]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "names-beside", files, NULL);
    CHECK_FINE(&p);
    CHECK_EQ_INT(session_of(&p, "decoder")->logits, 0);
    CHECK(!p.plan->pooling.present);
    td_test_plan_done(&p);
}

TEST(grids_under_another_name_give_positions) {
    const td_test_graph files[] = {
        {"vision.onnx", "image_grid:i[images,3] patches:f[patches,1176]", "image_features:f[rows,64]"},
        {"embedding.onnx", "input_ids:i[batch,seq] image_features:f[n1,64]", "inputs_embeds:f[batch,seq,64]"},
        {"decoder.onnx",
         "inputs_embeds:f[batch,seq,64] attention_mask:i[batch,total] position_ids:i[3,batch,seq] " PAST, LOGITS},
        {0}};
    td_planned p;
    td_test_plan(&p, "names-grid", files, V2 "\"tokens\": {\"image_token\": 5}}");
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_steps == 3);
    CHECK_EQ_INT(p.plan->steps[0].loop, TD_LOOP_PER_IMAGE);
    CHECK_EQ_INT(p.plan->steps[0].loop_input, 1); /* what is looped over is the medium, not its grid */
    CHECK_EQ_INT(p.plan->mrope.image_grid, feed_of(&p, "vision", "image_grid")->index);
    td_test_plan_done(&p);
}

TEST(wires_to_a_joiner_may_reshape) {
    const td_test_graph files[] = {
        {"encoder.onnx", "audio_signal:f[batch,time,8] length:i[batch]", "frames:f[batch,n,24] frames_len:i[batch]"},
        {"predictor.onnx", "targets:i[batch,1] h:f[1,batch,24]", "label:f[batch,24] h_out:f[1,batch,24]"},
        {"joiner.onnx", "a:f[batch,24] b:f[batch,1,24]", "logits:f[batch,40]"},
        {0}};
#define SESSIONS                                                                                                               \
    "\"pipeline\": {\"extends\": \"transducer\", \"sessions\": {\"encoder\": {\"file\": \"encoder.onnx\"}, \"predictor\": "    \
    "{\"file\": \"predictor.onnx\"}, \"joiner\": {\"file\": \"joiner.onnx\"}}, \"dataflow\": [{\"from\": \"encoder.frames\", " \
    "\"to\": \"joiner.a\"}, {\"from\": \"predictor.label\", \"to\": \"joiner.b\"}"
    td_planned p;
    td_test_plan(&p, "names-joiner", files, V2 SESSIONS "]}}");
    CHECK_FINE(&p);
    REQUIRE(p.plan->transducer.present);
    CHECK_EQ_INT(p.plan->transducer.joiner_frame, 0);
    td_test_plan_done(&p);
    /* elsewhere they may not */
    td_test_plan(&p, "names-joiner-wrong", files,
                 V2 SESSIONS ", {\"from\": \"encoder.frames\", \"to\": \"predictor.targets\"}]}}");
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "the types differ");
    td_test_plan_done(&p);
}

TEST(a_prompt_graph_that_makes_combined_caches) {
    const td_test_graph files[] = {
        {"embedding.onnx", "input_ids:i[batch,seq]", "inputs_embeds:f[batch,seq,64]"},
        {"model_prefill.onnx", "inputs_embeds:f[batch,seq,64] attention_mask:i[batch,total]",
         "logits:f[batch,seq,100] present_{2}:f[2,batch,4,seq,16]"},
        {"model_token.onnx", "inputs_embeds:f[batch,1,64] attention_mask:i[batch,total] past_{2}:f[2,batch,4,past,16]",
         "logits:f[batch,1,100] present_{2}:f[2,batch,4,total,16]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "names-combined", files, NULL);
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_steps == 3 && p.plan->n_states == 2);
    const td_plan_session *prompt = session_of(&p, "model_prefill");
    CHECK(prompt->starts_afresh && prompt->out_state[1] >= 0);
    CHECK_EQ_INT(p.plan->steps[2].when, TD_WHEN_DECODE);
    td_test_plan_done(&p);
    /* embeddings declared for the prompt alone are made for later tokens too */
    td_test_plan(
        &p, "names-combined", files,
        V2 "\"pipeline\": {\"sessions\": {\"e\": {\"file\": \"embedding.onnx\"}, \"a\": {\"file\": "
           "\"model_prefill.onnx\"}, \"b\": {\"file\": \"model_token.onnx\"}}, \"flow\": [{\"run\": \"e\", "
           "\"when\": \"prompt\"}, {\"run\": \"a\", \"when\": \"prompt\"}, {\"run\": \"b\", \"when\": \"decode\"}]}}");
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_steps == 3);
    CHECK_EQ_INT(p.plan->steps[0].when, TD_WHEN_ALWAYS);
    CHECK(p.plan->steps[0].promoted);
    CHECK_EQ_INT(feed_of(&p, "b", "inputs_embeds")->kind, TD_FEED_WIRE);
    td_test_plan_done(&p);
}
