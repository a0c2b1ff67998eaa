/* Plans of the tiny folders: state pairs, roles found by use, batching; and the messages of plans that do not fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/files.h"
#include "plan/plan.h"
#include "support/pipelines.h"
#include "support/test.h"

typedef struct planned {
    td_arena arena;
    td_messages messages;
    td_model_files files;
    td_config *config;
    td_plan *plan;
} planned;

static void load(planned *p, const char *path) {
    treadle_error err = {0};
    CHECK_OK(td_model_files_open(path, &p->arena, &p->files, &err), &err);
    CHECK_OK(td_config_load(&p->files, NULL, &p->messages, &p->config, &err), &err);
}

static void make(planned *p, const char *folder, const char *config) {
    treadle_error err = {0};
    memset(p, 0, sizeof *p);
    td_arena_init(&p->arena);
    td_messages_init(&p->messages, &p->arena);
    if (config)
        CHECK_OK(td_config_parse(td_str_from(config), "c.json", td_test_folder(folder), NULL, &p->messages, &p->config,
                                 &err),
                 &err);
    else load(p, td_test_folder(folder));
    CHECK_OK(td_plan_build(p->config, &p->messages, &p->plan, &err), &err);
}

static void done(planned *p) {
    td_plan_free(p->plan);
    td_config_free(p->config);
    td_messages_free(&p->messages);
    td_arena_free(&p->arena);
}

static const char *first_error(const planned *p) {
    for (size_t i = 0; i < p->messages.list.n; i++)
        if (p->messages.list.items[i].level == TREADLE_MESSAGE_ERROR) return p->messages.list.items[i].text;
    return "";
}

TEST(kinds_of_state_and_batching_are_found) {
    static const struct {
        const char *folder;
        size_t n_states;
        td_state_kind kind;
        int seq_axis;
        td_batching batching;
        bool positions, last_only;
    } rows[] = {
        {"concat", 4, TD_STATE_SEPARATE, 2, TD_BATCH_MASK, true, false},
        {"nomask", 4, TD_STATE_SEPARATE, 2, TD_BATCH_EQUAL, false, false},
        {"gqa", 4, TD_STATE_SEPARATE, 2, TD_BATCH_LENGTHS, true, false},
        {"last", 4, TD_STATE_SEPARATE, 2, TD_BATCH_MASK, true, true},
        {"combined", 2, TD_STATE_COMBINED, 3, TD_BATCH_MASK, true, false},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        planned p;
        make(&p, rows[i].folder, NULL);
        CHECK_EQ_UINT(p.messages.list.n, 0);
        REQUIRE(p.plan->cannot_run == NULL);
        CHECK_EQ_UINT(p.plan->n_states, rows[i].n_states);
        CHECK_EQ_INT(p.plan->states[0].kind, rows[i].kind);
        CHECK_EQ_INT(p.plan->states[0].seq_axis, rows[i].seq_axis);
        CHECK_EQ_INT(p.plan->states[0].heads, 2);
        CHECK_EQ_INT(p.plan->states[0].head_dim, 8);
        CHECK_EQ_INT(p.plan->batching, rows[i].batching);
        CHECK_EQ_INT(p.plan->has_positions, rows[i].positions);
        CHECK_EQ_INT(p.plan->logits_last_only, rows[i].last_only);
        CHECK_EQ_INT(p.plan->vocab, 40);
        CHECK_EQ_INT(p.plan->max_length, 64);
        if (rows[i].positions) CHECK_EQ_INT(p.plan->context_length, 96); /* the table of positions */
        CHECK_EQ_INT(td_plan_state_bytes(p.plan, 10), 10 * 2 * 8 * 4 * 4);
        done(&p);
    }
}

TEST(lengths_are_known_by_the_op_that_takes_them) {
    planned p;
    make(&p, "gqa", NULL);
    const td_plan_session *s = &p.plan->sessions[0];
    ptrdiff_t lengths = td_signature_find_input(s->signature, TD_STR("lengths")),
              longest = td_signature_find_input(s->signature, TD_STR("longest"));
    REQUIRE(lengths >= 0 && longest >= 0);
    CHECK_EQ_INT(s->feeds[lengths].kind, TD_FEED_ROLE);
    CHECK_EQ_INT(s->feeds[lengths].index, TD_ROLE_SEQLENS_K);
    CHECK_EQ_INT(s->feeds[longest].index, TD_ROLE_TOTAL_SEQUENCE_LENGTH);
    done(&p);
}

#define HEAD "{\"version\": 2, \"pipeline\": {"

TEST(what_does_not_fit_is_said) {
    static const struct {
        const char *config, *part;
    } rows[] = {
        {HEAD "\"sessions\": {\"d\": {\"file\": \"model.onnx\", \"io\": {\"inputs\": {\"input_ids\": \"nope\"}}}}}}",
         "no \"nope\""},
        {HEAD "\"sessions\": {\"d\": {\"file\": \"model.onnx\"}}}, \"tokens\": {\"eos\": [1, 40]}}", "below 40"},
        {HEAD
         "\"sessions\": {\"d\": {\"file\": \"model.onnx\"}}, \"dataflow\": {\"from\": \"d.logits\", \"to\": \"e.x\"}}}",
         "references session \"e\""},
        {HEAD
         "\"sessions\": {\"d\": {\"file\": \"model.onnx\"}}, \"dataflow\": {\"from\": \"d.logit\", \"to\": \"d.position_ids\"}}}",
         "session \"d\" has no such output"},
        {HEAD
         "\"sessions\": {\"d\": {\"file\": \"model.onnx\"}}, \"dataflow\": {\"from\": \"d.logits\", \"to\": \"d.position_ids\"}}}",
         "the types differ"},
        {HEAD "\"sessions\": {\"d\": {\"file\": \"golden.txt\"}}}}", "golden.txt"},
        {HEAD "\"sessions\": {\"a\": {\"file\": \"model.onnx\"}, \"b\": {\"file\": \"model.onnx\"}}}}", "\"flow\""},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        planned p;
        make(&p, "concat", rows[i].config);
        CHECK_HAS_STR(first_error(&p), rows[i].part);
        CHECK(p.plan->cannot_run != NULL);
        done(&p);
    }
}

TEST(a_wire_back_is_a_circle) {
    planned p;
    make(&p, "concat",
         HEAD "\"sessions\": {\"d\": {\"file\": \"model.onnx\"}, \"e\": {\"file\": \"model.onnx\"}}, \"dataflow\": ["
              "{\"from\": \"d.present.0.key\", \"to\": \"e.past_key_values.0.key\"},"
              "{\"from\": \"e.present.0.key\", \"to\": \"d.past_key_values.0.key\"}]}}");
    bool found = false;
    for (size_t i = 0; i < p.messages.list.n; i++)
        found |= strstr(p.messages.list.items[i].text,
                        "Circular dependency detected in dataflow: d \xe2\x86\x92 e \xe2\x86\x92 d") != NULL;
    CHECK(found);
    done(&p);
}

TEST(a_folder_without_a_config_is_a_decoder) {
    planned p;
    treadle_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/model.onnx", td_test_folder("concat"));
    memset(&p, 0, sizeof p);
    td_arena_init(&p.arena);
    td_messages_init(&p.messages, &p.arena);
    load(&p, path);
    CHECK_OK(td_plan_build(p.config, &p.messages, &p.plan, &err), &err);
    CHECK_EQ_UINT(p.plan->n_steps, 1);
    CHECK_EQ_INT(p.plan->steps[0].when, TD_WHEN_ALWAYS);
    CHECK_EQ_STR(p.plan->sessions[0].c_name, "model");
    CHECK(p.plan->cannot_run == NULL);
    done(&p);
}

TEST(what_version_1_says_of_the_graphs_is_a_hint) {
    planned p;
    make(
        &p, "concat",
        "{\"model\": {\"type\": \"nobody's\", \"encoder\": {\"filename\": \"model.onnx\", \"outputs\": {\"encoder_outputs\": \"a\"}},"
        "\"decoder\": {\"filename\": \"model.onnx\", \"inputs\": {\"attention_mask\": \"no_mask\", \"rnn_states_prev\": \"r\","
        "\"encoder_hidden_states\": \"b\", \"past_key_names\": \"wrong.%d\"}, \"outputs\": {\"rnn_states\": \"s\"}}}}");
    size_t n_errors = 0;
    for (size_t i = 0; i < p.messages.list.n; i++) n_errors += p.messages.list.items[i].level == TREADLE_MESSAGE_ERROR;
    CHECK_EQ_STR(first_error(&p), "");
    CHECK_EQ_UINT(n_errors, 0);
    done(&p);
}
