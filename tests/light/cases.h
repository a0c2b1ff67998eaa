/* cases.h - the models of tests/light/data with their inputs and what ONNX Runtime answered (make_data.py). */
#ifndef TD_TESTS_LIGHT_CASES_H
#define TD_TESTS_LIGHT_CASES_H

#include "base/error.h"
#include "light/light.h"
#include "support/test.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_PORTS = 24 };

static const char *const case_names[] = {
    "elementwise",    "broadcast_in_place", "shape_chain",   "concat_cache",  "outputs",
    "defaults",       "old_initializers",   "functions",     "row_wise",      "skips",
    "data_dependent", "quant_block",        "scatter_cache", "linear",        "int8_linear",
    "control_if",     "control_loop",       "control_scan",  "control_fixed", "control_cache",
    "control_scan8"};

typedef struct data_set {
    td_value inputs[MAX_PORTS];
    td_tensor wanted[MAX_PORTS];
} data_set;

TD_UNUSED static const char *case_path(const char *name, const char *file) {
    char path[256];
    snprintf(path, sizeof path, "tests/light/data/%s/%s", name, file);
    return td_test_source(path);
}

/* NULL: no such file. */
static const char *case_array(const char *name, const char *kind, int set, size_t index) {
    char file[64];
    snprintf(file, sizeof file, "%s_%d_%zu.npy", kind, set, index);
    const char *path = case_path(name, file);
    return access(path, R_OK) == 0 ? path : NULL;
}

TD_UNUSED static void free_set(data_set *set) {
    for (size_t i = 0; i < MAX_PORTS; i++) {
        td_buffer_release(set->inputs[i].tensor.buffer);
        td_buffer_release(set->wanted[i].buffer);
    }
    *set = (data_set){0};
}

/* false: the case has no set of that number. */
TD_UNUSED static bool read_set(const char *name, int set, const td_light *light, data_set *out) {
    treadle_error err = {0};
    *out = (data_set){0};
    if (!case_array(name, "out", set, 0)) return false;
    for (size_t i = 0; i < td_light_n_inputs(light); i++) {
        const char *path = case_array(name, "in", set, i);
        if (!path) continue;
        out->inputs[i].kind = TD_VALUE_TENSOR;
        CHECK_OK(td_npy_read(path, &out->inputs[i].tensor, &err), &err);
    }
    for (size_t i = 0; i < td_light_n_outputs(light); i++)
        CHECK_OK(td_npy_read(case_array(name, "out", set, i), &out->wanted[i], &err), &err);
    return true;
}

/* Floats within 1e-5 of the largest one (sums cancel), all else equal. */
TD_UNUSED static bool check_tensor(const char *what, const td_tensor *got, const td_tensor *wanted) {
    char a[128], b[128];
    if (got->dtype != wanted->dtype || !td_shape_equal(&got->shape, &wanted->shape)) {
        FAIL("%s: %s%s instead of %s%s", what, td_dtype_name(got->dtype), td_shape_text(&got->shape, a),
             td_dtype_name(wanted->dtype), td_shape_text(&wanted->shape, b));
        return false;
    }
    int64_t index[TD_MAX_RANK] = {0}, n = td_tensor_count(wanted);
    double largest = 1;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(td_load_f64(wanted->dtype, wanted->data, i)));
    double tolerance = td_dtype_kind(wanted->dtype) == TD_KIND_FLOAT ? 1e-5 * largest : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < got->shape.rank; d++) at += index[d] * got->strides[d];
        double x = td_load_f64(got->dtype, got->data, at), y = td_load_f64(wanted->dtype, wanted->data, i);
        if (!(fabs(x - y) <= tolerance) && !(isnan(x) && isnan(y)) && x != y) {
            FAIL("%s: element %lld is %g instead of %g", what, (long long)i, x, y);
            return false;
        }
        for (int d = got->shape.rank - 1; d >= 0; d--) {
            if (++index[d] < got->shape.dims[d]) break;
            index[d] = 0;
        }
    }
    return true;
}

TD_UNUSED static td_light *open_case(const char *name, const td_light_options *options) {
    treadle_error err = {0};
    td_light *light = NULL;
    CHECK_OK(td_light_open(case_path(name, "model.onnx"), options, &light, &err), &err);
    return light;
}

#endif
