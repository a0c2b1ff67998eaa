/* plan/transducer.c - encoder, predictor and joiner, found by what they take.
 *
 * A joiner takes two tensors of floats, has no state, and gives one; the predictor takes the tokens so far (with a
 * recurrence, or the last few of them); the encoder is what is left and feeds the other input. Predictor and joiner may
 * be one graph. Which input of the joiner is whose: declared wires, then equal names, then words, then the one size
 * that only one of them has. Source: Graves, Sequence transduction with recurrent neural networks, 2012; section 4 of
 * the contract of the config. */
#include "plan/build.h"

typedef struct search {
    td_plan_build_ctx *b;
    bool hinted; /* the config says that it is a transducer */
    td_plan_transducer t;
} search;

static bool is_kind(const td_light_port *port, bool floats) {
    td_kind kind = td_dtype_kind(port->dtype);
    if (port->kind != TD_ONNX_TYPE_TENSOR) return false;
    return floats ? kind == TD_KIND_FLOAT : kind == TD_KIND_INT || kind == TD_KIND_UINT;
}

static bool has_any(td_str name, const char *const *words) {
    for (; *words; words++)
        if (td_name_has_word(name, *words)) return true;
    return false;
}

/* By the graph's name or by io's. */
static bool is_length(const td_plan_session *s, bool input, size_t i) {
    static const char *const lengths[] = {"len", "length", "lens", "lengths", NULL};
    const td_light_port *port = input ? &s->signature->inputs[i] : &s->signature->outputs[i];
    return has_any(port->name, lengths) || has_any(td_plan_wire_name(s, input, i), lengths);
}

/* The port of integers, neither state nor wired, that counts the frames of each row: by name, else
 * the only one of one dimension. */
static int32_t find_length(const td_plan_session *s, bool input) {
    size_t n = input ? s->signature->n_inputs : s->signature->n_outputs, n_flat = 0;
    int32_t flat = -1;
    for (size_t i = 0; i < n; i++) {
        const td_light_port *port = input ? &s->signature->inputs[i] : &s->signature->outputs[i];
        bool taken = input ? !td_plan_is_unfed(s, i) : s->out_state[i] >= 0;
        if (taken || !is_kind(port, false)) continue;
        if (is_length(s, input, i)) return (int32_t)i;
        if (port->shape.rank != 1) continue;
        flat = (int32_t)i;
        n_flat++;
    }
    return n_flat == 1 ? flat : -1;
}

static bool has_state(const td_plan *plan, int32_t session, bool recurrent) {
    for (size_t k = 0; k < plan->n_states; k++)
        if (plan->states[k].session == session && (plan->states[k].kind == TD_STATE_RECURRENT) == recurrent)
            return true;
    return false;
}

/* Inputs of floats that are no state; the first two in out. */
static size_t float_inputs(const td_plan_session *s, int32_t out[2]) {
    size_t n = 0;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        if (s->feeds[i].kind == TD_FEED_STATE || !is_kind(port, true) || port->shape.rank < 2) continue;
        if (n < 2) out[n] = (int32_t)i;
        n++;
    }
    return n;
}

static size_t float_outputs(const td_plan_session *s, int32_t *out) {
    size_t n = 0;
    for (size_t o = s->signature->n_outputs; o-- > 0;) {
        const td_light_port *port = &s->signature->outputs[o];
        if (s->out_state[o] >= 0 || !is_kind(port, true) || port->shape.rank < 2) continue;
        *out = (int32_t)o;
        n++;
    }
    return n;
}

static bool takes_targets(search *f, int32_t session) {
    const td_plan_session *s = &f->b->plan->sessions[session];
    int32_t flat = -1;
    f->t.targets = f->t.targets_length = -1;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        if (s->feeds[i].kind == TD_FEED_STATE || !is_kind(port, false)) continue;
        if (is_length(s, true, i)) f->t.targets_length = (int32_t)i;
        else if (port->shape.rank == 1 && flat < 0) flat = (int32_t)i;
        else if (port->shape.rank == 2 && f->t.targets < 0) f->t.targets = (int32_t)i;
    }
    int32_t *spare = f->t.targets < 0 ? &f->t.targets : &f->t.targets_length;
    if (*spare < 0) *spare = flat; /* one number of each row is a length where something else has the tokens */
    if (f->t.targets < 0) return false;
    const td_shape *shape = &s->signature->inputs[f->t.targets].shape;
    f->t.context = shape->rank == 2 && shape->dims[1] > 1 ? shape->dims[1] : 1;
    return true;
}

/* Tokens in, one tensor of floats out, and a recurrence (or the config's word) between. */
static bool is_predictor(search *f, int32_t session) {
    const td_plan *plan = f->b->plan;
    const td_plan_session *s = &plan->sessions[session];
    int32_t ins[2];
    if (float_inputs(s, ins) || has_state(plan, session, false) || float_outputs(s, &f->t.predicted) != 1) return false;
    if (td_str_is(td_plan_wire_name(s, false, (size_t)f->t.predicted), "logits")) return false;
    return takes_targets(f, session) && (has_state(plan, session, true) || f->hinted);
}

static bool is_joiner(search *f, int32_t session) {
    const td_plan *plan = f->b->plan;
    const td_plan_session *s = &plan->sessions[session];
    int32_t ins[2];
    return float_inputs(s, ins) == 2 && s->signature->n_inputs == 2 && float_outputs(s, &f->t.logits) == 1 &&
           !has_state(plan, session, true) && !has_state(plan, session, false);
}

/* One graph for both: tokens, a recurrence and frames in; logits of four dimensions out. */
static bool is_both(search *f, int32_t session) {
    const td_plan *plan = f->b->plan;
    const td_plan_session *s = &plan->sessions[session];
    int32_t ins[2];
    if (float_inputs(s, ins) != 1 || !has_state(plan, session, true) || has_state(plan, session, false)) return false;
    if (float_outputs(s, &f->t.logits) != 1 || !takes_targets(f, session)) return false;
    f->t.joiner_frame = ins[0];
    return s->signature->outputs[f->t.logits].shape.rank == 4 || f->hinted;
}

/* --- which is whose */

static bool is_wired(const td_plan *plan, td_plan_end from, td_plan_end to) {
    for (size_t i = 0; i < plan->n_wires; i++) {
        const td_plan_wire *w = &plan->wires[i];
        if (w->from_session == from.session && w->from_output == from.port && w->to_session == to.session &&
            w->to_input == to.port)
            return true;
    }
    return false;
}

/* How well an output feeds an input of the joiner; the last dimension is the joiner's, whatever the layout. */
static int score(const td_plan *plan, td_plan_end from, td_plan_end to, const char *const *words) {
    const td_light_port *out = td_plan_out(plan, from), *in = td_plan_in(plan, to);
    int points = is_wired(plan, from, to) ? 100 : 0;
    if (out->dtype != in->dtype) return -1000;
    if (td_str_equal(out->name, in->name)) points += 50;
    if (has_any(in->name, words)) points += 10;
    for (int i = 1; i < in->shape.rank; i++)
        for (int k = 1; k < out->shape.rank; k++)
            if (in->shape.dims[i] > 1 && in->shape.dims[i] == out->shape.dims[k]) points++;
    return points;
}

static const char *const frame_words[] = {"encoder", "enc", "audio", "acoustic", "frame", "am", NULL};
static const char *const label_words[] = {"decoder", "dec", "predictor", "pred", "prediction", "label", "lm", NULL};

static void assign_joiner(search *f) {
    const td_plan *plan = f->b->plan;
    int32_t ins[2] = {0, 0};
    float_inputs(&plan->sessions[f->t.joiner], ins);
    td_plan_end frames = {f->t.encoder, f->t.frames_output}, label = {f->t.predictor, f->t.predicted};
    td_plan_end first = {f->t.joiner, ins[0]}, second = {f->t.joiner, ins[1]};
    int straight = score(plan, frames, first, frame_words) + score(plan, label, second, label_words);
    int crossed = score(plan, frames, second, frame_words) + score(plan, label, first, label_words);
    f->t.joiner_frame = straight >= crossed ? ins[0] : ins[1];
    f->t.joiner_predicted = straight >= crossed ? ins[1] : ins[0];
}

/* Of [batch, frames, dim] or [batch, dim, frames] the dimension that counts frames: the one that
 * is no size of the joiner's. */
static int find_frames_axis(const td_light_port *out, const td_light_port *in) {
    if (out->shape.rank < 3) return 1;
    for (int axis = 1; axis <= 2; axis++) {
        int64_t other = out->shape.dims[3 - axis];
        for (int i = 1; i < in->shape.rank; i++)
            if (other > 1 && in->shape.dims[i] == other && out->shape.dims[axis] != other) return axis;
    }
    return out->shape.dims[1] >= 0 && out->shape.dims[2] < 0 ? 2 : 1;
}

/* The encoder: a session with a tensor of floats for the joiner, and no tokens. One that carries no
 * caches before one that does. */
static bool find_encoder(search *f) {
    const td_plan *plan = f->b->plan;
    int best_points = -1;
    for (int32_t s = 0; s < (int32_t)plan->n_sessions; s++) {
        const td_plan_session *ps = &plan->sessions[s];
        if (s == f->t.predictor || s == f->t.joiner || ps->takes_tokens) continue;
        int32_t output = -1, ins[2];
        if (!float_outputs(ps, &output) || !float_inputs(ps, ins)) continue;
        if (!td_name_has_word(ps->name, "encoder") && ps->signature->outputs[output].shape.rank < 3) continue;
        int points = 2 * (int)td_name_has_word(ps->name, "encoder") + !has_state(plan, s, true);
        for (size_t i = 0; i < plan->n_wires; i++)
            if (plan->wires[i].from_session == s && plan->wires[i].to_session == f->t.joiner) {
                points += 10;
                output = plan->wires[i].from_output;
            }
        if (points <= best_points) continue;
        best_points = points;
        f->t.encoder = s;
        f->t.frames_output = output;
    }
    return best_points >= 0;
}

static void find_numbers(search *f) {
    const td_config *c = f->b->config;
    const td_plan_session *joiner = &f->b->plan->sessions[f->t.joiner];
    const td_shape *shape = &joiner->signature->outputs[f->t.logits].shape;
    int64_t *durations = TD_ARENA_ARRAY(&f->b->plan->arena, int64_t, c->generation.n_durations);
    if (!durations) {
        f->b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < c->generation.n_durations; i++) durations[i] = c->generation.durations[i];
    f->t.durations = durations;
    f->t.n_durations = c->generation.n_durations;
    f->t.max_symbols = TD_MAX(c->generation.max_symbols_per_step, (int64_t)0);
    f->t.blank_penalty = (float)c->generation.blank_penalty;
    f->t.blank = c->tokens.blank;
    int64_t last = shape->rank > 0 ? shape->dims[shape->rank - 1] - (int64_t)f->t.n_durations - 1 : -1;
    if (f->t.blank >= 0) return;
    if (last >= 0 && last <= INT32_MAX) {
        f->t.blank = (int32_t)last;
        td_plan_note(f->b, f->t.joiner, "tokens.blank is not said: the last id, %lld, is taken", (long long)last);
        return;
    }
    td_messages_add(f->b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(f->b, joiner),
                    "a transducer needs tokens.blank, the id that stands for no token; found none");
}

static bool find_parts(search *f) {
    const td_plan *plan = f->b->plan;
    int32_t n = (int32_t)plan->n_sessions;
    for (int32_t p = 0; p < n; p++) {
        if (is_both(f, p)) {
            f->t.predictor = f->t.joiner = p;
            f->t.predicted = f->t.joiner_predicted = -1;
            if (find_encoder(f)) return true;
        }
        if (!is_predictor(f, p)) continue;
        for (int32_t j = 0; j < n; j++) {
            if (j == p || !is_joiner(f, j)) continue;
            f->t.predictor = p;
            f->t.joiner = j;
            if (find_encoder(f)) return true;
        }
    }
    return false;
}

bool td_plan_may_be_transducer(const td_plan_build_ctx *b) {
    const td_json *pipeline = td_json_get(b->config->root, "pipeline");
    return b->config->tokens.blank >= 0 || td_str_is(td_json_string_or(pipeline, "extends", ""), "transducer");
}

static bool find_all(search *f) {
    const td_plan *plan = f->b->plan;
    if (plan->n_sessions < 2 || plan->n_sessions > 16) return false;
    for (size_t i = 0; i < plan->n_sessions; i++)
        if (!plan->sessions[i].signature) return false;
    return find_parts(f);
}

void td_plan_find_transducer(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    search f = {.b = b, .hinted = td_plan_may_be_transducer(b)};
    bool found = find_all(&f);
    if (f.hinted) td_plan_check_ends(b, found ? f.t.joiner : -1);
    if (!found) return;
    if (f.t.joiner != f.t.predictor) assign_joiner(&f);
    f.t.length_output = find_length(&plan->sessions[f.t.encoder], false);
    f.t.frames_axis = find_frames_axis(&plan->sessions[f.t.encoder].signature->outputs[f.t.frames_output],
                                       &plan->sessions[f.t.joiner].signature->inputs[f.t.joiner_frame]);
    find_numbers(&f);
    f.t.present = true;
    plan->transducer = f.t;
    plan->sessions[f.t.joiner].logits = f.t.logits;
}

static void feed(td_plan_build_ctx *b, td_plan_end from, td_plan_end to) {
    if (b->plan->sessions[to.session].feeds[to.port].kind != TD_FEED_WIRE)
        td_plan_add_wire(b, from, to, false, "transducer");
}

/* Frames and predictions go to the joiner, the last token and its length to the predictor. */
void td_plan_wire_transducer(td_plan_build_ctx *b) {
    td_plan_transducer *t = &b->plan->transducer;
    if (!t->present) return;
    td_plan_session *predictor = &b->plan->sessions[t->predictor];
    feed(b, (td_plan_end){t->encoder, t->frames_output}, (td_plan_end){t->joiner, t->joiner_frame});
    if (t->joiner != t->predictor)
        feed(b, (td_plan_end){t->predictor, t->predicted}, (td_plan_end){t->joiner, t->joiner_predicted});
    predictor->feeds[t->targets] = (td_feed){TD_FEED_ROLE, TD_ROLE_INPUT_IDS};
    if (t->targets_length >= 0)
        predictor->feeds[t->targets_length] = (td_feed){TD_FEED_ROLE, TD_ROLE_CURRENT_SEQUENCE_LENGTH};
    td_plan_session *encoder = &b->plan->sessions[t->encoder];
    t->features_length = find_length(encoder, true);
    if (t->features_length >= 0) encoder->feeds[t->features_length].index = TD_FEED_FREE; /* left out: the features' */
}
