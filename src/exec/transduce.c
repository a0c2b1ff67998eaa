/* exec/transduce.c - the three sessions of a transducer, each run when the walk over the frames asks for it.
 *
 * The encoder runs once per chunk of features, the predictor once per emitted token, the joiner once per joint of a
 * frame and what was predicted last. Encoder caches and the predictor's state are recurrent state of the row: they go
 * on from chunk to chunk. What goes into the joiner may differ from its source by a reshape. Where predictor and
 * joiner are one graph, each joint predicts anew from the last token, and the state that came out with the joint is
 * taken over only when a token did. */
#include "base/alloc.h"
#include "exec/run.h"
#include "tensor/half.h"

static td_exec_run run_of(const td_exec_row *rows, size_t r) {
    return (td_exec_run){.first_row = r, .n_rows = 1, .prompt = true, .wants_logits = true, .rows = rows};
}

/* What a session's run made of the row's state: kept beside the old one until it counts, when nothing can fail any
 * more. */
static treadle_status keep_state(td_exec *e, const td_exec_run *run, int32_t session, treadle_error *err) {
    memset(e->written, 0, e->plan->n_states * sizeof *e->written);
    return td_exec_keep(e, run, session, err);
}

static void commit_state(td_exec *e, const td_exec_run *run) {
    td_state_commit(e->state, run->first_row, 1, e->written);
}

/* --- values that the walk makes */

/* n elements as an input takes them: ones, and n where the input has that size, else in its last free dimension. */
static td_shape shape_for(const td_light_port *port, int64_t n) {
    td_shape shape = port->shape;
    int at = shape.rank - 1;
    if (shape.rank < 1) return (td_shape){.rank = 1, .dims = {n}};
    for (int i = shape.rank - 1; i >= 0; i--)
        if (shape.dims[i] == n && n != 1) {
            at = i;
            break;
        }
    if (shape.dims[at] >= 0 && shape.dims[at] != n)
        for (int i = 0; i < shape.rank; i++)
            if (shape.dims[i] < 0) at = i;
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = i == at ? n : 1;
    return shape;
}

/* A dense value of an input in memory that the row keeps. */
static treadle_status give(td_exec *e, int32_t session, int32_t input, td_value *memory, int64_t n, td_tensor **out,
                           treadle_error *err) {
    const td_light_port *port = &e->plan->sessions[session].signature->inputs[input];
    td_shape shape = shape_for(port, n);
    if (!td_value_resize(memory, port->dtype, &shape)) return td_fail_memory(err, "a transducer's input", 0);
    *out = &memory->tensor;
    return TREADLE_OK;
}

static void bind_value(td_exec *e, int32_t session, int32_t input, const td_value *value) {
    e->inputs[session][input] = *value;
}

/* Copies a tensor of any strides, in row-major order, into a dense one of as many elements. */
static treadle_status copy_reshaped(td_tensor *to, const td_tensor *from, treadle_error *err) {
    td_tensor same = *to;
    if (td_tensor_count(from) != td_tensor_count(to) || from->dtype != to->dtype) {
        char a[128], b[128];
        return td_fail(err, TREADLE_RUN, "%s %s cannot become the joiner's %s %s", td_dtype_name(from->dtype),
                       td_shape_text(&from->shape, a), td_dtype_name(to->dtype), td_shape_text(&to->shape, b));
    }
    td_tensor_view(&same, to->dtype, &from->shape, to->data);
    td_tensor_copy(&same, from);
    return TREADLE_OK;
}

/* --- encoder */

/* A length that the request leaves out is that of the features: of their free dimension after the rows. */
static treadle_status fill_length(td_exec *e, const td_exec_run *run, treadle_error *err) {
    const td_plan_transducer *t = &e->plan->transducer;
    const td_plan_session *s = &e->plan->sessions[t->encoder];
    const td_value *requests = run->rows[run->first_row].requests;
    int32_t input = t->features_length;
    if (input < 0 || !requests || s->feeds[input].kind != TD_FEED_REQUEST ||
        requests[s->feeds[input].index].kind != TD_VALUE_NONE)
        return TREADLE_OK;
    int64_t n = 0;
    for (size_t i = 0; i < s->signature->n_inputs && !n; i++) {
        const td_shape *declared = &s->signature->inputs[i].shape;
        if ((int32_t)i == input || s->feeds[i].kind != TD_FEED_REQUEST) continue;
        const td_value *features = &requests[s->feeds[i].index];
        for (int d = 1; features->kind == TD_VALUE_TENSOR && d < features->tensor.shape.rank; d++)
            if (d >= declared->rank || declared->dims[d] < 0) n = features->tensor.shape.dims[d];
    }
    td_tensor *to;
    TD_TRY(give(e, t->encoder, input, &e->lines[run->first_row].length, 1, &to, err));
    td_store_i64(to->dtype, to->data, 0, n);
    bind_value(e, t->encoder, input, &e->lines[run->first_row].length);
    return TREADLE_OK;
}

treadle_status td_exec_transduce_encode(td_exec *e, td_exec_row *rows, size_t r, int64_t *out_frames,
                                        treadle_error *err) {
    const td_plan_transducer *t = &e->plan->transducer;
    td_exec_run run = run_of(rows, r);
    e->run_number++;
    e->lines[r].joint_pending = false;
    TD_TRY(td_exec_roles_reserve(e, 1, 1, err));
    TD_TRY(td_exec_bind(e, &run, t->encoder, err));
    TD_TRY(fill_length(e, &run, err));
    TD_TRY(td_exec_call(e, t->encoder, err));
    const td_value *frames = &e->outputs[t->encoder][t->frames_output];
    if (frames->kind != TD_VALUE_TENSOR || frames->tensor.shape.rank != 3 || frames->tensor.shape.dims[0] != 1) {
        char text[128];
        return td_fail(err, TREADLE_RUN, "expected the encoder's frames of one row, the graph gave %s",
                       frames->kind == TD_VALUE_TENSOR ? td_shape_text(&frames->tensor.shape, text) : "nothing");
    }
    int64_t n = frames->tensor.shape.dims[t->frames_axis];
    if (t->length_output >= 0) {
        const td_value *length = &e->outputs[t->encoder][t->length_output];
        if (length->kind == TD_VALUE_TENSOR && td_tensor_count(&length->tensor) >= 1)
            n = TD_MIN(n, TD_MAX(td_load_i64(length->tensor.dtype, length->tensor.data, 0), (int64_t)0));
    }
    TD_TRY(keep_state(e, &run, t->encoder, err));
    td_value *kept = &e->lines[r].frames; /* other rows are encoded before this one is walked to its end */
    if (!td_value_resize(kept, frames->tensor.dtype, &frames->tensor.shape))
        return td_fail_memory(err, "the encoder's frames", 0);
    td_tensor_copy(&kept->tensor, &frames->tensor);
    commit_state(e, &run);
    *out_frames = n;
    return TREADLE_OK;
}

/* --- predictor */

static treadle_status give_targets(td_exec *e, td_exec_line *line, const int32_t *ids, int64_t n, treadle_error *err) {
    const td_plan_transducer *t = &e->plan->transducer;
    td_tensor *to;
    TD_TRY(give(e, t->predictor, t->targets, &line->targets, n, &to, err));
    for (int64_t i = 0; i < n; i++) td_store_i64(to->dtype, to->data, i, ids[i]);
    if (t->targets_length < 0) return TREADLE_OK;
    TD_TRY(give(e, t->predictor, t->targets_length, &line->targets_length, 1, &to, err));
    td_store_i64(to->dtype, to->data, 0, n);
    return TREADLE_OK;
}

static void bind_targets(td_exec *e, const td_exec_line *line) {
    const td_plan_transducer *t = &e->plan->transducer;
    bind_value(e, t->predictor, t->targets, &line->targets);
    if (t->targets_length >= 0) bind_value(e, t->predictor, t->targets_length, &line->targets_length);
}

treadle_status td_exec_transduce_predict(td_exec *e, td_exec_row *rows, size_t r, const int32_t *ids, int64_t n,
                                         treadle_error *err) {
    const td_plan_transducer *t = &e->plan->transducer;
    td_exec_line *line = &e->lines[r];
    td_exec_run run = run_of(rows, r);
    td_tensor *predicted;
    if (t->predictor == t->joiner) { /* its latest run has brought out a token: the state of it counts */
        if (line->joint_pending) TD_TRY(keep_state(e, &run, t->joiner, err));
        TD_TRY(give_targets(e, line, ids, n, err));
        if (line->joint_pending) commit_state(e, &run);
        line->joint_pending = false;
        return TREADLE_OK;
    }
    TD_TRY(td_exec_bind(e, &run, t->predictor, err));
    TD_TRY(give_targets(e, line, ids, n, err));
    bind_targets(e, line);
    TD_TRY(td_exec_call(e, t->predictor, err));
    const td_value *output = &e->outputs[t->predictor][t->predicted];
    if (output->kind != TD_VALUE_TENSOR) return td_fail(err, TREADLE_RUN, "the predictor gave nothing");
    TD_TRY(keep_state(e, &run, t->predictor, err));
    TD_TRY(
        give(e, t->joiner, t->joiner_predicted, &line->predicted, td_tensor_count(&output->tensor), &predicted, err));
    TD_TRY(copy_reshaped(predicted, &output->tensor, err));
    commit_state(e, &run);
    return TREADLE_OK;
}

/* --- joiner */

treadle_status td_exec_transduce_join(td_exec *e, td_exec_row *rows, size_t r, int64_t frame, const float **out,
                                      int64_t *out_n, treadle_error *err) {
    const td_plan_transducer *t = &e->plan->transducer;
    td_exec_line *line = &e->lines[r];
    td_exec_run run = run_of(rows, r);
    td_tensor one = td_tensor_slice(&line->frames.tensor, t->frames_axis, frame, 1), *to;
    TD_TRY(td_exec_bind(e, &run, t->joiner, err));
    TD_TRY(give(e, t->joiner, t->joiner_frame, &line->frame, td_tensor_count(&one), &to, err));
    TD_TRY(copy_reshaped(to, &one, err));
    bind_value(e, t->joiner, t->joiner_frame, &line->frame);
    if (t->predictor == t->joiner) bind_targets(e, line);
    else bind_value(e, t->joiner, t->joiner_predicted, &line->predicted);
    TD_TRY(td_exec_call(e, t->joiner, err));
    line->joint_pending = true;
    const td_value *logits = &e->outputs[t->joiner][t->logits];
    int64_t n = logits->kind == TD_VALUE_TENSOR ? td_tensor_count(&logits->tensor) : 0;
    if (n < 2 || n != logits->tensor.shape.dims[logits->tensor.shape.rank - 1])
        return td_fail(err, TREADLE_RUN, "expected the joiner to give logits of one joint, found %lld numbers",
                       (long long)n);
    if (!e->logits) {
        e->logits = td_alloc_array((size_t)n, sizeof *e->logits);
        if (!e->logits) return td_fail_memory(err, "logits", (size_t)n * sizeof *e->logits);
        e->vocab = n;
    }
    if (n != e->vocab)
        return td_fail(err, TREADLE_RUN, "the joiner gave %lld logits, before that %lld", (long long)n,
                       (long long)e->vocab);
    td_tensor dense;
    td_shape flat = {.rank = 1, .dims = {n}};
    dense = logits->tensor;
    if (!td_tensor_is_dense(&dense)) return td_fail(err, TREADLE_INTERNAL, "logits of a joint are not dense");
    td_tensor_view(&dense, dense.dtype, &flat, dense.data);
    td_to_f32(dense.dtype, dense.data, n, e->logits);
    *out = e->logits;
    *out_n = n;
    return TREADLE_OK;
}
