/* exec/roles.c - the inputs that the runtime makes: ids, mask, positions, lengths.
 *
 * Every role input of a session has a buffer of its own, since two sessions may want different types. */
#include "exec/exec.h"

#include "base/alloc.h"
#include "tensor/half.h"

enum { ELEMENT_BYTES = 8 }; /* the widest integer */

static size_t n_slots(const td_plan *plan) {
    size_t n = 0;
    for (size_t i = 0; i < plan->n_sessions; i++) n += plan->sessions[i].signature->n_inputs;
    return n;
}

/* Buffers are numbered by input, over all sessions. */
static size_t slot_of(const td_plan *plan, int32_t session, size_t input) {
    size_t n = input;
    for (int32_t i = 0; i < session; i++) n += plan->sessions[i].signature->n_inputs;
    return n;
}

treadle_status td_exec_roles_init(td_exec *exec, treadle_error *err) {
    exec->role_data = td_alloc_zero(n_slots(exec->plan), sizeof *exec->role_data);
    return exec->role_data ? TREADLE_OK : td_fail_memory(err, "input buffers", 0);
}

void td_exec_roles_free(td_exec *exec) {
    for (size_t i = 0; exec->role_data && i < n_slots(exec->plan); i++) td_free(exec->role_data[i]);
    td_free(exec->role_data);
}

static bool wants_columns(td_role role) { return role == TD_ROLE_ATTENTION_MASK; }

/* tokens: of all rows of a run together, columns: of one row. */
treadle_status td_exec_roles_reserve(td_exec *exec, int64_t tokens, int64_t columns, treadle_error *err) {
    const td_plan *plan = exec->plan;
    tokens = TD_MAX(tokens, (int64_t)exec->n_rows);
    if (tokens <= exec->role_tokens && columns <= exec->role_columns) return TREADLE_OK;
    tokens = TD_MAX(tokens, exec->role_tokens);
    columns = TD_MAX(columns, exec->role_columns);
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        for (size_t k = 0; k < s->signature->n_inputs; k++) {
            if (s->feeds[k].kind != TD_FEED_ROLE) continue;
            size_t slot = slot_of(plan, (int32_t)i, k);
            size_t count = wants_columns((td_role)s->feeds[k].index) ? (size_t)columns * exec->n_rows : (size_t)tokens;
            char *data = td_realloc_array(exec->role_data[slot], count, ELEMENT_BYTES);
            if (!data) return td_fail_memory(err, "input buffers", count * ELEMENT_BYTES);
            exec->role_data[slot] = data;
        }
    }
    exec->role_tokens = tokens;
    exec->role_columns = columns;
    exec->mask_is_valid = false;
    return TREADLE_OK;
}

/* --- one function per role; each writes run->n_rows rows */

/* First token of the run of row r. An idle row of a batched run gives its last token again: what is written is what is there. */
static int64_t first_token(const td_exec *exec, const td_exec_run *run, size_t r) {
    int64_t length = exec->state->rows[run->first_row + r].length;
    return run->batched && !run->rows[run->first_row + r].live ? TD_MAX(length - 1, (int64_t)0) : length;
}

static void fill_ids(const td_exec *exec, const td_exec_run *run, td_dtype dtype, char *data) {
    for (size_t r = 0; r < run->n_rows; r++) {
        const td_exec_row *row = &run->rows[run->first_row + r];
        int64_t first = first_token(exec, run, r);
        for (int64_t i = 0; i < run->n; i++)
            td_store_i64(dtype, data, (int64_t)r * run->n + i, first + i < row->n_ids ? row->ids[first + i] : 0);
    }
}

static void fill_positions(const td_exec *exec, const td_exec_run *run, td_dtype dtype, char *data) {
    for (size_t r = 0; r < run->n_rows; r++) {
        int64_t first = first_token(exec, run, r);
        for (int64_t i = 0; i < run->n; i++) td_store_i64(dtype, data, (int64_t)r * run->n + i, first + i);
    }
}

/* A row alone sees all its columns. Rows together: 1 where a column is the row's, in a buffer whose rows are role_columns
 * apart, so that a step adds one column and touches nothing else. */
static void fill_mask(const td_exec *exec, const td_exec_run *run, td_dtype dtype, char *data) {
    int64_t stride = exec->role_columns;
    if (!run->batched) {
        for (int64_t c = exec->mask_ones; c < run->total; c++) td_store_i64(dtype, data, c, 1);
        return;
    }
    for (size_t r = 0; r < run->n_rows; r++) {
        const td_state_row *row = &exec->state->rows[run->first_row + r];
        int64_t end = row->start + row->length, added = run->rows[run->first_row + r].live ? run->n : 0;
        if (!exec->mask_is_valid)
            for (int64_t c = 0; c < stride; c++)
                td_store_i64(dtype, data, (int64_t)r * stride + c, c >= row->start && c < end);
        for (int64_t c = end; c < end + added; c++) td_store_i64(dtype, data, (int64_t)r * stride + c, 1);
    }
}

static int64_t longest(const td_exec *exec, const td_exec_run *run) {
    int64_t most = 0;
    for (size_t r = 0; r < run->n_rows; r++) most = TD_MAX(most, first_token(exec, run, r) + run->n);
    return most;
}

static void fill_numbers(const td_exec *exec, const td_exec_run *run, td_role role, td_dtype dtype, char *data) {
    for (size_t r = 0; r < run->n_rows; r++) {
        int64_t value = 0, first = first_token(exec, run, r);
        if (role == TD_ROLE_SEQLENS_K) value = first + run->n - 1;
        else if (role == TD_ROLE_TOTAL_SEQUENCE_LENGTH) value = longest(exec, run);
        else if (role == TD_ROLE_PAST_SEQUENCE_LENGTH) value = first;
        else if (role == TD_ROLE_USE_CACHE_BRANCH) value = run->past > 0;
        else value = exec->keep_all ? run->n : 1; /* logits to keep */
        td_store_i64(dtype, data, (int64_t)r, value);
    }
}

void td_exec_fill_role(td_exec *exec, const td_exec_run *run, int32_t session, size_t input, td_value *value) {
    const td_plan_session *s = &exec->plan->sessions[session];
    const td_light_port *port = &s->signature->inputs[input];
    td_role role = (td_role)s->feeds[input].index;
    char *data = exec->role_data[slot_of(exec->plan, session, input)];
    td_dtype dtype = port->dtype;
    int rank = port->shape.rank;
    td_shape shape = {.rank = rank < 0 ? 2 : rank, .dims = {(int64_t)run->n_rows, run->n}};
    switch (role) {
    case TD_ROLE_INPUT_IDS: fill_ids(exec, run, dtype, data); break;
    case TD_ROLE_POSITION_IDS: fill_positions(exec, run, dtype, data); break;
    case TD_ROLE_ATTENTION_MASK:
        fill_mask(exec, run, dtype, data);
        shape.dims[1] = run->total;
        break;
    case TD_ROLE_TOKEN_TYPE_IDS: memset(data, 0, (size_t)run->n_rows * (size_t)run->n * ELEMENT_BYTES); break;
    case TD_ROLE_CACHE_POSITION:
        fill_positions(exec, run, dtype, data);
        shape.rank = 1;
        break;
    default:
        fill_numbers(exec, run, role, dtype, data);
        shape.rank = rank < 0 ? 0 : rank;
        for (int i = 0; i < shape.rank; i++) shape.dims[i] = 1;
        if (role == TD_ROLE_SEQLENS_K) shape.rank = TD_MAX(shape.rank, 1);
        if (shape.rank > 0 &&
            (role == TD_ROLE_SEQLENS_K || (role == TD_ROLE_PAST_SEQUENCE_LENGTH && port->shape.dims[0] < 0)))
            shape.dims[0] = (int64_t)run->n_rows;
        break;
    }
    if (shape.rank == 1 &&
        (role == TD_ROLE_INPUT_IDS || role == TD_ROLE_POSITION_IDS || role == TD_ROLE_CACHE_POSITION))
        shape.dims[0] = (int64_t)run->n_rows * run->n;
    value->kind = TD_VALUE_TENSOR;
    td_tensor_view(&value->tensor, dtype, &shape, data);
    if (role == TD_ROLE_ATTENTION_MASK && shape.rank == 2) value->tensor.strides[0] = exec->role_columns;
}
