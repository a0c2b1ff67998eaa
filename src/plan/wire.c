/* plan/wire.c - what feeds each input: declared wires, roles, state, equal names, the only one that fits; what is left in a
 * session that takes no tokens is the request's, anything else is an error that names the candidates. */
#include "plan/plan.h"

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

const char *td_plan_port_names(td_arena *arena, const td_light_port *ports, size_t n) {
    td_buf text = {0};
    for (size_t i = 0; i < n && i < 64; i++) td_buf_printf(&text, "%s%.*s", i ? ", " : "", TD_STR_ARGS(ports[i].name));
    if (n > 64) td_buf_printf(&text, ", ... (%zu)", n);
    const char *out = text.failed ? NULL : td_arena_strndup(arena, text.p ? text.p : "none", text.p ? text.n : 4);
    td_buf_free(&text);
    return out ? out : "";
}

/* --- declared wires */

typedef struct end {
    int32_t session, port; /* -1: reported */
} end;

/* "session.tensor": the session's name may hold dots, so the longest declared one wins. */
static end resolve_end(td_plan_build_ctx *b, td_str text, const td_json *json, bool from) {
    end out = {-1, -1};
    td_str tensor = {0};
    for (size_t i = 0; i < b->plan->n_sessions; i++) {
        td_str name = b->plan->sessions[i].name;
        if (!td_str_starts(text, name) || text.n <= name.n + 1 || text.p[name.n] != '.') continue;
        if (out.session >= 0 && b->plan->sessions[out.session].name.n > name.n) continue;
        out.session = (int32_t)i;
        tensor = (td_str){text.p + name.n + 1, text.n - name.n - 1};
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
    if (!s->signature) return (end){-1, -1};
    out.port = from ? td_plan_output_index(s, tensor) : td_plan_input_index(s, tensor);
    if (out.port < 0)
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, place,
                        "Dataflow wire references %s \"%.*s\" but session \"%.*s\" has no such %s (available %ss: %s)",
                        from ? "output" : "input", (int)TD_MIN(tensor.n, (size_t)200), tensor.p, TD_STR_ARGS(s->name),
                        from ? "output" : "input", from ? "output" : "input",
                        from ? td_plan_port_names(arena, s->signature->outputs, s->signature->n_outputs)
                             : td_plan_port_names(arena, s->signature->inputs, s->signature->n_inputs));
    return out;
}

static bool ends_fit(td_plan_build_ctx *b, const td_config_wire *wire, end from, end to) {
    const td_light_port *out = &b->plan->sessions[from.session].signature->outputs[from.port];
    const td_light_port *in = &b->plan->sessions[to.session].signature->inputs[to.port];
    td_place place = td_tree_place(b->messages->arena, wire->json, false);
    if (out->dtype != in->dtype) {
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, place, "wire from %.*s (%s) to %.*s (%s): the types differ",
                        TD_STR_ARGS(wire->from), td_dtype_name(out->dtype), TD_STR_ARGS(wire->to),
                        td_dtype_name(in->dtype));
        return false;
    }
    if (out->shape.rank < 0 || in->shape.rank < 0) return true;
    if (out->shape.rank != in->shape.rank) {
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, place,
                        "wire from %.*s (rank %d) to %.*s (rank %d): the ranks differ", TD_STR_ARGS(wire->from),
                        out->shape.rank, TD_STR_ARGS(wire->to), in->shape.rank);
        return false;
    }
    for (int i = 0; i < in->shape.rank; i++) {
        if (in->shape.dims[i] < 0 || out->shape.dims[i] < 0 || in->shape.dims[i] == out->shape.dims[i]) continue;
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, place,
                        "wire from %.*s to %.*s: dimension %d is %lld and %lld", TD_STR_ARGS(wire->from),
                        TD_STR_ARGS(wire->to), i, (long long)out->shape.dims[i], (long long)in->shape.dims[i]);
        return false;
    }
    return true;
}

static void add_wire(td_plan_build_ctx *b, end from, end to, bool hold, const char *why) {
    td_plan *plan = b->plan;
    plan->wires[plan->n_wires] = (td_plan_wire){.from_session = from.session,
                                                .from_output = from.port,
                                                .to_session = to.session,
                                                .to_input = to.port,
                                                .next = -1,
                                                .hold = hold,
                                                .why = why};
    plan->sessions[to.session].feeds[to.port] = (td_feed){TD_FEED_WIRE, (int32_t)plan->n_wires++};
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

static bool closes_circle(td_plan_build_ctx *b, const td_config_wire *wire, end from, end to) {
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

static void declared_wires(td_plan_build_ctx *b) {
    for (size_t i = 0; i < b->config->n_wires && !b->out_of_memory; i++) {
        const td_config_wire *wire = &b->config->wires[i];
        end from = resolve_end(b, wire->from, wire->from_json, true),
            to = resolve_end(b, wire->to, wire->to_json, false);
        if (from.session < 0 || from.port < 0 || to.session < 0 || to.port < 0) continue;
        if (!ends_fit(b, wire, from, to) || closes_circle(b, wire, from, to)) continue;
        add_wire(b, from, to, wire->hold, "declared");
    }
}

/* --- found wires */

static bool ports_fit(const td_light_port *out, const td_light_port *in) {
    if (out->kind != TD_ONNX_TYPE_TENSOR || in->kind != TD_ONNX_TYPE_TENSOR || out->dtype != in->dtype) return false;
    if (out->shape.rank != in->shape.rank) return false;
    for (int i = 0; i < in->shape.rank; i++)
        if (in->shape.dims[i] >= 0 && out->shape.dims[i] >= 0 && in->shape.dims[i] != out->shape.dims[i]) return false;
    return true;
}

static bool is_unfed(const td_plan_session *s, size_t input) {
    return s->feeds[input].kind == TD_FEED_NONE && s->feeds[input].index == -1 && !s->signature->inputs[input].optional;
}

static bool output_is_used(const td_plan *plan, int32_t session, int32_t output) {
    for (size_t i = 0; i < plan->n_wires; i++)
        if (plan->wires[i].from_session == session && plan->wires[i].from_output == output) return true;
    return false;
}

/* Steps before the session's first step. */
static size_t steps_before(const td_plan *plan, int32_t session) {
    for (size_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].session == session) return i;
    return 0;
}

static void feed_roles(td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        td_role role = td_plan_role(s, i);
        if (s->feeds[i].kind != TD_FEED_NONE || role == TD_ROLE_NONE) continue;
        if (s->takes_tokens && role != TD_ROLE_INPUTS_EMBEDS) s->feeds[i] = (td_feed){TD_FEED_ROLE, (int32_t)role};
    }
}

static void equal_names(td_plan_build_ctx *b, int32_t session) {
    td_plan *plan = b->plan;
    td_plan_session *s = &plan->sessions[session];
    size_t before = steps_before(plan, session);
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind != TD_FEED_NONE || s->feeds[i].index != -1) continue;
        for (size_t k = before; k-- > 0;) {
            int32_t from = plan->steps[k].session;
            int32_t output =
                (int32_t)td_signature_find_output(plan->sessions[from].signature, s->signature->inputs[i].name);
            if (from == session || output < 0) continue;
            add_wire(b, (end){from, output}, (end){session, (int32_t)i}, false, "equal names");
            break;
        }
    }
}

/* Candidates for an unfed input: unused outputs of earlier steps that fit. Returns how many; the last in *found; names in text. */
static size_t candidates(const td_plan *plan, int32_t session, size_t input, end *found, td_buf *text) {
    size_t n = 0;
    for (size_t k = 0; k < steps_before(plan, session); k++) {
        int32_t from = plan->steps[k].session;
        const td_plan_session *f = &plan->sessions[from];
        for (size_t o = 0; o < f->signature->n_outputs; o++) {
            if (f->out_state[o] >= 0 || f->logits == (int32_t)o || output_is_used(plan, from, (int32_t)o)) continue;
            if (!ports_fit(&f->signature->outputs[o], &plan->sessions[session].signature->inputs[input])) continue;
            *found = (end){from, (int32_t)o};
            td_buf_printf(text, "%s%.*s.%.*s", n++ ? ", " : "", TD_STR_ARGS(f->name),
                          TD_STR_ARGS(f->signature->outputs[o].name));
        }
    }
    return n;
}

static void only_fitting(td_plan_build_ctx *b, int32_t session) {
    td_plan_session *s = &b->plan->sessions[session];
    size_t n_unfed = 0, input = 0, n_fed = 0;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (is_unfed(s, i)) n_unfed++, input = i;
        n_fed += s->feeds[i].kind != TD_FEED_NONE;
    }
    if (n_unfed != 1 || (!n_fed && !s->takes_tokens)) return;
    td_buf text = {0};
    end found = {-1, -1};
    if (candidates(b->plan, session, input, &found, &text) == 1) {
        add_wire(b, found, (end){session, (int32_t)input}, false, "the only one that fits");
        td_messages_add(b->messages, TREADLE_MESSAGE_NOTE, td_plan_session_place(b, s),
                        "%.*s feeds %.*s.%.*s: the only one that fits", (int)text.n, text.p, TD_STR_ARGS(s->name),
                        TD_STR_ARGS(s->signature->inputs[input].name));
    }
    td_buf_free(&text);
}

static void report_unfed(td_plan_build_ctx *b, int32_t session) {
    td_plan_session *s = &b->plan->sessions[session];
    td_buf names = {0}, text = {0};
    const char *first = NULL;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (!is_unfed(s, i)) continue;
        if (!s->takes_tokens) {
            s->feeds[i] = (td_feed){TD_FEED_REQUEST, (int32_t)i};
            continue;
        }
        td_str name = s->signature->inputs[i].name;
        end found;
        td_buf_printf(&names, "%s%.*s.%.*s (candidates: ", names.n ? ", " : "", TD_STR_ARGS(s->name),
                      TD_STR_ARGS(name));
        td_buf_clear(&text);
        if (!candidates(b->plan, session, i, &found, &text)) td_buf_text(&text, "none");
        td_buf_str(&names, td_buf_view(&text));
        td_buf_char(&names, ')');
        if (!first) first = td_arena_printf(b->messages->arena, "%.*s.%.*s", TD_STR_ARGS(s->name), TD_STR_ARGS(name));
    }
    if (names.n)
        td_messages_add(
            b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(b, s),
            "expected something to feed every input, found nothing for %s. Add {\"from\": \"SESSION.OUTPUT\", \"to\": \"%s\"} "
            "to pipeline.dataflow",
            names.p, first ? first : "");
    if (names.failed || text.failed) b->out_of_memory = true;
    td_buf_free(&names);
    td_buf_free(&text);
}

void td_plan_find_wires(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    size_t most = b->config->n_wires;
    bool complete = b->messages->n_errors == 0;
    for (size_t i = 0; i < plan->n_sessions; i++)
        if (plan->sessions[i].signature) most += plan->sessions[i].signature->n_inputs;
    plan->wires = TD_ARENA_ARRAY(&plan->arena, td_plan_wire, most);
    if (!plan->wires) {
        b->out_of_memory = true;
        return;
    }
    declared_wires(b);
    /* Guesses over a config with faults would only add messages that are not true. */
    if (!complete || b->messages->n_errors || b->out_of_memory) return;
    for (size_t k = 0; k < plan->n_steps; k++) feed_roles(&plan->sessions[plan->steps[k].session]);
    for (size_t k = 0; k < plan->n_steps; k++) equal_names(b, plan->steps[k].session);
    for (size_t k = 0; k < plan->n_steps; k++) only_fitting(b, plan->steps[k].session);
    for (size_t k = 0; k < plan->n_steps; k++) report_unfed(b, plan->steps[k].session);
}
