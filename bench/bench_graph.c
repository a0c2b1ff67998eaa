/* bench_graph - one ONNX graph on light: time of a run, and where it goes.
 *
 * Usage: bench_graph MODEL.onnx [threads [repeats]] [name=SIZE ...] [input=FILE.npy ...] [save=FOLDER]
 *
 * Inputs that are given no file get random values of [0, 1) (integers: 0), symbolic dimensions the SIZE of that name,
 * else 1. Prints the median and the fastest run, the peak of memory, and the times by op of one profiled run; outputs
 * go to FOLDER/NAME.npy. TREADLE_SKIP_PASSES: passes to leave out; TREADLE_SKIP_OUTPUTS: a part of the names of
 * outputs that are not wanted. */
#include "base/rng.h"
#include "base/time.h"
#include "light/light.h"
#include "median.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PORTS = 1024 };

typedef struct setup {
    char **words; /* name=value */
    int n_words;
    td_value inputs[MOST_PORTS], outputs[MOST_PORTS];
    bool skip[MOST_PORTS];
} setup;

static const char *value_of(const setup *s, td_str name) {
    for (int i = 0; i < s->n_words; i++) {
        const char *equals = strchr(s->words[i], '=');
        if (equals && td_str_equal(name, (td_str){s->words[i], (size_t)(equals - s->words[i])})) return equals + 1;
    }
    return NULL;
}

static treadle_status random_input(const setup *s, const td_light_port *port, td_tensor *out, treadle_error *err) {
    td_shape shape = port->shape;
    td_rng rng;
    for (int d = 0; d < shape.rank; d++) {
        const char *size = shape.dims[d] < 0 ? value_of(s, port->dim_names[d]) : NULL;
        if (shape.dims[d] < 0) shape.dims[d] = size ? strtoll(size, NULL, 10) : 1;
    }
    td_tensor_view(out, port->dtype, &shape, NULL);
    size_t bytes;
    out->buffer = td_tensor_bytes(out, &bytes) ? td_buffer_new(bytes) : NULL;
    if (!out->buffer) return td_fail_memory(err, "an input", 0);
    out->data = out->buffer->data;
    memset(out->data, 0, bytes);
    td_rng_seed(&rng, 1, 1);
    for (int64_t i = 0; port->dtype == TD_FLOAT && i < td_tensor_count(out); i++)
        ((float *)out->data)[i] = (float)td_rng_double(&rng);
    return TREADLE_OK;
}

static treadle_status make_inputs(setup *s, const td_light *light, treadle_error *err) {
    for (size_t i = 0; i < td_light_n_inputs(light); i++) {
        const td_light_port *port = td_light_input(light, i);
        const char *file = value_of(s, port->name);
        if (port->kind != TD_ONNX_TYPE_TENSOR || (port->optional && !file)) continue;
        s->inputs[i].kind = TD_VALUE_TENSOR;
        TD_TRY(file ? td_npy_read(file, &s->inputs[i].tensor, err) : random_input(s, port, &s->inputs[i].tensor, err));
    }
    return TREADLE_OK;
}

static void choose_outputs(setup *s, const td_light *light) {
    const char *part = getenv("TREADLE_SKIP_OUTPUTS");
    for (size_t i = 0; i < td_light_n_outputs(light); i++)
        s->skip[i] = part && td_str_find(td_light_output(light, i)->name, td_str_from(part)) >= 0;
}

static treadle_status run_once(setup *s, const td_light *light, td_light_ctx *ctx, treadle_error *err) {
    memset(s->outputs, 0, td_light_n_outputs(light) * sizeof *s->outputs);
    return td_light_run(ctx, s->inputs, s->outputs, s->skip, err);
}

static treadle_status save_outputs(const setup *s, const td_light *light, const char *folder, treadle_error *err) {
    for (size_t i = 0; i < td_light_n_outputs(light); i++) {
        td_str name = td_light_output(light, i)->name;
        char path[1024];
        if (s->skip[i] || s->outputs[i].kind != TD_VALUE_TENSOR) continue;
        snprintf(path, sizeof path, "%s/%.*s.npy", folder, TD_STR_ARGS(name));
        TD_TRY(td_npy_write(path, &s->outputs[i].tensor, err));
    }
    return TREADLE_OK;
}

static treadle_status measure(setup *s, const char *path, td_light_options *options, int repeats, treadle_error *err) {
    td_light *light = NULL;
    td_light_ctx *ctx = NULL;
    td_buf text = {0};
    double *ms = malloc((size_t)repeats * sizeof *ms);
    uint64_t start = td_time_ns();
    treadle_status status = ms ? td_light_open(path, options, &light, err) : td_fail_memory(err, "times", 0);
    double open_ms = (double)(td_time_ns() - start) * 1e-6;
    if (status == TREADLE_OK) status = make_inputs(s, light, err);
    if (status == TREADLE_OK) status = td_light_ctx_new(light, &ctx, err);
    if (status == TREADLE_OK) choose_outputs(s, light);
    for (int r = 0; r < repeats && status == TREADLE_OK; r++) {
        start = td_time_ns();
        status = run_once(s, light, ctx, err);
        ms[r] = (double)(td_time_ns() - start) * 1e-6;
    }
    if (status == TREADLE_OK) {
        double middle = median(ms, (size_t)repeats);
        printf("open %.1f ms, run median %.2f ms, fastest %.2f ms, peak memory %.1f MB\n", open_ms, middle, ms[0],
               (double)td_peak_rss_bytes() * 1e-6);
        td_light_profile(ctx, getenv("TREADLE_NODES") == NULL, &text);
        if (text.p) fputs(text.p, stdout);
        const char *folder = value_of(s, TD_STR("save"));
        if (folder) status = save_outputs(s, light, folder, err);
    }
    td_buf_free(&text);
    td_light_ctx_free(ctx);
    td_light_close(light);
    free(ms);
    return status;
}

int main(int argc, char **argv) {
    static setup s;
    treadle_error err = {0};
    td_light_options options = {.profile = true, .skip_passes = getenv("TREADLE_SKIP_PASSES")};
    int at = 2, repeats = 9;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_graph MODEL.onnx [threads [repeats]] [name=SIZE ...] [input=FILE.npy ...]\n");
        return 2;
    }
    if (at < argc && !strchr(argv[at], '=')) options.n_threads = atoi(argv[at++]);
    if (at < argc && !strchr(argv[at], '=')) repeats = atoi(argv[at++]);
    s.words = argv + at;
    s.n_words = argc - at;
    treadle_status status = measure(&s, argv[1], &options, repeats > 0 ? repeats : 1, &err);
    if (status != TREADLE_OK) fprintf(stderr, "bench_graph: %s\n", err.message);
    for (size_t i = 0; i < MOST_PORTS; i++)
        if (s.inputs[i].kind == TD_VALUE_TENSOR) td_buffer_release(s.inputs[i].tensor.buffer);
    return status != TREADLE_OK;
}
