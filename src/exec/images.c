/* exec/images.c - a session once per image: its tensors are cut along dimension 0, its
 * outputs joined along dimension 0.
 *
 * Image i is row i of the tensor that is looped over, or product(t, h, w) rows of it where a grid says how many patches
 * an image has. Other tensors of the request with a row per image are cut likewise. With sizes per image, a slice of a
 * padded batch is cropped to its image. Source: the contract of the config, section 3. */
#include "base/alloc.h"
#include "exec/run.h"
#include "tensor/half.h"

typedef struct cut {
    int64_t first, n; /* rows of the tensor that is looped over */
} cut;

static const td_tensor *request_tensor(const td_exec_run *run, int32_t index) {
    const td_exec_row *row = &run->rows[run->first_row];
    if (index < 0 || !row->requests || row->requests[index].kind != TD_VALUE_TENSOR) return NULL;
    return &row->requests[index].tensor;
}

/* Product of row i of a grid; -1: a number that is no size. */
static int64_t grid_rows(const td_tensor *grid, int64_t i) {
    int64_t n = 1;
    for (int64_t d = 0; d < grid->shape.dims[1]; d++) {
        int64_t v = td_load_i64(grid->dtype, grid->data, i * grid->strides[0] + d * grid->strides[1]);
        if (v < 0 || TD_MUL_OVERFLOWS(n, v, &n)) return -1;
    }
    return n;
}

static treadle_status count_images(const td_exec *e, const td_exec_run *run, const td_plan_step *step,
                                   const td_tensor *looped, const td_tensor **grid, int64_t *n, treadle_error *err) {
    char text[128];
    *grid = NULL;
    *n = looped->shape.dims[0];
    if (step->grid_request < 0) return TREADLE_OK;
    *grid = request_tensor(run, step->grid_request);
    const td_plan_request *name = &e->plan->requests[step->grid_request];
    if (!*grid)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected a tensor \"%.*s\" that says how many patches each image has, found none",
                       TD_STR_ARGS(name->name));
    if ((*grid)->shape.rank != 2)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected \"%.*s\" as [images, 3], found %s",
                       TD_STR_ARGS(name->name), td_shape_text(&(*grid)->shape, text));
    *n = (*grid)->shape.dims[0];
    int64_t total = 0;
    for (int64_t i = 0; i < *n; i++) {
        int64_t rows = grid_rows(*grid, i);
        if (rows < 0 || TD_ADD_OVERFLOWS(total, rows, &total))
            return td_fail(err, TREADLE_INVALID_ARGUMENT,
                           "row %lld of \"%.*s\" counts no patches: expected sizes from 0 on whose products add up to "
                           "the %lld rows of the patches",
                           (long long)i, TD_STR_ARGS(name->name), (long long)looped->shape.dims[0]);
    }
    if (step->slices[step->loop_input] != TD_SLICE_ROWS || total == looped->shape.dims[0]) return TREADLE_OK;
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "the grids of \"%.*s\" stand for %lld patches, but \"%.*s\" has %lld",
                   TD_STR_ARGS(name->name), (long long)total,
                   TD_STR_ARGS(e->plan->sessions[step->session].signature->inputs[step->loop_input].name),
                   (long long)looped->shape.dims[0]);
}

/* Cuts the image's own height, width ... out of a padded slice. */
static treadle_status crop(const td_exec *e, const td_exec_run *run, const td_plan_step *step, int64_t image,
                           td_tensor *t, treadle_error *err) {
    if (step->crop_request < 0) return TREADLE_OK;
    const td_tensor *sizes = request_tensor(run, step->crop_request);
    td_str name = e->plan->requests[step->crop_request].name;
    if (!sizes)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected a tensor \"%.*s\" with the sizes of the images, found none", TD_STR_ARGS(name));
    if (sizes->shape.rank != 2 || sizes->shape.dims[0] <= image || sizes->shape.dims[1] < step->n_crop_dims) {
        char text[128];
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected \"%.*s\" with a row of %d sizes for each image, found %s", TD_STR_ARGS(name),
                       step->n_crop_dims, td_shape_text(&sizes->shape, text));
    }
    for (int i = 0; i < step->n_crop_dims; i++) {
        int d = step->crop_dims[i];
        int64_t size = td_load_i64(sizes->dtype, sizes->data, image * sizes->strides[0] + i * sizes->strides[1]);
        if (d < 0 || d >= t->shape.rank || size < 1 || size > t->shape.dims[d])
            return td_fail(err, TREADLE_INVALID_ARGUMENT,
                           "\"%.*s\" says %lld for dimension %d of image %lld, whose tensor has %lld",
                           TD_STR_ARGS(name), (long long)size, d, (long long)image,
                           (long long)(d >= 0 && d < t->shape.rank ? t->shape.dims[d] : 0));
        t->shape.dims[d] = size;
    }
    return TREADLE_OK;
}

/* The inputs of one image. */
static treadle_status bind_image(td_exec *e, const td_exec_run *run, const td_plan_step *step, int64_t image, cut rows,
                                 treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[step->session];
    TD_TRY(td_exec_bind(e, run, step->session, err));
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        td_value *value = &e->inputs[step->session][i];
        td_tensor whole = value->tensor;
        if (step->slices[i] == TD_SLICE_WHOLE || value->kind != TD_VALUE_TENSOR) continue;
        cut c = step->slices[i] == TD_SLICE_IMAGE ? (cut){image, 1} : rows;
        if (whole.shape.rank < 1 || whole.shape.dims[0] < c.first + c.n) {
            char text[128];
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected \"%.*s\" with a row for image %lld, found %s",
                           TD_STR_ARGS(s->signature->inputs[i].name), (long long)image,
                           td_shape_text(&whole.shape, text));
        }
        value->tensor = td_tensor_slice(&whole, 0, c.first, c.n);
        if ((int32_t)i == step->loop_input) TD_TRY(crop(e, run, step, image, &value->tensor, err));
    }
    return TREADLE_OK;
}

/* Appends the session's outputs to what is joined so far. */
static treadle_status join(td_exec *e, int32_t session, treadle_error *err) {
    const td_signature *sig = e->plan->sessions[session].signature;
    for (size_t o = 0; o < sig->n_outputs; o++) {
        const td_value *part = &e->outputs[session][o];
        td_value *joined = &e->joined[session][o];
        if (e->skip[session][o] || part->kind != TD_VALUE_TENSOR) continue;
        if (joined->kind == TD_VALUE_NONE) {
            if (!td_value_copy(joined, part)) return td_fail_memory(err, "features of an image", 0);
            continue;
        }
        td_shape shape = joined->tensor.shape;
        bool fits =
            shape.rank == part->tensor.shape.rank && shape.rank > 0 && joined->tensor.dtype == part->tensor.dtype;
        for (int d = 1; fits && d < shape.rank; d++) fits = shape.dims[d] == part->tensor.shape.dims[d];
        if (!fits)
            return td_fail(err, TREADLE_RUN, "output \"%.*s\" has another shape for each image: it cannot be joined",
                           TD_STR_ARGS(sig->outputs[o].name));
        if (!td_value_extend(joined, part->tensor.shape.dims[0])) return td_fail_memory(err, "features of images", 0);
        td_tensor at = td_tensor_slice(&joined->tensor, 0, shape.dims[0], part->tensor.shape.dims[0]);
        td_tensor_copy(&at, &part->tensor);
    }
    return TREADLE_OK;
}

treadle_status td_exec_run_images(td_exec *e, const td_exec_run *run, const td_plan_step *step, treadle_error *err) {
    int32_t session = step->session;
    const td_plan_session *s = &e->plan->sessions[session];
    const td_tensor *grid = NULL;
    int64_t n_images = 0, first = 0;
    TD_TRY(td_exec_bind(e, run, session, err));
    const td_value *looped = &e->inputs[session][step->loop_input];
    if (looped->kind != TD_VALUE_TENSOR || looped->tensor.shape.rank < 1)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "session \"%.*s\": expected \"%.*s\" with a row for each image",
                       TD_STR_ARGS(s->name), TD_STR_ARGS(s->signature->inputs[step->loop_input].name));
    TD_TRY(count_images(e, run, step, &looped->tensor, &grid, &n_images, err));
    for (size_t o = 0; o < s->signature->n_outputs; o++) td_value_release(&e->joined[session][o]);
    for (int64_t i = 0; i < n_images; i++) {
        cut rows = {first, grid ? grid_rows(grid, i) : 1};
        first += rows.n;
        TD_TRY(bind_image(e, run, step, i, rows, err));
        TD_TRY(td_exec_call(e, session, err));
        TD_TRY(join(e, session, err));
    }
    e->ran[session] = e->run_number;
    e->is_joined[session] = true;
    return TREADLE_OK;
}
