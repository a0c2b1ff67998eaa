/* Caches by hand: what a row wrote stays its own through growth, alignment and truncation; views are of one memory. */
#include "state/state.h"

#include <string.h>

#include "support/test.h"

enum { ROWS = 3 };

static td_state_tensor tensors[] = {
    {.kind = TD_STATE_SEPARATE,
     .dtype = TD_FLOAT,
     .shape = {4, {-1, 2, -1, 4}},
     .batch_axis = 0,
     .seq_axis = 2,
     .layer = 0},
    {.kind = TD_STATE_COMBINED,
     .dtype = TD_FLOAT16,
     .shape = {5, {2, -1, 3, -1, 2}},
     .batch_axis = 1,
     .seq_axis = 3,
     .layer = 0},
    {.kind = TD_STATE_RECURRENT,
     .dtype = TD_FLOAT,
     .shape = {3, {-1, 5, 2}},
     .batch_axis = 0,
     .seq_axis = -1,
     .layer = 1},
};

static td_plan plan_of(size_t n) { return (td_plan){.states = tensors, .n_states = n}; }

/* Fills or checks the columns of a row: every byte says row, column and tensor. */
static bool each_column(const td_state *s, size_t k, size_t row, bool write) {
    td_tensor view;
    const td_state_row *r = &s->rows[row];
    td_state_past(s, k, row, 1, r->start, r->length, &view);
    size_t item = (size_t)td_dtype_bits(view.dtype) / 8;
    int axis = tensors[k].seq_axis;
    int64_t index[TD_MAX_RANK] = {0}, n = td_tensor_count(&view);
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;
        for (int d = 0; d < view.shape.rank; d++) offset += index[d] * view.strides[d];
        unsigned char want = (unsigned char)(1 + row * 50 + (size_t)index[axis] + k), *at = view.data;
        at += (size_t)offset * item;
        if (write) memset(at, want, item);
        for (size_t b = 0; b < item; b++)
            if (at[b] != want) return false;
        for (int d = view.shape.rank; d-- > 0;) {
            if (++index[d] < view.shape.dims[d]) break;
            index[d] = 0;
        }
    }
    return true;
}

static void write_rows(td_state *s, const int64_t lengths[ROWS]) {
    for (size_t r = 0; r < ROWS; r++) {
        s->rows[r].length = lengths[r];
        for (size_t k = 0; k < 2; k++) CHECK(each_column(s, k, r, true));
    }
}

static void check_rows(const td_state *s) {
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < 2; k++) CHECK(each_column(s, k, r, false));
}

TEST(rows_keep_their_columns_through_growth_and_alignment) {
    td_plan plan = plan_of(2);
    td_state *s = NULL;
    treadle_error err = {0};
    CHECK_OK(td_state_new(&plan, ROWS, &s, &err), &err);
    CHECK_OK(td_state_reserve(s, 20, &err), &err);
    write_rows(s, (int64_t[ROWS]){3, 9, 1});
    CHECK_OK(td_state_reserve(s, 200, &err), &err);
    CHECK(s->capacity >= 200);
    check_rows(s);
    td_state_align(s, (int64_t[ROWS]){5, 9, 4}); /* two, none and three columns are to come */
    CHECK_EQ_INT(s->rows[0].start + 5, s->rows[1].start + 9);
    CHECK_EQ_INT(s->rows[0].start + 5, s->rows[2].start + 4);
    check_rows(s);
    CHECK_OK(td_state_reserve(s, 1000, &err), &err);
    check_rows(s);
    td_state_align(s, (int64_t[ROWS]){3, 9, 30});
    check_rows(s);
    td_state_align(s, (int64_t[ROWS]){3, 9, 1});
    check_rows(s);
    td_state_truncate(s, 1, 4);
    td_state_truncate(s, 2, 0);
    CHECK_EQ_INT(s->rows[2].start, 0);
    check_rows(s);
    td_state_free(s);
}

TEST(columns_before_a_row_are_zero) {
    td_plan plan = plan_of(2);
    td_state *s = NULL;
    treadle_error err = {0};
    CHECK_OK(td_state_new(&plan, ROWS, &s, &err), &err);
    CHECK_OK(td_state_reserve(s, 32, &err), &err);
    write_rows(s, (int64_t[ROWS]){8, 8, 8});
    for (size_t r = 0; r < ROWS; r++) td_state_truncate(s, r, r == 0 ? 8 : 2);
    td_state_align(s, (int64_t[ROWS]){8, 2, 2});
    td_tensor view;
    td_state_past(s, 0, 1, 1, 0, 6, &view);
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < 6 * 4; i++) CHECK_NEAR(((float *)view.data)[h * view.strides[1] + i], 0, 0);
    td_state_free(s);
}

TEST(past_and_present_are_one_memory) {
    td_plan plan = plan_of(3);
    td_state *s = NULL;
    treadle_error err = {0};
    td_tensor past, present;
    CHECK_OK(td_state_new(&plan, ROWS, &s, &err), &err);
    CHECK_OK(td_state_reserve(s, 10, &err), &err);
    td_state_past(s, 0, 1, 2, 3, 4, &past);
    td_state_present(s, 0, 1, 2, 3, &present);
    CHECK_EQ_PTR(past.data, present.data);
    CHECK_EQ_MEM(past.strides, present.strides, sizeof past.strides);
    CHECK_EQ_INT(past.shape.dims[0], 2);
    CHECK_EQ_INT(past.shape.dims[2], 4);
    CHECK_EQ_INT(present.shape.dims[2], s->capacity - 3);
    CHECK(!td_state_can_truncate(&plan));
    td_state_free(s);
}

/* --- caches that slide */

/* A run of n tokens for some rows, as an op makes it: row r's new columns go behind the P that it sees, or behind its
 * own where it has no more. Column c of row r holds 1000 r + c. */
static void slide_run(td_state *s, size_t first_row, size_t n_rows, int64_t n) {
    td_tensor past, present;
    treadle_error err = {0};
    CHECK_OK(td_state_slide_rows(s, first_row, n_rows, n, &err), &err);
    td_state_past(s, 0, first_row, n_rows, 0, 0, &past);
    td_state_present(s, 0, first_row, n_rows, 0, &present);
    CHECK(past.data == present.data && past.shape.dims[2] + n <= present.shape.dims[2]);
    for (size_t r = 0; r < n_rows; r++) {
        td_state_row *row = &s->rows[first_row + r];
        int64_t gone = TD_MAX(row->length - past.shape.dims[2], (int64_t)0);
        for (int64_t h = 0; h < 2; h++) {
            float *head = (float *)present.data + (int64_t)r * present.strides[0] + h * present.strides[1];
            for (int64_t c = row->length; c < row->length + n; c++)
                for (int i = 0; i < 4; i++) head[(c - gone) * 4 + i] = (float)(1000 * (first_row + r)) + (float)c;
            /* what a window of 8 of the first new token looks back at */
            for (int64_t c = TD_MAX(row->length - 7, (int64_t)0); c < row->length + n; c++)
                for (int i = 0; i < 4; i++)
                    CHECK_NEAR(head[(c - gone) * 4 + i], (float)(1000 * (first_row + r)) + (float)c, 0);
        }
        row->length += n;
    }
}

TEST(rows_that_slide_keep_what_their_windows_reach) {
    td_plan plan = plan_of(1);
    td_state *s = NULL, *fork = NULL;
    treadle_error err = {0};
    plan.slide_window = 8;
    CHECK_OK(td_state_new(&plan, ROWS, &s, &err), &err);
    td_state_slide(s, 0, 64);
    int64_t limit = td_plan_slide_limit(&plan, 64);
    CHECK_OK(td_state_reserve(s, 900, &err), &err);
    slide_run(s, 0, 1, 3); /* rows of unequal length, then together */
    for (int i = 0; i < 9; i++) slide_run(s, 1, 1, 64);
    slide_run(s, 2, 1, 40);
    for (int i = 0; i < 700; i++) slide_run(s, 0, ROWS, 1);
    CHECK_EQ_INT(s->tensors[0].shape.dims[2], limit);
    CHECK_EQ_INT(s->rows[1].length, 9 * 64 + 700);
    CHECK(s->rows[1].dropped > 900 && s->rows[0].dropped > 0);
    CHECK(td_state_reaches(s, 1, s->rows[1].length - 100) && !td_state_reaches(s, 1, 500));
    CHECK_OK(td_state_clone(s, &fork, &err), &err);
    slide_run(s, 0, ROWS, 500); /* more than the room: for this time */
    CHECK(s->tensors[0].shape.dims[2] > limit);
    slide_run(s, 2, 1, 1);
    CHECK_EQ_INT(s->tensors[0].shape.dims[2], limit);
    slide_run(s, 0, ROWS, 5);
    td_state_truncate(fork, 1, fork->rows[1].length - 20);
    for (int i = 0; i < 100; i++) slide_run(fork, 0, ROWS, 1);
    td_state_truncate(fork, 2, 0);
    CHECK_EQ_INT(fork->rows[2].dropped, 0);
    slide_run(fork, 2, 1, 10);
    slide_run(fork, 0, ROWS, 30);
    td_state_free(s);
    td_state_free(fork);
}

static td_tensor made(int64_t columns, float value) { /* [1, 2, columns, 4] in a buffer of its own */
    td_tensor t;
    td_buffer *buffer = td_buffer_new((size_t)columns * 8 * sizeof(float));
    td_tensor_view(&t, TD_FLOAT, &(td_shape){4, {1, 2, columns, 4}}, buffer->data);
    for (int64_t i = 0; i < columns * 8; i++) ((float *)t.data)[i] = value + (float)i;
    t.buffer = buffer;
    return t;
}

TEST(a_given_cache_is_taken_over) {
    td_plan plan = plan_of(1);
    td_state *s = NULL, *fork = NULL;
    treadle_error err = {0};
    td_tensor view, first = made(3, 0), second = made(5, 100);
    CHECK_OK(td_state_new(&plan, 1, &s, &err), &err);
    td_state_expect(s, 0);
    td_state_past(s, 0, 0, 1, 0, 0, &view);
    CHECK_EQ_INT(td_tensor_count(&view), 0);
    CHECK_OK(td_state_give(s, 0, &first, &err), &err);
    s->rows[0].length = 3;
    CHECK_OK(td_state_reserve(s, 100, &err), &err); /* its memory is the engine's affair */
    td_state_past(s, 0, 0, 1, 0, 3, &view);
    CHECK(view.data == first.data && view.buffer == first.buffer && td_tensor_is_dense(&view));
    CHECK_OK(td_state_clone(s, &fork, &err), &err);
    CHECK_OK(td_state_give(s, 0, &second, &err), &err);
    s->rows[0].length = 5;
    td_state_past(fork, 0, 0, 1, 0, 3, &view); /* the fork has what it had */
    CHECK(view.data == first.data);
    td_state_truncate(s, 0, 4);
    td_state_past(s, 0, 0, 1, 0, 4, &view);
    CHECK(view.data == second.data && view.shape.dims[2] == 4 && view.strides[1] == 20);
    CHECK_EQ_INT(second.buffer->refs, 2);
    td_tensor wrong = second; /* other heads, another type, no buffer */
    wrong.shape.dims[1] = 1;
    CHECK_STATUS(td_state_give(s, 0, &wrong, &err), TREADLE_RUN, &err);
    CHECK_HAS_STR(err.message, "the graph gave float32 [1, 1, 5, 4]");
    wrong = second;
    wrong.dtype = TD_INT32;
    CHECK_STATUS(td_state_give(s, 0, &wrong, &err), TREADLE_RUN, &err);
    wrong = second;
    wrong.buffer = NULL;
    CHECK_STATUS(td_state_give(s, 0, &wrong, &err), TREADLE_RUN, &err);
    td_state_free(s);
    td_state_free(fork);
    CHECK(first.buffer->refs == 1 && second.buffer->refs == 1);
    td_buffer_release(first.buffer);
    td_buffer_release(second.buffer);
}

TEST(recurrent_rows_change_only_when_committed) {
    td_plan plan = plan_of(3);
    td_state *s = NULL;
    treadle_error err = {0};
    td_tensor now, next;
    CHECK_OK(td_state_new(&plan, ROWS, &s, &err), &err);
    td_state_past(s, 2, 1, 1, 0, 0, &now);
    td_state_present(s, 2, 1, 1, 0, &next);
    CHECK(now.data != next.data);
    CHECK_NEAR(((float *)now.data)[3], 0, 0);
    for (int i = 0; i < 10; i++) ((float *)next.data)[i] = 7;
    CHECK_NEAR(((float *)now.data)[3], 0, 0);
    const bool written[] = {true, true, true};
    td_state_commit(s, 1, 1, written);
    CHECK_NEAR(((float *)now.data)[9], 7, 0);
    td_state_truncate(s, 1, 0);
    CHECK_NEAR(((float *)now.data)[9], 0, 0);
    td_state_free(s);
}

TEST(impossible_sizes_are_refused) {
    td_plan plan = plan_of(1);
    td_state *s = NULL;
    treadle_error err = {0};
    CHECK_OK(td_state_new(&plan, ROWS, &s, &err), &err);
    CHECK_STATUS(td_state_reserve(s, INT64_MAX, &err), TREADLE_LIMIT, &err);
    CHECK_STATUS(td_state_reserve(s, INT64_MAX / 8, &err), TREADLE_LIMIT, &err);
    CHECK_OK(td_state_reserve(s, 40, &err), &err);
    td_state_free(s);
}
