/* plan/roles.c - what the nodes around an input say: roles that no name tells, who takes the caches, tables of positions. */
#include "plan/plan.h"

/* Other names in use for a role; only integers are looked at. */
static const struct {
    const char *name;
    td_role role;
} aliases[] = {
    {"tokens", TD_ROLE_INPUT_IDS},
    {"token_ids", TD_ROLE_INPUT_IDS},
    {"ids", TD_ROLE_INPUT_IDS},
    {"input_tokens", TD_ROLE_INPUT_IDS},
    {"mask", TD_ROLE_ATTENTION_MASK},
    {"positions", TD_ROLE_POSITION_IDS},
    {"pos_ids", TD_ROLE_POSITION_IDS},
    {"position", TD_ROLE_POSITION_IDS},
    {"past_seq_len", TD_ROLE_PAST_SEQUENCE_LENGTH},
    {"total_seq_len", TD_ROLE_TOTAL_SEQUENCE_LENGTH},
};

enum { GQA_PAST_KEY = 3, GQA_PAST_VALUE = 4, GQA_SEQLENS = 5, GQA_TOTAL = 6, GQA_COS = 7 };

static bool is_gqa(const td_onnx_node *node) {
    return td_str_is(node->op_type, "GroupQueryAttention") && td_str_is(node->domain, "com.microsoft");
}

static bool takes(const td_onnx_node *node, size_t slot, td_str name) {
    return slot < node->n_inputs && td_str_equal(node->inputs[slot], name);
}

/* The role of an input by the slot of the attention op that takes it. */
static td_role role_by_use(const td_onnx_graph *graph, td_str name) {
    for (size_t i = 0; i < graph->n_nodes; i++) {
        if (!is_gqa(&graph->nodes[i])) continue;
        if (takes(&graph->nodes[i], GQA_SEQLENS, name)) return TD_ROLE_SEQLENS_K;
        if (takes(&graph->nodes[i], GQA_TOTAL, name)) return TD_ROLE_TOTAL_SEQUENCE_LENGTH;
    }
    return TD_ROLE_NONE;
}

static bool is_integer(td_dtype dtype) {
    td_kind kind = td_dtype_kind(dtype);
    return kind == TD_KIND_INT || kind == TD_KIND_UINT || kind == TD_KIND_BOOL;
}

static td_role role_of(const td_plan_session *s, const td_light_port *port) {
    int role = td_words_find(td_role_words, port->name);
    for (size_t i = 0; role < 0 && i < s->config->n_inputs; i++)
        if (td_str_equal(s->config->inputs[i].to, port->name))
            role = td_words_find(td_role_words, s->config->inputs[i].from);
    if (role >= 0) return (td_role)role;
    return port->kind == TD_ONNX_TYPE_TENSOR && is_integer(port->dtype)
               ? role_by_use(&s->signature->model->graph, port->name)
               : TD_ROLE_NONE;
}

int32_t td_plan_input_of_role(const td_plan_session *session, td_role role) {
    for (size_t i = 0; i < session->signature->n_inputs; i++)
        if (session->roles[i] == role) return (int32_t)i;
    return -1;
}

void td_plan_find_roles(td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs; i++) s->roles[i] = role_of(s, &s->signature->inputs[i]);
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        if (s->roles[i] != TD_ROLE_NONE || port->kind != TD_ONNX_TYPE_TENSOR || !is_integer(port->dtype)) continue;
        for (size_t k = 0; k < TD_COUNT(aliases); k++)
            if (td_str_is(port->name, aliases[k].name) && td_plan_input_of_role(s, aliases[k].role) < 0)
                s->roles[i] = aliases[k].role;
    }
}

bool td_plan_all_gqa(const td_plan *plan, int32_t session) {
    const td_signature *sig = plan->sessions[session].signature;
    bool any = false;
    for (size_t k = 0; k < plan->n_states; k++) {
        if (plan->states[k].session != session) continue;
        td_str name = sig->inputs[plan->states[k].input].name;
        for (size_t i = 0; i < sig->model->graph.n_nodes; i++) {
            const td_onnx_node *node = &sig->model->graph.nodes[i];
            for (size_t slot = 0; slot < node->n_inputs; slot++) {
                if (!td_str_equal(node->inputs[slot], name)) continue;
                if (!is_gqa(node) || (slot != GQA_PAST_KEY && slot != GQA_PAST_VALUE)) return false;
                any = true;
            }
        }
    }
    return any;
}

static const td_onnx_tensor *initializer(const td_onnx_graph *graph, td_str name) {
    for (size_t i = 0; i < graph->n_initializers; i++)
        if (td_str_equal(graph->initializers[i].name, name)) return &graph->initializers[i];
    return NULL;
}

int64_t td_plan_position_table(const td_plan_session *session) {
    const td_onnx_graph *graph = &session->signature->model->graph;
    int32_t input = td_plan_input_of_role(session, TD_ROLE_POSITION_IDS);
    td_str positions = input < 0 ? (td_str){0} : session->signature->inputs[input].name;
    int64_t shortest = 0;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const td_onnx_node *node = &graph->nodes[i];
        td_str table = {0};
        if (td_str_is(node->op_type, "Gather") && positions.n && takes(node, 1, positions)) table = node->inputs[0];
        else if (is_gqa(node) && node->n_inputs > GQA_COS) table = node->inputs[GQA_COS];
        const td_onnx_tensor *t = table.n ? initializer(graph, table) : NULL;
        if (t && t->rank > 0 && t->dims[0] > 0 && (!shortest || t->dims[0] < shortest)) shortest = t->dims[0];
    }
    return shortest;
}
