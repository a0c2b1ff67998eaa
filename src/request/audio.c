/* request/audio.c - sound for the next append: the model's own preprocessing makes tensors, and each goes to the graph
 * input that takes it, by name; else by kind, where only one input can be meant. */
#include "media/audio.h"
#include "base/alloc.h"
#include "model/audio_part.h"
#include "request/request.h"
#include "tensor/half.h"

static const td_light_port *port_of(const td_plan *plan, size_t index) {
    const td_plan_request *r = &plan->requests[index];
    if (r->session < 0 || r->input < 0) return NULL;
    return &plan->sessions[r->session].signature->inputs[r->input];
}

static bool could_take(const td_light_port *port, const td_feature_spec *spec, const td_tensor *tensor) {
    bool real = port && td_dtype_kind(port->dtype) == TD_KIND_FLOAT;
    if (!port || real != (spec->kind == TD_FEATURE_VALUES) || port->shape.rank != tensor->shape.rank) return false;
    for (int d = 0; d < tensor->shape.rank; d++)
        if (port->shape.dims[d] >= 0 && port->shape.dims[d] != tensor->shape.dims[d]) return false;
    return true;
}

/* The request tensor for a feature; -1: none, or several that are not named alike. */
static ptrdiff_t find_input(const td_plan *plan, const bool *taken, const td_feature_spec *spec,
                            const td_tensor *tensor, bool by_name) {
    ptrdiff_t found = -1;
    for (size_t i = 0; i < plan->n_requests; i++) {
        if (taken[i]) continue;
        if (by_name && td_str_is(plan->requests[i].name, spec->name)) return (ptrdiff_t)i;
        if (by_name || !could_take(port_of(plan, i), spec, tensor)) continue;
        if (found >= 0) return -1;
        found = (ptrdiff_t)i;
    }
    return found;
}

/* Masks and counts take on whatever number type the graph has. */
static treadle_status as_type(const td_tensor *from, td_dtype dtype, td_tensor *out, treadle_error *err) {
    *out = *from;
    out->buffer = NULL;
    if (dtype == from->dtype || dtype == TD_UNDEFINED || td_dtype_kind(from->dtype) == TD_KIND_FLOAT) return TREADLE_OK;
    if (!td_tensor_new(out, dtype, &from->shape)) return td_fail_memory(err, "features", 0);
    for (int64_t i = 0; i < td_tensor_count(from); i++)
        td_store_f64(dtype, out->data, i, (double)td_load_i64(from->dtype, from->data, i));
    return TREADLE_OK;
}

static treadle_status give(treadle_generator *g, size_t index, const td_tensor *tensor, treadle_error *err) {
    const td_plan *plan = g->model->plan;
    const td_light_port *port = port_of(plan, index);
    td_tensor own;
    char *name = td_strndup(plan->requests[index].name.p, plan->requests[index].name.n);
    if (!name) return td_fail_memory(err, "a name", plan->requests[index].name.n);
    treadle_status status = as_type(tensor, port ? port->dtype : TD_UNDEFINED, &own, err);
    if (status == TREADLE_OK) status = td_generation_set_tensor(g->generation, name, &own, err);
    td_buffer_release(own.buffer);
    td_free(name);
    return status;
}

static treadle_status not_taken(const td_plan *plan, const td_feature_spec *spec, treadle_error *err) {
    td_buf list = {0};
    for (size_t i = 0; i < plan->n_requests; i++)
        td_buf_printf(&list, "%s%.*s", i ? ", " : "", TD_STR_ARGS(plan->requests[i].name));
    treadle_status status =
        td_fail(err, TREADLE_UNSUPPORTED,
                "the model takes no tensor \"%s\", which its audio preprocessing makes (it takes: %s)", spec->name,
                list.p ? list.p : "none");
    td_buf_free(&list);
    return status;
}

/* Names first, so that no guess takes what another feature is named for. */
static treadle_status give_all(treadle_generator *g, const td_features *features, bool *taken, treadle_error *err) {
    const td_plan *plan = g->model->plan;
    uint64_t given = 0; /* a recipe has few outputs */
    for (int by_name = 1; by_name >= 0; by_name--)
        for (size_t i = 0; i < features->n; i++) {
            const td_feature_spec *spec = &features->specs[i];
            if (given >> i & 1) continue;
            ptrdiff_t at = find_input(plan, taken, spec, &features->tensors[i], by_name);
            if (at < 0 && !by_name && spec->kind == TD_FEATURE_VALUES) return not_taken(plan, spec, err);
            if (at < 0) continue;
            given |= (uint64_t)1 << i;
            taken[at] = true;
            TD_TRY(give(g, (size_t)at, &features->tensors[i], err));
        }
    return TREADLE_OK;
}

treadle_status td_request_set_audio(treadle_generator *generator, const td_audio *audio, treadle_error *err) {
    td_recipe *recipe = NULL;
    td_audio *mono = NULL;
    td_features features = {0};
    bool *taken = td_alloc_zero(TD_MAX(generator->model->plan->n_requests, (size_t)1), sizeof *taken);
    treadle_status status = taken ? TREADLE_OK : td_fail_memory(err, "features", 0);
    if (status == TREADLE_OK) status = td_audio_part_recipe(generator->model->config, (td_str){0}, &recipe, err);
    if (status == TREADLE_OK) status = td_audio_to_mono(audio, td_recipe_rate_hz(recipe), &mono, err);
    if (status == TREADLE_OK) status = td_recipe_run(recipe, mono->samples, mono->n_frames, NULL, &features, err);
    if (status == TREADLE_OK) status = give_all(generator, &features, taken, err);
    td_features_free(&features);
    td_audio_free(mono);
    td_recipe_free(recipe);
    td_free(taken);
    return status;
}
