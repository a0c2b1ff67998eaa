/* light/ops/einsum.c - Einsum: sums of products over labelled dimensions. Source: ONNX op text; NumPy's einsum for what
 * it leaves open (dimensions of 1 broadcast, a label twice in a term is a diagonal).
 *
 * Operands are contracted from left to right as stacks of matrix products: labels of both that are needed later
 * are the stack, other common ones are summed. Labels that no one else has are first summed against ones. Views
 * where one label makes a matrix dimension, copies where several do. Integers of less than 32 bits are computed as
 * int32, whose low bits are theirs. */
#include "light/ops/matrices.h"
#include "tensor/half.h"

#include <string.h>

enum { LETTERS = 52, N_LABELS = LETTERS + TD_MAX_RANK };

/* Labels of a term; an ellipsis stands before labels[dots]. */
typedef struct term {
    int n, dots; /* dots -1: none */
    uint8_t labels[TD_MAX_RANK];
} term;

typedef struct einsum_state {
    size_t n;
    term *terms; /* of inputs */
    term out;
    td_product product;
    td_dtype dtype;
} einsum_state;

/* --- the equation */

static int label_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    return c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static treadle_status parse_term(td_prepare *p, td_str text, term *out) {
    *out = (term){.dots = -1};
    for (size_t i = 0; i < text.n; i++) {
        int label = label_of(text.p[i]);
        if (text.p[i] == ' ') continue;
        if (text.p[i] == '.') {
            if (i + 2 >= text.n || text.p[i + 1] != '.' || text.p[i + 2] != '.' || out->dots >= 0)
                return td_bad_node(p, "a term with a stray dot");
            out->dots = out->n;
            i += 2;
        } else if (label < 0) {
            return td_bad_node(p, "'%c' in the equation", text.p[i]);
        } else if (out->n == TD_MAX_RANK) {
            return td_unsupported(p, "a term of more than %d labels", TD_MAX_RANK);
        } else {
            out->labels[out->n++] = (uint8_t)label;
        }
    }
    return TREADLE_OK;
}

/* Without an arrow: the ellipsis, then labels that occur once, in order. */
static treadle_status implicit_output(td_prepare *p, einsum_state *s) {
    int uses[LETTERS] = {0};
    bool dots = false;
    for (size_t i = 0; i < s->n; i++) {
        dots = dots || s->terms[i].dots >= 0;
        for (int k = 0; k < s->terms[i].n; k++) uses[s->terms[i].labels[k]]++;
    }
    s->out = (term){.dots = dots ? 0 : -1};
    for (int l = 0; l < LETTERS; l++) {
        if (uses[l] != 1) continue;
        if (s->out.n == TD_MAX_RANK) return td_unsupported(p, "an output of more than %d labels", TD_MAX_RANK);
        s->out.labels[s->out.n++] = (uint8_t)l;
    }
    return TREADLE_OK;
}

static treadle_status check_output(td_prepare *p, const einsum_state *s) {
    bool known[LETTERS] = {false};
    for (size_t i = 0; i < s->n; i++)
        for (int k = 0; k < s->terms[i].n; k++) known[s->terms[i].labels[k]] = true;
    for (int k = 0; k < s->out.n; k++) {
        if (!known[s->out.labels[k]]) return td_bad_node(p, "the output has a label that no input has");
        known[s->out.labels[k]] = false; /* nor may it have one twice */
    }
    return TREADLE_OK;
}

static treadle_status parse(td_prepare *p, einsum_state *s) {
    td_str text = td_attr_string(p, "equation"), left = text, right = {NULL, 0};
    bool arrow = false;
    for (size_t i = 0; i + 1 < text.n && !arrow; i++) {
        arrow = text.p[i] == '-' && text.p[i + 1] == '>';
        if (!arrow) continue;
        left.n = i;
        right = (td_str){text.p + i + 2, text.n - i - 2};
    }
    s->n = p->n_inputs;
    s->terms = TD_ARENA_ARRAY(p->arena, term, s->n);
    if (!s->terms) return td_fail_memory(p->err, "the equation", s->n * sizeof *s->terms);
    size_t begin = 0, found = 0;
    for (size_t i = 0; i <= left.n; i++) {
        if (i < left.n && left.p[i] != ',') continue;
        if (found == s->n) return td_bad_node(p, "the equation has more terms than there are inputs");
        TD_TRY(parse_term(p, (td_str){left.p + begin, i - begin}, &s->terms[found++]));
        begin = i + 1;
    }
    if (found != s->n) return td_bad_node(p, "%zu terms for %zu inputs", found, s->n);
    if (!arrow) TD_TRY(implicit_output(p, s));
    else TD_TRY(parse_term(p, right, &s->out));
    return check_output(p, s);
}

static treadle_status einsum_prepare(td_prepare *p) {
    einsum_state *s = p->state;
    td_kind kind = td_dtype_kind(td_input_dtype(p, 0));
    s->dtype = td_input_dtype(p, 0);
    bool narrow = td_dtype_bits(s->dtype) < 32 && (kind == TD_KIND_INT || kind == TD_KIND_UINT);
    s->product = (td_product){.kernels = td_gemm_f32_pick(), .dtype = narrow ? TD_INT32 : s->dtype};
    s->product.b_dtype = s->product.dtype;
    return parse(p, s);
}

/* --- shapes */

/* The labels of a term of that rank, the ellipsis spelled out: its dimensions are labels from LETTERS on, the last
 * one 0. false: it does not fit. */
static bool spell(const term *t, int rank, int n_dots, uint8_t labels[TD_MAX_RANK]) {
    int dots = t->dots < 0 ? 0 : rank - t->n, at = 0;
    if (dots < 0 || dots > n_dots || (t->dots < 0 && rank != t->n) || rank > TD_MAX_RANK) return false;
    for (int k = 0; k <= t->n; k++) {
        if (k == t->dots)
            for (int d = dots; d-- > 0;) labels[at++] = (uint8_t)(LETTERS + d);
        if (k < t->n) labels[at++] = t->labels[k];
    }
    return true;
}

/* Sizes of all labels and the dimensions of the widest ellipsis. *known: all ranks are. */
static treadle_status measure(td_infer *in, int64_t sizes[N_LABELS], int *n_dots, bool *known) {
    const einsum_state *s = in->state;
    uint8_t labels[TD_MAX_RANK];
    *n_dots = 0;
    *known = true;
    for (int l = 0; l < N_LABELS; l++) sizes[l] = 1;
    for (size_t i = 0; i < s->n; i++) {
        const td_shape *x = &in->inputs[i]->tensor.shape;
        if (x->rank < 0) *known = false;
        else if (s->terms[i].dots >= 0) *n_dots = TD_MAX(*n_dots, x->rank - s->terms[i].n);
    }
    for (size_t i = 0; i < s->n && *known; i++) {
        const td_shape *x = &in->inputs[i]->tensor.shape;
        if (!spell(&s->terms[i], x->rank, *n_dots, labels))
            return td_infer_fail(in, "term %zu has not the rank of its input", i);
        for (int d = 0; d < x->rank; d++) {
            int64_t *size = &sizes[labels[d]], dim = x->dims[d];
            if (dim != *size && dim >= 0 && *size >= 0 && dim != 1 && *size != 1)
                return td_infer_fail(in, "a label is %lld and %lld", (long long)*size, (long long)dim);
            if (*size == 1 || (*size < 0 && dim > 1)) *size = dim;
        }
    }
    return TREADLE_OK;
}

static treadle_status einsum_infer(td_infer *in) {
    const einsum_state *s = in->state;
    int64_t sizes[N_LABELS];
    uint8_t labels[TD_MAX_RANK];
    td_shape out;
    int n_dots;
    bool known;

    TD_TRY(measure(in, sizes, &n_dots, &known));
    out.rank = s->out.n + (s->out.dots >= 0 ? n_dots : 0);
    if (!known) return td_infer_unknown(in, 0, s->dtype, s->out.dots >= 0 ? -1 : s->out.n);
    if (!spell(&s->out, out.rank, n_dots, labels)) return td_infer_fail(in, "an output of too many dimensions");
    for (int d = 0; d < out.rank; d++) out.dims[d] = sizes[labels[d]];
    return td_infer_set(in, 0, s->dtype, &out);
}

/* --- run */

/* A strided tensor whose dimensions have different labels. */
typedef struct operand {
    td_tensor t;
    uint8_t labels[TD_MAX_RANK];
} operand;

static int place_of(const operand *o, int label) {
    for (int d = 0; d < o->t.shape.rank; d++)
        if (o->labels[d] == label) return d;
    return -1;
}

/* A label that stands twice walks the diagonal. */
static treadle_status operand_of(td_run *r, const td_tensor *x, const uint8_t labels[TD_MAX_RANK], operand *out) {
    const einsum_state *s = r->state;
    out->t = *x;
    out->t.shape.rank = 0;
    for (int d = 0; d < x->shape.rank; d++) {
        int at = place_of(out, labels[d]);
        bool is_new = at < 0;
        if (is_new) {
            at = out->t.shape.rank++;
            out->labels[at] = labels[d];
            out->t.shape.dims[at] = x->shape.dims[d];
            out->t.strides[at] = 0;
        }
        if (x->shape.dims[d] == 1) continue;
        out->t.shape.dims[at] = x->shape.dims[d];
        out->t.strides[at] += x->strides[d];
    }
    if (s->product.dtype == s->dtype) return TREADLE_OK;
    td_tensor dense, wide; /* small integers */
    size_t bytes;
    td_tensor_view(&dense, x->dtype, &out->t.shape, NULL);
    td_tensor_view(&wide, s->product.dtype, &out->t.shape, NULL);
    if (!td_tensor_bytes(&wide, &bytes)) return td_run_fail(r, "sizes overflow");
    dense.data = td_run_scratch(r, bytes);
    wide.data = td_run_scratch(r, bytes);
    if (!dense.data || !wide.data) return TREADLE_OUT_OF_MEMORY;
    td_tensor_copy(&dense, &out->t);
    for (int64_t i = 0, n = td_tensor_count(&wide); i < n; i++)
        td_store_i64(wide.dtype, wide.data, i, td_load_i64(dense.dtype, dense.data, i));
    out->t = wide;
    return TREADLE_OK;
}

/* Labels by their part in a contraction, with their sizes. */
typedef struct part {
    int n;
    uint8_t labels[2 * TD_MAX_RANK];
    int64_t dims[2 * TD_MAX_RANK], count;
} part;

static void add_label(part *p, int label, int64_t dim) {
    p->labels[p->n] = (uint8_t)label;
    p->dims[p->n++] = dim;
    p->count *= dim;
}

/* Steps of an operand along a part's labels; 0 where it has none, or one element. */
static void steps_of(const operand *o, const part *p, int64_t steps[2 * TD_MAX_RANK]) {
    for (int i = 0; i < p->n; i++) {
        int d = place_of(o, p->labels[i]);
        steps[i] = d < 0 || o->t.shape.dims[d] == 1 ? 0 : o->t.strides[d];
    }
}

/* *o as a stack of matrices [rows, cols]: a view if neither is of several labels, else a
 * dense copy [stack, rows, cols]. */
static treadle_status as_matrices(td_run *r, operand *o, const part *stack, const part *rows, const part *cols,
                                  td_matrix *first, int64_t stack_steps[2 * TD_MAX_RANK]) {
    int64_t row_steps[2 * TD_MAX_RANK], col_steps[2 * TD_MAX_RANK];
    const part *parts[] = {stack, rows, cols};
    *first = (td_matrix){.rows = rows->count, .cols = cols->count, .data = o->t.data};
    steps_of(o, stack, stack_steps);
    steps_of(o, rows, row_steps);
    steps_of(o, cols, col_steps);
    if (rows->n <= 1 && cols->n <= 1) {
        first->row_stride = rows->n ? row_steps[0] : 1;
        first->col_stride = cols->n ? col_steps[0] : 1;
        return TREADLE_OK;
    }
    td_tensor from = {.dtype = o->t.dtype, .data = o->t.data}, to;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < parts[k]->n; i++) {
            if (from.shape.rank == TD_MAX_RANK) return td_run_fail(r, "more than %d labels at once", TD_MAX_RANK);
            from.shape.dims[from.shape.rank] = parts[k]->dims[i];
            from.strides[from.shape.rank++] = (k == 0 ? stack_steps : k == 1 ? row_steps : col_steps)[i];
        }
    size_t bytes;
    td_tensor_view(&to, from.dtype, &from.shape, NULL);
    if (!td_tensor_bytes(&to, &bytes)) return td_run_fail(r, "sizes overflow");
    to.data = td_run_scratch(r, bytes);
    if (!to.data) return TREADLE_OUT_OF_MEMORY;
    td_tensor_copy(&to, &from);
    first->data = to.data;
    first->row_stride = cols->count;
    first->col_stride = 1;
    memcpy(stack_steps, to.strides, (size_t)stack->n * sizeof *stack_steps);
    return TREADLE_OK;
}

static treadle_status multiply(td_run *r, operand *a, operand *b, const part *stack, const part *rows, const part *sum,
                               const part *cols, operand *out) {
    const einsum_state *s = r->state;
    td_matrix first_a, first_b;
    int64_t a_steps[2 * TD_MAX_RANK], b_steps[2 * TD_MAX_RANK], width = td_dtype_bits(s->product.dtype) / 8;
    const part *parts[] = {stack, rows, cols};
    td_shape shape = {0};
    size_t bytes;

    TD_TRY(as_matrices(r, a, stack, rows, sum, &first_a, a_steps));
    TD_TRY(as_matrices(r, b, stack, sum, cols, &first_b, b_steps));
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < parts[k]->n; i++) {
            if (shape.rank == TD_MAX_RANK) return td_run_fail(r, "more than %d labels at once", TD_MAX_RANK);
            out->labels[shape.rank] = parts[k]->labels[i];
            shape.dims[shape.rank++] = parts[k]->dims[i];
        }
    td_tensor_view(&out->t, s->product.dtype, &shape, NULL);
    if (!td_tensor_bytes(&out->t, &bytes)) return td_run_fail(r, "sizes overflow");
    out->t.data = td_run_scratch(r, bytes);
    td_product_job *jobs = td_run_scratch(r, (size_t)stack->count * sizeof *jobs);
    if (!jobs || !out->t.data) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < stack->count; i++) {
        int64_t rest = i, at_a = 0, at_b = 0;
        for (int d = stack->n - 1; d >= 0; d--) {
            at_a += rest % stack->dims[d] * a_steps[d];
            at_b += rest % stack->dims[d] * b_steps[d];
            rest /= stack->dims[d];
        }
        jobs[i] = (td_product_job){first_a, first_b, {rows->count, cols->count, cols->count, 1, out->t.data}};
        jobs[i].a.data = (char *)first_a.data + at_a * width;
        jobs[i].b.data = (char *)first_b.data + at_b * width;
        jobs[i].y.data = (char *)out->t.data + i * rows->count * cols->count * width;
    }
    return td_product_run(r, &s->product, jobs, stack->count, NULL);
}

static int64_t dim_of(const operand *o, int label) {
    int d = place_of(o, label);
    return d < 0 ? 1 : o->t.shape.dims[d];
}

/* out = a * b, summed over the labels that are not kept. Those that only one of them has must be kept. */
static treadle_status contract(td_run *r, operand *a, operand *b, const bool kept[N_LABELS], operand *out) {
    part stack = {.count = 1}, rows = stack, sum = stack, cols = stack;
    for (int l = 0; l < N_LABELS; l++) {
        bool in_a = place_of(a, l) >= 0, in_b = place_of(b, l) >= 0;
        if (!in_a && !in_b) continue;
        int64_t dim = TD_MAX(dim_of(a, l), dim_of(b, l));
        if (dim_of(a, l) == 0 || dim_of(b, l) == 0) dim = 0;
        add_label(in_a && in_b ? kept[l] ? &stack : &sum : in_a ? &rows : &cols, l, dim);
    }
    return multiply(r, a, b, &stack, &rows, &sum, &cols, out);
}

/* Sums over the labels of *o that are not kept: a product with ones. */
static treadle_status sum_out(td_run *r, operand *o, const bool kept[N_LABELS]) {
    const einsum_state *s = r->state;
    operand ones = {.t = {.dtype = s->product.dtype}}, sum;
    uint64_t *one = td_run_scratch(r, sizeof *one);

    for (int d = 0; d < o->t.shape.rank; d++) {
        if (kept[o->labels[d]]) continue;
        ones.labels[ones.t.shape.rank] = o->labels[d];
        ones.t.shape.dims[ones.t.shape.rank++] = o->t.shape.dims[d];
    }
    if (ones.t.shape.rank == 0) return TREADLE_OK;
    if (!one) return TREADLE_OUT_OF_MEMORY;
    td_store_f64(s->product.dtype, one, 0, 1);
    ones.t.data = one;
    TD_TRY(contract(r, o, &ones, kept, &sum));
    *o = sum;
    return TREADLE_OK;
}

/* To the output's order of labels, and its element type. */
static treadle_status finish(td_run *r, const operand *o, const uint8_t labels[TD_MAX_RANK]) {
    td_tensor *y = r->out[0], view = {.dtype = o->t.dtype, .shape = y->shape, .data = o->t.data};
    for (int d = 0; d < y->shape.rank; d++) {
        int from = place_of(o, labels[d]);
        view.strides[d] = from < 0 || o->t.shape.dims[from] == 1 ? 0 : o->t.strides[from];
    }
    if (view.dtype == y->dtype) {
        td_tensor_copy(y, &view);
        return TREADLE_OK;
    }
    td_tensor wide;
    size_t bytes;
    td_tensor_view(&wide, view.dtype, &y->shape, NULL);
    if (!td_tensor_bytes(&wide, &bytes)) return td_run_fail(r, "sizes overflow");
    wide.data = td_run_scratch(r, bytes);
    if (!wide.data) return TREADLE_OUT_OF_MEMORY;
    td_tensor_copy(&wide, &view);
    for (int64_t i = 0, n = td_tensor_count(y); i < n; i++)
        td_store_i64(y->dtype, y->data, i, td_load_i64(wide.dtype, wide.data, i));
    return TREADLE_OK;
}

static treadle_status einsum_run(td_run *r) {
    const einsum_state *s = r->state;
    int n_dots = 0;
    uint8_t labels[TD_MAX_RANK];
    int uses[N_LABELS] = {0}; /* by operands still to come, and by the output */
    operand so_far, next, result;

    if (td_tensor_count(r->out[0]) == 0) return TREADLE_OK;
    for (size_t i = 0; i < s->n; i++)
        if (s->terms[i].dots >= 0) n_dots = TD_MAX(n_dots, r->in[i]->shape.rank - s->terms[i].n);
    spell(&s->out, r->out[0]->shape.rank, n_dots, labels);
    for (int d = 0; d < r->out[0]->shape.rank; d++) uses[labels[d]]++;
    for (size_t i = 1; i < s->n; i++) {
        spell(&s->terms[i], r->in[i]->shape.rank, n_dots, labels);
        for (int d = 0; d < r->in[i]->shape.rank; d++) uses[labels[d]]++;
    }
    spell(&s->terms[0], r->in[0]->shape.rank, n_dots, labels);
    TD_TRY(operand_of(r, r->in[0], labels, &so_far));
    bool kept[N_LABELS];
    for (size_t i = 1; i < s->n; i++) {
        spell(&s->terms[i], r->in[i]->shape.rank, n_dots, labels);
        TD_TRY(operand_of(r, r->in[i], labels, &next));
        for (int l = 0; l < N_LABELS; l++) kept[l] = uses[l] > 0;
        TD_TRY(sum_out(r, &so_far, kept));
        for (int d = 0; d < r->in[i]->shape.rank; d++) uses[labels[d]]--;
        for (int l = 0; l < N_LABELS; l++) kept[l] = uses[l] > 0 || place_of(&so_far, l) >= 0;
        TD_TRY(sum_out(r, &next, kept));
        for (int l = 0; l < N_LABELS; l++) kept[l] = uses[l] > 0;
        TD_TRY(contract(r, &so_far, &next, kept, &result));
        so_far = result;
    }
    for (int l = 0; l < N_LABELS; l++) kept[l] = uses[l] > 0;
    TD_TRY(sum_out(r, &so_far, kept));
    spell(&s->out, r->out[0]->shape.rank, n_dots, labels);
    return finish(r, &so_far, labels);
}

const td_op_impl td_op_einsum = {.state_bytes = sizeof(einsum_state),
                                 .prepare = einsum_prepare,
                                 .infer = einsum_infer,
                                 .run = einsum_run,
                                 .strided_inputs = UINT32_MAX};
