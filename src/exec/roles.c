/* exec/roles.c - the inputs that the runtime makes: ids, masks, positions, lengths.
 *
 * Every role input of a session has a buffer of its own, since two sessions may want different types. Between runs a
 * mask buffer keeps what it holds, so that a step writes one new column. */
#include "base/alloc.h"
#include "exec/run.h"
#include "tensor/half.h"

enum { ELEMENT_BYTES = 8 }; /* the widest integer */

typedef struct td_exec_role {
    char *data;
    int64_t ones;  /* masks: the first row holds this many ones, then zeros; -1: something else */
    bool is_batch; /* masks: the rows hold what the last run of rows together left there */
} td_exec_role;

static size_t n_slots(const td_plan *plan) {
    size_t n = 0;
    for (size_t i = 0; i < plan->n_sessions; i++) n += plan->sessions[i].signature->n_inputs;
    return n;
}

treadle_status td_exec_roles_init(td_exec *e, treadle_error *err) {
    e->role_slots = td_alloc_zero(n_slots(e->plan), sizeof *e->role_slots);
    e->first_slot = td_alloc_zero(e->plan->n_sessions, sizeof *e->first_slot);
    if (!e->role_slots || !e->first_slot) return td_fail_memory(err, "input buffers", 0);
    for (size_t i = 1; i < e->plan->n_sessions; i++)
        e->first_slot[i] = e->first_slot[i - 1] + e->plan->sessions[i - 1].signature->n_inputs;
    return TREADLE_OK;
}

void td_exec_roles_free(td_exec *e) {
    for (size_t i = 0; e->role_slots && i < n_slots(e->plan); i++) td_free(e->role_slots[i].data);
    td_free(e->role_slots);
    td_free(e->first_slot);
}

void td_exec_roles_forget(td_exec *e) {
    for (size_t i = 0; i < n_slots(e->plan); i++) {
        e->role_slots[i].ones = -1;
        e->role_slots[i].is_batch = false;
    }
}

static bool is_mask(td_role role) {
    return role == TD_ROLE_ATTENTION_MASK || role == TD_ROLE_PADDING_MASK || role == TD_ROLE_DECODER_ATTENTION_MASK ||
           role == TD_ROLE_ENCODER_ATTENTION_MASK || role == TD_ROLE_CACHE_INDIRECTION;
}

/* Elements that the buffer of an input needs for so many tokens and columns; false: too many. */
static bool elements(const td_exec *e, const td_light_port *port, td_role role, int64_t tokens, int64_t columns,
                     int64_t *count) {
    int64_t n = tokens;
    if (is_mask(role)) {
        n = columns;
        for (int d = 1; d < port->shape.rank; d++) n = TD_MAX(n, port->shape.dims[d]);
        if (port->shape.rank > 2 && TD_MUL_OVERFLOWS(n, tokens, &n)) return false;
        if (TD_MUL_OVERFLOWS(n, (int64_t)e->n_rows, &n)) return false;
    } else if (role == TD_ROLE_SOURCE_IDS) {
        for (int d = 1; d < port->shape.rank; d++) n = TD_MAX(n, port->shape.dims[d]);
    } else if (role == TD_ROLE_POSITION_IDS && TD_MUL_OVERFLOWS(n, (int64_t)4, &n)) {
        return false;
    }
    *count = TD_MAX(n, (int64_t)16);
    return true;
}

/* tokens: of all rows of a run together, columns: of one row. */
treadle_status td_exec_roles_reserve(td_exec *e, int64_t tokens, int64_t columns, treadle_error *err) {
    const td_plan *plan = e->plan;
    tokens = TD_MAX(tokens, (int64_t)e->n_rows);
    if (tokens <= e->role_tokens && columns <= e->role_columns) return TREADLE_OK;
    tokens = TD_MAX(tokens, e->role_tokens);
    columns = TD_MAX(columns, e->role_columns);
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        for (size_t k = 0; k < s->signature->n_inputs; k++) {
            if (s->feeds[k].kind != TD_FEED_ROLE) continue;
            td_exec_role *slot = &e->role_slots[e->first_slot[i] + k];
            int64_t count = 0;
            bool fits = elements(e, &s->signature->inputs[k], (td_role)s->feeds[k].index, tokens, columns, &count);
            char *data = fits ? td_realloc_array(slot->data, (size_t)count, ELEMENT_BYTES) : NULL;
            if (!data) return td_fail_memory(err, "input buffers", (size_t)count * ELEMENT_BYTES);
            slot->data = data;
        }
    }
    e->role_tokens = tokens; /* now that every buffer has the room */
    e->role_columns = columns;
    td_exec_roles_forget(e);
    return TREADLE_OK;
}

/* --- which tokens a run has */

/* What an idle row gives in a run of rows with a length each: its last token again, where what is written is what is
 * there; where caches slide, what its windows reach may not be there, and it gives anything, behind its end. */
int64_t td_exec_idle_token(const td_exec *e, size_t row) {
    int64_t length = td_exec_length(e, row);
    return e->state->slide_limit ? length : TD_MAX(length - 1, (int64_t)0);
}

/* First token of the run of row r. Among rows of equal length an idle row gives anything, behind its end, and what
 * becomes of it is forgotten. */
static int64_t first_token(const td_exec *e, const td_exec_run *run, size_t r) {
    if (run->source) return 0;
    if (run->equal) return run->past;
    size_t row = run->first_row + r;
    return run->batched && !run->rows[row].live ? td_exec_idle_token(e, row) : td_exec_length(e, row);
}

/* The token at a place of the run, counted from the row's begin; -1: padding. */
static int64_t token_at(const td_exec_run *run, int64_t first, int64_t place) {
    if (place < run->pad_before || place >= run->n - run->pad_after) return -1;
    return first + place - run->pad_before;
}

/* --- one function per role; each writes run->n_rows rows */

static void fill_ids(const td_exec *e, const td_exec_run *run, td_dtype dtype, char *data) {
    for (size_t r = 0; r < run->n_rows; r++) {
        const td_exec_row *row = &run->rows[run->first_row + r];
        const int32_t *ids = run->source ? row->source : row->ids;
        int64_t n_ids = run->source ? row->n_source : row->n_ids, first = first_token(e, run, r);
        for (int64_t i = 0; i < run->n; i++) {
            int64_t at = token_at(run, first, i);
            td_store_i64(dtype, data, (int64_t)r * run->n + i,
                         at < 0       ? e->plan->window.pad_value
                         : at < n_ids ? ids[at]
                                      : 0);
        }
    }
}

static void fill_positions(const td_exec *e, const td_exec_run *run, td_dtype dtype, char *data) {
    for (size_t r = 0; r < run->n_rows; r++) {
        int64_t first = first_token(e, run, r);
        for (int64_t i = 0; i < run->n; i++)
            td_store_i64(dtype, data, (int64_t)r * run->n + i, TD_MAX(token_at(run, first, i), (int64_t)0));
    }
}

/* [axes, batch, n] or [batch, n, axes]; with four axes the first counts tokens. */
static void fill_places(const td_exec *e, const td_exec_run *run, td_dtype dtype, char *data, td_shape *shape) {
    bool axes_last = e->plan->mrope.axis != 0;
    int64_t axes = e->plan->mrope.n_axes, n_rows = (int64_t)run->n_rows;
    *shape = axes_last ? (td_shape){.rank = 3, .dims = {n_rows, run->n, axes}}
                       : (td_shape){.rank = 3, .dims = {axes, n_rows, run->n}};
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t first = first_token(e, run, (size_t)r);
        const td_exec_line *line = &e->lines[run->first_row + (size_t)r];
        for (int64_t i = 0; i < run->n; i++) {
            int64_t at = token_at(run, first, i);
            for (int64_t a = 0; a < axes; a++) {
                int64_t axis = axes == 4 ? a - 1 : a, value = TD_MAX(at, (int64_t)0);
                if (axis >= 0 && at >= 0 && (size_t)at < line->positions.n) value = line->positions.items[at].at[axis];
                td_store_i64(dtype, data, axes_last ? (r * run->n + i) * axes + a : (a * n_rows + r) * run->n + i,
                             value);
            }
        }
    }
}

/* n ones, then zeros up to the width of a fixed mask. */
static void fill_ones(td_exec_role *slot, td_dtype dtype, int64_t n, int64_t width) {
    int64_t from = slot->ones < 0 ? 0 : TD_MIN(slot->ones, n);
    for (int64_t c = from; c < n; c++) td_store_i64(dtype, slot->data, c, 1);
    int64_t zeros = slot->ones < 0 ? width : TD_MIN(slot->ones, width);
    for (int64_t c = n; c < zeros; c++) td_store_i64(dtype, slot->data, c, 0);
    slot->ones = width > n ? n : -1;
    if (width <= n) slot->ones = n;
    slot->is_batch = false;
}

/* Columns of a run that hold tokens; caches hold nothing else. */
static bool is_token(const td_exec_run *run, int64_t column) {
    return column < run->past || (column < run->total && token_at(run, 0, column - run->past) >= 0);
}

static void fill_padded(const td_exec_run *run, td_exec_role *slot, td_dtype dtype, int64_t width) {
    for (int64_t c = 0; c < width; c++) td_store_i64(dtype, slot->data, c, is_token(run, c));
    slot->ones = -1;
    slot->is_batch = false;
}

/* Rows together: 1 where a column is the row's, in a buffer whose rows are `stride` apart, so that a step adds one
 * column and touches nothing else. */
static void fill_batch(const td_exec *e, const td_exec_run *run, td_exec_role *slot, td_dtype dtype, int64_t stride) {
    for (size_t r = 0; r < run->n_rows; r++) {
        const td_state_row *row = &e->state->rows[run->first_row + r];
        int64_t end = row->start + row->length, added = run->rows[run->first_row + r].live ? run->n : 0;
        if (!slot->is_batch)
            for (int64_t c = 0; c < stride; c++)
                td_store_i64(dtype, slot->data, (int64_t)r * stride + c, c >= row->start && c < end);
        for (int64_t c = end; c < end + added; c++) td_store_i64(dtype, slot->data, (int64_t)r * stride + c, 1);
    }
    slot->is_batch = true;
    slot->ones = -1;
}

/* [batch, 1, n, width]: what each new token may look at. Numbers are added to scores, so they are 0 or the lowest;
 * others are flags. Padding looks at itself at least: what looks at nothing may come out as NaN. */
static void fill_square(const td_exec *e, const td_exec_run *run, td_dtype dtype, char *data, int64_t width) {
    bool adds = td_dtype_kind(dtype) == TD_KIND_FLOAT;
    double lowest = dtype == TD_FLOAT16 ? -65504.0 : -3.0e38;
    for (int64_t r = 0, at = 0; r < (int64_t)run->n_rows; r++) {
        int64_t start = run->batched ? e->state->rows[run->first_row + (size_t)r].start : 0;
        for (int64_t i = 0; i < run->n; i++)
            for (int64_t c = 0; c < width; c++, at++) {
                bool reaches = run->source || (c >= start && c <= run->past + i);
                bool sees = (reaches && is_token(run, c)) || c == run->past + i;
                if (adds) td_store_f64(dtype, data, at, sees ? 0 : lowest);
                else td_store_i64(dtype, data, at, sees);
            }
    }
}

static void fill_mask(td_exec *e, const td_exec_run *run, const td_light_port *port, td_exec_role *slot,
                      td_value *value) {
    int rank = port->shape.rank;
    td_shape shape = {.rank = 2, .dims = {(int64_t)run->n_rows, run->total}};
    int64_t width = rank > 1 ? TD_MAX(port->shape.dims[rank - 1], run->total) : run->total;
    if (rank > 2) {
        fill_square(e, run, port->dtype, slot->data, width);
        slot->ones = -1;
        shape = (td_shape){.rank = rank, .dims = {(int64_t)run->n_rows, 1, run->n, width}};
        if (rank == 3) shape = (td_shape){.rank = 3, .dims = {(int64_t)run->n_rows, run->n, width}};
        td_tensor_view(&value->tensor, port->dtype, &shape, slot->data);
        return;
    }
    shape.dims[1] = width;
    if (run->pad_before || run->pad_after) fill_padded(run, slot, port->dtype, width);
    else if (run->batched) fill_batch(e, run, slot, port->dtype, TD_MAX(e->role_columns, width));
    else fill_ones(slot, port->dtype, run->total, width);
    td_tensor_view(&value->tensor, port->dtype, &shape, slot->data);
    if (run->n_rows > 1) value->tensor.strides[0] = TD_MAX(e->role_columns, width);
}

/* The mask over the source that the caller gave for a row; NULL: none. */
static const td_tensor *given_source_mask(const td_exec *e, const td_exec_run *run, int32_t session, size_t r) {
    int32_t request = e->plan->sessions[session].source_mask;
    const td_value *given = request >= 0 ? run->rows[run->first_row + r].requests : NULL;
    if (!given || given[request].kind != TD_VALUE_TENSOR || given[request].tensor.shape.rank != 2) return NULL;
    return &given[request].tensor;
}

/* Positions of the source: as many as the prompt had, or as what the encoder gave has. */
static int64_t source_length(const td_exec *e, const td_exec_run *run, int32_t session) {
    const td_plan_session *s = &e->plan->sessions[session];
    const td_tensor *mask = given_source_mask(e, run, session, 0);
    if (mask) return mask->shape.dims[1];
    if (e->plan->source_prompt) return run->rows[run->first_row].n_source;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind != TD_FEED_WIRE || !e->plan->wires[s->feeds[i].index].once) continue;
        const td_value *value = td_exec_wire_value(e, run, s->feeds[i].index);
        if (value && value->kind == TD_VALUE_TENSOR && value->tensor.shape.rank == 3)
            return value->tensor.shape.dims[1];
    }
    for (size_t k = 0; k < e->plan->n_states; k++) {
        const td_state_tensor *state = &e->plan->states[k];
        td_tensor past;
        if (state->kind != TD_STATE_CROSS || state->seq_axis < 0) continue;
        td_state_past(e->state, k, run->first_row, 1, 0, 0, &past);
        return past.shape.dims[state->seq_axis];
    }
    return 0;
}

treadle_status td_exec_roles_prepare(td_exec *e, const td_exec_run *run, int32_t session, treadle_error *err) {
    if (td_plan_input_of_role(&e->plan->sessions[session], TD_ROLE_ENCODER_ATTENTION_MASK) < 0) return TREADLE_OK;
    return td_exec_roles_reserve(e, e->role_tokens, source_length(e, run, session), err);
}

static void fill_source_mask(td_exec *e, const td_exec_run *run, int32_t session, const td_light_port *port,
                             td_exec_role *slot, td_value *value) {
    int64_t n = source_length(e, run, session), width = port->shape.rank == 2 ? TD_MAX(n, port->shape.dims[1]) : n;
    fill_ones(slot, port->dtype, n, width);
    for (size_t r = 1; r < run->n_rows; r++) /* rows that share a run have sources of one length */
        for (int64_t c = 0; c < width; c++) td_store_i64(port->dtype, slot->data, (int64_t)r * width + c, c < n);
    for (size_t r = 0; r < run->n_rows; r++) {
        const td_tensor *mask = given_source_mask(e, run, session, r);
        int64_t columns = mask ? TD_MIN(width, mask->shape.dims[1]) : 0;
        if (columns) slot->ones = -1;
        for (int64_t c = 0; c < columns; c++)
            td_store_i64(port->dtype, slot->data, (int64_t)r * width + c, td_load_i64(mask->dtype, mask->data, c) != 0);
    }
    td_shape shape = {.rank = 2, .dims = {(int64_t)run->n_rows, width}};
    td_tensor_view(&value->tensor, port->dtype, &shape, slot->data);
}

/* The prompt of a graph that holds its encoder; where it takes a fixed number of ids, zeros stand behind them. */
static void fill_source(const td_exec_run *run, const td_light_port *port, char *data, td_shape *shape) {
    const td_exec_row *row = &run->rows[run->first_row];
    int64_t width = port->shape.rank == 2 ? TD_MAX(row->n_source, port->shape.dims[1]) : row->n_source;
    for (int64_t i = 0; i < width; i++) td_store_i64(port->dtype, data, i, i < row->n_source ? row->source[i] : 0);
    shape->dims[shape->rank == 2] = width;
}

static int64_t longest(const td_exec *e, const td_exec_run *run) {
    int64_t most = 0;
    for (size_t r = 0; r < run->n_rows; r++) most = TD_MAX(most, first_token(e, run, r) + run->n);
    return most;
}

static int64_t number(const td_exec *e, const td_exec_run *run, size_t r, td_role role) {
    int64_t first = first_token(e, run, r);
    switch (role) {
    case TD_ROLE_SEQLENS_K: return first + run->n - 1;
    case TD_ROLE_NONPAD_KV_SEQLEN: return first + run->n;
    case TD_ROLE_TOTAL_SEQUENCE_LENGTH: return longest(e, run);
    case TD_ROLE_PAST_SEQUENCE_LENGTH:
    case TD_ROLE_WRITE_INDICES: return first;
    case TD_ROLE_CURRENT_SEQUENCE_LENGTH: return run->n;
    case TD_ROLE_USE_CACHE_BRANCH: return run->past > 0;
    default: return e->keep_all ? run->n : 1; /* logits to keep */
    }
}

/* One number per row where the graph lets the dimension vary, else one. */
static bool is_per_row(td_role role, const td_light_port *port) {
    switch (role) {
    case TD_ROLE_SEQLENS_K:
    case TD_ROLE_WRITE_INDICES:
    case TD_ROLE_NONPAD_KV_SEQLEN: return true;
    case TD_ROLE_PAST_SEQUENCE_LENGTH: return port->shape.rank > 0 && port->shape.dims[0] < 0;
    default: return false;
    }
}

static void fill_numbers(td_exec *e, const td_exec_run *run, td_role role, const td_light_port *port, char *data,
                         td_shape *shape) {
    shape->rank = TD_MAX(port->shape.rank, 0);
    for (int i = 0; i < shape->rank; i++) shape->dims[i] = 1;
    if (is_per_row(role, port)) {
        shape->rank = TD_MAX(shape->rank, 1);
        shape->dims[0] = (int64_t)run->n_rows;
    }
    for (size_t r = 0; r < run->n_rows; r++) td_store_i64(port->dtype, data, (int64_t)r, number(e, run, r, role));
}

/* Packed rows: where each one's tokens begin, and where the last one's end. */
static void fill_cumulative(const td_exec_run *run, td_dtype dtype, char *data, td_shape *shape) {
    *shape = (td_shape){.rank = 1, .dims = {(int64_t)run->n_rows + 1}};
    for (int64_t r = 0; r <= (int64_t)run->n_rows; r++) td_store_i64(dtype, data, r, r * run->n);
}

void td_exec_fill_role(td_exec *e, const td_exec_run *run, int32_t session, size_t input, td_value *value) {
    const td_plan_session *s = &e->plan->sessions[session];
    const td_light_port *port = &s->signature->inputs[input];
    td_role role = (td_role)s->feeds[input].index;
    td_exec_role *slot = &e->role_slots[e->first_slot[session] + input];
    td_dtype dtype = port->dtype;
    int rank = port->shape.rank;
    td_shape shape = {.rank = rank < 0 ? 2 : rank, .dims = {(int64_t)run->n_rows, run->n}};
    value->kind = TD_VALUE_TENSOR;
    switch (role) {
    case TD_ROLE_INPUT_IDS:
    case TD_ROLE_DECODER_INPUT_IDS: fill_ids(e, run, dtype, slot->data); break;
    case TD_ROLE_SOURCE_IDS: fill_source(run, port, slot->data, &shape); break;
    case TD_ROLE_POSITION_IDS:
        if (rank == 3) fill_places(e, run, dtype, slot->data, &shape);
        else fill_positions(e, run, dtype, slot->data);
        break;
    case TD_ROLE_CACHE_POSITION:
        for (int64_t i = 0; i < run->n; i++)
            td_store_i64(dtype, slot->data, i, run->past + i); /* columns, padding too */
        shape = (td_shape){.rank = 1, .dims = {run->n}};       /* one for all rows, which are of equal length */
        break;
    case TD_ROLE_TOKEN_TYPE_IDS: memset(slot->data, 0, (size_t)run->n_rows * (size_t)run->n * ELEMENT_BYTES); break;
    case TD_ROLE_ATTENTION_MASK:
    case TD_ROLE_DECODER_ATTENTION_MASK: fill_mask(e, run, port, slot, value); return;
    case TD_ROLE_PADDING_MASK:
        shape = (td_shape){.rank = 2, .dims = {(int64_t)run->n_rows, run->total}};
        for (int64_t c = 0; c < run->total * (int64_t)run->n_rows; c++)
            td_store_i64(dtype, slot->data, c, !is_token(run, c % run->total));
        break;
    case TD_ROLE_ENCODER_ATTENTION_MASK: fill_source_mask(e, run, session, port, slot, value); return;
    case TD_ROLE_CACHE_INDIRECTION: /* rows are moved themselves: each beam reads its own */
        shape = (td_shape){.rank = 3, .dims = {(int64_t)run->n_rows, 1, run->total}};
        memset(slot->data, 0, (size_t)(run->total * (int64_t)run->n_rows) * ELEMENT_BYTES);
        break;
    case TD_ROLE_CUMULATIVE_SEQUENCE_LENGTH: fill_cumulative(run, dtype, slot->data, &shape); break;
    default: fill_numbers(e, run, role, port, slot->data, &shape); break;
    }
    if (shape.rank == 1 &&
        (role == TD_ROLE_INPUT_IDS || role == TD_ROLE_DECODER_INPUT_IDS || role == TD_ROLE_POSITION_IDS))
        shape.dims[0] = (int64_t)run->n_rows * run->n;
    td_tensor_view(&value->tensor, dtype, &shape, slot->data);
}
