/* Plans of graphs whose names and dimensions say little or mislead: hidden states that are called like state, weights
 * listed as inputs, lengths without a word, dimensions without symbols. What is expected is what the contract of the
 * config says of each. */
#include "support/graphs.h"
#include "support/test.h"

#include <stdio.h>

#define CHECK_FINE(p) (CHECK_EQ_STR(td_test_first_message(p, TREADLE_MESSAGE_ERROR), ""))
#define V2 "{\"version\": 2, "

static const td_plan_session *session_of(const td_planned *p, const char *name) {
    int32_t s = td_plan_find_session(p->plan, td_str_from(name));
    REQUIRE(s >= 0);
    return &p->plan->sessions[s];
}

/* "session" that makes what the input takes; "": no wire feeds it. */
static const char *source_of(const td_planned *p, const char *session, const char *input) {
    const td_plan_session *s = session_of(p, session);
    int32_t i = td_plan_input_index(s, td_str_from(input));
    REQUIRE(i >= 0);
    if (s->feeds[i].kind != TD_FEED_WIRE) return "";
    return p->plan->sessions[p->plan->wires[s->feeds[i].index].from_session].c_name;
}

TEST(hidden_states_between_stages_are_no_state) {
    static const struct {
        const char *folder, *seq, *batch, *names[4];
    } rows[] = {
        {"numbered", "seq", "batch", {"hidden_states_0", "hidden_states_1", "hidden_states_2", "hidden_states_3"}},
        {"in-out", "?", "?", {"hidden_states", "hidden_states_out", "hidden_states_b", "last_hidden_states"}},
        {"single", "1", "1", {"hidden_states_0", "hidden_states_1", "hidden_states_2", "hidden_states_3"}},
        {"single-in-out", "1", "1", {"hidden_states", "hidden_states_out", "hidden_states_b", "last_hidden_states"}},
    };
    for (size_t r = 0; r < TD_COUNT(rows); r++) {
        char in[4][200], out[4][200];
        td_test_graph files[6] = {{0}};
        for (int i = 0; i < 4; i++) {
            snprintf(in[i], sizeof in[i], "%s:f[%s,%s,64] %s%d%s", i ? rows[r].names[i - 1] : "unused", rows[r].batch,
                     rows[r].seq, "past_key_", i, ":f[1,4,past,16]");
            snprintf(out[i], sizeof out[i], "%s:f[%s,%s,64] %s%d%s", rows[r].names[i], rows[r].batch, rows[r].seq,
                     "present_key_", i, ":f[1,4,total,16]");
        }
        snprintf(in[0], sizeof in[0], "input_ids:i[%s,%s]", rows[r].batch, rows[r].seq);
        snprintf(out[0], sizeof out[0], "%s:f[%s,%s,64]", rows[r].names[0], rows[r].batch, rows[r].seq);
        files[0] = (td_test_graph){"d_embed.onnx", in[0], out[0]};
        files[1] = (td_test_graph){"c_first.onnx", in[1], out[1]};
        files[2] = (td_test_graph){"b_second.onnx", in[2], out[2]};
        files[3] = (td_test_graph){"e_third.onnx", in[3], out[3]};
        char head_in[200], head_out[200];
        snprintf(head_in, sizeof head_in, "%s:f[%s,%s,64]", rows[r].names[3], rows[r].batch, rows[r].seq);
        snprintf(head_out, sizeof head_out, "logits:f[%s,%s,100]", rows[r].batch, rows[r].seq);
        files[4] = (td_test_graph){"a_head.onnx", head_in, head_out};
        td_planned p;
        td_test_plan(&p, rows[r].folder, files, NULL);
        CHECK_FINE(&p);
        CHECK_EQ_INT(p.plan->n_states, 3);
        for (size_t k = 0; k < p.plan->n_states; k++) CHECK_EQ_INT(p.plan->states[k].kind, TD_STATE_SEPARATE);
        CHECK_EQ_STR(source_of(&p, "c_first", rows[r].names[0]), "d_embed");
        CHECK_EQ_STR(source_of(&p, "b_second", rows[r].names[1]), "c_first");
        CHECK_EQ_STR(source_of(&p, "e_third", rows[r].names[2]), "b_second");
        CHECK_EQ_STR(source_of(&p, "a_head", rows[r].names[3]), "e_third");
        td_test_plan_done(&p);
    }
}

TEST(what_a_wire_brings_between_stages_is_no_state) {
    const td_test_graph files[] = {{"embed.onnx", "input_ids:i[batch,seq]", "x:f[batch,seq,64]"},
                                   {"body.onnx", "hidden_states:f[?,?,64] past_key_0:f[batch,4,past,16]",
                                    "hidden_states_out:f[?,?,64] present_key_0:f[batch,4,total,16]"},
                                   {"head.onnx", "hidden_states_out:f[?,?,64]", "logits:f[?,?,100]"},
                                   {0}};
    td_planned p;
    td_test_plan(
        &p, "wired", files,
        V2
        "\"pipeline\": {\"sessions\": {\"embed\": {\"file\": \"embed.onnx\"}, \"body\": {\"file\": \"body.onnx\"}, "
        "\"head\": {\"file\": \"head.onnx\"}}, \"dataflow\": [{\"from\": \"embed.x\", \"to\": \"body.hidden_states\"}]}}");
    CHECK_FINE(&p);
    CHECK_EQ_INT(p.plan->n_states, 1);
    CHECK_EQ_STR(source_of(&p, "body", "hidden_states"), "embed");
    td_test_plan_done(&p);
}

TEST(a_recurrence_that_an_encoder_starts_stays_one) {
    const td_test_graph files[] = {
        {"encoder.onnx", "input_features:f[batch,time,80]",
         "encoder_hidden_states:f[batch,time,64] state_h:f[1,batch,64]"},
        {"decoder.onnx", "input_ids:i[batch,seq] encoder_hidden_states:f[batch,source,64] state_h:f[1,batch,64]",
         "logits:f[batch,seq,100] state_h_out:f[1,batch,64]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "started", files, NULL);
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_states == 1);
    CHECK_EQ_INT(p.plan->states[0].kind, TD_STATE_RECURRENT);
    CHECK(p.plan->states[0].from_session >= 0);
    CHECK_EQ_STR(source_of(&p, "decoder", "encoder_hidden_states"), "encoder");
    td_test_plan_done(&p);
}

TEST(hidden_states_of_an_encoder_are_not_the_decoder_s) {
    const td_test_graph files[] = {{"encoder.onnx", "input_features:f[?,?,80]", "last_hidden_state:f[?,?,64]"},
                                   {"decoder.onnx",
                                    "input_ids:i[?,?] encoder_hidden_states:f[?,?,64] past_key_0:f[?,4,?,16]",
                                    "logits:f[?,?,100] last_hidden_state:f[?,?,64] present_key_0:f[?,4,?,16]"},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "hidden", files, NULL);
    CHECK_FINE(&p);
    CHECK_EQ_INT(p.plan->n_states, 1);
    CHECK_EQ_STR(source_of(&p, "decoder", "encoder_hidden_states"), "encoder");
    td_test_plan_done(&p);
}

TEST(what_goes_in_and_what_comes_out_are_no_pair_by_their_sides_alone) {
    const td_test_graph files[] = {
        {"audio.onnx", "speech_in:f[?,80,?]", "speech_out:f[?,?,64]"},
        {"embedding.onnx", "input_ids:i[?,?] speech_out:f[?,?,64]", "inputs_embeds:f[?,?,64]"},
        {"decoder.onnx", "inputs_embeds:f[?,?,64] past_key_0:f[?,4,?,16]",
         "logits:f[?,?,100] present_key_0:f[?,4,?,16]"},
        {0}};
    td_planned p;
    td_test_plan(&p, "sides", files, NULL);
    CHECK_FINE(&p);
    CHECK_EQ_INT(p.plan->n_states, 1);
    CHECK_EQ_STR(source_of(&p, "embedding", "speech_out"), "audio");
    td_test_plan_done(&p);
}

TEST(the_caches_of_all_layers_in_one) {
    const td_test_graph files[] = {{"decoder.onnx", "input_ids:i[batch,seq] past_key_values:f[3,2,batch,1,past,8]",
                                    "logits:f[batch,seq,100] presents:f[3,2,batch,1,total,8]"},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "stacked", files, NULL);
    CHECK_FINE(&p);
    REQUIRE(p.plan->n_states == 1);
    CHECK_EQ_INT(p.plan->states[0].batch_axis, 2);
    CHECK_EQ_INT(p.plan->states[0].seq_axis, 4);
    td_test_plan_done(&p);
}

TEST(images_without_symbols) {
    static const struct {
        const char *folder, *in, *out;
        td_loop loop;
    } rows[] = {
        {"grids", "pixel_values:f[?,24] image_grid_thw:i[?,3]", "image_features:f[?,64]", TD_LOOP_PER_IMAGE},
        {"of-one", "pixel_values:f[?,3,16,16]", "image_features:f[4,64]", TD_LOOP_PER_IMAGE},
        {"of-any", "pixel_values:f[?,3,16,16]", "image_features:f[?,4,64]", TD_LOOP_BATCHED},
    };
    for (size_t r = 0; r < TD_COUNT(rows); r++) {
        const td_test_graph files[] = {
            {"vision.onnx", rows[r].in, rows[r].out},
            {"embedding.onnx",
             r == 2 ? "input_ids:i[?,?] image_features:f[?,?,64]" : "input_ids:i[?,?] image_features:f[?,64]",
             "inputs_embeds:f[?,?,64]"},
            {"decoder.onnx", "inputs_embeds:f[?,?,64] past_key_0:f[?,4,?,16]",
             "logits:f[?,?,100] present_key_0:f[?,4,?,16]"},
            {0}};
        td_planned p;
        td_test_plan(&p, rows[r].folder, files, V2 "\"tokens\": {\"image_token\": 5}}");
        CHECK_FINE(&p);
        CHECK_EQ_INT(p.plan->steps[0].loop, rows[r].loop);
        td_test_plan_done(&p);
    }
}

TEST(lengths_of_a_transducer_by_shape) {
    const td_test_graph files[] = {{"a.onnx", "t1:f[B,T,80] t2:i[B]", "t3:f[B,T2,32] t4:i[B]"},
                                   {"b.onnx", "t6:i[B] t5:i[B,1] h:f[1,B,16]", "t7:f[B,1,16] h_out:f[1,B,16]"},
                                   {"c.onnx", "t8:f[B,1,32] t9:f[B,1,16]", "t10:f[B,1,1,40]"},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "lengths", files,
                 V2 "\"pipeline\": {\"extends\": \"transducer\", \"sessions\": {"
                    "\"encoder\": {\"file\": \"a.onnx\"}, \"joiner\": {\"file\": \"c.onnx\"}, \"predictor\": {"
                    "\"file\": \"b.onnx\"}}}}");
    CHECK_FINE(&p);
    const td_plan_transducer *t = &p.plan->transducer;
    REQUIRE(t->present);
    CHECK_EQ_INT(t->features_length, 1);
    CHECK_EQ_INT(t->length_output, 1);
    CHECK_EQ_INT(t->targets, 1);
    CHECK_EQ_INT(t->targets_length, 0);
    td_test_plan_done(&p);
    const td_test_graph named[] = {{"a.onnx", "t1:f[B,T,80] t2:i[B] t3:i[B]", "t4:f[B,T2,32] t5:i[B] t6:i[B]"},
                                   {"b.onnx", "t7:i[B,1] h:f[1,B,16]", "t8:f[B,1,16] h_out:f[1,B,16]"},
                                   files[2],
                                   {0}};
    td_test_plan(
        &p, "lengths", named,
        V2 "\"pipeline\": {\"extends\": \"transducer\", \"sessions\": {\"encoder\": {\"file\": \"a.onnx\", \"io\": {"
           "\"inputs\": {\"length\": \"t3\"}, \"outputs\": {\"encoder_length\": \"t5\"}}}, \"joiner\": {"
           "\"file\": \"c.onnx\"}, \"predictor\": {\"file\": \"b.onnx\"}}}}");
    t = &p.plan->transducer;
    REQUIRE(t->present);
    CHECK_EQ_INT(t->features_length, 2);
    CHECK_EQ_INT(t->length_output, 1);
    td_test_plan_done(&p);
}

TEST(a_mask_of_numbers_by_its_short_name) {
    const td_test_graph files[] = {{"decoder.onnx",
                                    "input_ids:i[batch,seq] mask:f[batch,total] past_key_0:f[batch,4,past,16]",
                                    "logits:f[batch,seq,100] present_key_0:f[batch,4,total,16]"},
                                   {0}};
    td_planned p;
    td_test_plan(&p, "mask", files, NULL);
    CHECK_FINE(&p);
    CHECK_EQ_INT(p.plan->sessions[0].feeds[1].kind, TD_FEED_ROLE);
    CHECK_EQ_INT(p.plan->sessions[0].feeds[1].index, TD_ROLE_ATTENTION_MASK);
    td_test_plan_done(&p);
}
