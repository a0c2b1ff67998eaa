/* A transducer as a plugin: encoder once, predictor per token, joiner per frame. treadle runs transducers from a config
 * too; this shows how a pipeline of another shape would be written, with nothing but treadle/plugin.h. A token of the
 * host is a token of the search; the end of the sound is the token BLANK, which the config names as end.
 *
 *   cc -shared -fPIC -Iinclude examples/plugins/rnnt.c -o plugins/libgenai_rnnt.so
 *   treadle run examples/pipelines/5-plugin --allow-plugins plugins --ids 39 --input audio_signal=speech.npy */
#include "treadle/plugin.h"

#include <stdlib.h>
#include <string.h>

enum { BLANK = 39, MAX_SYMBOLS = 3 };

typedef struct model {
    const treadle_plugin_host *host;
    int32_t encoder, predictor, joiner;
} model;

typedef struct row {
    const model *m;
    treadle_tensor frames, predicted, state; /* frames live in the encoder's memory; the others are copied */
    int64_t frame, n_symbols;
    float *memory, *logits; /* of predicted and state; of the answer */
} row;

static treadle_status open_model(const treadle_plugin_host *host, const treadle_plugin_model *m, void **out,
                                 treadle_error *error) {
    model *own = calloc(1, sizeof *own);
    if (!own) return host->fail(error, TREADLE_OUT_OF_MEMORY, "no memory");
    *own = (model){host, host->find_session(m, "encoder"), host->find_session(m, "predictor"),
                   host->find_session(m, "joiner")};
    *out = own;
    if (own->encoder >= 0 && own->predictor >= 0 && own->joiner >= 0) return TREADLE_OK;
    free(own);
    return host->fail(error, TREADLE_CONFIG, "expected sessions encoder, predictor and joiner");
}

static treadle_status begin(void *m, treadle_plugin_run *run, void **out, treadle_error *error) {
    row *r = calloc(1, sizeof *r);
    (void)run;
    if (!r) return ((model *)m)->host->fail(error, TREADLE_OUT_OF_MEMORY, "no memory");
    r->m = m;
    *out = r;
    return TREADLE_OK;
}

static void end(void *data) {
    free(((row *)data)->memory);
    free(((row *)data)->logits);
    free(data);
}

static treadle_status predict(row *r, treadle_plugin_run *run, int64_t token, treadle_error *error) {
    static const float zeros[1024];
    treadle_tensor in[2] = {{TREADLE_DTYPE_INT64, 2, {1, 1}, &token}, r->state}, out[2];
    if (!r->memory) in[1] = (treadle_tensor){TREADLE_DTYPE_FLOAT, 2, {1, r->frames.dims[2]}, zeros};
    treadle_status status = r->m->host->run(run, r->m->predictor, in, out, NULL, error);
    if (status != TREADLE_OK) return status;
    size_t n = (size_t)in[1].dims[1];
    if (!r->memory && !(r->memory = calloc(2 * n, sizeof *r->memory)))
        return r->m->host->fail(error, TREADLE_OUT_OF_MEMORY, "no memory");
    memcpy(r->memory, out[0].data, n * sizeof *r->memory);
    memcpy(r->memory + n, out[1].data, n * sizeof *r->memory);
    r->predicted = (treadle_tensor){TREADLE_DTYPE_FLOAT, 3, {1, 1, (int64_t)n}, r->memory};
    r->state = (treadle_tensor){TREADLE_DTYPE_FLOAT, 2, {1, (int64_t)n}, r->memory + n};
    return TREADLE_OK;
}

/* Joins frames with what was predicted until one of them says a token; after the last frame, BLANK. */
static treadle_status next(row *r, treadle_plugin_run *run, int64_t *token, size_t *vocab, treadle_error *error) {
    for (; r->frame < r->frames.dims[1]; r->frame++, r->n_symbols = 0) {
        size_t n = (size_t)r->frames.dims[2];
        treadle_tensor frame = {
            TREADLE_DTYPE_FLOAT, 3, {1, 1, (int64_t)n}, (const float *)r->frames.data + (size_t)r->frame * n};
        treadle_tensor in[2] = {frame, r->predicted}, out[1];
        if (r->n_symbols == MAX_SYMBOLS) continue;
        treadle_status status = r->m->host->run(run, r->m->joiner, in, out, NULL, error);
        if (status != TREADLE_OK) return status;
        const float *logits = out[0].data;
        *vocab = (size_t)out[0].dims[2];
        *token = 0;
        for (size_t i = 1; i < *vocab; i++)
            if (logits[i] > logits[*token]) *token = (int64_t)i;
        if (*token == BLANK) continue;
        r->n_symbols++;
        return TREADLE_OK;
    }
    *token = BLANK;
    return TREADLE_OK;
}

static treadle_status forward(void *data, treadle_plugin_run *run, const int32_t *ids, size_t n_ids, size_t n_done,
                              const float **out_logits, size_t *out_n, treadle_error *error) {
    row *r = data;
    const treadle_plugin_host *host = r->m->host;
    treadle_tensor audio, out[1];
    int64_t token = BLANK;
    size_t vocab = BLANK + 1;
    if (!r->frames.data) {
        if (!host->request(run, "audio_signal", &audio))
            return host->fail(error, TREADLE_INVALID_ARGUMENT, "expected audio_signal");
        treadle_status status = host->run(run, r->m->encoder, &audio, out, NULL, error);
        if (status != TREADLE_OK) return status;
        r->frames = out[0];
    }
    for (size_t i = n_done; i < n_ids; i++) {
        treadle_status status = predict(r, run, ids[i], error);
        if (status != TREADLE_OK) return status;
    }
    treadle_status status = next(r, run, &token, &vocab, error);
    if (status != TREADLE_OK) return status;
    if (!r->logits && !(r->logits = malloc(vocab * sizeof *r->logits)))
        return host->fail(error, TREADLE_OUT_OF_MEMORY, "no memory");
    for (size_t i = 0; i < vocab; i++) r->logits[i] = i == (size_t)token ? 0 : -1e9f;
    *out_logits = r->logits;
    *out_n = vocab;
    return TREADLE_OK;
}

treadle_status CreateRnntPipeline(const treadle_plugin_host *host, treadle_plugin *out, treadle_error *error);
treadle_status CreateRnntPipeline(const treadle_plugin_host *host, treadle_plugin *out, treadle_error *error) {
    (void)host, (void)error;
    *out = (treadle_plugin){sizeof *out, TREADLE_PLUGIN_VERSION, "rnnt", open_model, free, begin, end, forward, NULL};
    return TREADLE_OK;
}
