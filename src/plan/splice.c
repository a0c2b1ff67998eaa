/* plan/splice.c - features that no graph takes: they stand for the embeddings of the placeholders in a prompt.
 *
 * Where one graph makes embeddings of ids, another one features of a modality, and the decoder takes embeddings
 * alone, the features are as wide as the embeddings and the runtime puts them in their places, as
 * transformers does between its modules. */
#include "plan/build.h"

/* Floats of rank 2 or more whose last dimension fits that of the embeddings, and that nothing takes. */
static bool is_candidate(const td_plan *plan, int32_t session, size_t o, const td_light_port *embeddings) {
    const td_plan_session *s = &plan->sessions[session];
    const td_light_port *port = &s->signature->outputs[o];
    int rank = port->shape.rank;
    if (port->kind != TD_ONNX_TYPE_TENSOR || td_dtype_kind(port->dtype) != TD_KIND_FLOAT || rank < 2 ||
        s->out_state[o] >= 0 || td_plan_output_is_used(plan, session, (int32_t)o, -1))
        return false;
    int64_t have = port->shape.dims[rank - 1], want = embeddings->shape.dims[embeddings->shape.rank - 1];
    return have < 0 || want < 0 || have == want;
}

/* The one candidate, else the first that is called features; -1: none. */
static int32_t find_features(const td_plan *plan, int32_t session, const td_light_port *embeddings) {
    const td_signature *sig = plan->sessions[session].signature;
    int32_t first = -1, named = -1;
    for (size_t o = 0; o < sig->n_outputs; o++) {
        if (!is_candidate(plan, session, o, embeddings)) continue;
        if (first < 0) first = (int32_t)o;
        if (named < 0 && td_name_modality(sig->outputs[o].name) != TD_MODALITY_NONE) named = (int32_t)o;
    }
    return named >= 0 ? named : first;
}

/* The input of embeddings that a session makes of the prompt's ids; -1: it has none. */
static int32_t find_embeddings(const td_plan *plan, int32_t session) {
    const td_plan_session *s = &plan->sessions[session];
    int32_t input = td_plan_input_of_role(s, TD_ROLE_INPUTS_EMBEDS);
    if (input < 0 || s->takes_source != plan->source_prompt || s->feeds[input].kind != TD_FEED_WIRE) return -1;
    const td_plan_session *from = &plan->sessions[plan->wires[s->feeds[input].index].from_session];
    int rank = s->signature->inputs[input].shape.rank;
    return td_plan_input_of_role(from, TD_ROLE_INPUT_IDS) >= 0 && rank >= 2 ? input : -1;
}

void td_plan_find_splices(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    plan->splices = TD_ARENA_ARRAY(&plan->arena, td_plan_splice, plan->n_steps * plan->n_steps);
    if (!plan->splices) {
        b->out_of_memory = true;
        return;
    }
    for (size_t k = 0; k < plan->n_steps; k++) {
        int32_t session = plan->steps[k].session, input = find_embeddings(plan, session);
        for (size_t m = 0; m < k && input >= 0 && plan->steps[k].when != TD_WHEN_DECODE; m++) {
            const td_plan_step *encoder = &plan->steps[m];
            const td_plan_session *from = &plan->sessions[encoder->session];
            if (encoder->when != TD_WHEN_PROMPT || encoder->modality < 0 || encoder->modality >= TD_MODALITY_NONE ||
                from->takes_tokens)
                continue;
            int32_t output = find_features(plan, encoder->session, &plan->sessions[session].signature->inputs[input]);
            if (output < 0) continue;
            plan->splices[plan->n_splices++] =
                (td_plan_splice){session, input, encoder->session, output, encoder->modality};
            td_plan_note(b, session, "%.*s.%.*s take the places of %s placeholders in %.*s.%.*s: no graph takes them",
                         TD_STR_ARGS(from->name), TD_STR_ARGS(from->signature->outputs[output].name),
                         td_modality_words[encoder->modality], TD_STR_ARGS(plan->sessions[session].name),
                         TD_STR_ARGS(plan->sessions[session].signature->inputs[input].name));
        }
    }
}
