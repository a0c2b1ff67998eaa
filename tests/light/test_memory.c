/* Allocations: a steady state has none; each allocation in turn fails and leaves a clean status and no leak; several
 * contexts run at once. labels: threads */
#include "light/cases.h"
#include "support/allocations.h"

#include <pthread.h>
#include <stdlib.h>

/* Twenty tokens after a prefill, caches growing in bound memory, positions picked or not: nothing is allocated. */
TEST(steady_state_allocates_nothing) {
    enum { HEADS = 2, CAPACITY = 64, D = 4 };
    static float cache[2][HEADS * CAPACITY * D], x[HEADS * 8 * D], y[HEADS * 8 * D];
    treadle_error err = {0};
    td_light *light = open_case("concat_cache", &(td_light_options){.n_threads = 1});
    td_light_ctx *ctx = NULL;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    int64_t length = 0;
    for (int step = 0; step < 24; step++) {
        int64_t n_new = step == 0 ? 8 : 1;
        td_value in[3] = {0}, out[3] = {0};
        in[0].kind = TD_VALUE_TENSOR;
        td_tensor_view(&in[0].tensor, TD_FLOAT, &(td_shape){4, {1, HEADS, n_new, D}}, x);
        out[0].kind = step & 1 ? TD_VALUE_TENSOR : TD_VALUE_NONE;
        td_tensor_view(&out[0].tensor, TD_FLOAT, &(td_shape){4, {1, HEADS, 8, D}}, y);
        for (int layer = 0; layer < 2; layer++) {
            td_value *to = &out[1 + layer], *from = &in[1 + layer];
            to->kind = from->kind = TD_VALUE_TENSOR;
            td_tensor_view(&to->tensor, TD_FLOAT, &(td_shape){4, {1, HEADS, CAPACITY, D}}, cache[layer]);
            from->tensor = to->tensor;
            from->tensor.shape.dims[2] = length;
        }
        td_test_allocations = 0;
        CHECK_OK(td_light_run(ctx, in, out, NULL, &err), &err);
        if (step >= 4) CHECK_EQ_INT(td_test_allocations, 0);
        length += n_new;
    }
    td_light_ctx_free(ctx);
    td_light_close(light);
}

/* A cache that nobody binds grows by a row each run: the plan follows with slack, not at every step. */
TEST(growing_values_are_replanned_rarely) {
    treadle_error err = {0};
    td_light *light = open_case("elementwise", &(td_light_options){.n_threads = 1});
    td_light_ctx *ctx = NULL;
    float *x = calloc(7 * 4000, sizeof *x);
    REQUIRE(x);
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    int runs_that_allocate = 0;
    for (int64_t n = 1; n <= 2000; n++) {
        td_value in[1] = {{.kind = TD_VALUE_TENSOR}}, out[2] = {0};
        td_tensor_view(&in[0].tensor, TD_FLOAT, &(td_shape){3, {1, n, 7}}, x);
        td_test_allocations = 0;
        CHECK_OK(td_light_run(ctx, in, out, NULL, &err), &err);
        runs_that_allocate += td_test_allocations > 0;
    }
    CHECK(runs_that_allocate < 60);
    if (runs_that_allocate >= 60) FAIL("%d runs allocated", runs_that_allocate);
    free(x);
    td_light_ctx_free(ctx);
    td_light_close(light);
}

/* Opens, runs twice with different sizes, closes. false: an allocation failed. */
static bool whole_life(const char *name, const data_set *sets, size_t n_sets, const td_light_options *options) {
    treadle_error err = {0};
    td_light *light = NULL;
    td_light_ctx *ctx = NULL;
    treadle_status status = td_light_open(case_path(name, "model.onnx"), options, &light, &err);
    if (status == TREADLE_OK) status = td_light_ctx_new(light, &ctx, &err);
    for (size_t s = 0; status == TREADLE_OK && s < n_sets; s++) {
        td_value outputs[MAX_PORTS] = {0};
        status = td_light_run(ctx, sets[s].inputs, outputs, NULL, &err);
        if (status != TREADLE_OK) break;
        for (size_t i = 0; i < td_light_n_outputs(light); i++)
            check_tensor(name, &outputs[i].tensor, &sets[s].wanted[i]);
    }
    if (status != TREADLE_OK) {
        CHECK_EQ_INT(status, TREADLE_OUT_OF_MEMORY);
        CHECK_EQ_INT(err.code, status);
        if (status != TREADLE_OUT_OF_MEMORY) FAIL("%s at allocation %d: %s", name, td_test_fail_at, err.message);
    }
    td_light_ctx_free(ctx);
    td_light_close(light);
    return status == TREADLE_OK;
}

TEST(every_allocation_fails_once) {
    static const char *const swept[] = {"shape_chain",    "concat_cache",  "functions",     "outputs",
                                        "row_wise",       "control_if",    "control_loop",  "control_scan",
                                        "control_fixed",  "control_cache", "control_scan8", "row_wise_if",
                                        "row_wise_shapes"};
    for (size_t c = 0; c < TD_COUNT(swept); c++) {
        td_light_options options = {.n_threads = 1};
        td_light *light = open_case(swept[c], &options);
        data_set sets[3];
        size_t n_sets = 0;
        for (int s = 0; s < 2; s++)
            if (read_set(swept[c], s, light, &sets[n_sets])) n_sets++;
        sets[n_sets] = sets[0];
        td_light_close(light);
        bool done = false;
        for (int n = 1; !done && n < 100000; n++) {
            td_test_allocations = 0;
            td_test_fail_at = n;
            done = whole_life(swept[c], sets, n_sets + 1, &options);
            if (done && td_test_allocations >= n) FAIL("%s: the failure of allocation %d went unnoticed", swept[c], n);
        }
        td_test_fail_at = INT_MAX;
        for (size_t s = 0; s < n_sets; s++) free_set(&sets[s]);
    }
}

/* --- threads */

typedef struct job {
    td_light *light;
    const data_set *sets;
    int n_sets;
    bool failed;
} job;

static void *run_many(void *arg) {
    job *j = arg;
    td_light_ctx *ctx = NULL;
    treadle_error err;
    if (td_light_ctx_new(j->light, &ctx, &err) != TREADLE_OK) {
        j->failed = true;
        return NULL;
    }
    for (int n = 0; n < 50 && !j->failed; n++) {
        const data_set *set = &j->sets[n % j->n_sets];
        td_value outputs[MAX_PORTS] = {0};
        if (td_light_run(ctx, set->inputs, outputs, NULL, &err) != TREADLE_OK) {
            j->failed = true;
            break;
        }
        for (size_t i = 0; i < td_light_n_outputs(j->light) && !j->failed; i++) {
            const td_tensor *got = &outputs[i].tensor, *wanted = &set->wanted[i];
            int64_t count = td_tensor_count(wanted);
            for (int64_t k = 0; k < count && !j->failed; k++) {
                double x = td_load_f64(got->dtype, got->data, k), y = td_load_f64(wanted->dtype, wanted->data, k);
                j->failed = !(fabs(x - y) <= 1e-5 * fmax(1, fabs(y)));
            }
        }
    }
    td_light_ctx_free(ctx);
    return NULL;
}

static void run_at_once(const char *name) {
    td_light *light = open_case(name, &(td_light_options){.n_threads = 2});
    data_set sets[6];
    job jobs[4];
    pthread_t threads[4];
    int n_sets = 0;
    for (int s = 0; s < 6; s++)
        if (read_set(name, s, light, &sets[n_sets])) n_sets++;
    for (int i = 0; i < 4; i++) {
        jobs[i] = (job){light, sets, n_sets, false};
        REQUIRE(pthread_create(&threads[i], NULL, run_many, &jobs[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!jobs[i].failed);
    }
    for (int s = 0; s < n_sets; s++) free_set(&sets[s]);
    td_light_close(light);
}

TEST(contexts_run_at_once) {
    run_at_once("elementwise");
    run_at_once("control_fixed");
}
