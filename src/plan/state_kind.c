/* plan/state_kind.c - what kind of state a tensor is: which dimension counts rows, which one positions, whether it
 * grows, what its layer looks back at, and whether past and present may be one memory.
 *
 * Evidence in order: the op that takes the tensor (its axis is a fact), names of dimensions, the usual layouts. */
#include "plan/build.h"

static int64_t attr_int(const td_onnx_node *node, const char *name, int64_t fallback) {
    const td_onnx_attr *attr = td_onnx_find_attr(node, name);
    return attr && attr->type == TD_ONNX_ATTR_INT ? attr->i : fallback;
}

/* --- dimensions */

void td_plan_find_rows(const td_plan_build_ctx *b, int32_t session, td_str *symbol, int64_t *number) {
    const td_plan_session *s = &b->plan->sessions[session];
    int32_t token = td_plan_token_input(s);
    *symbol = (td_str){0};
    *number = 0;
    if (td_plan_has_flat_ids(s)) return;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (token >= 0 && i != (size_t)token) continue;
        const td_light_port *port = &s->signature->inputs[i];
        bool state = b->ins[session][i].says_state && !b->handed[session][i];
        if (port->shape.rank < 1 || (token < 0 && (state || port->shape.rank < 2))) continue;
        *symbol = port->dim_names[0];
        *number = TD_MAX(port->shape.dims[0], (int64_t)0);
        return;
    }
}

static int find_batch_axis(const td_plan_build_ctx *b, int32_t session, const td_light_port *in) {
    td_str symbol;
    int64_t number;
    int rank = in->shape.rank;
    td_plan_find_rows(b, session, &symbol, &number);
    for (int i = 0; i < rank && symbol.n; i++)
        if (in->shape.dims[i] < 0 && td_str_equal(in->dim_names[i], symbol)) return i;
    if (rank > 0 && in->shape.dims[0] < 0) return 0;
    if (number > 0)
        for (int i = 0; i < TD_MIN(rank, 2); i++)
            if (in->shape.dims[i] == number) return i;
    if (rank > 1 && in->shape.dims[1] < 0 && rank <= 4) return 1; /* layers or directions stand before the rows */
    return rank > 0 && in->shape.dims[0] == 1 ? 0 : -1;
}

/* The axis at which an op joins or writes new positions; -1: none says. scatters: the op writes them at an index. */
static int axis_by_use(const td_uses *uses, size_t input, int rank, bool *scatters) {
    *scatters = false;
    for (int32_t u = uses->first[input]; u >= 0; u = uses->items[u].next) {
        const td_use *use = &uses->items[u];
        int64_t axis = -1;
        if (td_use_is(use, "", "Concat")) axis = attr_int(use->node, "axis", -1);
        else if ((*scatters = td_use_is(use, "", "TensorScatter"))) axis = attr_int(use->node, "axis", -2);
        else if ((*scatters = td_use_is(use, "", "ScatterElements") || td_use_is(use, "", "Scatter")))
            axis = attr_int(use->node, "axis", 0);
        else if (td_use_is(use, "com.microsoft", "GroupQueryAttention") && rank == 4) axis = 2;
        else if (td_use_is(use, "", "Attention") && use->slot >= 4 && rank == 4) axis = 2;
        else if (td_use_is(use, "com.microsoft", "Attention") && rank == 5) axis = 3;
        else continue;
        if (axis < 0) axis += rank;
        if (axis >= 0 && axis < rank) return (int)axis;
    }
    return -1;
}

/* Keys and values of a layer in one: two of them stand first, whether the graph declares that or leaves it free. */
static bool is_combined(const td_plan_build_ctx *b, int32_t session, const td_light_port *in,
                        const td_name_parts *parts) {
    td_str rows;
    int64_t number;
    if (in->shape.rank != 5 || in->shape.dims[0] >= 0) return in->shape.rank == 5 && in->shape.dims[0] == 2;
    td_plan_find_rows(b, session, &rows, &number);
    bool counts_rows = rows.n && td_str_equal(in->dim_names[0], rows);
    return !counts_rows && parts->layer >= 0 && parts->part != TD_PART_KEY && parts->part != TD_PART_VALUE;
}

/* The dimension that grows: free in the input, not the batch. Where several are free, the one whose symbol changes. */
static int growing_axis(const td_shape *shape, const td_light_port *in, const td_light_port *out, int batch_axis) {
    int usual = shape->rank == 3 ? 1 : shape->rank - 2, found = -1, n = 0;
    for (int i = 0; i < shape->rank; i++) {
        if (i == batch_axis || shape->dims[i] >= 0) continue;
        bool changes = !out || out->shape.rank != shape->rank || !td_str_equal(in->dim_names[i], out->dim_names[i]) ||
                       !in->dim_names[i].n;
        if (found < 0 || changes) found = i;
        n++;
    }
    if (n > 1 && usual != batch_axis && usual >= 0 && shape->dims[usual] < 0) {
        bool changes =
            out && out->shape.rank == shape->rank && !td_str_equal(in->dim_names[usual], out->dim_names[usual]);
        if (changes || shape->dims[found] >= 0) return usual;
    }
    return found;
}

/* Where the positions of a fixed cache are counted: as the mask has columns, else where caches usually count them. */
static int capacity_axis(const td_plan_session *s, const td_light_port *in, int batch_axis) {
    int32_t mask = td_plan_input_of_role(s, TD_ROLE_ATTENTION_MASK);
    int rank = in->shape.rank, found = -1, n = 0;
    const td_shape *m = mask < 0 ? NULL : &s->signature->inputs[mask].shape;
    int64_t columns = m && m->rank > 1 ? m->dims[m->rank - 1] : 0;
    for (int i = 0; i < rank && columns > 0; i++)
        if (i != batch_axis && in->shape.dims[i] == columns) found = i, n++;
    if (n == 1) return found;
    return rank == 3 ? 1 : rank >= 2 ? rank - 2 : -1;
}

/* --- sizes that the graph's declaration leaves free, by the op that takes the cache */

static void sizes_by_use(const td_plan_build_ctx *b, int32_t session, size_t input, td_state_tensor *s) {
    const td_uses *uses = &b->uses[session];
    for (int32_t u = uses->first[input]; u >= 0; u = uses->items[u].next) {
        const td_use *use = &uses->items[u];
        bool gqa = td_use_is(use, "com.microsoft", "GroupQueryAttention");
        int64_t heads = gqa ? attr_int(use->node, "kv_num_heads", 0) : 0;
        if (s->shape.rank == 4 && s->shape.dims[1] < 0 && heads > 0) s->shape.dims[1] = heads;
        int64_t window = gqa ? attr_int(use->node, "local_window_size", -1) : -1;
        if (window > 0) s->window = window;
    }
}

/* What the present declares where the past does not: heads and head sizes do not change. */
static void sizes_by_output(const td_light_port *out, td_state_tensor *s) {
    if (!out || out->shape.rank != s->shape.rank) return;
    for (int i = 0; i < s->shape.rank; i++)
        if (i != s->batch_axis && i != s->seq_axis && s->shape.dims[i] < 0 && out->shape.dims[i] > 0)
            s->shape.dims[i] = out->shape.dims[i];
}

/* Of the dimensions that count neither rows nor positions, nor keys and values, two are left:
 * heads, and the size of one. */
void td_plan_find_heads(td_state_tensor *s) {
    int left[2] = {-1, -1}, n = 0;
    if (s->seq_axis < 0) return;
    for (int i = s->shape.rank == 5 && s->batch_axis == 1; i < s->shape.rank; i++) {
        if (i == s->seq_axis || i == s->batch_axis) continue;
        if (n < 2) left[n] = i;
        n++;
    }
    if (n != 2) return;
    s->heads = TD_MAX(s->shape.dims[left[0]], (int64_t)0);
    s->head_dim = TD_MAX(s->shape.dims[left[1]], (int64_t)0);
}

/* --- static caches */

static bool writes_in_place(const td_plan_build_ctx *b, int32_t session, size_t input, td_str present) {
    static const struct {
        const char *domain, *op_type;
    } ops[] = {{"", "TensorScatter"},
               {"", "ScatterElements"},
               {"", "ScatterND"},
               {"", "Scatter"},
               {"com.microsoft", "GroupQueryAttention"},
               {"com.microsoft", "DecoderMaskedMultiHeadAttention"}};
    const td_uses *uses = &b->uses[session];
    for (int32_t u = uses->first[input]; u >= 0; u = uses->items[u].next) {
        const td_use *use = &uses->items[u];
        bool known = false, makes = false;
        for (size_t k = 0; k < TD_COUNT(ops); k++) known |= td_use_is(use, ops[k].domain, ops[k].op_type);
        for (size_t o = 0; o < use->node->n_outputs; o++) makes |= td_str_equal(use->node->outputs[o], present);
        if (known && makes) return true;
    }
    return false;
}

static bool writes_by_index(const td_plan_session *s) {
    return td_plan_input_of_role(s, TD_ROLE_WRITE_INDICES) >= 0 ||
           td_plan_input_of_role(s, TD_ROLE_NONPAD_KV_SEQLEN) >= 0;
}

static int64_t declared_window(const td_config_window *w, int32_t layer) {
    if (w->size <= 0 || w->slide_inputs || !w->slide_cache) return 0;
    for (size_t i = 0; i < w->n_layers; i++)
        if (w->layers[i] == layer) return w->size;
    return w->n_layers ? 0 : w->size;
}

void td_plan_describe_state(td_plan_build_ctx *b, int32_t session, size_t input, const td_light_port *out,
                            const td_name_parts *parts, td_state_tensor *s) {
    const td_plan_session *ps = &b->plan->sessions[session];
    const td_light_port *in = &ps->signature->inputs[input];
    bool scatters, combined = is_combined(b, session, in, parts);
    int rank = in->shape.rank, by_use = axis_by_use(&b->uses[session], input, rank, &scatters);
    *s = (td_state_tensor){.session = session,
                           .input = (int32_t)input,
                           .output = -1,
                           .from_session = -1,
                           .from_output = -1,
                           .dtype = in->dtype,
                           .shape = in->shape,
                           .part = parts->part,
                           .layer = parts->layer};
    if (combined) s->shape.dims[0] = 2;
    s->batch_axis = combined ? 1 : find_batch_axis(b, session, in);
    s->seq_axis = growing_axis(&s->shape, in, out, s->batch_axis);
    if (s->seq_axis >= 0 && by_use >= 0 && by_use != s->batch_axis && in->shape.dims[by_use] < 0) s->seq_axis = by_use;
    bool cache = parts->part != TD_PART_OTHER || combined || (writes_by_index(ps) && scatters);
    if (scatters && in->shape.dims[by_use] >= 0) s->seq_axis = -1; /* written in place: a fixed number of positions */
    if (combined) s->kind = TD_STATE_COMBINED;
    else if (s->seq_axis >= 0) s->kind = TD_STATE_SEPARATE;
    else s->kind = cache && rank >= 3 ? TD_STATE_STATIC : TD_STATE_RECURRENT;
    if (s->kind == TD_STATE_COMBINED && s->seq_axis < 0) s->kind = TD_STATE_STATIC;
    if (s->kind == TD_STATE_STATIC) {
        bool fits = by_use >= 0 && by_use != s->batch_axis;
        s->seq_axis = fits ? by_use : capacity_axis(ps, in, s->batch_axis);
        s->in_place = out && writes_in_place(b, session, input, out->name);
    }
    sizes_by_output(out, s);
    if (s->kind != TD_STATE_RECURRENT) sizes_by_use(b, session, input, s);
    if (s->kind != TD_STATE_RECURRENT && declared_window(&b->config->state.window, s->layer) > 0)
        s->window = declared_window(&b->config->state.window, s->layer);
    td_plan_find_heads(s);
}
