/* Every allocation failing in turn while plans of several kinds are made: an error or a plan, never a leak or a
 * crash. */

#include "support/allocations.h"
#include "support/graphs.h"
#include "support/test.h"

static const td_test_graph speech[] = {
    {"encoder.onnx", "input_features:f[b,80,t]",
     "present_key_cross_{2}:f[b,4,e,16] present_value_cross_{2}:f[b,4,e,16]"},
    {"decoder.onnx",
     "input_ids:i[b,s] past_key_self_{2}:f[b,4,past,16] past_value_self_{2}:f[b,4,past,16] past_key_cross_{2}:f[b,4,e,16] "
     "past_value_cross_{2}:f[b,4,e,16]",
     "logits:f[b,s,9] present_key_self_{2}:f[b,4,total,16] present_value_self_{2}:f[b,4,total,16]"},
    {0}};
static const td_test_graph images[] = {
    {"vision.onnx", "pixel_values:f[patches,96] image_grid_thw:i[images,3]", "image_features:f[rows,64]"},
    {"embedding.onnx", "input_ids:i[b,s] image_features:f[n,64] audio_features:f[m,64]", "inputs_embeds:f[b,s,64]"},
    {"decoder.onnx",
     "inputs_embeds:f[b,s,64] position_ids:i[3,b,s] past.{2}.key:f[b,4,past,16] past.{2}.value:f[b,4,past,16]",
     "logits:f[b,s,9] present.{2}.key:f[b,4,total,16] present.{2}.value:f[b,4,total,16]"},
    {0}};
static const td_test_graph staged[] = {{"embed.onnx", "input_ids:i[b,s]", "inputs_embeds:f[b,s,64]"},
                                       {"prompt.onnx", "inputs_embeds:f[1,8,64] past.{2}.key:f[1,4,32,16]",
                                        "hidden:f[1,8,64] present.{2}.key:f[1,4,32,16]"},
                                       {"token.onnx", "inputs_embeds:f[1,1,64] past.{2}.key:f[1,4,32,16]",
                                        "hidden:f[1,1,64] present.{2}.key:f[1,4,32,16]"},
                                       {"head.onnx", "hidden:f[b,s,64]", "logits:f[b,s,9]"},
                                       {0}};
static const td_test_graph transducer[] = {
    {"encoder.onnx", "audio_signal:f[b,80,t] length:i[b]", "outputs:f[b,64,frames] lengths:i[b]"},
    {"decoder.onnx", "targets:i[b,1] h_in:f[1,b,32] c_in:f[1,b,32]", "out:f[b,1,32] h_out:f[1,b,32] c_out:f[1,b,32]"},
    {"joint.onnx", "encoder_outputs:f[b,1,64] decoder_outputs:f[b,1,32]", "logits:f[b,1,1,9]"},
    {0}};

TEST(any_allocation_may_fail) {
    static const struct {
        const char *folder;
        const td_test_graph *files;
    } rows[] = {{"speech", speech}, {"images", images}, {"staged", staged}, {"transducer", transducer}};
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        td_planned p;
        td_test_fail_at = INT_MAX;
        td_test_plan(&p, rows[i].folder, rows[i].files,
                     i == 1 ? "{\"version\": 2, \"tokens\": {\"image_token\": 5}}" : NULL);
        CHECK_EQ_STR(td_test_first_message(&p, TREADLE_MESSAGE_ERROR), "");
        treadle_error err = {0};
        bool made = false;
        for (int n = 1; !made && n < 100000; n++) {
            td_plan *plan = NULL;
            td_messages messages;
            td_arena arena;
            td_arena_init(&arena);
            td_messages_init(&messages, &arena);
            td_test_allocations = 0;
            td_test_fail_at = n;
            treadle_status status = td_plan_build(p.config, &messages, &plan, &err);
            made = td_test_allocations < n;
            td_test_fail_at = INT_MAX;
            if (status != TREADLE_OK && !CHECK_EQ_INT(status, TREADLE_OUT_OF_MEMORY)) made = true;
            if (status == TREADLE_OK && !CHECK_EQ_UINT(plan->n_steps, p.plan->n_steps)) made = true;
            td_plan_free(plan);
            td_messages_free(&messages);
            td_arena_free(&arena);
        }
        CHECK(made);
        td_test_plan_done(&p);
    }
}
