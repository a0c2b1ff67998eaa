/* plan/wire.c - declared wires: their ends exist, fit, close no circle, and no two that run
 * in one step end at one input. */
#include "plan/build.h"

int32_t td_plan_find_session(const td_plan *plan, td_str name) {
    for (size_t i = 0; i < plan->n_sessions; i++)
        if (td_str_equal(plan->sessions[i].name, name)) return (int32_t)i;
    return -1;
}

static int32_t renamed(const td_rename *rows, size_t n, td_str name, td_str *graph_name) {
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(rows[i].from, name)) {
            *graph_name = rows[i].to;
            return (int32_t)i;
        }
    return -1;
}

int32_t td_plan_input_index(const td_plan_session *session, td_str name) {
    ptrdiff_t at = td_signature_find_input(session->signature, name);
    if (at < 0 && renamed(session->config->inputs, session->config->n_inputs, name, &name) >= 0)
        at = td_signature_find_input(session->signature, name);
    return (int32_t)at;
}

int32_t td_plan_output_index(const td_plan_session *session, td_str name) {
    ptrdiff_t at = td_signature_find_output(session->signature, name);
    if (at < 0 && renamed(session->config->outputs, session->config->n_outputs, name, &name) >= 0)
        at = td_signature_find_output(session->signature, name);
    return (int32_t)at;
}

td_str td_plan_wire_name(const td_plan_session *session, bool input, size_t port) {
    td_str name = input ? session->signature->inputs[port].name : session->signature->outputs[port].name;
    const td_rename *rows = input ? session->config->inputs : session->config->outputs;
    size_t n = input ? session->config->n_inputs : session->config->n_outputs;
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(rows[i].to, name)) return rows[i].from;
    return name;
}

const char *td_plan_port_names(td_arena *arena, const td_light_port *ports, size_t n) {
    td_buf text = {0};
    for (size_t i = 0; i < n && i < 64; i++) td_buf_printf(&text, "%s%.*s", i ? ", " : "", TD_STR_ARGS(ports[i].name));
    if (n > 64) td_buf_printf(&text, ", ... (%zu)", n);
    const char *out = text.failed ? NULL : td_arena_strndup(arena, text.p ? text.p : "none", text.p ? text.n : 4);
    td_buf_free(&text);
    return out ? out : "";
}

/* "session.tensor": the session's name may hold dots, so the longest declared one wins. */
td_plan_end td_plan_resolve_end(td_plan_build_ctx *b, td_str text, const td_json *json, bool from) {
    td_plan_end out = {-1, -1};
    td_str tensor = {0};
    for (size_t i = 0; i < b->plan->n_sessions; i++) {
        td_str name = b->plan->sessions[i].name;
        if (!td_str_starts(text, name) || (text.n > name.n && text.p[name.n] != '.')) continue;
        if (out.session >= 0 && b->plan->sessions[out.session].name.n > name.n) continue;
        out.session = (int32_t)i;
        size_t begin = TD_MIN(name.n + 1, text.n); /* a session alone: a tensor without a name, which there is not */
        tensor = (td_str){text.p + begin, text.n - begin};
    }
    td_arena *arena = b->messages->arena;
    td_place place = td_tree_place(arena, json, false);
    if (out.session < 0) {
        const char *names[64] = {0};
        size_t n = 0;
        for (; n < b->plan->n_sessions && n < 63; n++)
            if (!(names[n] = td_arena_strndup(arena, b->plan->sessions[n].name.p, b->plan->sessions[n].name.n)))
                names[n] = "";
        const char *dot = memchr(text.p, '.', text.n);
        td_str session = {text.p, dot ? (size_t)(dot - text.p) : text.n};
        td_messages_add(
            b->messages, TREADLE_MESSAGE_ERROR, place,
            "Dataflow wire references session \"%.*s\" but no such session is declared in pipeline.sessions (declared: %s)%s",
            (int)TD_MIN(session.n, (size_t)200), session.p, td_words_join(arena, names),
            td_did_you_mean(arena, session, names, n));
        return out;
    }
    const td_plan_session *s = &b->plan->sessions[out.session];
    if (!s->signature) return (td_plan_end){-1, -1};
    out.port = from ? td_plan_output_index(s, tensor) : td_plan_input_index(s, tensor);
    if (out.port < 0)
        td_messages_add(b->messages, td_plan_misfit(b), place,
                        "Dataflow wire references %s \"%.*s\" but session \"%.*s\" has no such %s (available %ss: %s)",
                        from ? "output" : "input", (int)TD_MIN(tensor.n, (size_t)200), tensor.p, TD_STR_ARGS(s->name),
                        from ? "output" : "input", from ? "output" : "input",
                        from ? td_plan_port_names(arena, s->signature->outputs, s->signature->n_outputs)
                             : td_plan_port_names(arena, s->signature->inputs, s->signature->n_inputs));
    return out;
}

bool td_plan_ports_fit(const td_light_port *out, const td_light_port *in) {
    if (out->kind != TD_ONNX_TYPE_TENSOR || in->kind != TD_ONNX_TYPE_TENSOR || out->dtype != in->dtype) return false;
    if (out->shape.rank != in->shape.rank) return out->shape.rank < 0 || in->shape.rank < 0;
    for (int i = 0; i < in->shape.rank; i++)
        if (in->shape.dims[i] >= 0 && out->shape.dims[i] >= 0 && in->shape.dims[i] != out->shape.dims[i]) return false;
    return true;
}

static bool ends_fit(td_plan_build_ctx *b, const td_config_wire *wire, td_plan_end from, td_plan_end to) {
    const td_light_port *out = &b->plan->sessions[from.session].signature->outputs[from.port];
    const td_light_port *in = &b->plan->sessions[to.session].signature->inputs[to.port];
    td_place place = td_tree_place(b->messages->arena, wire->json, false);
    if (out->dtype != in->dtype) {
        td_messages_add(b->messages, td_plan_misfit(b), place, "wire from %.*s (%s) to %.*s (%s): the types differ",
                        TD_STR_ARGS(wire->from), td_dtype_name(out->dtype), TD_STR_ARGS(wire->to),
                        td_dtype_name(in->dtype));
        return false;
    }
    if (out->shape.rank < 0 || in->shape.rank < 0) return true;
    if (out->shape.rank != in->shape.rank) {
        td_messages_add(b->messages, td_plan_misfit(b), place,
                        "wire from %.*s (rank %d) to %.*s (rank %d): the ranks differ", TD_STR_ARGS(wire->from),
                        out->shape.rank, TD_STR_ARGS(wire->to), in->shape.rank);
        return false;
    }
    for (int i = 0; i < in->shape.rank; i++) {
        if (in->shape.dims[i] < 0 || out->shape.dims[i] < 0 || in->shape.dims[i] == out->shape.dims[i]) continue;
        td_messages_add(b->messages, td_plan_misfit(b), place, "wire from %.*s to %.*s: dimension %d is %lld and %lld",
                        TD_STR_ARGS(wire->from), TD_STR_ARGS(wire->to), i, (long long)out->shape.dims[i],
                        (long long)in->shape.dims[i]);
        return false;
    }
    return true;
}

void td_plan_add_wire(td_plan_build_ctx *b, td_plan_end from, td_plan_end to, bool hold, const char *why) {
    td_plan *plan = b->plan;
    int32_t index = (int32_t)plan->n_wires++;
    plan->wires[index] = (td_plan_wire){.from_session = from.session,
                                        .from_output = from.port,
                                        .to_session = to.session,
                                        .to_input = to.port,
                                        .next = -1,
                                        .hold = hold,
                                        .why = why};
    td_feed *feed = &plan->sessions[to.session].feeds[to.port];
    if (feed->kind != TD_FEED_WIRE) {
        *feed = (td_feed){TD_FEED_WIRE, index};
        return;
    }
    td_plan_wire *last = &plan->wires[feed->index];
    while (last->next >= 0) last = &plan->wires[last->next];
    last->next = index;
}

/* True if `from` can be reached from `to` over the wires so far; the way is left in path. */
static bool reaches(const td_plan *plan, int32_t to, int32_t from, bool *seen, int32_t *path, size_t *n) {
    path[(*n)++] = to;
    if (to == from) return true;
    seen[to] = true;
    for (size_t i = 0; i < plan->n_wires; i++)
        if (plan->wires[i].from_session == to && !seen[plan->wires[i].to_session] &&
            reaches(plan, plan->wires[i].to_session, from, seen, path, n))
            return true;
    (*n)--;
    return false;
}

static bool closes_circle(td_plan_build_ctx *b, const td_config_wire *wire, td_plan_end from, td_plan_end to) {
    td_plan *plan = b->plan;
    bool *seen = TD_ARENA_ARRAY(&plan->arena, bool, plan->n_sessions);
    int32_t *path = TD_ARENA_ARRAY(&plan->arena, int32_t, plan->n_sessions + 1);
    size_t n = 0;
    if (!seen || !path) {
        b->out_of_memory = true;
        return true;
    }
    if (!reaches(plan, to.session, from.session, seen, path, &n)) return false;
    td_buf text = {0};
    for (size_t i = 0; i < n; i++)
        td_buf_printf(&text, "%.*s \xe2\x86\x92 ", TD_STR_ARGS(plan->sessions[path[i]].name));
    td_buf_str(&text, plan->sessions[path[0]].name);
    td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, wire->json, false),
                    "Circular dependency detected in dataflow: %s", text.failed ? "" : text.p);
    td_buf_free(&text);
    return true;
}

/* A wire to an input that has state: it fills a cross cache, starts a recurrence, or takes the place of a cache. */
static bool wire_to_state(td_plan_build_ctx *b, td_plan_end from, td_plan_end to, bool *dropped) {
    td_plan *plan = b->plan;
    const td_feed *feed = &plan->sessions[to.session].feeds[to.port];
    if (feed->kind != TD_FEED_STATE) return false;
    td_state_tensor *s = &plan->states[feed->index];
    if (s->kind != TD_STATE_CROSS && s->kind != TD_STATE_RECURRENT) {
        dropped[feed->index] = true;
        return false;
    }
    s->from_session = from.session;
    s->from_output = from.port;
    return true;
}

void td_plan_declared_wires(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    size_t most = b->config->n_wires;
    for (size_t i = 0; i < plan->n_sessions; i++) /* every found wire has an input and a step of its own */
        if (plan->sessions[i].signature) most += plan->sessions[i].signature->n_inputs * 2;
    plan->wires = TD_ARENA_ARRAY(&plan->arena, td_plan_wire, most);
    bool *dropped = TD_ARENA_ARRAY(b->scratch, bool, plan->n_states), any = false;
    b->max_wires = most;
    if (!plan->wires || !dropped) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < b->config->n_wires && !b->out_of_memory; i++) {
        const td_config_wire *wire = &b->config->wires[i];
        td_plan_end from = td_plan_resolve_end(b, wire->from, wire->from_json, true),
                    to = td_plan_resolve_end(b, wire->to, wire->to_json, false);
        if (from.session < 0 || from.port < 0 || to.session < 0 || to.port < 0) continue;
        bool fits = td_plan_may_be_transducer(b) || ends_fit(b, wire, from, to); /* a joiner's inputs may be reshaped */
        if (!fits || closes_circle(b, wire, from, to)) continue;
        if (wire_to_state(b, from, to, dropped)) continue;
        td_plan_add_wire(b, from, to, wire->hold, "explicit");
        plan->wires[plan->n_wires - 1].config = wire;
    }
    for (size_t k = 0; k < plan->n_states; k++) any |= dropped[k];
    if (any && !b->out_of_memory) td_plan_compact_states(b, dropped);
}

void td_plan_check_ends(td_plan_build_ctx *b, int32_t except) {
    for (size_t i = 0; i < b->plan->n_wires; i++) {
        const td_plan_wire *w = &b->plan->wires[i];
        if (w->config && w->to_session != except)
            ends_fit(b, w->config, (td_plan_end){w->from_session, w->from_output},
                     (td_plan_end){w->to_session, w->to_input});
    }
}

/* The source runs before the target, in the order of the flow. */
static void check_order(td_plan_build_ctx *b, const td_plan_wire *wire) {
    const td_plan *plan = b->plan;
    int32_t from = td_plan_first_step(plan, wire->from_session), to = td_plan_first_step(plan, wire->to_session);
    if (to < 0 || (from >= 0 && from < to)) return;
    td_str source = plan->sessions[wire->from_session].name, target = plan->sessions[wire->to_session].name;
    td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, wire->config->json, false),
                    "expected \"%.*s\" to run before \"%.*s\", which its wire feeds; found it %s the flow",
                    TD_STR_ARGS(source), TD_STR_ARGS(target), from < 0 ? "in no step of" : "later in");
}

static void check_alone(td_plan_build_ctx *b, const td_plan_wire *wire) {
    const td_plan *plan = b->plan;
    for (int32_t i = wire->next; i >= 0; i = plan->wires[i].next) {
        const td_plan_wire *other = &plan->wires[i];
        if (!other->config || !td_plan_run_together(plan, wire->from_session, other->from_session)) continue;
        td_messages_add(
            b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, other->config->json, false),
            "expected one source for %.*s at a time, found %.*s and %.*s, which run in the same step",
            TD_STR_ARGS(other->config->to), TD_STR_ARGS(wire->config->from), TD_STR_ARGS(other->config->from));
    }
}

void td_plan_check_wires(td_plan_build_ctx *b) {
    for (size_t i = 0; i < b->plan->n_wires; i++) {
        const td_plan_wire *wire = &b->plan->wires[i];
        if (!wire->config || b->plan->transducer.present) continue;
        check_order(b, wire);
        check_alone(b, wire);
    }
}
