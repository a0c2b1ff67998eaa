/* state/gather.c - rows that change places or multiply: beams, copies of a prompt, forks.
 *
 * A tensor is looked at as [before, rows, inner, columns, column]: a row is made of blocks of columns, of which only
 * those in use are moved. A tensor without columns is one block of one column. */
#include "state/state.h"

#include "base/alloc.h"

typedef struct row_layout {
    size_t before, inner;        /* blocks: before the row's dimension, and between it and the columns */
    size_t row_bytes, all_bytes; /* from a row to the next, and of all rows */
    size_t block_bytes;          /* from one block of a row to the next */
    size_t column_bytes;
    bool columns; /* only the columns of a row are in use */
    size_t tensor;
} row_layout;

static row_layout layout_of(const td_state *state, size_t k) {
    const td_state_tensor *s = &state->plan->states[k];
    const td_tensor *t = &state->tensors[k];
    size_t bits = (size_t)td_dtype_bits(t->dtype);
    row_layout l = {.before = 1, .inner = 1, .tensor = k};
    for (int i = 0; i < s->batch_axis; i++) l.before *= (size_t)t->shape.dims[i];
    l.row_bytes = (size_t)t->strides[TD_MAX(s->batch_axis, 0)] * bits / 8;
    l.all_bytes = l.row_bytes * state->n_rows;
    l.block_bytes = l.column_bytes = l.row_bytes;
    l.columns = s->kind == TD_STATE_SEPARATE || s->kind == TD_STATE_COMBINED;
    if (!l.columns) return l;
    for (int i = s->batch_axis + 1; i < s->seq_axis; i++) l.inner *= (size_t)t->shape.dims[i];
    l.column_bytes = (size_t)t->strides[s->seq_axis] * bits / 8;
    l.block_bytes = l.column_bytes * (size_t)t->shape.dims[s->seq_axis];
    return l;
}

/* What is moved of a row of one block: the columns in use, or everything. */
static void used_bytes(const td_state *state, const row_layout *l, size_t row, size_t *offset, size_t *bytes) {
    td_state_row r = td_state_row_in(state, l->tensor, row);
    *offset = l->columns ? (size_t)r.start * l->column_bytes : 0;
    *bytes = l->columns ? (size_t)r.length * l->column_bytes : l->row_bytes;
}

static void gather_tensor(const td_state *state, size_t k, const size_t *from, char *scratch) {
    row_layout l = layout_of(state, k);
    for (size_t b = 0; b < l.before; b++)
        for (size_t i = 0; i < l.inner; i++) {
            char *base = (char *)state->tensors[k].data + b * l.all_bytes + i * l.block_bytes;
            size_t at = 0, offset, bytes;
            for (size_t r = 0; r < state->n_rows; r++) {
                if (from[r] == r) continue;
                used_bytes(state, &l, from[r], &offset, &bytes);
                memcpy(scratch + at, base + from[r] * l.row_bytes + offset, bytes);
                at += bytes;
            }
            at = 0;
            for (size_t r = 0; r < state->n_rows; r++) {
                if (from[r] == r) continue;
                used_bytes(state, &l, from[r], &offset, &bytes);
                memset(base + r * l.row_bytes, 0,
                       offset); /* a NaN before the row's first column would poison a product with 0 */
                memcpy(base + r * l.row_bytes + offset, scratch + at, bytes);
                at += bytes;
            }
        }
}

static bool is_identity(const td_state *state, const size_t *from) {
    for (size_t r = 0; r < state->n_rows; r++)
        if (from[r] != r) return false;
    return true;
}

static void gather_cross(td_state *state, size_t k, const size_t *from, td_value *old) {
    td_value *values = &state->cross[k * state->n_rows];
    memcpy(old, values, state->n_rows * sizeof *old);
    for (size_t r = 0; r < state->n_rows; r++) values[r] = td_value_share(&old[from[r]]);
    for (size_t r = 0; r < state->n_rows; r++) td_value_release(&old[r]);
}

treadle_status td_state_gather(td_state *state, const size_t *from, treadle_error *err) {
    size_t most = 0;
    if (is_identity(state, from)) return TREADLE_OK;
    for (size_t k = 0; k < state->plan->n_states; k++)
        if (state->buffers[k]) {
            row_layout l = layout_of(state, k);
            most = TD_MAX(most, (l.columns ? l.block_bytes : l.row_bytes) * state->n_rows);
        }
    char *scratch = td_alloc(most);
    td_value *values = td_alloc_zero(state->n_rows, sizeof *values);
    td_state_row *rows = td_alloc_array(state->n_rows, sizeof *rows);
    treadle_status status =
        scratch && values && rows ? TREADLE_OK : td_fail_memory(err, "rows that change places", most);
    for (size_t k = 0; status == TREADLE_OK && k < state->plan->n_states; k++) {
        if (state->buffers[k]) gather_tensor(state, k, from, scratch);
        gather_cross(state, k, from, values);
    }
    if (status == TREADLE_OK) {
        memcpy(rows, state->rows, state->n_rows * sizeof *rows);
        for (size_t r = 0; r < state->n_rows; r++) state->rows[r] = rows[from[r]];
    }
    td_free(scratch);
    td_free(values);
    td_free(rows);
    return status;
}

treadle_status td_state_clone(const td_state *state, td_state **out, treadle_error *err) {
    td_state *copy = NULL;
    TD_TRY(td_state_new(state->plan, state->n_rows, &copy, err));
    for (size_t k = 0; k < state->plan->n_states; k++)
        copy->given[k] = state->given[k], copy->slides[k] = state->slides[k];
    copy->slide_keep = state->slide_keep;
    copy->slide_limit = state->slide_limit;
    copy->slid_capacity = copy->capacity;
    treadle_status status = td_state_reserve_slid(copy, state->slid_capacity, err);
    if (status == TREADLE_OK) status = td_state_reserve(copy, state->capacity, err);
    for (size_t k = 0; status == TREADLE_OK && k < state->plan->n_states; k++) {
        if (state->given[k]) { /* never written again: shared */
            td_buffer_release(copy->buffers[k]);
            copy->buffers[k] = td_buffer_retain(state->buffers[k]);
            copy->tensors[k] = state->tensors[k];
        } else if (state->buffers[k]) memcpy(copy->buffers[k]->data, state->buffers[k]->data, state->buffers[k]->bytes);
        for (size_t r = 0; r < state->n_rows; r++)
            copy->cross[k * state->n_rows + r] = td_value_share(&state->cross[k * state->n_rows + r]);
    }
    memcpy(copy->rows, state->rows, state->n_rows * sizeof *copy->rows);
    if (status != TREADLE_OK) {
        td_state_free(copy);
        return status;
    }
    *out = copy;
    return TREADLE_OK;
}
