/* light/ops/matrices.c - see matrices.h. A stack of A against one matrix B is a single tall product. */
#include "light/ops/matrices.h"

/* Shapes as matrices: a vector on the left is a row, on the right a column. */
static td_shape as_matrix(const td_shape *s, bool left) {
    td_shape out = *s;
    if (s->rank != 1) return out;
    out.rank = 2;
    out.dims[0] = left ? 1 : s->dims[0];
    out.dims[1] = left ? s->dims[0] : 1;
    return out;
}

treadle_status td_matrices_infer(td_infer *in, const td_shape *sa, const td_shape *sb, td_dtype dtype) {
    td_shape out;

    if (sa->rank < 0 || sb->rank < 0) return td_infer_unknown(in, 0, dtype, -1);
    if (sa->rank == 0 || sb->rank == 0) return td_infer_fail(in, "scalars cannot be multiplied as matrices");
    td_shape a = as_matrix(sa, true), b = as_matrix(sb, false);
    int64_t k_a = a.dims[a.rank - 1], k_b = b.dims[b.rank - 2], m = a.dims[a.rank - 2], n = b.dims[b.rank - 1];
    if (k_a >= 0 && k_b >= 0 && k_a != k_b)
        return td_infer_fail(in, "inner dimensions %lld and %lld differ", (long long)k_a, (long long)k_b);
    a.rank -= 2;
    b.rank -= 2;
    if (!td_shape_broadcast(&a, &b, &out)) return td_infer_fail(in, "the stacks of matrices do not broadcast");
    if (sa->rank > 1) out.dims[out.rank++] = m;
    if (sb->rank > 1) out.dims[out.rank++] = n;
    return td_infer_set(in, 0, dtype, &out);
}

/* An operand: the matrix at its start and how it walks the output's stack. */
typedef struct operand {
    td_matrix matrix;
    int64_t steps[TD_MAX_RANK]; /* elements per stack dimension */
} operand;

static operand operand_of(const td_tensor *t, bool left, const td_shape *stack) {
    operand o = {.matrix = {.rows = 1, .cols = 1, .data = t->data}};
    int rank = t->shape.rank;

    if (rank == 1) {
        *(left ? &o.matrix.cols : &o.matrix.rows) = t->shape.dims[0];
        *(left ? &o.matrix.col_stride : &o.matrix.row_stride) = t->strides[0];
        *(left ? &o.matrix.row_stride : &o.matrix.col_stride) = left ? t->shape.dims[0] * t->strides[0] : 1;
        return o;
    }
    o.matrix.rows = t->shape.dims[rank - 2];
    o.matrix.cols = t->shape.dims[rank - 1];
    o.matrix.row_stride = t->strides[rank - 2];
    o.matrix.col_stride = t->strides[rank - 1];
    for (int d = rank - 3, at = stack->rank - 1; d >= 0; d--, at--)
        o.steps[at] = t->shape.dims[d] == 1 ? 0 : t->strides[d];
    return o;
}

/* Dimensions of the stack that A and Y walk like further rows, against one B, become rows. */
static void join_rows(td_shape *stack, operand *a, const operand *b, operand *y) {
    while (stack->rank > 0) {
        int d = stack->rank - 1;
        int64_t n = stack->dims[d];
        bool row_like = a->matrix.rows == 1 || a->steps[d] == a->matrix.rows * a->matrix.row_stride;
        bool out_like = y->matrix.rows == 1 || y->steps[d] == y->matrix.rows * y->matrix.row_stride;
        if (n != 1 && (b->steps[d] != 0 || !row_like || !out_like)) return;
        if (n != 1 && a->matrix.rows == 1) {
            a->matrix.row_stride = a->steps[d];
            y->matrix.row_stride = y->steps[d];
        }
        a->matrix.rows *= n;
        y->matrix.rows *= n;
        stack->rank--;
    }
}

static void *moved(td_dtype dtype, void *data, int64_t elements) {
    return (char *)data + elements * (td_dtype_bits(dtype) / 8);
}

treadle_status td_matrices_jobs(td_run *r, const td_tensor *ta, const td_tensor *tb, const td_tensor *ty, bool join,
                                td_product_job **out, int64_t *n_out) {
    td_shape stack = ty->shape;
    int64_t n_jobs = 1;

    *out = NULL;
    *n_out = 0;
    if (td_tensor_count(ty) == 0) return TREADLE_OK;
    stack.rank -= (ta->shape.rank > 1) + (tb->shape.rank > 1);
    operand a = operand_of(ta, true, &stack), b = operand_of(tb, false, &stack), y = {.matrix = {.data = ty->data}};
    y.matrix = (td_matrix){
        .rows = a.matrix.rows, .cols = b.matrix.cols, .row_stride = b.matrix.cols, .col_stride = 1, .data = ty->data};
    int64_t step = a.matrix.rows * b.matrix.cols;
    for (int d = stack.rank - 1; d >= 0; d--) {
        y.steps[d] = step;
        step *= stack.dims[d];
    }
    if (join) join_rows(&stack, &a, &b, &y);
    for (int d = 0; d < stack.rank; d++) n_jobs *= stack.dims[d];

    td_product_job *jobs = td_run_scratch(r, (size_t)n_jobs * sizeof *jobs);
    if (!jobs) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n_jobs; i++) {
        int64_t rest = i, at_a = 0, at_b = 0, at_y = 0;
        for (int d = stack.rank - 1; d >= 0; d--) {
            int64_t at = rest % stack.dims[d];
            rest /= stack.dims[d];
            at_a += at * a.steps[d];
            at_b += at * b.steps[d];
            at_y += at * y.steps[d];
        }
        jobs[i] = (td_product_job){a.matrix, b.matrix, y.matrix};
        jobs[i].a.data = moved(ta->dtype, a.matrix.data, at_a);
        jobs[i].b.data = moved(tb->dtype, b.matrix.data, at_b);
        jobs[i].y.data = moved(ty->dtype, y.matrix.data, at_y);
    }
    *out = jobs;
    *n_out = n_jobs;
    return TREADLE_OK;
}
