/* A pipeline in native code, as its author would write it: only treadle/plugin.h, built out of tree by test_plugin.py.
 *
 * The model is a plain decoder without a wire in its config: ids, mask, positions and a cache for every
 * layer, which this plugin keeps itself. Every run is given one token, so that each function of the two
 * tables has something to do. */
#include "treadle/plugin.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 8, MAX_TOKENS = 256 };

typedef struct my_model {
    const treadle_plugin_host *host;
    const treadle_plugin_model *model;
    int32_t decoder, ids, mask, positions, logits, n_inputs, n_outputs;
    int32_t past[2 * MAX_LAYERS], present[2 * MAX_LAYERS], n_caches;
} my_model;

typedef struct my_row {
    my_model *m;
    float *caches[2 * MAX_LAYERS];
    treadle_tensor views[2 * MAX_LAYERS];
} my_row;

static treadle_status open_model(const treadle_plugin_host *host, const treadle_plugin_model *model, void **out,
                                 treadle_error *error) {
    my_model *m = calloc(1, sizeof *m);
    if (!m) return host->fail(error, TREADLE_OUT_OF_MEMORY, "no memory for a model");
    m->host = host;
    m->model = model;
    m->decoder = host->find_session(model, "decoder");
    m->ids = host->find_input(model, m->decoder, "input_ids");
    m->mask = host->find_input(model, m->decoder, "attention_mask");
    m->positions = host->find_input(model, m->decoder, "position_ids");
    m->logits = host->find_output(model, m->decoder, "logits");
    m->n_inputs = host->n_inputs(model, m->decoder);
    m->n_outputs = host->n_outputs(model, m->decoder);
    for (int layer = 0; layer < MAX_LAYERS; layer++)
        for (int k = 0; k < 2; k++) {
            char past[64] = "past_key_values.0.", present[64] = "present.0.";
            past[16] = present[8] = (char)('0' + layer);
            strcat(past, k ? "value" : "key");
            strcat(present, k ? "value" : "key");
            int32_t in = host->find_input(model, m->decoder, past);
            if (in < 0) continue;
            m->past[m->n_caches] = in;
            m->present[m->n_caches++] = host->find_output(model, m->decoder, present);
        }
    if (m->ids < 0 || m->mask < 0 || m->positions < 0 || m->logits < 0 || !m->n_caches ||
        !strstr(host->config(model), "\"plugin\"")) {
        free(m);
        return host->fail(error, TREADLE_CONFIG, "my_new_model: expected a session \"decoder\" of the usual inputs");
    }
    *out = m;
    return TREADLE_OK;
}

static void close_model(void *model) { free(model); }

static treadle_status begin(void *model, treadle_plugin_run *run, void **out, treadle_error *error) {
    my_row *row = calloc(1, sizeof *row);
    (void)run;
    if (!row) return ((my_model *)model)->host->fail(error, TREADLE_OUT_OF_MEMORY, "no memory for a row");
    row->m = model;
    *out = row;
    return TREADLE_OK;
}

static void end(void *data) {
    my_row *row = data;
    for (int i = 0; i < row->m->n_caches; i++) free(row->caches[i]);
    free(row);
}

/* The cache that a run gave is the next run's past. */
static treadle_status keep(my_row *row, int i, const treadle_tensor *present, treadle_error *error) {
    size_t n = 1;
    for (int d = 0; d < present->rank; d++) n *= (size_t)present->dims[d];
    float *copy = malloc(n * sizeof *copy);
    if (!copy) return row->m->host->fail(error, TREADLE_OUT_OF_MEMORY, "no memory for a cache");
    memcpy(copy, present->data, n * sizeof *copy);
    free(row->caches[i]);
    row->caches[i] = copy;
    row->views[i] = *present;
    row->views[i].data = copy;
    return TREADLE_OK;
}

static treadle_status forward(void *data, treadle_plugin_run *run, const int32_t *ids, size_t n_ids, size_t n_done,
                              const float **out_logits, size_t *out_n_logits, treadle_error *error) {
    my_row *row = data;
    my_model *m = row->m;
    static const float nothing[1];
    treadle_tensor inputs[64] = {{0}}, outputs[64] = {{0}};
    int64_t mask[MAX_TOKENS];
    if (n_ids > MAX_TOKENS) return m->host->fail(error, TREADLE_LIMIT, "my_new_model: expected at most 256 tokens");
    for (size_t i = 0; i < n_ids; i++) mask[i] = 1;
    for (size_t at = n_done; at < n_ids; at++) {
        int64_t id = ids[at], position = (int64_t)at;
        inputs[m->ids] = (treadle_tensor){TREADLE_DTYPE_INT64, 2, {1, 1}, &id};
        inputs[m->positions] = (treadle_tensor){TREADLE_DTYPE_INT64, 2, {1, 1}, &position};
        inputs[m->mask] = (treadle_tensor){TREADLE_DTYPE_INT64, 2, {1, position + 1}, mask};
        for (int i = 0; i < m->n_caches; i++) {
            inputs[m->past[i]] = row->views[i];
            if (!row->caches[i]) inputs[m->past[i]] = (treadle_tensor){TREADLE_DTYPE_FLOAT, 4, {1, 2, 0, 8}, nothing};
        }
        treadle_status status = m->host->run(run, m->decoder, inputs, outputs, NULL, error);
        for (int i = 0; status == TREADLE_OK && i < m->n_caches; i++)
            status = keep(row, i, &outputs[m->present[i]], error);
        if (status != TREADLE_OK) return status;
    }
    *out_logits = outputs[m->logits].data;
    *out_n_logits = (size_t)outputs[m->logits].dims[2];
    return TREADLE_OK;
}

treadle_status my_new_model(const treadle_plugin_host *host, treadle_plugin *out, treadle_error *error);
treadle_status my_new_model(const treadle_plugin_host *host, treadle_plugin *out, treadle_error *error) {
    if (host->version < 1) return host->fail(error, TREADLE_UNSUPPORTED, "my_new_model: the host is too old");
    *out = (treadle_plugin){
        sizeof *out, TREADLE_PLUGIN_VERSION, "my_new_model", open_model, close_model, begin, end, forward, NULL};
    return TREADLE_OK;
}
