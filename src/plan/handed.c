/* plan/handed.c - inputs that take what another session makes of the tokens of this run: hidden states between stages,
 * an encoder's for its decoder. Their names may speak of states, and the graph may give something of the same type and
 * shape, yet nothing of them is kept for the next run.
 *
 * What says so is a wire of the config, or an output of another session with the very name, which has a place for each
 * token. In graphs of single tokens that cannot be seen: there the name must be that of hidden states. */
#include "plan/build.h"

typedef struct maker {
    td_plan_end end;
    int32_t next; /* another output of that name; -1: none */
} maker;

typedef struct makers {
    td_map heads; /* name: its first in items */
    maker *items;
} makers;

static bool index_outputs(const td_plan_build_ctx *b, makers *out) {
    const td_plan *plan = b->plan;
    size_t n = 0;
    for (size_t k = 0; k < plan->n_sessions; k++)
        if (plan->sessions[k].signature) n += plan->sessions[k].signature->n_outputs;
    out->heads = (td_map){0};
    out->items = TD_ARENA_ARRAY(b->scratch, maker, n);
    bool ok = out->items && td_map_reserve(&out->heads, n);
    n = 0;
    for (size_t k = 0; ok && k < plan->n_sessions; k++)
        for (size_t o = 0; ok && plan->sessions[k].signature && o < plan->sessions[k].signature->n_outputs; o++) {
            td_str name = td_plan_wire_name(&plan->sessions[k], false, o);
            uint64_t head;
            int32_t next = td_map_get(&out->heads, name, &head) ? (int32_t)head : -1;
            out->items[n] = (maker){{(int32_t)k, (int32_t)o}, next};
            ok = td_map_set(&out->heads, name, n++);
        }
    return ok;
}

/* Some dimension counts neither rows nor anything fixed. */
static bool has_positions(const td_plan_build_ctx *b, td_plan_end from) {
    const td_light_port *port = td_plan_out(b->plan, from);
    const td_plan_session *s = &b->plan->sessions[from.session];
    int32_t token = td_plan_token_input(s);
    const td_light_port *ids = token < 0 ? NULL : &s->signature->inputs[token];
    td_str rows = ids && ids->shape.rank > 1 ? ids->dim_names[0] : port->dim_names[0];
    bool rows_first =
        port->shape.rank > 0 && (port->shape.dims[0] < 0 || (ids && s->fixed_rows == port->shape.dims[0]));
    for (int i = 1; i < port->shape.rank; i++) {
        td_str name = port->dim_names[i];
        if (port->shape.dims[i] < 0 && (name.n && rows.n ? !td_str_equal(name, rows) : rows_first)) return true;
    }
    return false;
}

/* Whether the session takes back what its output gives. */
static bool continues(const td_plan_build_ctx *b, td_plan_end from) {
    const td_name_parts *out = &b->outs[from.session][from.port];
    for (size_t i = 0; i < b->plan->sessions[from.session].signature->n_inputs; i++)
        if (!b->handed[from.session][i] && td_name_same_stem(&b->ins[from.session][i], out)) return true;
    return false;
}

static bool hands_on(const td_plan_build_ctx *b, td_plan_end from, td_plan_end to) {
    const td_light_port *out = td_plan_out(b->plan, from), *in = td_plan_in(b->plan, to);
    if (from.session == to.session || !td_plan_ports_fit(out, in)) return false;
    if (has_positions(b, from)) return true;
    td_str name = td_plan_wire_name(&b->plan->sessions[to.session], true, (size_t)to.port);
    return td_name_has_word(name, "hidden") && td_name_has_word(name, "states") && !continues(b, from);
}

static bool may_be_handed(const td_plan_build_ctx *b, td_plan_end to) {
    const td_name_parts *name = &b->ins[to.session][to.port];
    const td_light_port *port = td_plan_in(b->plan, to);
    return !name->says_time && name->part == TD_PART_OTHER && port->kind == TD_ONNX_TYPE_TENSOR &&
           (port->shape.rank == 2 || port->shape.rank == 3) && td_dtype_kind(port->dtype) == TD_KIND_FLOAT;
}

/* The session and port that "session.name" means; session -1: none. */
static td_plan_end find_end(const td_plan *plan, td_str text, bool input) {
    for (size_t k = 0; k < plan->n_sessions; k++) {
        const td_plan_session *s = &plan->sessions[k];
        if (!s->signature || !td_str_starts(text, s->name) || text.n <= s->name.n || text.p[s->name.n] != '.') continue;
        td_str name = {text.p + s->name.n + 1, text.n - s->name.n - 1};
        int32_t port = input ? td_plan_input_index(s, name) : td_plan_output_index(s, name);
        if (port >= 0) return (td_plan_end){(int32_t)k, port};
    }
    return (td_plan_end){-1, -1};
}

static void by_wires(td_plan_build_ctx *b) {
    for (size_t i = 0; i < b->config->n_wires; i++) {
        td_plan_end from = find_end(b->plan, b->config->wires[i].from, false),
                    to = find_end(b->plan, b->config->wires[i].to, true);
        if (from.session < 0 || to.session < 0 || !may_be_handed(b, to)) continue;
        b->handed[to.session][to.port] |= hands_on(b, from, to);
    }
}

/* false: nothing new was found. */
static bool by_names(td_plan_build_ctx *b, const makers *made) {
    bool any = false;
    for (size_t k = 0; k < b->plan->n_sessions; k++) {
        const td_plan_session *s = &b->plan->sessions[k];
        for (size_t i = 0; s->signature && i < s->signature->n_inputs; i++) {
            td_plan_end to = {(int32_t)k, (int32_t)i};
            uint64_t head;
            if (b->handed[k][i] || !may_be_handed(b, to)) continue;
            if (!td_map_get(&made->heads, td_plan_wire_name(s, true, i), &head)) continue;
            for (int32_t m = (int32_t)head; m >= 0 && !b->handed[k][i]; m = made->items[m].next)
                any |= b->handed[k][i] = hands_on(b, made->items[m].end, to);
        }
    }
    return any;
}

void td_plan_find_handed(td_plan_build_ctx *b) {
    enum { MOST_STEPS = 10 };
    size_t n = b->plan->n_sessions;
    makers made;
    b->handed = TD_ARENA_ARRAY(b->scratch, bool *, n);
    b->out_of_memory |= !b->handed;
    for (size_t k = 0; k < n && !b->out_of_memory; k++) {
        const td_signature *sig = b->plan->sessions[k].signature;
        b->handed[k] = TD_ARENA_ARRAY(b->scratch, bool, sig ? sig->n_inputs : 0);
        b->out_of_memory |= !b->handed[k];
    }
    if (b->out_of_memory || n < 2) return;
    if (index_outputs(b, &made)) {
        by_wires(b);
        for (int i = 0; i < MOST_STEPS && by_names(b, &made); i++) {}
    } else b->out_of_memory = true;
    td_map_free(&made.heads);
}
