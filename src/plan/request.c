/* plan/request.c - the tensors that a caller gives, and which inputs something need not feed. */
#include "plan/build.h"

int32_t td_plan_find_request(const td_plan *plan, td_str name) {
    for (size_t i = 0; i < plan->n_requests; i++)
        if (td_str_equal(plan->requests[i].name, name)) return (int32_t)i;
    for (size_t i = 0; i < plan->n_requests; i++) {
        const td_plan_request *r = &plan->requests[i];
        if (r->session >= 0 &&
            td_str_equal(td_plan_wire_name(&plan->sessions[r->session], true, (size_t)r->input), name))
            return (int32_t)i;
    }
    return -1;
}

/* "attention_mask", "pixel_mask", "features_mask"; 1 is padding in a "padding_mask". */
static bool is_mask(td_str name) { return td_name_has_word(name, "mask") && !td_name_has_word(name, "padding"); }

int32_t td_plan_request_of(td_plan_build_ctx *b, td_str name, bool optional) {
    td_plan *plan = b->plan;
    int32_t found = td_plan_find_request(plan, name);
    if (found >= 0) {
        plan->requests[found].optional &= optional;
        return found;
    }
    if (plan->n_requests == b->max_requests) {
        size_t room = TD_MAX(b->max_requests * 2, (size_t)16);
        td_plan_request *more = TD_ARENA_ARRAY(&plan->arena, td_plan_request, room);
        if (!more) {
            b->out_of_memory = true;
            return -1;
        }
        if (plan->n_requests) memcpy(more, plan->requests, plan->n_requests * sizeof *more);
        plan->requests = more;
        b->max_requests = room;
    }
    plan->requests[plan->n_requests] =
        (td_plan_request){.name = name, .session = -1, .input = -1, .optional = optional, .mask = is_mask(name)};
    return (int32_t)plan->n_requests++;
}

/* Exporters may say in a graph's metadata that an input may stay away: a key that ends so, whatever stands before. */
static bool optional_by_metadata(const td_light_port *port) {
    for (size_t i = 0; i < port->n_props; i++)
        if (td_str_ends(port->props[i].key, TD_STR("optional_input.presence"))) return true;
    return false;
}

bool td_plan_is_optional(const td_plan_session *session, size_t input) {
    const td_light_port *port = &session->signature->inputs[input];
    const td_config_session *c = session->config;
    td_str name = td_plan_wire_name(session, true, input);
    for (size_t i = 0; i < c->n_optional; i++)
        if (td_str_equal(c->optional[i], port->name) || td_str_equal(c->optional[i], name)) return true;
    return port->optional || optional_by_metadata(port);
}

int32_t td_plan_metadata_modality(const td_signature *sig) {
    const td_onnx_prop *props[2] = {sig->model->props, sig->model->graph.props};
    size_t n[2] = {sig->model->n_props, sig->model->graph.n_props};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < n[k]; i++)
            if (td_str_ends(props[k][i].key, TD_STR("when_present")))
                return td_words_find(td_modality_words, props[k][i].value);
    return -1;
}
