/* plan/batching.c - how the decode steps of several rows share a run.
 *
 * All that runs while decoding must take any number of rows: by its ids or embeddings, by its state, by what wires
 * bring it. Then what it takes decides which rows may run together: a length per row, a mask with positions, or
 * neither of them, which leaves rows of equal length. Evidence is the free dimension that a graph's signature gives
 * its rows, and that dimension's name. */
#include "plan/build.h"

static bool is_decode(const td_plan_step *step) { return step->when == TD_WHEN_ALWAYS || step->when == TD_WHEN_DECODE; }

bool td_plan_runs_in_decode(const td_plan *plan, int32_t session) {
    for (size_t k = 0; k < plan->n_steps; k++)
        if (plan->steps[k].session == session && is_decode(&plan->steps[k])) return true;
    return false;
}

/* A dimension that counts rows: a free one, or the number of rows that the graph takes. */
static bool counts_rows(int64_t dim, int64_t fixed) { return dim < 0 || (fixed > 1 && dim == fixed); }

/* An input that the runtime makes: it has a dimension for rows, or one value serves all.
 * *equal: only rows of equal length. */
static bool role_takes_rows(const td_plan *plan, td_role role, const td_shape *shape, int64_t fixed, bool *equal) {
    switch (role) {
    case TD_ROLE_INPUT_IDS:
    case TD_ROLE_DECODER_INPUT_IDS:
        return (shape->rank == 2 || (shape->rank == 1 && fixed > 1)) && counts_rows(shape->dims[0], fixed);
    case TD_ROLE_POSITION_IDS:
        if (shape->rank == 3) return counts_rows(shape->dims[plan->mrope.axis == 0 ? 1 : 0], fixed);
        return shape->rank == 2 && counts_rows(shape->dims[0], fixed);
    case TD_ROLE_CACHE_POSITION:
    case TD_ROLE_PAST_SEQUENCE_LENGTH:
    case TD_ROLE_CURRENT_SEQUENCE_LENGTH: *equal = true; return true;
    case TD_ROLE_SOURCE_IDS: /* sources have lengths of their own */
    case TD_ROLE_CUMULATIVE_SEQUENCE_LENGTH:
    case TD_ROLE_BLOCK_TABLE: return false;
    case TD_ROLE_NUM_LOGITS_TO_KEEP:
    case TD_ROLE_TOTAL_SEQUENCE_LENGTH:
    case TD_ROLE_USE_CACHE_BRANCH: return true;
    default: return shape->rank < 1 || counts_rows(shape->dims[0], fixed);
    }
}

/* A value from another session: it counts rows along dimension 0 on both sides. */
static bool wire_takes_rows(const td_plan_build_ctx *b, const td_plan_session *s, int32_t session, size_t input,
                            int32_t first) {
    const td_plan *plan = b->plan;
    const td_light_port *port = &s->signature->inputs[input];
    td_str rows;
    int64_t number;
    td_plan_find_rows(b, session, &rows, &number);
    bool brings = false;
    for (int32_t w = first; w >= 0; w = plan->wires[w].next) {
        const td_plan_wire *wire = &plan->wires[w];
        const td_light_port *from = &plan->sessions[wire->from_session].signature->outputs[wire->from_output];
        if (!td_plan_runs_in_decode(plan, wire->from_session) && !wire->once && !wire->hold) continue;
        if (from->shape.rank > 0 && from->shape.dims[0] > 1 && !counts_rows(from->shape.dims[0], s->fixed_rows))
            return false;
        brings = true;
    }
    if (!brings) return true; /* zero rows while decoding */
    if (port->shape.rank < 2 || !counts_rows(port->shape.dims[0], s->fixed_rows)) return false;
    return !rows.n || number > 0 || td_str_equal(port->dim_names[0], rows);
}

static bool session_takes_rows(const td_plan_build_ctx *b, int32_t session, bool *equal) {
    const td_plan_session *s = &b->plan->sessions[session];
    if (s->fixed_rows == 1 || s->takes_source || s->starts_afresh) return false;
    if (s->takes_tokens && s->fixed_rows != b->plan->rows_per_run) return false;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_shape *shape = &s->signature->inputs[i].shape;
        switch (s->feeds[i].kind) {
        case TD_FEED_ROLE:
            if (!role_takes_rows(b->plan, (td_role)s->feeds[i].index, shape, s->fixed_rows, equal)) return false;
            break;
        case TD_FEED_WIRE:
            if (!wire_takes_rows(b, s, session, i, s->feeds[i].index)) return false;
            break;
        case TD_FEED_REQUEST: return false;
        case TD_FEED_STATE:
        case TD_FEED_NONE: break;
        }
    }
    return true;
}

/* Kinds whose old positions stand still can be masked; others have no place for padding. */
static bool states_take_rows(const td_plan *plan, bool *equal) {
    bool past = false;
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (s->batch_axis < 0 || !counts_rows(s->shape.dims[s->batch_axis], plan->rows_per_run)) return false;
        if (s->kind == TD_STATE_CROSS) {
            if (s->from_session >= 0 && s->from_session != s->session && td_plan_runs_in_decode(plan, s->from_session))
                return false;
            continue;
        }
        past = true;
        *equal |= s->kind != TD_STATE_SEPARATE && s->kind != TD_STATE_COMBINED;
    }
    return past;
}

static bool has_caches(const td_plan *plan, const td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->feeds[i].kind == TD_FEED_STATE && plan->states[s->feeds[i].index].kind != TD_STATE_CROSS) return true;
    return false;
}

/* New columns go behind one common end, not behind each row's own. */
static bool gives_new(const td_plan_session *s) {
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        if (s->gives_new[o]) return true;
    return false;
}

static bool has_role(const td_plan_session *s, td_role role) { return td_plan_input_of_role(s, role) >= 0; }

static int64_t find_rows_per_run(const td_plan *plan) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        int64_t rows = plan->sessions[plan->steps[k].session].fixed_rows;
        if (is_decode(&plan->steps[k]) && rows > 1) return rows;
    }
    return 0;
}

static td_batching find_batching(const td_plan_build_ctx *b) {
    const td_plan *plan = b->plan;
    bool equal = plan->rows_per_run > 1, lengths = true, masked = plan->has_positions;
    if (plan->window.size > 0 || !states_take_rows(plan, &equal)) return TD_BATCH_APART;
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_step *step = &plan->steps[k];
        const td_plan_session *s = &plan->sessions[step->session];
        if (!is_decode(step)) continue;
        if (step->loop == TD_LOOP_PER_IMAGE || !session_takes_rows(b, step->session, &equal)) return TD_BATCH_APART;
        if (!has_caches(plan, s)) continue;
        bool mask = has_role(s, TD_ROLE_ATTENTION_MASK);
        lengths &= td_plan_all_gqa(b, step->session) && !gives_new(s) && (mask || has_role(s, TD_ROLE_SEQLENS_K));
        masked &= mask && !td_plan_all_gqa(b, step->session);
    }
    return equal ? TD_BATCH_EQUAL : lengths ? TD_BATCH_LENGTHS : masked ? TD_BATCH_MASK : TD_BATCH_EQUAL;
}

void td_plan_find_batching(td_plan_build_ctx *b) {
    b->plan->rows_per_run = find_rows_per_run(b->plan);
    if (b->plan->decoder >= 0 && !b->plan->transducer.present) b->plan->batching = find_batching(b);
}
