/* plan/loop.c - per_image loops, and the modality that a step needs.
 *
 * A declared loop is taken as it is. Where the config itself declares no flow, a session of images loops if the number
 * of images does not show in what it makes: then it can only have made the features of one. What an input gets in the
 * run of image i is settled here. */
#include "plan/build.h"

/* --- modalities */

/* Of a prompt step without a declared modality: what its request tensors speak of. Video counts
 * only if nothing else is taken. */
static int32_t request_modality(const td_plan_session *s) {
    int32_t found = -1;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        td_modality m = s->feeds[i].kind == TD_FEED_REQUEST ? td_plan_input_modality(s, i) : TD_MODALITY_NONE;
        if (m != TD_MODALITY_NONE && (found < 0 || found == TD_MODALITY_VIDEO)) found = (int32_t)m;
    }
    return found;
}

/* Of a step that only goes on with what steps of one modality made: that modality. */
static int32_t source_modality(const td_plan *plan, const td_plan_step *step) {
    const td_plan_session *s = &plan->sessions[step->session];
    int32_t found = -1;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind == TD_FEED_NONE) continue;
        if (s->feeds[i].kind != TD_FEED_WIRE) return -1;
        int32_t from = td_plan_first_step(plan, plan->wires[s->feeds[i].index].from_session);
        int32_t modality = from < 0 ? -1 : plan->steps[from].modality;
        if (modality < 0 || (found >= 0 && found != modality)) return -1;
        found = modality;
    }
    return found;
}

static void find_modality(const td_plan *plan, td_plan_step *step) {
    const td_plan_session *s = &plan->sessions[step->session];
    if (step->config && step->config->if_present != TD_MODALITY_NONE)
        step->modality = (int32_t)step->config->if_present;
    else if (!s->takes_tokens) step->modality = td_plan_metadata_modality(s->signature);
    if (step->modality < 0 && step->when == TD_WHEN_PROMPT && !s->takes_tokens) step->modality = request_modality(s);
    if (step->modality < 0 && step->when == TD_WHEN_PROMPT && !s->takes_tokens)
        step->modality = source_modality(plan, step);
}

/* --- which inputs a loop slices */

static bool is_grid(const td_light_port *port) {
    td_kind kind = td_dtype_kind(port->dtype);
    return (kind == TD_KIND_INT || kind == TD_KIND_UINT) && port->shape.rank == 2 && port->shape.dims[1] == 3;
}

static int32_t find_grid(const td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->feeds[i].kind == TD_FEED_REQUEST && is_grid(&s->signature->inputs[i])) return (int32_t)i;
    return -1;
}

/* True if dimension 0 of two inputs counts the same thing. */
static bool same_count(const td_light_port *a, const td_light_port *b) {
    return a->shape.rank > 0 && b->shape.rank > 0 && a->dim_names[0].n &&
           td_str_equal(a->dim_names[0], b->dim_names[0]);
}

static bool set_slices(td_plan_build_ctx *b, td_plan_step *step, int32_t grid, bool by_grid) {
    const td_plan_session *s = &b->plan->sessions[step->session];
    const td_light_port *ports = s->signature->inputs, *over = &ports[step->loop_input];
    td_slice *slices = TD_ARENA_ARRAY(&b->plan->arena, td_slice, s->signature->n_inputs);
    if (!slices) {
        b->out_of_memory = true;
        return false;
    }
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        bool given = s->feeds[i].kind == TD_FEED_REQUEST || s->feeds[i].kind == TD_FEED_WIRE;
        if (!given || ports[i].shape.rank == 0) continue; /* whole */
        if ((int32_t)i == step->loop_input) slices[i] = by_grid ? TD_SLICE_ROWS : TD_SLICE_IMAGE;
        else if ((int32_t)i == grid) slices[i] = TD_SLICE_IMAGE;
        else if (same_count(&ports[i], over)) slices[i] = by_grid ? TD_SLICE_ROWS : TD_SLICE_IMAGE;
        else if (by_grid)
            slices[i] = grid >= 0 && same_count(&ports[i], &ports[grid]) ? TD_SLICE_IMAGE : TD_SLICE_WHOLE;
        else if (s->feeds[i].kind == TD_FEED_REQUEST && (ports[i].shape.dims[0] < 0 || ports[i].shape.dims[0] == 1))
            slices[i] = TD_SLICE_IMAGE;
    }
    step->slices = slices;
    return true;
}

/* The first input that the caller or a wire feeds; the modality itself, numbers, before its grids, sizes and masks. */
static int32_t default_loop_input(const td_plan_session *s) {
    for (int floats = 1; floats >= 0; floats--)
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            bool fed = s->feeds[i].kind == TD_FEED_REQUEST || s->feeds[i].kind == TD_FEED_WIRE;
            if (fed && (!floats || td_dtype_kind(s->signature->inputs[i].dtype) == TD_KIND_FLOAT)) return (int32_t)i;
        }
    return -1;
}

/* Values of a tensor by its name, or as "session.input". */
int32_t td_plan_named_request(td_plan_build_ctx *b, td_str name) {
    for (size_t i = 0; i < b->plan->n_sessions; i++) {
        const td_plan_session *s = &b->plan->sessions[i];
        if (!td_str_starts(name, s->name) || name.n <= s->name.n + 1 || name.p[s->name.n] != '.') continue;
        td_str port = {name.p + s->name.n + 1, name.n - s->name.n - 1};
        int32_t input = s->signature ? td_plan_input_index(s, port) : -1;
        if (input >= 0) return td_plan_request_of(b, s->signature->inputs[input].name, true);
    }
    return td_plan_request_of(b, name, true);
}

static void fail_step(td_plan_build_ctx *b, const td_plan_step *step, const char *text, td_str name) {
    const td_plan_session *s = &b->plan->sessions[step->session];
    td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, step->config->json, false),
                    "%s of session \"%.*s\"%s%.*s (inputs: %s)", text, TD_STR_ARGS(s->name), name.n ? ": found " : "",
                    (int)TD_MIN(name.n, (size_t)200), name.n ? name.p : "",
                    td_plan_port_names(b->messages->arena, s->signature->inputs, s->signature->n_inputs));
}

static void find_crop(td_plan_build_ctx *b, td_plan_step *step) {
    const td_config_step *c = step->config;
    const td_light_port *over = &b->plan->sessions[step->session].signature->inputs[step->loop_input];
    if (!c->crop_source.n) return;
    step->crop_request = td_plan_named_request(b, c->crop_source);
    int rank = over->shape.rank;
    for (size_t i = 0; i < c->n_crop_dims && step->n_crop_dims < TD_MAX_RANK; i++) {
        bool fits = c->crop_dims[i] >= 1 && (rank < 0 || c->crop_dims[i] < rank);
        if (!fits)
            fail_step(b, step, "expected apply_to_dims to name dimensions after the first of what is looped over",
                      over->name);
        else step->crop_dims[step->n_crop_dims++] = c->crop_dims[i];
    }
    for (int i = 2; i > 0 && !c->n_crop_dims && rank > 2; i--) step->crop_dims[step->n_crop_dims++] = rank - i;
}

static void declared_loop(td_plan_build_ctx *b, td_plan_step *step) {
    const td_plan_session *s = &b->plan->sessions[step->session];
    const td_config_step *c = step->config;
    if (s->takes_tokens && step->when != TD_WHEN_ONCE) {
        fail_step(b, step, "expected images under loop \"per_image\", found the tokens", (td_str){0});
        return;
    }
    step->loop_input = c->loop_over.n ? td_plan_input_index(s, c->loop_over) : default_loop_input(s);
    if (step->loop_input < 0) step->loop_input = default_loop_input(s); /* a wrong name is reported with the steps */
    if (step->loop_input < 0) {
        fail_step(b, step, "expected an input that the request or a wire feeds, to loop over, found none", (td_str){0});
        return;
    }
    const td_light_port *over = &s->signature->inputs[step->loop_input];
    int32_t grid = find_grid(s);
    bool by_grid = c->loop_rows != TD_LOOP_ROWS_ONE ||
                   (grid >= 0 && grid != step->loop_input && !same_count(over, &s->signature->inputs[grid]));
    if (c->loop_rows == TD_LOOP_ROWS_GRID && grid < 0) {
        fail_step(b, step, "loop_rows \"grid\" needs an integer input [images, 3]", (td_str){0});
        return;
    }
    if (c->loop_rows == TD_LOOP_ROWS_SOURCE) step->grid_request = td_plan_named_request(b, c->loop_rows_source);
    else if (by_grid) step->grid_request = s->feeds[grid].index;
    if (set_slices(b, step, c->loop_rows == TD_LOOP_ROWS_SOURCE ? -1 : grid, by_grid)) find_crop(b, step);
}

/* --- loops found */

/* Whether a symbolic dimension speaks of a symbol, maybe in a product or sum. */
static bool mentions(td_str expression, td_str symbol) {
    for (size_t at = 0; symbol.n && at + symbol.n <= expression.n; at++) {
        if (memcmp(expression.p + at, symbol.p, symbol.n) != 0) continue;
        char before = at ? expression.p[at - 1] : ' ',
             after = at + symbol.n < expression.n ? expression.p[at + symbol.n] : ' ';
        bool in_word = before == '_' || after == '_' || (before >= '0' && before <= '9') ||
                       (after >= '0' && after <= '9') || ((before | 32) >= 'a' && (before | 32) <= 'z') ||
                       ((after | 32) >= 'a' && (after | 32) <= 'z');
        if (!in_word) return true;
    }
    return false;
}

/* A count without a symbol may be in any free dimension; one of grids need not be known, for their rows cut the
 * patches whatever is made of them. */
static bool may_show_in_outputs(const td_signature *sig, td_str count, bool grids) {
    for (size_t o = 0; o < sig->n_outputs; o++) {
        const td_light_port *port = &sig->outputs[o];
        for (int i = 0; i < port->shape.rank; i++)
            if (port->shape.dims[i] < 0 && (count.n ? mentions(port->dim_names[i], count) : !grids)) return true;
        if (port->shape.rank > 2 && port->shape.dims[0] < 0 && td_name_is_numbered(port->dim_names[0]) &&
            td_name_is_numbered(count))
            return true; /* [images, tokens, hidden] */
    }
    return false;
}

/* Another input of the request counts something else: rows are crops of images then, and nothing says whose. */
static bool counts_differ(const td_plan_session *s, int32_t over) {
    const td_light_port *ports = s->signature->inputs;
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->feeds[i].kind == TD_FEED_REQUEST && ports[i].shape.rank > 0 && ports[i].dim_names[0].n &&
            ports[over].dim_names[0].n && !same_count(&ports[i], &ports[over]))
            return true;
    return false;
}

static void found_loop(td_plan_build_ctx *b, td_plan_step *step) {
    const td_plan_session *s = &b->plan->sessions[step->session];
    int32_t over = default_loop_input(s), grid = find_grid(s);
    if (step->when != TD_WHEN_PROMPT || step->modality != TD_MODALITY_IMAGE || over < 0) return;
    const td_light_port *ports = s->signature->inputs;
    const td_light_port *counts = &ports[grid >= 0 ? grid : over];
    if (counts->shape.rank < 1 || s->feeds[over].kind != TD_FEED_REQUEST) return;
    if (counts->shape.dims[0] >= 0 ? counts->shape.dims[0] != 1
                                   : may_show_in_outputs(s->signature, counts->dim_names[0], grid >= 0))
        return;
    bool by_grid = grid >= 0 && grid != over && !same_count(&ports[over], &ports[grid]);
    if (!by_grid && counts_differ(s, over)) return;
    step->loop = TD_LOOP_PER_IMAGE;
    step->loop_input = over;
    if (by_grid) step->grid_request = s->feeds[grid].index;
    if (!set_slices(b, step, grid, by_grid)) return;
    td_plan_note(b, step->session, "%.*s runs once per image: how many there are does not show in what it makes",
                 TD_STR_ARGS(s->name));
    const td_shape *shape = &ports[over].shape; /* images of unequal size come padded, with their sizes */
    if (!by_grid && shape->rank == 4 && shape->dims[2] < 0 && shape->dims[3] < 0 &&
        td_signature_find_input(s->signature, TD_STR("image_sizes")) < 0) {
        step->crop_request = td_plan_request_of(b, TD_STR("image_sizes"), true);
        step->n_crop_dims = 2;
        step->crop_dims[0] = 2;
        step->crop_dims[1] = 3;
    }
}

/* Images that run together: their patches are still counted by a grid, which tells whose rows are whose. */
static void grid_of_batched(td_plan_build_ctx *b, td_plan_step *step) {
    const td_plan_session *s = &b->plan->sessions[step->session];
    int32_t over = default_loop_input(s), grid = find_grid(s);
    if (step->when != TD_WHEN_PROMPT || step->modality != TD_MODALITY_IMAGE || over < 0 || grid < 0) return;
    if (grid == over || same_count(&s->signature->inputs[over], &s->signature->inputs[grid])) return;
    step->loop_input = over;
    step->grid_request = s->feeds[grid].index;
    set_slices(b, step, grid, true);
}

void td_plan_find_loops(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    for (size_t k = 0; k < plan->n_steps && !b->out_of_memory; k++) {
        td_plan_step *step = &plan->steps[k];
        find_modality(plan, step);
        if (step->loop == TD_LOOP_PER_IMAGE && step->config) declared_loop(b, step);
        else if (!step->config || step->config->from_preset) found_loop(b, step); /* a preset's loop is a default */
        if (step->loop == TD_LOOP_BATCHED) grid_of_batched(b, step);
    }
}

/* A step whose outputs serve only logits: no state, and every wire ends at such a step. */
void td_plan_find_only_logits(td_plan *plan) {
    for (size_t k = plan->n_steps; k-- > 0;) {
        td_plan_step *step = &plan->steps[k];
        const td_plan_session *s = &plan->sessions[step->session];
        bool only = s->logits >= 0;
        for (size_t i = 0; i < plan->n_wires; i++) {
            if (plan->wires[i].from_session != step->session) continue;
            int32_t to = td_plan_first_step(plan, plan->wires[i].to_session);
            only |= to > (int32_t)k;
        }
        for (size_t i = 0; i < plan->n_wires; i++)
            if (plan->wires[i].from_session == step->session)
                for (size_t t = 0; t < plan->n_steps; t++)
                    if (plan->steps[t].session == plan->wires[i].to_session)
                        only &= t > k && plan->steps[t].only_logits;
        for (size_t o = 0; o < s->signature->n_outputs; o++) only &= s->out_state[o] < 0;
        step->only_logits = only && step->when != TD_WHEN_ONCE;
    }
}
