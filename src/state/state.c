/* state/state.c - see state.h. A growing tensor is looked at as [outer, columns, inner]: outer are the dimensions
 * before the growing one (rows among them), inner those after it, so every layout of caches takes the same path. */
#include "state/state.h"

#include "base/alloc.h"
#include "tensor/half.h"

static bool grows(const td_state_tensor *s) { return s->kind == TD_STATE_SEPARATE || s->kind == TD_STATE_COMBINED; }
static bool is_fixed(const td_state_tensor *s) { return s->kind == TD_STATE_STATIC || s->kind == TD_STATE_RECURRENT; }

/* Shape of tensor k with all rows and `columns` columns, and its size; false: too large. */
static bool full_shape(const td_plan *plan, size_t k, size_t n_rows, int64_t columns, td_shape *shape, size_t *bytes) {
    const td_state_tensor *s = &plan->states[k];
    *shape = s->shape;
    if (s->batch_axis >= 0 && s->batch_axis < shape->rank) shape->dims[s->batch_axis] = (int64_t)n_rows;
    if (s->seq_axis >= 0) shape->dims[s->seq_axis] = columns;
    int64_t count;
    return td_shape_count(shape, &count) && td_dtype_bytes(s->dtype, count, bytes) && *bytes < SIZE_MAX / 2;
}

static treadle_status too_large(treadle_error *err, int64_t columns) {
    return td_fail(err, TREADLE_LIMIT, "the state of %lld tokens is larger than memory can be", (long long)columns);
}

/* Fills a dense tensor with the value that state has before the first token. */
static void fill(const td_tensor *t, double value) {
    int64_t n = td_tensor_count(t);
    if (value == 0) memset(t->data, 0, (size_t)n * (size_t)td_dtype_bits(t->dtype) / 8);
    else
        for (int64_t i = 0; i < n; i++) td_store_f64(t->dtype, t->data, i, value);
}

static treadle_status make_fixed(td_state *state, size_t k, treadle_error *err) {
    const td_state_tensor *s = &state->plan->states[k];
    td_shape shape;
    size_t bytes;
    int64_t columns = s->seq_axis >= 0 ? s->shape.dims[s->seq_axis] : 0;
    if (!full_shape(state->plan, k, state->n_rows, columns, &shape, &bytes)) return too_large(err, columns);
    state->buffers[k] = td_buffer_new(bytes);
    if (!s->in_place) state->nexts[k] = td_buffer_new(bytes);
    if (!state->buffers[k] || (!s->in_place && !state->nexts[k])) return td_fail_memory(err, "state", bytes);
    td_tensor_view(&state->tensors[k], s->dtype, &shape, state->buffers[k]->data);
    fill(&state->tensors[k], s->init);
    return TREADLE_OK;
}

treadle_status td_state_new(const td_plan *plan, size_t n_rows, td_state **out, treadle_error *err) {
    td_state *state = td_alloc_zero(1, sizeof *state);
    if (!state) return td_fail_memory(err, "state", sizeof *state);
    state->plan = plan;
    state->n_rows = n_rows;
    state->buffers = td_alloc_zero(plan->n_states, sizeof *state->buffers);
    state->nexts = td_alloc_zero(plan->n_states, sizeof *state->nexts);
    state->tensors = td_alloc_zero(plan->n_states, sizeof *state->tensors);
    state->given = td_alloc_zero(plan->n_states, sizeof *state->given);
    state->slides = td_alloc_zero(plan->n_states, sizeof *state->slides);
    state->cross = td_alloc_zero(plan->n_states * n_rows, sizeof *state->cross);
    state->rows = td_alloc_zero(n_rows, sizeof *state->rows);
    treadle_status status = TREADLE_OK;
    if (!state->buffers || !state->nexts || !state->tensors || !state->given || !state->slides || !state->cross ||
        !state->rows)
        status = td_fail_memory(err, "state", 0);
    for (size_t k = 0; status == TREADLE_OK && k < plan->n_states; k++)
        if (is_fixed(&plan->states[k])) status = make_fixed(state, k, err);
    if (status == TREADLE_OK) status = td_state_reserve(state, 1, err);
    if (status != TREADLE_OK) {
        td_state_free(state);
        return status;
    }
    *out = state;
    return TREADLE_OK;
}

void td_state_free(td_state *state) {
    if (!state) return;
    for (size_t k = 0; k < state->plan->n_states; k++) {
        if (state->buffers) td_buffer_release(state->buffers[k]);
        if (state->nexts) td_buffer_release(state->nexts[k]);
        for (size_t r = 0; state->cross && r < state->n_rows; r++)
            td_value_release(&state->cross[k * state->n_rows + r]);
    }
    td_free(state->cross);
    td_free(state->buffers);
    td_free(state->nexts);
    td_free(state->tensors);
    td_free(state->given);
    td_free(state->slides);
    td_free(state->rows);
    td_free(state);
}

void td_state_layout(const td_state_tensor *s, const td_tensor *t, size_t *outer, size_t *column_bytes) {
    *outer = 1;
    for (int i = 0; i < s->seq_axis; i++) *outer *= (size_t)t->shape.dims[i];
    *column_bytes = (size_t)t->strides[s->seq_axis] * (size_t)td_dtype_bits(t->dtype) / 8;
}

size_t td_state_row_of(const td_state_tensor *s, const td_tensor *t, size_t o) {
    if (s->batch_axis < 0) return 0;
    for (int i = s->seq_axis - 1; i > s->batch_axis; i--) o /= (size_t)t->shape.dims[i];
    return o % (size_t)t->shape.dims[s->batch_axis];
}

/* The used columns of every row go to the same place in the new memory. */
static void move_columns(const td_state *state, size_t k, const td_tensor *from, const td_tensor *to) {
    const td_state_tensor *s = &state->plan->states[k];
    size_t outer, column, n_outer;
    td_state_layout(s, to, &outer, &column);
    n_outer = outer;
    for (size_t o = 0; o < n_outer; o++) {
        td_state_row row = td_state_row_in(state, k, td_state_row_of(s, to, o));
        const char *source = (const char *)from->data + o * (size_t)from->shape.dims[s->seq_axis] * column;
        char *target = (char *)to->data + o * (size_t)to->shape.dims[s->seq_axis] * column;
        memset(target, 0, (size_t)row.start * column);
        memcpy(target + (size_t)row.start * column, source + (size_t)row.start * column, (size_t)row.length * column);
    }
}

static bool grown_with(const td_state *state, size_t k, bool slid) {
    return grows(&state->plan->states[k]) && !state->given[k] && state->slides[k] == slid;
}

/* Room for `capacity` columns in all growing tensors that slide, or in all that do not. */
static treadle_status grow(td_state *state, bool slid, int64_t capacity, treadle_error *err) {
    const td_plan *plan = state->plan;
    /* All new buffers first: on failure nothing has changed. */
    td_buffer **fresh = td_alloc_zero(plan->n_states, sizeof *fresh);
    treadle_status status = fresh ? TREADLE_OK : td_fail_memory(err, "state", 0);
    for (size_t k = 0; status == TREADLE_OK && k < plan->n_states; k++) {
        td_shape shape;
        size_t bytes;
        if (!grown_with(state, k, slid)) continue;
        if (!full_shape(plan, k, state->n_rows, capacity, &shape, &bytes)) status = too_large(err, capacity);
        else if (!(fresh[k] = td_buffer_new(bytes))) status = td_fail_memory(err, "a cache", bytes);
        /* a row that others run with may read, with a weight of 0, what it never wrote */
        else if (slid) memset(fresh[k]->data, 0, bytes);
    }
    for (size_t k = 0; k < plan->n_states && fresh; k++) {
        if (!fresh[k]) continue;
        if (status != TREADLE_OK) {
            td_buffer_release(fresh[k]);
            continue;
        }
        td_shape shape;
        size_t bytes;
        td_tensor view;
        full_shape(plan, k, state->n_rows, capacity, &shape, &bytes);
        td_tensor_view(&view, plan->states[k].dtype, &shape, fresh[k]->data);
        if (state->buffers[k]) move_columns(state, k, &state->tensors[k], &view);
        td_buffer_release(state->buffers[k]);
        state->buffers[k] = fresh[k];
        state->tensors[k] = view;
    }
    td_free(fresh);
    if (status == TREADLE_OK) *(slid ? &state->slid_capacity : &state->capacity) = capacity;
    return status;
}

/* The columns to make room for where `columns` are wanted; 0: too many. */
static int64_t next_capacity(int64_t now, int64_t columns) {
    int64_t capacity = TD_MAX(columns, now + now / 2);
    return TD_ADD_OVERFLOWS(capacity, (int64_t)31, &capacity) ? 0 : capacity / 32 * 32;
}

treadle_status td_state_reserve_slid(td_state *state, int64_t columns, treadle_error *err) {
    int64_t limit = TD_MAX(state->slide_limit, columns);
    if (!state->slide_limit || (columns <= state->slid_capacity && state->slid_capacity <= limit)) return TREADLE_OK;
    int64_t capacity = TD_MIN(next_capacity(state->slid_capacity, columns), limit);
    return capacity ? grow(state, true, capacity, err) : too_large(err, columns);
}

treadle_status td_state_reserve(td_state *state, int64_t columns, treadle_error *err) {
    int64_t slid = TD_MIN(columns, state->slide_limit);
    if (slid > state->slid_capacity) TD_TRY(td_state_reserve_slid(state, slid, err));
    if (columns <= state->capacity) return TREADLE_OK;
    int64_t capacity = next_capacity(state->capacity, columns);
    return capacity ? grow(state, false, capacity, err) : too_large(err, columns);
}

void td_state_expect(td_state *state, size_t k) {
    if (state->n_rows == 1 && grows(&state->plan->states[k])) state->given[k] = true;
}

treadle_status td_state_give(td_state *state, size_t k, const td_tensor *value, treadle_error *err) {
    td_tensor *now = &state->tensors[k];
    td_shape wanted = now->shape;
    char want[128], got[128];
    int axis = state->plan->states[k].seq_axis;
    if (value->shape.rank == wanted.rank) wanted.dims[axis] = value->shape.dims[axis];
    if (!value->buffer || value->dtype != now->dtype || !td_shape_equal(&wanted, &value->shape))
        return td_fail(err, TREADLE_RUN, "expected a cache %s of shape %s, the graph gave %s %s",
                       td_dtype_name(now->dtype), td_shape_text(&state->plan->states[k].shape, want),
                       td_dtype_name(value->dtype), td_shape_text(&value->shape, got));
    td_buffer_retain(value->buffer);
    td_buffer_release(state->buffers[k]);
    state->buffers[k] = value->buffer;
    *now = *value;
    return TREADLE_OK;
}

bool td_state_can_truncate(const td_plan *plan) {
    for (size_t k = 0; k < plan->n_states; k++)
        if (plan->states[k].kind == TD_STATE_RECURRENT) return false;
    return true;
}

/* Some rows of a tensor as a view. */
static void row_view(const td_state *state, size_t k, void *data, size_t first_row, size_t n_rows, td_tensor *out) {
    const td_state_tensor *s = &state->plan->states[k];
    *out = state->tensors[k];
    out->data = data;
    if (s->batch_axis < 0 || s->batch_axis >= out->shape.rank) return;
    out->shape.dims[s->batch_axis] = (int64_t)n_rows;
    size_t offset = first_row * (size_t)out->strides[s->batch_axis];
    out->data = (char *)data + offset * (size_t)td_dtype_bits(out->dtype) / 8;
}

/* Copies a value of the row's shape into a recurrent tensor. */
static bool start_row(td_state *state, size_t k, size_t row, const td_tensor *value) {
    td_tensor view;
    row_view(state, k, state->buffers[k]->data, row, 1, &view);
    if (view.dtype != value->dtype || view.shape.rank != value->shape.rank) return false;
    for (int i = 0; i < view.shape.rank; i++)
        if (view.shape.dims[i] != value->shape.dims[i]) return false;
    td_tensor_copy(&view, value);
    return true;
}

/* A view of one row starts the row's state afresh. The rows of a tensor need not be dense among themselves. */
static void reset_row(td_state *state, size_t k, size_t row) {
    const td_state_tensor *s = &state->plan->states[k];
    const td_value *start = &state->cross[k * state->n_rows + row];
    td_tensor view;
    if (start->kind == TD_VALUE_TENSOR && start_row(state, k, row, &start->tensor)) return;
    row_view(state, k, state->buffers[k]->data, row, 1, &view);
    if (td_tensor_is_dense(&view)) {
        fill(&view, s->init);
        return;
    }
    /* dimensions before the batch: one dense block for each of their indices */
    int64_t blocks = 1;
    for (int i = 0; i < s->batch_axis; i++) blocks *= view.shape.dims[i];
    td_tensor block = view;
    block.shape.rank -= s->batch_axis;
    for (int i = 0; i < block.shape.rank; i++) {
        block.shape.dims[i] = view.shape.dims[i + s->batch_axis];
        block.strides[i] = view.strides[i + s->batch_axis];
    }
    size_t step = (size_t)view.strides[s->batch_axis] * state->n_rows * (size_t)td_dtype_bits(view.dtype) / 8;
    for (int64_t i = 0; i < blocks; i++) {
        fill(&block, s->init);
        block.data = (char *)block.data + step;
    }
}

treadle_status td_state_set_recurrent(td_state *state, size_t k, size_t row, const td_tensor *value,
                                      treadle_error *err) {
    char text[128], wanted[128];
    td_value from = {.kind = TD_VALUE_TENSOR, .tensor = *value}, copy;
    if (!start_row(state, k, row, value))
        return td_fail(err, TREADLE_RUN, "expected a start of recurrent state of shape %s, the graph gave %s",
                       td_shape_text(&state->plan->states[k].shape, wanted), td_shape_text(&value->shape, text));
    if (!td_value_copy(&copy, &from)) return td_fail_memory(err, "state", 0);
    td_state_set_cross(state, k, row, &copy);
    return TREADLE_OK;
}

void td_state_truncate(td_state *state, size_t row, int64_t length) {
    state->rows[row].length = length;
    if (length) return;
    state->rows[row].start = state->rows[row].dropped = 0;
    for (size_t k = 0; k < state->plan->n_states; k++)
        if (is_fixed(&state->plan->states[k])) reset_row(state, k, row);
}

void td_state_set_cross(td_state *state, size_t k, size_t row, td_value *value) {
    td_value *slot = &state->cross[k * state->n_rows + row];
    td_value_release(slot);
    *slot = *value;
    *value = (td_value){0};
}

bool td_state_has_cross(const td_state *state, size_t k, size_t row) {
    return state->cross[k * state->n_rows + row].kind == TD_VALUE_TENSOR;
}

void td_state_drop(td_state *state, size_t row, int64_t at, int64_t n) {
    td_state_row *r = &state->rows[row];
    int64_t first = r->start + at, rest = r->length - at - n;
    for (size_t k = 0; k < state->plan->n_states && n > 0 && rest > 0; k++) {
        const td_state_tensor *s = &state->plan->states[k];
        const td_tensor *t = &state->tensors[k];
        size_t outer, column;
        if (s->kind == TD_STATE_CROSS || s->seq_axis < 0) continue;
        td_state_layout(s, t, &outer, &column);
        for (size_t o = 0; o < outer; o++) {
            if (td_state_row_of(s, t, o) != row) continue;
            char *base = (char *)t->data + (o * (size_t)t->shape.dims[s->seq_axis] + (size_t)first) * column;
            memmove(base, base + (size_t)n * column, (size_t)rest * column);
        }
    }
    r->length -= n;
}

/* Moves the columns of one row to another start. */
static void move_row(td_state *state, size_t row, int64_t start) {
    int64_t old = state->rows[row].start, length = state->rows[row].length;
    for (size_t k = 0; k < state->plan->n_states; k++) {
        const td_state_tensor *s = &state->plan->states[k];
        const td_tensor *t = &state->tensors[k];
        if (!grows(s)) continue;
        size_t outer, column;
        td_state_layout(s, t, &outer, &column);
        for (size_t o = 0; o < outer; o++) {
            if (td_state_row_of(s, t, o) != row) continue;
            char *base = (char *)t->data + o * (size_t)state->capacity * column;
            memmove(base + (size_t)start * column, base + (size_t)old * column, (size_t)length * column);
            /* never read as keys of this row, but a NaN there would poison a product with 0 */
            memset(base, 0, (size_t)start * column);
        }
    }
    state->rows[row].start = start;
}

void td_state_align(td_state *state, const int64_t *lengths) {
    int64_t end = 0;
    bool aligned = true;
    for (size_t r = 0; r < state->n_rows; r++) end = TD_MAX(end, lengths[r]);
    int64_t common = state->rows[0].start + lengths[0];
    for (size_t r = 0; r < state->n_rows; r++) aligned &= state->rows[r].start + lengths[r] == common;
    if (aligned && common <= state->capacity) return;
    for (size_t r = 0; r < state->n_rows; r++)
        if (state->rows[r].start != end - lengths[r]) move_row(state, r, end - lengths[r]);
}

/* A cross cache is a run of one row's: what fills it has that row's own length. */
static void cross_view(const td_state *state, size_t k, size_t row, size_t n_rows, td_tensor *out) {
    const td_state_tensor *s = &state->plan->states[k];
    const td_value *value = &state->cross[k * state->n_rows + row];
    if (value->kind == TD_VALUE_TENSOR) {
        *out = value->tensor;
        return;
    }
    td_shape shape = s->shape;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0) shape.dims[i] = i == s->batch_axis ? (int64_t)n_rows : 0;
    td_tensor_view(out, s->dtype, &shape, state->rows); /* no elements: any address will do */
}

void td_state_past(const td_state *state, size_t k, size_t first_row, size_t n_rows, int64_t start, int64_t length,
                   td_tensor *out) {
    const td_state_tensor *s = &state->plan->states[k];
    if (s->kind == TD_STATE_CROSS) {
        cross_view(state, k, first_row, n_rows, out);
        return;
    }
    row_view(state, k, state->tensors[k].data, first_row, n_rows, out);
    if (!grows(s)) return;
    if (state->slides[k]) start = 0, length = td_state_slid_columns(state, first_row, n_rows);
    size_t offset = (size_t)start * (size_t)out->strides[s->seq_axis];
    out->data = (char *)out->data + offset * (size_t)td_dtype_bits(out->dtype) / 8;
    out->shape.dims[s->seq_axis] = length;
}

void td_state_present(const td_state *state, size_t k, size_t first_row, size_t n_rows, int64_t start, td_tensor *out) {
    const td_state_tensor *s = &state->plan->states[k];
    if (state->slides[k]) row_view(state, k, state->tensors[k].data, first_row, n_rows, out);
    else if (grows(s)) td_state_past(state, k, first_row, n_rows, start, state->capacity - start, out);
    else row_view(state, k, s->in_place ? state->buffers[k]->data : state->nexts[k]->data, first_row, n_rows, out);
}

void td_state_commit(td_state *state, size_t first_row, size_t n_rows, const bool *written) {
    for (size_t k = 0; k < state->plan->n_states; k++) {
        td_tensor from, to;
        if (!written[k] || !state->nexts[k]) continue;
        if (n_rows == state->n_rows) { /* all of it: the buffers change places */
            td_buffer *buffer = state->buffers[k];
            state->buffers[k] = state->nexts[k];
            state->nexts[k] = buffer;
            state->tensors[k].data = state->buffers[k]->data;
            continue;
        }
        row_view(state, k, state->nexts[k]->data, first_row, n_rows, &from);
        row_view(state, k, state->buffers[k]->data, first_row, n_rows, &to);
        td_tensor_copy(&to, &from);
    }
}

void td_state_hold(td_state *state, size_t row, const bool *written) {
    for (size_t k = 0; k < state->plan->n_states; k++) {
        td_tensor from, to;
        if (!written[k] || !state->nexts[k]) continue;
        row_view(state, k, state->buffers[k]->data, row, 1, &from);
        row_view(state, k, state->nexts[k]->data, row, 1, &to);
        td_tensor_copy(&to, &from);
    }
}

int64_t td_state_bytes(const td_state *state) {
    int64_t total = 0;
    for (size_t k = 0; k < state->plan->n_states; k++) {
        if (state->buffers[k]) total += (int64_t)state->buffers[k]->bytes;
        if (state->nexts[k]) total += (int64_t)state->nexts[k]->bytes;
        for (size_t r = 0; r < state->n_rows; r++) {
            const td_value *value = &state->cross[k * state->n_rows + r];
            if (value->kind == TD_VALUE_TENSOR && value->tensor.buffer) total += (int64_t)value->tensor.buffer->bytes;
        }
    }
    return total;
}
