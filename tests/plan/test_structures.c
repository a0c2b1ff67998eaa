/* Plans found from structure: what exporters call things, and what follows from it. The graphs have no nodes: a plan
 * looks at signatures. What is expected is what the contract of the config says of each. */
#include "support/graphs.h"
#include "support/test.h"

/* --- what is looked at */

/* "encoder once, decoder always" */
static const char *steps_of(td_planned *p) {
    td_buf text = {0};
    for (size_t k = 0; k < p->plan->n_steps; k++)
        td_buf_printf(&text, "%s%s %s%s", k ? ", " : "", p->plan->sessions[p->plan->steps[k].session].c_name,
                      td_when_words[p->plan->steps[k].when],
                      p->plan->steps[k].loop == TD_LOOP_PER_IMAGE ? " per image" : "");
    char *out = td_arena_strndup(&p->arena, text.p ? text.p : "", text.n);
    td_buf_free(&text);
    return out;
}

static int count_states(const td_planned *p, td_state_kind kind) {
    int n = 0;
    for (size_t k = 0; k < p->plan->n_states; k++) n += p->plan->states[k].kind == kind;
    return n;
}

static const td_feed *feed_of(const td_planned *p, const char *session, const char *input) {
    int32_t s = td_plan_find_session(p->plan, td_str_from(session));
    REQUIRE(s >= 0);
    int32_t i = td_plan_input_index(&p->plan->sessions[s], td_str_from(input));
    REQUIRE(i >= 0);
    return &p->plan->sessions[s].feeds[i];
}

#define CHECK_FEED(p, session, input, wanted) CHECK_EQ_INT(feed_of(p, session, input)->kind, wanted)
#define CHECK_ROLE(p, session, input, role)                                                                            \
    do {                                                                                                               \
        CHECK_FEED(p, session, input, TD_FEED_ROLE);                                                                   \
        CHECK_EQ_INT(feed_of(p, session, input)->index, role);                                                         \
    } while (0)
#define CHECK_STEPS(p, text) CHECK_EQ_STR(steps_of(p), text)
#define CHECK_FINE(p) (CHECK_EQ_STR(td_test_first_message(p, TREADLE_MESSAGE_ERROR), ""))

#define PAST "past_key_values.{2}.key:f[batch,4,past,16] past_key_values.{2}.value:f[batch,4,past,16]"
#define PRESENT "present.{2}.key:f[batch,4,total,16] present.{2}.value:f[batch,4,total,16]"
#define EMBEDS "inputs_embeds:f[batch,seq,64] attention_mask:i[batch,total] position_ids:i[batch,seq] " PAST
#define LOGITS "logits:f[batch,seq,100] " PRESENT
#define V2 "{\"version\": 2, "

/* --- encoder-decoders */

static const td_test_graph text_encoder = {"encoder_model.onnx",
                                           "input_ids:i[batch,source] attention_mask:i[batch,source]",
                                           "last_hidden_state:f[batch,source,64]"};

TEST(a_decoder_that_makes_its_own_cross_cache) {
    const td_test_graph files[] = {
        text_encoder,
        {"decoder_model_merged.onnx",
         "input_ids:i[batch,seq] encoder_hidden_states:f[batch,source,64] encoder_attention_mask:i[batch,source] "
         "past_key_values.{2}.decoder.key:f[batch,4,past,16] past_key_values.{2}.decoder.value:f[batch,4,past,16] "
         "past_key_values.{2}.encoder.key:f[batch,4,source,16] past_key_values.{2}.encoder.value:f[batch,4,source,16] "
         "use_cache_branch:b[1]",
         "logits:f[batch,seq,100] present.{2}.decoder.key:f[batch,4,total,16] present.{2}.decoder.value:f[batch,4,total,16] "
         "present.{2}.encoder.key:f[batch,4,source_out,16] present.{2}.encoder.value:f[batch,4,source_out,16]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "merged", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "encoder_model once, decoder_model_merged always");
    CHECK_EQ_INT(count_states(&p, TD_STATE_SEPARATE), 4);
    CHECK_EQ_INT(count_states(&p, TD_STATE_CROSS), 4);
    for (size_t k = 0; k < p.plan->n_states; k++)
        if (p.plan->states[k].kind == TD_STATE_CROSS) {
            CHECK_EQ_INT(p.plan->states[k].from_session, p.plan->states[k].session);
            CHECK_EQ_INT(p.plan->states[k].from_output, p.plan->states[k].output);
        }
    CHECK_ROLE(&p, "decoder_model_merged", "encoder_attention_mask", TD_ROLE_ENCODER_ATTENTION_MASK);
    CHECK_ROLE(&p, "decoder_model_merged", "use_cache_branch", TD_ROLE_USE_CACHE_BRANCH);
    CHECK_FEED(&p, "decoder_model_merged", "encoder_hidden_states", TD_FEED_WIRE);
    CHECK(p.plan->source_prompt && p.plan->sessions[1].takes_source); /* the encoder, in the order of names */
    CHECK_HAS_STR(p.json.p, "\"why\": \"only unused output, only unfed input\"");
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_NOTE), "tokens.decoder_start is not said");
    td_test_plan_done(&p);

    td_test_plan(&p, "started", files, V2 "\"tokens\": {\"decoder_start\": 0}}");
    CHECK_FINE(&p);
    CHECK(!strstr(td_test_first_message(&p, TREADLE_MESSAGE_NOTE), "decoder_start"));
    td_test_plan_done(&p);
}

TEST(a_prompt_graph_that_makes_the_caches_of_the_other) {
    const td_test_graph files[] = {
        text_encoder,
        {"decoder_model.onnx",
         "input_ids:i[batch,seq] encoder_hidden_states:f[batch,source,64] encoder_attention_mask:i[batch,source]",
         "logits:f[batch,seq,100] present.{2}.decoder.key:f[batch,4,seq,16] present.{2}.decoder.value:f[batch,4,seq,16] "
         "present.{2}.encoder.key:f[batch,4,source,16] present.{2}.encoder.value:f[batch,4,source,16]"},
        {"decoder_with_past_model.onnx",
         "input_ids:i[batch,1] encoder_attention_mask:i[batch,source] "
         "past_key_values.{2}.decoder.key:f[batch,4,past,16] past_key_values.{2}.decoder.value:f[batch,4,past,16] "
         "past_key_values.{2}.encoder.key:f[batch,4,source,16] past_key_values.{2}.encoder.value:f[batch,4,source,16]",
         "logits:f[batch,1,100] present.{2}.decoder.key:f[batch,4,total,16] present.{2}.decoder.value:f[batch,4,total,16]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "split", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "encoder_model once, decoder_model prompt, decoder_with_past_model decode");
    CHECK_EQ_INT(count_states(&p, TD_STATE_SEPARATE), 4);
    CHECK_EQ_INT(count_states(&p, TD_STATE_CROSS), 4);
    const td_plan_session *prompt = &p.plan->sessions[p.plan->steps[1].session];
    CHECK(prompt->starts_afresh);
    for (size_t o = 1; o < prompt->signature->n_outputs; o++) CHECK(prompt->out_state[o] >= 0);
    CHECK(!p.plan->sessions[p.plan->steps[2].session].starts_afresh);
    td_test_plan_done(&p);
}

TEST(speech_with_cross_caches_from_the_encoder) {
    const td_test_graph files[] = {
        {"encoder.onnx", "audio_features:f[batch,80,3000]",
         "hidden_states:f[batch,1500,64] present_key_cross_{2}:f[batch,4,1500,16] present_value_cross_{2}:f[batch,4,1500,16]"},
        {"decoder.onnx",
         "input_ids:j[batch,seq] past_key_self_{2}:f[batch,4,past,16] past_value_self_{2}:f[batch,4,past,16] "
         "past_key_cross_{2}:f[batch,4,1500,16] past_value_cross_{2}:f[batch,4,1500,16] past_sequence_length:j[1] "
         "cache_indirection:j[batch,beams,max]",
         "logits:f[batch,seq,100] present_key_self_{2}:f[batch,4,total,16] present_value_self_{2}:f[batch,4,total,16] "
         "output_cross_qk_{2}:f[batch,4,seq,1500]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "speech-cross", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "encoder once, decoder always");
    CHECK_EQ_INT(count_states(&p, TD_STATE_CROSS), 4);
    CHECK_ROLE(&p, "decoder", "cache_indirection", TD_ROLE_CACHE_INDIRECTION);
    CHECK_FEED(&p, "encoder", "audio_features", TD_FEED_REQUEST);
    CHECK(!p.plan->source_prompt);
    CHECK_HAS_STR(
        p.json.p,
        "\"from\": \"encoder.present_key_cross_0\", \"to\": \"decoder.past_key_cross_0\", \"why\": \"cross cache\"");
    CHECK_HAS_STR(p.json.p, "\"filled_by\": \"encoder\"");
    td_test_plan_done(&p);
}

TEST(a_cross_cache_that_nothing_fits_stays_empty_or_is_a_fault) {
    const td_test_graph bare = {"decoder.onnx",
                                "input_ids:i[b,s] encoder_hidden_states:f[b,e,64] past_key_cross_0:f[b,4,e,16] " PAST,
                                "logits:f[b,s,100] " PRESENT};
    td_test_graph files[] = {text_encoder, bare, {0}};
    td_planned p;
    td_test_plan(&p, "cross-unfed", files, NULL);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "cross cache \"past_key_cross_0\"");
    td_test_plan_done(&p);
    files[1].outputs = "logits:f[b,s,100] present_key_cross_0:f[b,e,64] " PRESENT;
    td_test_plan(&p, "cross-empty", files, V2 "\"tokens\": {\"bos\": 0}}");
    CHECK_FINE(&p);
    CHECK_EQ_INT(count_states(&p, TD_STATE_CROSS), 1);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_NOTE), "stay empty");
    td_test_plan_done(&p);
}

/* --- decoders in stages, windows */

TEST(stages_without_telling_names) {
    const td_test_graph files[] = {
        {"a_embed.onnx", "ids:i[batch,seq]", "emb:f[batch,seq,64]"},
        {"b_layers.onnx",
         "input_hidden_states:f[batch,seq,64] attention_mask:i[batch,total] past_sequence_length:j[1] "
         "total_sequence_length:j[1] past_keys_{2}:f[batch,4,past,16] past_values_{2}:f[batch,4,past,16]",
         "output_hidden_states:f[batch,seq,64] present_keys_{2}:f[batch,4,total,16] present_values_{2}:f[batch,4,total,16]"},
        {"c_head.onnx", "x:f[batch,seq,64]", "y:f[batch,seq,100]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "stages", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "a_embed always, b_layers always, c_head always");
    CHECK_EQ_INT(p.plan->n_states, 4);
    CHECK_EQ_INT(p.plan->decoder, p.plan->steps[2].session);
    CHECK_EQ_INT(p.plan->vocab, 100);
    CHECK(p.plan->steps[2].only_logits && !p.plan->steps[1].only_logits && !p.plan->steps[0].only_logits);
    CHECK_ROLE(&p, "b_layers", "attention_mask", TD_ROLE_ATTENTION_MASK);
    td_test_plan_done(&p);
}

TEST(a_window_is_what_the_prompt_graph_takes) {
    const td_test_graph files[] = {
        {"embeddings.onnx", "input_ids:j[1,seq]", "inputs_embeds:f[1,seq,64]"},
        {"prompt.onnx",
         "inputs_embeds:f[1,64,64] attention_mask:j[1,512] position_ids:j[1,64] past_keys_{2}:f[1,4,512,16] "
         "past_values_{2}:f[1,4,512,16]",
         "hidden_states:f[1,64,64] present_keys_{2}:f[1,4,512,16] present_values_{2}:f[1,4,512,16]"},
        {"token.onnx",
         "inputs_embeds:f[1,1,64] attention_mask:j[1,512] position_ids:j[1,1] past_keys_{2}:f[1,4,512,16] "
         "past_values_{2}:f[1,4,512,16]",
         "hidden_states:f[1,1,64] present_keys_{2}:f[1,4,512,16] present_values_{2}:f[1,4,512,16]"},
        {"lm_head.onnx", "hidden_states:f[1,seq,64]", "logits:f[1,seq,100]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "window", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "embeddings always, prompt prompt, token decode, lm_head always");
    CHECK_EQ_INT(p.plan->window.size, 64);
    CHECK_EQ_INT(p.plan->static_capacity, 512);
    CHECK_EQ_INT(p.plan->context_length, 512);
    CHECK_EQ_INT(p.plan->position, TD_POSITION_WINDOWED);
    CHECK_EQ_INT(p.plan->n_states, 4); /* one cache for both */
    CHECK_EQ_INT(p.plan->states[0].kind, TD_STATE_STATIC);
    CHECK_EQ_INT(p.plan->states[0].seq_axis, 2);
    const td_feed *head = feed_of(&p, "lm_head", "hidden_states");
    CHECK_EQ_INT(head->kind, TD_FEED_WIRE);
    CHECK(p.plan->wires[head->index].next >= 0);
    td_test_plan_done(&p);
    td_test_plan(
        &p, "window", files,
        V2 "\"pipeline\": {\"sessions\": {\"e\": {\"file\": \"embeddings.onnx\"}, \"p\": {\"file\": \"prompt.onnx\"}, "
           "\"t\": {\"file\": \"token.onnx\"}, \"h\": {\"file\": \"lm_head.onnx\"}}, \"state\": {\"kv_cache\": "
           "{\"sliding_window\": {\"window_size\": 32, \"slide_inputs\": true}}}}}");
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "expected a window of 64 ids");
    td_test_plan_done(&p);
}

TEST(two_decoders_of_one_kind_need_a_flow) {
    const td_test_graph files[] = {{"draft.onnx", "input_ids:i[batch,seq] " PAST, LOGITS},
                                   {"target.onnx", "input_ids:i[batch,seq] " PAST, LOGITS},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "draft", files, NULL);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "expected a \"flow\"");
    td_test_plan_done(&p);
}

TEST(a_session_that_nothing_connects_is_left_out) {
    const td_test_graph files[] = {
        {"decoder.onnx", "input_ids:i[batch,seq] " PAST, LOGITS},
        {"vad.onnx", "input:f[?,?] state:f[2,?,128] sr:i[]", "output:f[?,1] stateN:f[?,?,?]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "left-out", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "decoder always");
    CHECK_EQ_INT(p.plan->n_states, 4);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_NOTE), "\"vad\" is in no step");
    td_test_plan_done(&p);
}

/* --- media */

static const td_test_graph media[] = {
    {"vision.onnx", "pixel_values:f[num_images,patches,768] pixel_position_ids:i[num_images,patches,2]",
     "image_features:f[rows,64]"},
    {"embedding.onnx", "input_ids:i[batch,seq] image_features:f[n1,64] audio_features:f[n2,64]",
     "inputs_embeds:f[batch,seq,64] per_layer_inputs:f[batch,seq,2,8]"},
    {"decoder.onnx", EMBEDS " per_layer_inputs:f[batch,seq,2,8]", LOGITS},
    {"speech.onnx", "input_features:f[batch,frames,128] input_features_mask:b[batch,frames]", "audio_features:f[n,64]"},
    {0}};

TEST(image_and_speech_beside_each_other) {
    td_planned p;
    td_test_plan(&p, "media", media, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "speech prompt, vision prompt per image, embedding always, decoder always");
    CHECK_EQ_INT(p.plan->steps[0].modality, TD_MODALITY_AUDIO);
    CHECK_EQ_INT(p.plan->steps[1].modality, TD_MODALITY_IMAGE);
    CHECK(p.plan->steps[2].promoted && p.plan->steps[2].declared == TD_WHEN_PROMPT);
    const td_slice *slices = p.plan->steps[1].slices;
    REQUIRE(slices != NULL);
    CHECK_EQ_INT(slices[0], TD_SLICE_IMAGE);
    CHECK_EQ_INT(slices[1], TD_SLICE_IMAGE);
    CHECK_FEED(&p, "decoder", "per_layer_inputs", TD_FEED_WIRE);
    CHECK_EQ_UINT(p.plan->n_requests, 4);
    td_test_plan_done(&p);
}

TEST(features_of_a_medium_that_the_folder_lacks_have_no_rows) {
    td_test_graph files[] = {media[0], media[1], media[2], {0}};
    td_planned p;
    td_test_plan(&p, "no-speech", files, NULL);
    CHECK_FINE(&p);
    CHECK_FEED(&p, "embedding", "audio_features", TD_FEED_NONE);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_NOTE), "always has zero rows");
    td_test_plan_done(&p);
    td_test_graph none[] = {media[1], media[2], {0}}; /* no medium at all: someone forgot it */
    td_test_plan(&p, "no-media", none, NULL);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "embedding.image_features (candidates: none)");
    td_test_plan_done(&p);
    td_test_plan(&p, "no-media", none,
                 V2
                 "\"pipeline\": {\"sessions\": {\"decoder\": {\"file\": \"decoder.onnx\"}, \"embedding\": {\"file\": "
                 "\"embedding.onnx\", \"io\": {\"optional\": [\"image_features\", \"audio_features\"]}}}}}");
    CHECK_FINE(&p);
    CHECK_FEED(&p, "embedding", "image_features", TD_FEED_NONE);
    td_test_plan_done(&p);
}

TEST(grids_say_whose_rows_are_whose) {
    const td_test_graph files[] = {
        {"vision.onnx", "pixel_values:f[patches,1176] image_grid_thw:i[images,3]", "image_features:f[rows,64]"},
        {"embedding.onnx", "input_ids:i[batch,seq] image_features:f[n1,64]", "inputs_embeds:f[batch,seq,64]"},
        {"decoder.onnx",
         "inputs_embeds:f[batch,seq,64] attention_mask:i[batch,total] position_ids:i[batch,seq,3] " PAST, LOGITS},
        {0}};
    td_planned p;
    td_test_plan(&p, "grid", files, V2 "\"tokens\": {\"image_token\": 5, \"video_token\": 6}}");
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "vision prompt per image, embedding always, decoder always");
    CHECK_EQ_INT(p.plan->steps[0].slices[0], TD_SLICE_ROWS);
    CHECK_EQ_INT(p.plan->steps[0].slices[1], TD_SLICE_IMAGE);
    CHECK_EQ_INT(p.plan->position, TD_POSITION_MROPE_3D);
    CHECK_EQ_INT(p.plan->mrope.axis, 2);
    CHECK_EQ_INT(p.plan->mrope.n_axes, 3);
    CHECK_EQ_INT(p.plan->mrope.image_grid, p.plan->steps[0].grid_request);
    CHECK(p.plan->mrope.video_grid >= 0 && p.plan->mrope.second_per_grid >= 0);
    td_test_plan_done(&p);
    td_test_plan(&p, "grid", files, NULL);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "tokens.image_token");
    td_test_plan_done(&p);
}

TEST(a_preset_does_not_keep_images_together_that_cannot_be) {
    const td_test_graph files[] = {
        {"vision.onnx", "pixel_values:f[images,3,16,16]", "image_features:f[4,64]"},
        {"embedding.onnx", "input_ids:i[batch,seq] image_features:f[n1,64]", "inputs_embeds:f[batch,seq,64]"},
        {"decoder.onnx", EMBEDS, LOGITS},
        {0}};
#define VLM                                                                                                                     \
    V2 "\"pipeline\": {\"sessions\": {\"vision\": {\"file\": \"vision.onnx\"}, \"embedding\": {\"file\": \"embedding.onnx\"}, " \
       "\"decoder\": {\"file\": \"decoder.onnx\"}}, "
    td_planned p;
    td_test_plan(&p, "preset", files, VLM "\"extends\": \"vision-language\"}}");
    CHECK_STEPS(&p, "vision prompt per image, embedding always, decoder always");
    td_test_plan_done(&p);
    td_test_plan(
        &p, "preset", files,
        VLM "\"flow\": [{\"run\": \"vision\", \"when\": \"prompt\"}, {\"run\": \"embedding\", \"when\": \"always\"}, "
            "{\"run\": \"decoder\", \"when\": \"always\"}]}}");
    CHECK_STEPS(&p, "vision prompt, embedding always, decoder always");
    td_test_plan_done(&p);
}

TEST(images_that_count_in_the_features_run_together) {
    const td_test_graph files[] = {
        {"vision.onnx", "pixel_values:f[images,3,16,16]", "image_features:f[images*4,64]"},
        {"embedding.onnx", "input_ids:i[batch,seq] image_features:f[n1,64]", "inputs_embeds:f[batch,seq,64]"},
        {"decoder.onnx", EMBEDS, LOGITS},
        {0}};
    td_planned p;
    td_test_plan(&p, "batched", files, NULL);
    CHECK_STEPS(&p, "vision prompt, embedding always, decoder always");
    td_test_plan_done(&p);
}

TEST(stages_after_a_medium_run_as_often_as_it) {
    const td_test_graph files[] = {
        {"a_patches.onnx", "pixel_values:f[images,3,h,w]", "patches:f[images,n,32]"},
        {"b_blocks.onnx", "patches:f[images,n,32]", "visual:f[images,n,32]"},
        {"c_projector.onnx", "visual:f[images,n,32]", "image_features:f[images,n,64]"},
        {"d_embedding.onnx", "input_ids:i[batch,seq] image_features:f[n1,n2,64]", "inputs_embeds:f[batch,seq,64]"},
        {"e_decoder.onnx", EMBEDS, LOGITS},
        {0}};
    td_planned p;
    td_test_plan(&p, "medium-stages", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "a_patches prompt, b_blocks prompt, c_projector prompt, d_embedding always, e_decoder always");
    for (size_t k = 0; k < 3; k++) CHECK_EQ_INT(p.plan->steps[k].modality, TD_MODALITY_IMAGE);
    td_test_plan_done(&p);
}

TEST(two_graphs_that_never_meet_take_one_output) {
    const td_test_graph files[] = {
        {"a_embed.onnx", "input_ids:i[1,seq]", "emb:f[1,seq,64]"},
        {"b_prompt.onnx", "x:f[1,seq,64] past_keys_{1}:f[1,4,past,16]",
         "y:f[1,seq,64] present_keys_{1}:f[1,4,total,16]"},
        {"c_token.onnx", "x:f[1,1,64] past_keys_{1}:f[1,4,past,16]", "y:f[1,1,64] present_keys_{1}:f[1,4,total,16]"},
        {"d_head.onnx", "z:f[1,seq,64]", "logits:f[1,seq,9]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "never-meet", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "a_embed always, b_prompt prompt, c_token decode, d_head always");
    CHECK_FEED(&p, "b_prompt", "x", TD_FEED_WIRE);
    CHECK_FEED(&p, "c_token", "x", TD_FEED_WIRE);
    CHECK_EQ_UINT(p.plan->n_wires, 4); /* the head takes what either gives */
    td_test_plan_done(&p);
}

TEST(a_graph_may_say_which_medium_it_needs) {
    const td_onnx_prop says = {TD_STR("exporter.pipeline.when_present"), TD_STR("audio")};
    const td_onnx_graph body = {.props = &says, .n_props = 1};
    const td_test_graph tower = {"a_tower.onnx", "x:f[n,8]", "feat:f[rows,64]"};
    const td_test_graph files[] = {
        {"b_embedding.onnx", "input_ids:i[batch,seq] feat:f[n1,64]", "inputs_embeds:f[batch,seq,64]"},
        {"c_decoder.onnx", EMBEDS, LOGITS},
        {0}};
    td_planned p;
    td_test_write_graph(td_test_temp("says-medium"), &tower, &body);
    td_test_plan(&p, "says-medium", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "a_tower prompt, b_embedding always, c_decoder always");
    CHECK_EQ_INT(p.plan->steps[0].modality, TD_MODALITY_AUDIO);
    CHECK_FEED(&p, "a_tower", "x", TD_FEED_REQUEST);
    td_test_plan_done(&p);
}

TEST(one_graph_for_text_and_images) {
    const td_test_graph files[] = {{"model.onnx",
                                    "input_ids:i[batch,seq] attention_mask:i[batch,total] pixel_values:f[patches,1176] "
                                    "image_grid_thw:i[images,3] " PAST,
                                    LOGITS},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "one-graph", files, NULL);
    CHECK_FINE(&p);
    CHECK_FEED(&p, "model", "pixel_values", TD_FEED_REQUEST);
    CHECK_FEED(&p, "model", "image_grid_thw", TD_FEED_REQUEST);
    td_test_plan_done(&p);
}

TEST(attention_over_images_is_frozen) {
    const td_test_graph files[] = {
        {"vision.onnx", "pixel_values:f[batch,m,t,3,h,w] aspect_ratio_ids:i[batch,m]",
         "cross_attention_states:f[batch,v,64]"},
        {"decoder.onnx",
         "input_ids:i[batch,seq] attention_mask:i[batch,total] cross_attention_states:f[batch,v,64] "
         "past_key_values.0.key:f[batch,4,past,16] past_key_values.0.value:f[batch,4,past,16] "
         "past_key_values.1.key:f[batch,4,seen,16] past_key_values.1.value:f[batch,4,seen,16]",
         "logits:f[batch,seq,100] present.0.key:f[batch,4,total,16] present.0.value:f[batch,4,total,16] "
         "present.1.key:f[batch,4,seen,16] present.1.value:f[batch,4,seen,16]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "frozen", files, NULL);
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "vision prompt, decoder always");
    CHECK_EQ_INT(count_states(&p, TD_STATE_CROSS), 2);
    CHECK_EQ_INT(count_states(&p, TD_STATE_SEPARATE), 2);
    td_test_plan_done(&p);
}

/* --- state */

TEST(names_of_recurrences_pair) {
    static const struct {
        const char *folder, *inputs, *outputs;
        int n;
    } rows[] = {
        {"numbered", "input_ids:i[b,s] state_{3}_in:f[b,64]", "logits:f[b,s,9] state_{3}_out:f[b,64]", 3},
        {"prev", "input_ids:i[b,s] rnn_states_prev:f[3,b,64]", "logits:f[b,s,9] rnn_states:f[3,b,64]", 1},
        {"lstm", "input_ids:i[b,s] h0:f[1,b,64] c0:f[1,b,64]", "logits:f[b,s,9] hn:f[1,b,64] cn:f[1,b,64]", 2},
        {"next", "input_ids:i[b,s] cache_last_channel:f[2,b,7,8] cache_last_channel_len:i[b]",
         "logits:f[b,s,9] cache_last_channel_next:f[2,b,7,8] cache_last_channel_next_len:i[b]", 2},
        {"states", "input_ids:i[b,s] past_states.{2}.conv_state:f[b,64,3] past_states.{2}.ssm_state:f[b,64,8]",
         "logits:f[b,s,9] present.{2}.conv_state:f[b,64,3] present.{2}.ssm_state:f[b,64,8]", 4},
        {"short", "input_ids:i[b,s] past_conv.{2}:f[b,64,3]", "logits:f[b,s,9] present_conv.{2}:f[b,64,3]", 2},
        {"leftover", "input_ids:i[b,s] old_memory_state:f[b,64]", "logits:f[b,s,9] new_wkv:f[b,64]", 1},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_test_graph files[] = {{"model.onnx", rows[i].inputs, rows[i].outputs}, {0}};
        td_planned p;
        td_test_plan(&p, rows[i].folder, files, NULL);
        CHECK_FINE(&p);
        CHECK_EQ_INT(count_states(&p, TD_STATE_RECURRENT), rows[i].n);
        const td_state_tensor *s = &p.plan->states[0];
        CHECK_EQ_INT(s->batch_axis, p.plan->n_states && s->shape.dims[0] >= 0 ? 1 : 0);
        td_test_plan_done(&p);
    }
}

TEST(what_has_the_positions_of_the_run_is_no_state) {
    const td_test_graph files[] = {
        {"model.onnx", "input_ids:i[b,s] hidden_states_in:f[b,s,64]", "logits:f[b,s,9] hidden_states_out:f[b,s,64]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "passes", files, NULL);
    CHECK_EQ_UINT(p.plan->n_states, 0);
    CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "hidden_states_in");
    td_test_plan_done(&p);
}

TEST(layouts_of_fixed_caches) {
    static const struct {
        const char *folder, *inputs, *outputs;
        int axis;
        int64_t capacity, heads;
    } rows[] = {
        {"bhsd", "input_ids:i[b,s] past_key_{1}:f[b,4,48,16] past_value_{1}:f[b,4,48,16]",
         "logits:f[b,s,9] present_key_{1}:f[b,4,48,16] present_value_{1}:f[b,4,48,16]", 2, 48, 4},
        {"bshd", "tokens:i[b,s] mask:b[b,128] k_cache_{1}:f[b,128,4,16] v_cache_{1}:f[b,128,4,16]",
         "logits:f[b,s,9] k_cache_out_{1}:f[b,128,4,16] v_cache_out_{1}:f[b,128,4,16]", 1, 128, 4},
        {"bsd", "input_ids:i[b,s] write_indices:i[b] key_cache.{1}:f[b,64,32] value_cache.{1}:f[b,64,32]",
         "logits:f[b,s,9] updated_key_cache.{1}:f[b,64,32] updated_value_cache.{1}:f[b,64,32]", 1, 64, 0},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_test_graph files[] = {{"model.onnx", rows[i].inputs, rows[i].outputs}, {0}};
        td_planned p;
        td_test_plan(&p, rows[i].folder, files, NULL);
        CHECK_FINE(&p);
        REQUIRE(p.plan->n_states == 2);
        CHECK_EQ_INT(p.plan->states[0].kind, TD_STATE_STATIC);
        CHECK_EQ_INT(p.plan->states[0].seq_axis, rows[i].axis);
        CHECK_EQ_INT(p.plan->states[0].heads, rows[i].heads);
        CHECK_EQ_INT(p.plan->static_capacity, rows[i].capacity);
        CHECK_EQ_INT(p.plan->max_length, rows[i].capacity);
        td_test_plan_done(&p);
    }
}

TEST(a_recurrence_that_grows_with_the_tokens_takes_them_one_by_one) {
    const td_test_graph files[] = {{"model.onnx", "input_ids:i[b,seq] past.0.conv_state:f[b,64,3]",
                                    "logits:f[b,seq,9] present.0.conv_state:f[b,64,seq_plus_2]"},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "one-by-one", files, NULL);
    CHECK_FINE(&p);
    CHECK_EQ_INT(p.plan->prefill_chunk, 1);
    td_test_plan_done(&p);
}

#define NODE(op, in, out, attr, n)                                                                                     \
    {                                                                                                                  \
        .op_type = TD_STR(op), .inputs = in, .n_inputs = TD_COUNT(in), .outputs = out, .n_outputs = TD_COUNT(out),     \
        .attrs = attr, .n_attrs = n                                                                                    \
    }

TEST(sizes_that_no_declaration_tells_follow_from_use) {
    static const td_onnx_attr axis = {.name = {"axis", 4}, .type = TD_ONNX_ATTR_INT, .i = 2};
    static const int64_t order[] = {0, 2, 1, 3}, heads[] = {0, 0, 4, 16}, dims[] = {4};
    static const td_onnx_attr perm = {.name = {"perm", 4}, .type = TD_ONNX_ATTR_INTS, .n = 4, .ints = order};
    const td_str w[] = {TD_STR("w"), TD_STR("shape")}, a[] = {TD_STR("a")}, b[] = {TD_STR("b")};
    const td_str turned[] = {TD_STR("b"), TD_STR("cos")}, c[] = {TD_STR("c")};
    const td_str join[] = {TD_STR("past_key_0"), TD_STR("c")}, key[] = {TD_STR("present_key_0")};
    const td_str other[] = {TD_STR("past_value_0"), TD_STR("v")}, value[] = {TD_STR("present_value_0")};
    const td_onnx_node nodes[] = {NODE("Reshape", w, a, NULL, 0), NODE("Transpose", a, b, &perm, 1),
                                  NODE("Mul", turned, c, NULL, 0), NODE("Concat", join, key, &axis, 1),
                                  NODE("Concat", other, value, &axis, 1)};
    const td_onnx_tensor shape = {.name = TD_STR("shape"),
                                  .dtype = TD_INT64,
                                  .rank = 1,
                                  .dims = dims,
                                  .count = 4,
                                  .data = heads,
                                  .data_bytes = 32};
    const td_onnx_graph body = {
        .nodes = nodes, .n_nodes = TD_COUNT(nodes), .initializers = &shape, .n_initializers = 1};
    const td_test_graph file = {"model.onnx", "input_ids:i[b,s] past_key_0:f[b,H,p,D] past_value_0:f[b,?,p,?]",
                                "logits:f[b,s,9] present_key_0:f[b,H,t,D] present_value_0:f[b,x,t,y]"},
                        none = {0};
    td_planned p;
    td_test_write_graph(td_test_temp("sizes"), &file, &body);
    td_test_plan(&p, "sizes", &none, NULL);
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_states == 2);
    for (size_t k = 0; k < 2; k++) { /* the values are those of the keys: nothing is known of v */
        CHECK_EQ_INT(p.plan->states[k].heads, 4);
        CHECK_EQ_INT(p.plan->states[k].head_dim, 16);
        CHECK_EQ_INT(p.plan->states[k].seq_axis, 2);
    }
    CHECK(p.plan->cannot_run == NULL);
    td_test_plan_done(&p);
}

/* Attention ops hold their caches themselves: what they join to one has its heads and head size. The builder of ONNX
 * Runtime GenAI leaves the head size of every cache a symbol. */
TEST(sizes_that_attention_ops_tell) {
    static const td_onnx_attr four = {.name = {"num_heads", 9}, .type = TD_ONNX_ATTR_INT, .i = 4};
    static const td_onnx_attr gqa[] = {{.name = {"num_heads", 9}, .type = TD_ONNX_ATTR_INT, .i = 4},
                                       {.name = {"kv_num_heads", 12}, .type = TD_ONNX_ATTR_INT, .i = 2},
                                       {.name = {"kv_cache_bit_width", 18}, .type = TD_ONNX_ATTR_INT, .i = 4}};
    static const td_onnx_attr columns = {.name = {"N", 1}, .type = TD_ONNX_ATTR_INT, .i = 128};
    static const int64_t dims[] = {64, 128};
    const td_str x[] = {TD_STR("x"), TD_STR("w")}, q[] = {TD_STR("q")};
    const td_str packed[] = {TD_STR("q"), TD_STR(""), TD_STR(""), TD_STR("past_key_0"), TD_STR("past_value_0")};
    const td_str apart[] = {TD_STR("q"), TD_STR("q"), TD_STR("q"),          TD_STR(""),
                            TD_STR(""),  TD_STR(""),  TD_STR("past_key_0"), TD_STR("past_value_0")};
    const td_str made[] = {TD_STR("y"), TD_STR("present_key_0"), TD_STR("present_value_0")};
    static const float nothing[64 * 128];
    const td_onnx_tensor weights = {.name = TD_STR("w"),
                                    .dtype = TD_FLOAT,
                                    .rank = 2,
                                    .dims = dims,
                                    .count = 64 * 128,
                                    .data = nothing,
                                    .data_bytes = sizeof nothing};
    const td_onnx_node rows[][2] = {
        {NODE("MatMul", x, q, NULL, 0), NODE("GroupQueryAttention", packed, made, gqa, 2)},
        {NODE("MatMulNBits", x, q, &columns, 1), NODE("GroupQueryAttention", packed, made, gqa, 3)},
        {NODE("MatMul", x, q, NULL, 0), NODE("MultiHeadAttention", apart, made, &four, 1)},
    };
    static const int64_t heads[] = {2, 2, 4}, head_dims[] = {16, 8, 32};
    static const char *const folders[] = {"packed", "half-bytes", "multi-head"};
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        td_onnx_node nodes[2] = {rows[i][0], rows[i][1]};
        nodes[1].domain = TD_STR("com.microsoft");
        const td_onnx_graph body = {.nodes = nodes, .n_nodes = 2, .initializers = &weights, .n_initializers = 1};
        const td_test_graph file = {"model.onnx", "input_ids:i[b,s] past_key_0:f[b,H,p,D] past_value_0:f[b,H,p,D]",
                                    "logits:f[b,s,9] present_key_0:f[b,H,t,D] present_value_0:f[b,H,t,D]"},
                            none = {0};
        td_planned p;
        td_test_write_graph(td_test_temp(folders[i]), &file, &body);
        td_test_plan(&p, folders[i], &none, NULL);
        CHECK_FINE(&p);
        REQUIRE(p.plan->n_states == 2);
        for (size_t k = 0; k < 2; k++) {
            CHECK_EQ_INT(p.plan->states[k].heads, heads[i]);
            CHECK_EQ_INT(p.plan->states[k].head_dim, head_dims[i]);
        }
        CHECK(p.plan->cannot_run == NULL);
        td_test_plan_done(&p);
    }
}

TEST(sizes_that_only_the_config_tells) {
    const td_test_graph files[] = {{"model.onnx", "input_ids:i[b,s] past_key_0:f[b,H,p,D] past_value_0:f[b,4,p,D]",
                                    "logits:f[b,s,9] present_key_0:f[b,H,t,D] present_value_0:f[b,4,t,D]"},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "told", files,
                 V2 "\"pipeline\": {\"sessions\": {\"model\": {\"file\": \"model.onnx\"}}, \"state\": {\"kv_cache\": "
                    "{\"heads\": 2, \"head_dim\": 16}}}}");
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_states == 2);
    for (size_t k = 0; k < 2; k++) { /* the value's 4 heads are those of its layer: the graph wins */
        CHECK_EQ_INT(p.plan->states[k].heads, 4);
        CHECK_EQ_INT(p.plan->states[k].head_dim, 16);
    }
    CHECK(p.plan->cannot_run == NULL);
    td_test_plan_done(&p);
}

TEST(a_declared_pair_starts_as_an_output) {
    const td_test_graph files[] = {{"encoder.onnx", "input_ids:i[b,e]", "memory:f[b,e,64] last:f[b,32]"},
                                   {"decoder.onnx", "input_ids:i[b,s] memory:f[b,e,64] x:f[b,32] y:f[b,32]",
                                    "logits:f[b,s,9] p:f[b,32] q:f[b,32]"},
                                   {0}};
    td_planned p;
    td_test_plan(
        &p, "start", files,
        V2 "\"pipeline\": {\"sessions\": {\"encoder\": {\"file\": \"encoder.onnx\"}, \"decoder\": {\"file\": "
           "\"decoder.onnx\"}}, \"extends\": \"encoder-decoder\", \"state\": {\"recurrent\": [{\"input\": \"x\", "
           "\"output\": \"decoder.q\", \"init\": \"encoder.last\"}, {\"input\": \"decoder.y\", \"output\": \"p\", "
           "\"init\": 0.5}]}}}");
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_states == 2);
    CHECK_EQ_INT(p.plan->states[0].from_output, 1);
    CHECK_EQ_INT(p.plan->states[0].output, 2);
    CHECK_NEAR(p.plan->states[1].init, 0.5, 0);
    CHECK_EQ_INT(p.plan->states[1].from_session, -1);
    td_test_plan_done(&p);
}

/* --- transducers */

TEST(transducers_are_known_by_their_three_parts) {
    static const struct {
        const char *folder, *config;
        td_test_graph files[4];
        bool fused;
        int axis;
        int64_t context;
        int32_t blank;
    } rows[] = {
        {"cached",
         NULL,
         {{"encoder.onnx",
           "audio_signal:f[batch,time,80] length:i[batch] cache_last_channel:f[24,batch,70,512] cache_last_channel_len:i[batch]",
           "outputs:f[batch,512,frames] encoded_lengths:i[batch] cache_last_channel_next:f[24,batch,70,512] "
           "cache_last_channel_next_len:i[batch]"},
          {"decoder.onnx", "targets:i[batch,1] target_length:i[batch] h_in:f[2,batch,640] c_in:f[2,batch,640]",
           "decoder_output:f[batch,640,1] h_out:f[2,batch,640] c_out:f[2,batch,640]"},
          {"joint.onnx", "encoder_outputs:f[batch,1,512] decoder_outputs:f[batch,1,640]",
           "joint_output:f[batch,1,1,1025]"}},
         false,
         2,
         1,
         1024},
        {"stateless",
         V2 "\"tokens\": {\"blank\": 0}}",
         {{"encoder.onnx", "x:f[N,T,80] x_lens:i[N]", "encoder_out:f[N,T2,512] encoder_out_lens:i[N]"},
          {"decoder.onnx", "y:i[N,2]", "decoder_out:f[N,512]"},
          {"joiner.onnx", "encoder_out:f[N,512] decoder_out:f[N,512]", "logit:f[N,500]"}},
         false,
         1,
         2,
         0},
        {"joined",
         NULL,
         {{"encoder.onnx", "audio_signal:f[b,128,t] length:i[b]", "outputs:f[b,1024,frames] encoded_lengths:i[b]"},
          {"decoder_joint.onnx",
           "encoder_outputs:f[b,1024,one] targets:j[b,u] target_length:j[b] input_states_1:f[2,b,640] input_states_2:f[2,b,640]",
           "outputs:f[b,one,u,1030] output_states_1:f[2,b,640] output_states_2:f[2,b,640]"}},
         true,
         2,
         1,
         1029},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        td_planned p;
        td_test_plan(&p, rows[i].folder, rows[i].files, rows[i].config);
        CHECK_FINE(&p);
        const td_plan_transducer *t = &p.plan->transducer;
        REQUIRE(t->present);
        CHECK_EQ_INT(t->predictor == t->joiner, rows[i].fused);
        CHECK_EQ_INT(t->frames_axis, rows[i].axis);
        CHECK_EQ_INT(t->context, rows[i].context);
        CHECK_EQ_INT(t->blank, rows[i].blank);
        CHECK(t->length_output >= 0);
        CHECK_HAS_STR(p.json.p, "\"when\": \"per joint\"");
        for (size_t r = 0; r < p.plan->n_requests; r++)
            CHECK_EQ_INT(p.plan->requests[r].optional, td_str_find(p.plan->requests[r].name, TD_STR("len")) >= 0);
        td_test_plan_done(&p);
    }
}

/* --- vectors, scores, plain tensors */

TEST(what_gives_no_tokens) {
    static const struct {
        const char *folder, *inputs, *outputs;
        bool pooling, pooled, ids;
        int mode;
    } rows[] = {
        {"vectors", "input_ids:i[b,s] attention_mask:i[b,s]", "last_hidden_state:f[b,s,8]", true, false, true,
         TD_POOLING_MEAN},
        {"sentence", "input_ids:i[b,s] attention_mask:i[b,s]", "token_embeddings:f[b,s,8] sentence_embedding:f[b,8]",
         true, true, true, TD_POOLING_NONE},
        {"pooler", "input_ids:i[b,s] attention_mask:i[b,s]", "last_hidden_state:f[b,s,8] pooler_output:f[b,8]", true,
         false, true, TD_POOLING_MEAN},
        {"scores", "input_ids:i[b,s] attention_mask:i[b,s]", "logits:f[b,1]", true, true, true, TD_POOLING_NONE},
        {"sound", "tokens:i[1,n] style:f[1,256] speed:f[1]", "audio:f[samples]", false, false, false, 0},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_test_graph files[] = {{"model.onnx", rows[i].inputs, rows[i].outputs}, {0}};
        td_planned p;
        td_test_plan(&p, rows[i].folder, files, NULL);
        CHECK_FINE(&p);
        CHECK_STEPS(&p, "model once");
        CHECK(p.plan->cannot_run != NULL);
        CHECK_EQ_INT(p.plan->pooling.present, rows[i].pooling);
        CHECK_EQ_INT(p.plan->pooling.pooled, rows[i].pooled);
        CHECK_EQ_INT(p.plan->sessions[0].feeds[0].kind, rows[i].ids ? TD_FEED_ROLE : TD_FEED_REQUEST);
        if (rows[i].pooling) CHECK_EQ_INT(p.plan->pooling.mode, rows[i].mode);
        td_test_plan_done(&p);
    }
}

/* --- wires that cannot be */

TEST(wires_that_cannot_be_are_said) {
    const td_test_graph files[] = {{"a.onnx", "input_ids:i[batch,seq]", "x:f[batch,seq,64]"},
                                   {"b.onnx", "input_ids:i[batch,seq]", "y:f[batch,seq,64]"},
                                   {"d.onnx", EMBEDS, LOGITS},
                                   {0}};
#define SESSIONS                                                                                                       \
    V2 "\"pipeline\": {\"sessions\": {\"a\": {\"file\": \"a.onnx\"}, \"b\": {\"file\": \"b.onnx\"}, \"d\": {\"file\": \"d.onnx\"}}, "
    static const struct {
        const char *config, *part;
    } rows[] = {
        {SESSIONS
         "\"flow\": [{\"run\": \"a\", \"when\": \"always\"}, {\"run\": \"b\", \"when\": \"always\"}, {\"run\": \"d\", "
         "\"when\": \"always\"}], \"dataflow\": [{\"from\": \"a.x\", \"to\": \"d.inputs_embeds\"}, {\"from\": \"b.y\", "
         "\"to\": \"d.inputs_embeds\"}]}}",
         "expected one source for d.inputs_embeds at a time, found a.x and b.y"},
        {SESSIONS
         "\"flow\": [{\"run\": \"d\", \"when\": \"always\"}, {\"run\": \"a\", \"when\": \"always\"}], \"dataflow\": "
         "[{\"from\": \"a.x\", \"to\": \"d.inputs_embeds\"}]}}",
         "expected \"a\" to run before \"d\""},
        {SESSIONS "\"flow\": [{\"run\": \"d\", \"when\": \"always\"}], \"dataflow\": [{\"from\": \"a.x\", \"to\": "
                  "\"d.inputs_embeds\"}]}}",
         "found it in no step"},
        {SESSIONS
         "\"flow\": [{\"run\": \"a\", \"when\": \"prompt\"}, {\"run\": \"b\", \"when\": \"always\"}, {\"run\": \"d\", "
         "\"when\": \"always\"}]}}",
         "d.inputs_embeds (candidates: a.x, b.y)"},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        td_planned p;
        td_test_plan(&p, "wires", files, rows[i].config);
        CHECK_HAS_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), rows[i].part);
        td_test_plan_done(&p);
    }
    td_planned p; /* one at the prompt, the other later: no clash, and nothing is promoted */
    td_test_plan(&p, "wires", files,
                 SESSIONS
                 "\"flow\": [{\"run\": \"a\", \"when\": \"prompt\"}, {\"run\": \"b\", \"when\": \"decode\"}, {\"run\": "
                 "\"d\", \"when\": \"always\"}]}}");
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "a prompt, b decode, d always");
    td_test_plan_done(&p);
    td_test_plan(&p, "wires", files, /* the same where one session makes both */
                 SESSIONS
                 "\"flow\": [{\"run\": \"a\", \"when\": \"prompt\"}, {\"run\": \"a\", \"when\": \"decode\"}, {\"run\": "
                 "\"d\", \"when\": \"always\"}]}}");
    CHECK_FINE(&p);
    CHECK_STEPS(&p, "a prompt, a decode, d always");
    td_test_plan_done(&p);
}
