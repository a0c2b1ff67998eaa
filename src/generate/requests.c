/* generate/requests.c - named tensors that come with an append: checked against the graphs,
 * kept, and given to their rows.
 *
 * With one row a tensor is that row's as it is. With several, dimension 0 says whose it is: images (and what has a row
 * per image, or patches counted by a grid) go to rows in the order of their placeholders; anything else has one row per
 * prompt. Source: the contract of the config, section 3. */
#include "base/alloc.h"
#include "generate/timeline.h"
#include "tensor/half.h"

/* --- checking */

static const td_light_port *port_of(const td_plan *plan, size_t i) {
    const td_plan_request *r = &plan->requests[i];
    return r->session < 0 ? NULL : &plan->sessions[r->session].signature->inputs[r->input];
}

static treadle_status unknown_tensor(const td_plan *plan, const char *name, treadle_error *err) {
    td_buf names = {0};
    for (size_t i = 0; i < plan->n_requests; i++)
        td_buf_printf(&names, "%s%.*s", i ? ", " : "", TD_STR_ARGS(plan->requests[i].name));
    treadle_status status =
        td_fail(err, TREADLE_INVALID_ARGUMENT, "no session of this model takes a tensor \"%.200s\" (%s%.*s)", name,
                names.n ? "it takes: " : "it takes none", (int)TD_MIN(names.n, (size_t)400), names.p ? names.p : "");
    td_buf_free(&names);
    return status;
}

static treadle_status check_shape(const td_light_port *port, const td_tensor *t, treadle_error *err) {
    char given[128], wanted[128];
    bool fits = port->shape.rank < 0 || port->shape.rank == t->shape.rank;
    if (!fits)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "tensor \"%.*s\": expected %d dimensions, found %d (%s)",
                       TD_STR_ARGS(port->name), port->shape.rank, t->shape.rank, td_shape_text(&t->shape, given));
    /* Dimension 0 of a batch is cut into rows or images later. */
    for (int i = 1; i < port->shape.rank; i++)
        fits &= port->shape.dims[i] < 0 || port->shape.dims[i] == t->shape.dims[i];
    if (fits) return TREADLE_OK;
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "tensor \"%.*s\": expected shape %s, found %s",
                   TD_STR_ARGS(port->name), td_shape_text(&port->shape, wanted), td_shape_text(&t->shape, given));
}

/* What no graph takes is read here: sizes, grids, seconds. */
static treadle_status check_numbers(const td_tensor *t, td_str name, treadle_error *err) {
    td_kind kind = td_dtype_kind(t->dtype);
    if (kind == TD_KIND_INT || kind == TD_KIND_UINT || kind == TD_KIND_FLOAT) return TREADLE_OK;
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "tensor \"%.*s\": expected numbers, found %s", TD_STR_ARGS(name),
                   td_dtype_name(t->dtype));
}

/* A dense copy with the graph's element type; numbers are converted within floating-point types and within integers. */
static treadle_status copy_as(const td_tensor *from, td_dtype dtype, td_str name, td_value *out, treadle_error *err) {
    td_value same = {.kind = TD_VALUE_TENSOR, .tensor = *from};
    if (from->dtype == dtype)
        return td_value_copy(out, &same) ? TREADLE_OK : td_fail_memory(err, "a tensor of the request", 0);
    td_kind a = td_dtype_kind(from->dtype), b = td_dtype_kind(dtype);
    bool integers = (a == TD_KIND_INT || a == TD_KIND_UINT || a == TD_KIND_BOOL) &&
                    (b == TD_KIND_INT || b == TD_KIND_UINT || b == TD_KIND_BOOL);
    if (!integers && !(a == TD_KIND_FLOAT && b == TD_KIND_FLOAT))
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "tensor \"%.*s\": expected %s, found %s", TD_STR_ARGS(name),
                       td_dtype_name(dtype), td_dtype_name(from->dtype));
    *out = (td_value){0};
    if (!td_value_resize(out, dtype, &from->shape)) return td_fail_memory(err, "a tensor of the request", 0);
    for (int64_t i = 0; i < td_tensor_count(from); i++) {
        if (integers) td_store_i64(dtype, out->tensor.data, i, td_load_i64(from->dtype, from->data, i));
        else td_store_f64(dtype, out->tensor.data, i, td_load_f64(from->dtype, from->data, i));
    }
    return TREADLE_OK;
}

treadle_status td_generation_set_tensor(td_generation *g, const char *name, const td_tensor *tensor,
                                        treadle_error *err) {
    const td_plan *plan = g->runtime->plan;
    int32_t found = td_plan_find_request(plan, td_str_from(name));
    size_t i = (size_t)found;
    if (found < 0) return unknown_tensor(plan, name, err);
    const td_light_port *port = port_of(plan, i);
    td_value copy;
    if (port) TD_TRY(check_shape(port, tensor, err));
    else TD_TRY(check_numbers(tensor, plan->requests[i].name, err));
    TD_TRY(copy_as(tensor, port ? port->dtype : tensor->dtype, plan->requests[i].name, &copy, err));
    td_value_release(&g->staged[i]);
    g->staged[i] = copy;
    return TREADLE_OK;
}

treadle_status td_generation_set_images(td_generation *g, const int64_t *images_per_row, size_t n_rows,
                                        treadle_error *err) {
    int64_t *copy = td_alloc_array(TD_MAX(n_rows, (size_t)1), sizeof *copy);
    if (!copy) return td_fail_memory(err, "images per row", n_rows * sizeof *copy);
    for (size_t r = 0; r < n_rows; r++) {
        if (images_per_row[r] < 0 || images_per_row[r] > INT32_MAX) {
            td_free(copy);
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a number of images of at least 0, found %lld",
                           (long long)images_per_row[r]);
        }
        copy[r] = images_per_row[r];
    }
    td_free(g->images_per_row);
    g->images_per_row = copy;
    g->n_images_per_row = n_rows;
    return TREADLE_OK;
}

/* --- whose it is */

typedef enum belongs { TO_ROW, TO_IMAGE, TO_PATCHES } belongs;

/* What dimension 0 of a request tensor counts. */
static belongs what_counts(const td_plan *plan, int32_t request) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_step *step = &plan->steps[k];
        const td_plan_session *s = &plan->sessions[step->session];
        if (request == step->crop_request || request == step->grid_request) return TO_IMAGE;
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            if (s->feeds[i].kind != TD_FEED_REQUEST || s->feeds[i].index != request) continue;
            td_slice slice = step->slices ? step->slices[i] : TD_SLICE_WHOLE;
            if (slice != TD_SLICE_WHOLE) return slice == TD_SLICE_ROWS ? TO_PATCHES : TO_IMAGE;
            if (step->loop == TD_LOOP_PER_IMAGE) return TO_ROW;
            if (step->modality == TD_MODALITY_IMAGE && step->when == TD_WHEN_PROMPT) return TO_IMAGE;
        }
    }
    const td_plan_mrope *m = &plan->mrope;
    return plan->position == TD_POSITION_MROPE_3D && (request == m->image_grid || request == m->video_grid) ? TO_IMAGE
                                                                                                            : TO_ROW;
}

/* Images of each row by what its prompt shows: placeholders that stand together are one. */
static void count_placeholders(const td_generation *g, const treadle_ids *rows, size_t n_rows, int64_t *out) {
    int32_t token = g->options.image_token;
    for (size_t r = 0; r < n_rows; r++) {
        out[r] = 0;
        for (size_t i = 0; token >= 0 && i < rows[r].n; i++)
            out[r] += rows[r].ids[i] == token && (i == 0 || rows[r].ids[i - 1] != token);
    }
}

static int64_t patches(const td_tensor *grid, int64_t first, int64_t n) {
    int64_t total = 0;
    for (int64_t i = first; i < first + n && i < grid->shape.dims[0]; i++) {
        int64_t product = 1;
        for (int64_t d = 0; d < grid->shape.dims[1]; d++) {
            int64_t v = td_load_i64(grid->dtype, grid->data, i * grid->shape.dims[1] + d);
            if (v < 0 || TD_MUL_OVERFLOWS(product, v, &product)) return -1;
        }
        if (TD_ADD_OVERFLOWS(total, product, &total)) return -1;
    }
    return total;
}

static const td_tensor *grid_of(const td_generation *g) {
    for (size_t k = 0; k < g->runtime->plan->n_steps; k++) {
        int32_t request = g->runtime->plan->steps[k].grid_request;
        if (g->runtime->plan->steps[k].slices && request >= 0 && g->requests[request].kind == TD_VALUE_TENSOR &&
            g->requests[request].tensor.shape.rank == 2)
            return &g->requests[request].tensor;
    }
    return NULL;
}

static void cut_rows(const td_value *whole, int64_t first, int64_t n, td_value *out) {
    *out = (td_value){0};
    if (n == 0) return;
    *out = (td_value){.kind = TD_VALUE_TENSOR, .tensor = td_tensor_slice(&whole->tensor, 0, first, n)};
    out->tensor.buffer = NULL; /* a view: the generation holds the memory */
}

/* Cuts one tensor for all rows; images: how many each row has. */
static treadle_status deal(td_generation *g, size_t i, const int64_t *images, size_t n_rows, treadle_error *err) {
    const td_plan *plan = g->runtime->plan;
    const td_value *whole = &g->requests[i];
    belongs kind = what_counts(plan, (int32_t)i);
    const td_tensor *grid = kind == TO_PATCHES ? grid_of(g) : NULL;
    int64_t first = 0, first_image = 0, dim0 = whole->tensor.shape.rank > 0 ? whole->tensor.shape.dims[0] : -1,
            total = 0;
    for (size_t r = 0; r < n_rows; r++) total += kind == TO_ROW ? 1 : images[r];
    if (kind != TO_ROW && dim0 != 0 && !g->images_per_row && g->options.image_token < 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "tensor \"%.*s\" (%lld in dimension 0) does not say which of the %zu rows its images belong to: "
                       "expected images per row, or tokens.image_token in the config",
                       TD_STR_ARGS(plan->requests[i].name), (long long)dim0, n_rows);
    if (kind == TO_PATCHES) total = grid ? patches(grid, 0, total) : -1;
    if (total < 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "tensor \"%.*s\": expected a grid [images, 3] of sizes from 0 on that counts its %lld patches, "
                       "found none",
                       TD_STR_ARGS(plan->requests[i].name), (long long)dim0);
    if (dim0 != total)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "tensor \"%.*s\": expected %lld %s for the %zu rows, found %lld",
                       TD_STR_ARGS(plan->requests[i].name), (long long)total,
                       kind == TO_ROW     ? "rows"
                       : kind == TO_IMAGE ? "images"
                                          : "patches",
                       n_rows, (long long)dim0);
    for (size_t r = 0; r < n_rows; r++) {
        int64_t n = kind == TO_ROW ? 1 : kind == TO_IMAGE ? images[r] : patches(grid, first_image, images[r]);
        cut_rows(whole, first, n, &g->row_requests[r * plan->n_requests + i]);
        first += n;
        first_image += images[r];
    }
    return TREADLE_OK;
}

static treadle_status deal_all(td_generation *g, const treadle_ids *rows, size_t n_rows, treadle_error *err) {
    size_t n = g->runtime->plan->n_requests;
    if (n_rows == 1 && !g->images_per_row) {
        for (size_t i = 0; i < n; i++) {
            g->row_requests[i] = g->requests[i];
            g->row_requests[i].tensor.buffer = NULL;
        }
        return TREADLE_OK;
    }
    int64_t *images = td_alloc_array(n_rows, sizeof *images);
    if (!images) return td_fail_memory(err, "images per row", 0);
    count_placeholders(g, rows, n_rows, images);
    treadle_status status = TREADLE_OK;
    if (g->images_per_row && g->n_images_per_row != n_rows)
        status = td_fail(err, TREADLE_INVALID_ARGUMENT, "expected images_per_row for %zu rows, found %zu", n_rows,
                         g->n_images_per_row);
    else if (g->images_per_row) memcpy(images, g->images_per_row, n_rows * sizeof *images);
    for (size_t i = 0; status == TREADLE_OK && i < n; i++)
        if (g->requests[i].kind == TD_VALUE_TENSOR) status = deal(g, i, images, n_rows, err);
    td_free(images);
    return status;
}

/* --- masks that are left out */

/* The size that a symbol stands for in another tensor of the session's that was given; -1: none tells. */
static int64_t size_of(const td_generation *g, int32_t session, td_str symbol) {
    const td_plan_session *s = &g->runtime->plan->sessions[session];
    for (size_t i = 0; i < s->signature->n_inputs && symbol.n; i++) {
        if (s->feeds[i].kind != TD_FEED_REQUEST) continue;
        const td_value *given = &g->staged[s->feeds[i].index];
        const td_light_port *port = &s->signature->inputs[i];
        for (int d = 0; given->kind == TD_VALUE_TENSOR && d < TD_MIN(port->shape.rank, given->tensor.shape.rank); d++)
            if (td_str_equal(port->dim_names[d], symbol)) return given->tensor.shape.dims[d];
    }
    return -1;
}

static int count_free(const td_shape *shape, int end) {
    int n = 0;
    for (int i = 0; i < end; i++) n += shape->dims[i] < 0;
    return n;
}

/* Without symbols: dimension d of a mask has the size of its like, first, second ... of the free ones, in a tensor that
 * has as many of them. */
static int64_t size_by_place(const td_generation *g, int32_t session, const td_light_port *mask, int d) {
    const td_plan_session *s = &g->runtime->plan->sessions[session];
    int n = count_free(&mask->shape, mask->shape.rank), place = count_free(&mask->shape, d);
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_shape *shape = &s->signature->inputs[i].shape;
        if (s->feeds[i].kind != TD_FEED_REQUEST || shape->rank < 0 || count_free(shape, shape->rank) != n) continue;
        const td_value *given = &g->staged[s->feeds[i].index];
        for (int k = 0; given->kind == TD_VALUE_TENSOR && k < TD_MIN(shape->rank, given->tensor.shape.rank); k++)
            if (shape->dims[k] < 0 && count_free(shape, k) == place) return given->tensor.shape.dims[k];
    }
    return -1;
}

/* A mask that did not come with what it covers shows all of it. */
static treadle_status make_mask(td_generation *g, size_t i, treadle_error *err) {
    const td_plan *plan = g->runtime->plan;
    const td_light_port *port = port_of(plan, i);
    if (!plan->requests[i].mask || plan->requests[i].optional || !port || port->shape.rank < 1 ||
        g->staged[i].kind != TD_VALUE_NONE)
        return TREADLE_OK;
    td_kind kind = td_dtype_kind(port->dtype);
    if (kind != TD_KIND_FLOAT && kind != TD_KIND_INT && kind != TD_KIND_UINT && kind != TD_KIND_BOOL) return TREADLE_OK;
    td_shape shape = port->shape;
    for (int d = 0; d < shape.rank; d++) {
        if (shape.dims[d] >= 0) continue;
        shape.dims[d] = size_of(g, plan->requests[i].session, port->dim_names[d]);
        bool unnamed = !port->dim_names[d].n || td_name_is_numbered(port->dim_names[d]);
        if (shape.dims[d] < 0 && unnamed) shape.dims[d] = size_by_place(g, plan->requests[i].session, port, d);
        if (shape.dims[d] < 0) return TREADLE_OK;
    }
    size_t bytes;
    int64_t count = 0;
    td_buffer *buffer =
        td_shape_count(&shape, &count) && td_dtype_bytes(port->dtype, count, &bytes) ? td_buffer_new(bytes) : NULL;
    if (!buffer) return td_fail_memory(err, "a mask", 0);
    g->staged[i] = (td_value){.kind = TD_VALUE_TENSOR};
    td_tensor_view(&g->staged[i].tensor, port->dtype, &shape, buffer->data);
    g->staged[i].tensor.buffer = buffer;
    for (int64_t k = 0; k < count; k++) {
        if (kind == TD_KIND_FLOAT) td_store_f64(port->dtype, buffer->data, k, 1);
        else td_store_i64(port->dtype, buffer->data, k, 1);
    }
    return TREADLE_OK;
}

/* --- with an append */

treadle_status td_generation_take_tensors(td_generation *g, const treadle_ids *rows, size_t n_rows, bool *out_fresh,
                                          treadle_error *err) {
    size_t n = g->runtime->plan->n_requests;
    bool any = false;
    *out_fresh = false;
    for (size_t i = 0; i < n; i++) any |= g->staged[i].kind != TD_VALUE_NONE;
    if (!any) return TREADLE_OK;
    for (size_t i = 0; i < n; i++) TD_TRY(make_mask(g, i, err));
    if (!g->row_requests) g->row_requests = td_alloc_zero(n_rows * n, sizeof *g->row_requests);
    td_value *old = td_alloc_zero(n, sizeof *old), *old_rows = td_alloc_zero(n_rows * n, sizeof *old_rows);
    if (!g->row_requests || !old || !old_rows) {
        td_free(old);
        td_free(old_rows);
        return td_fail_memory(err, "tensors of the request", 0);
    }
    memcpy(old, g->requests, n * sizeof *old);
    memcpy(old_rows, g->row_requests, n_rows * n * sizeof *old_rows);
    memset(g->row_requests, 0, n_rows * n * sizeof *g->row_requests);
    memcpy(g->requests, g->staged, n * sizeof *old);
    treadle_status status = deal_all(g, rows, n_rows, err);
    if (status == TREADLE_OK) {
        for (size_t i = 0; i < n; i++) td_value_release(&old[i]);
        memset(g->staged, 0, n * sizeof *g->staged);
        *out_fresh = true;
    } else { /* what was staged stays staged, what was given stays given */
        memcpy(g->requests, old, n * sizeof *old);
        memcpy(g->row_requests, old_rows, n_rows * n * sizeof *old_rows);
    }
    td_free(old);
    td_free(old_rows);
    return status;
}

void td_generation_clear_tensors(td_generation *g) {
    for (size_t i = 0; g->staged && i < g->runtime->plan->n_requests; i++) td_value_release(&g->staged[i]);
    td_free(g->images_per_row);
    g->images_per_row = NULL;
    g->n_images_per_row = 0;
}

void td_generation_free_tensors(td_generation *g) {
    td_generation_clear_tensors(g);
    for (size_t i = 0; g->requests && i < g->runtime->plan->n_requests; i++) td_value_release(&g->requests[i]);
    td_free(g->staged);
    td_free(g->requests);
}
