/* plan/check.c - values of the config against the graphs: ids below the size of the vocabulary, tensors that
 * preprocessing is expected to make against the inputs that take them. */
#include "plan/build.h"

#include <stdio.h>

/* --- ids */

static void check_ids(td_plan_build_ctx *b, const td_json *value, int64_t vocab) {
    if (!value || td_messages_full(b->messages)) return;
    for (const td_json *item = value->first; item; item = item->next) check_ids(b, item, vocab);
    if (value->kind != TD_JSON_INT || value->as_int < vocab || value->as_int > INT32_MAX) return; /* beyond: said */
    const char *path = td_tree_source(value)->path;
    bool ours = path && b->config->file && strcmp(path, b->config->file) == 0;
    bool set = !path; /* by the caller */
    td_messages_add(b->messages, ours || set ? TREADLE_MESSAGE_ERROR : TREADLE_MESSAGE_WARNING,
                    td_tree_place(b->messages->arena, value, false),
                    "expected a token id below %lld, the size of the vocabulary (vocab), found %lld", (long long)vocab,
                    (long long)value->as_int);
}

static void check_all_ids(td_plan_build_ctx *b, int64_t vocab) {
    static const char *const lists[] = {"suppress", "begin_suppress", "bad_words", "forced_first", "forced_last"};
    static const char *const prompts[] = {"languages",       "tasks",         "no_timestamps",
                                          "timestamp_begin", "previous_text", "no_speech"};
    const td_json *generation = td_json_get(b->config->root, "generation");
    const td_json *transcription = td_json_get(generation, "transcription");
    check_ids(b, td_json_get(b->config->root, "tokens"), vocab);
    for (size_t i = 0; i < TD_COUNT(lists); i++) check_ids(b, td_json_get(generation, lists[i]), vocab);
    for (size_t i = 0; i < TD_COUNT(prompts); i++) check_ids(b, td_json_get(transcription, prompts[i]), vocab);
}

/* --- preprocessing.*.expected_outputs */

static void misfit(td_plan_build_ctx *b, const td_json *at, td_str name, const td_plan_session *s, const char *what,
                   const char *wanted, const char *found) {
    td_messages_add(b->messages, td_plan_misfit(b), td_tree_place(b->messages->arena, at, false),
                    "preprocessing is expected to make \"%.*s\" of %s %s, but session \"%.*s\" takes %s %s",
                    (int)TD_MIN(name.n, (size_t)200), name.p, what, found, TD_STR_ARGS(s->name), what, wanted);
}

static void check_against(td_plan_build_ctx *b, const td_json *v, const td_plan_session *s, const td_light_port *port) {
    char wanted[24], found[24];
    const td_json *rank = td_json_get(v, "rank"), *dtype = td_json_get(v, "dtype");
    if (rank && rank->kind == TD_JSON_INT && port->shape.rank >= 0 && rank->as_int != port->shape.rank) {
        snprintf(wanted, sizeof wanted, "%d", port->shape.rank);
        snprintf(found, sizeof found, "%lld", (long long)rank->as_int);
        misfit(b, rank, v->key, s, "rank", wanted, found);
    }
    if (!dtype || dtype->kind != TD_JSON_STRING) return;
    td_dtype type = td_dtype_from_name(dtype->string);
    if (type == TD_UNDEFINED)
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, dtype, false),
                        "expected the name of an element type such as float32 or int64, found \"%.*s\"",
                        (int)TD_MIN(dtype->string.n, (size_t)200), dtype->string.p);
    else if (type != port->dtype) misfit(b, dtype, v->key, s, "type", td_dtype_name(port->dtype), td_dtype_name(type));
}

/* Every input that takes a tensor of that name from the caller. */
static void check_expected(td_plan_build_ctx *b, const td_json *v) {
    for (size_t k = 0; k < b->plan->n_sessions; k++) {
        const td_plan_session *s = &b->plan->sessions[k];
        for (size_t i = 0; s->signature && i < s->signature->n_inputs; i++)
            if (s->feeds[i].kind == TD_FEED_REQUEST && td_str_equal(s->signature->inputs[i].name, v->key))
                check_against(b, v, s, &s->signature->inputs[i]);
    }
}

/* Also of a plan that other faults ended before its flow was found. */
static int64_t find_vocab(const td_plan *plan) {
    if (plan->vocab > 0) return plan->vocab;
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        int32_t logits = s->signature ? td_plan_output_index(s, TD_STR("logits")) : -1;
        const td_shape *shape = logits >= 0 ? &s->signature->outputs[logits].shape : NULL;
        if (shape && shape->rank > 0 && shape->dims[shape->rank - 1] > 0) return shape->dims[shape->rank - 1];
    }
    return 0;
}

void td_plan_check_values(td_plan_build_ctx *b) {
    int64_t vocab = find_vocab(b->plan);
    if (vocab > 0) check_all_ids(b, vocab);
    for (int k = 0; k < TD_PREPROCESS_KINDS; k++) {
        const td_json *all = b->config->preprocess[k].expected_outputs;
        for (const td_json *v = all && all->kind == TD_JSON_OBJECT ? all->first : NULL; v; v = v->next)
            check_expected(b, v);
    }
}
