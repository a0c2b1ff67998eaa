/* api/generate.c - generators. */
#include "api/api.h"

void treadle_generate_options_init(treadle_generate_options *options) {
    *options = (treadle_generate_options){
        .struct_size = sizeof *options,
        .max_new_tokens = -1,
        .max_length = -1,
        .min_length = -1,
        .do_sample = -1,
        .temperature = -1,
        .top_k = -1,
        .top_p = -1,
        .min_p = -1,
        .repetition_penalty = -1,
        .no_repeat_ngram_size = -1,
        .seed = -1,
        .n_eos = -1,
        .n_stop = -1,
        .n_decoder_start = -1,
        .max_symbols_per_step = -1,
        .num_beams = -1,
        .early_stopping = -1,
        .num_return_sequences = -1,
    };
}

const char *treadle_finish_text(treadle_finish finish) {
    switch (finish) {
    case TREADLE_FINISH_NONE: return "";
    case TREADLE_FINISH_EOS: return "eos";
    case TREADLE_FINISH_STOP: return "stop";
    case TREADLE_FINISH_LENGTH: return "length";
    case TREADLE_FINISH_CANCELLED: return "cancelled";
    case TREADLE_FINISH_ERROR: return "error";
    }
    return "";
}

treadle_status treadle_generator_new(treadle_model *model, const treadle_generate_options *options,
                                     treadle_generator **out, treadle_error *error) {
    TD_NEED(model);
    TD_NEED(out);
    return td_request_new(model, options, out, error);
}

void treadle_generator_free(treadle_generator *generator) { td_request_free(generator); }

/* Callbacks must not change what is running, nor other threads. */
static treadle_status need_idle(const treadle_generator *generator, treadle_error *error) {
    TD_NEED(generator);
    if (!atomic_load(&generator->generation->interrupt.running)) return TREADLE_OK;
    return td_fail(error, TREADLE_INVALID_ARGUMENT,
                   "the generator is running: only treadle_generator_cancel may be called");
}

treadle_status treadle_generator_append(treadle_generator *generator, const treadle_ids *rows, size_t n_rows,
                                        treadle_error *error) {
    TD_TRY(need_idle(generator, error));
    TD_NEED(rows);
    for (size_t r = 0; r < n_rows; r++)
        if (rows[r].n && !rows[r].ids) return td_fail(error, TREADLE_INVALID_ARGUMENT, "row %zu has no ids", r);
    return td_request_append(generator, rows, n_rows, error);
}

treadle_status treadle_generator_set_tensor(treadle_generator *generator, const char *name,
                                            const treadle_tensor *tensor, treadle_error *error) {
    td_tensor own;
    TD_TRY(need_idle(generator, error));
    TD_NEED(name);
    TD_TRY(td_api_tensor(tensor, &own, error));
    return td_generation_set_tensor(generator->generation, name, &own, error);
}

treadle_status treadle_generator_set_audio(treadle_generator *generator, const treadle_audio *audio,
                                           treadle_error *error) {
    TD_TRY(need_idle(generator, error));
    TD_NEED(audio);
    return td_request_set_audio(generator, (const td_audio *)audio, error); /* one behind two names: api/media.c */
}

treadle_status treadle_generator_set_images_per_row(treadle_generator *generator, const int64_t *images_per_row,
                                                    size_t n_rows, treadle_error *error) {
    TD_TRY(need_idle(generator, error));
    if (n_rows) TD_NEED(images_per_row);
    return td_generation_set_images(generator->generation, images_per_row, n_rows, error);
}

void treadle_generator_clear_tensors(treadle_generator *generator) {
    if (generator) td_generation_clear_tensors(generator->generation);
}

treadle_status treadle_generator_fork(const treadle_generator *generator, treadle_generator **out,
                                      treadle_error *error) {
    TD_TRY(need_idle(generator, error));
    TD_NEED(out);
    return td_request_fork(generator, out, error);
}

treadle_status treadle_generator_rewind(treadle_generator *generator, size_t row, size_t length, treadle_error *error) {
    TD_TRY(need_idle(generator, error));
    return td_request_rewind(generator, row, length, error);
}

treadle_status treadle_generator_prefill(treadle_generator *generator, treadle_error *error) {
    TD_TRY(need_idle(generator, error));
    return td_generation_prefill(generator->generation, error);
}

treadle_status treadle_generator_run(treadle_generator *generator, int64_t max_new_tokens, treadle_token_fn *fn,
                                     void *ctx, treadle_error *error) {
    TD_TRY(need_idle(generator, error));
    return td_request_run(generator, max_new_tokens, fn, ctx, error);
}

void treadle_generator_cancel(treadle_generator *generator) {
    if (generator) td_generation_cancel(generator->generation);
}

size_t treadle_generator_n_rows(const treadle_generator *generator) {
    return generator ? generator->generation->n_rows : 0;
}

static const td_timeline no_timeline;

/* Of a row that is not there (before the first append there is none): an empty one. */
static const td_timeline *timeline(const treadle_generator *generator, size_t row) {
    return row < treadle_generator_n_rows(generator) ? &generator->generation->timelines[row] : &no_timeline;
}

treadle_ids treadle_generator_ids(const treadle_generator *generator, size_t row) {
    const td_timeline *t = timeline(generator, row);
    return (treadle_ids){t->ids, (size_t)t->n};
}

treadle_ids treadle_generator_new_ids(const treadle_generator *generator, size_t row) {
    const td_timeline *t = timeline(generator, row);
    return (treadle_ids){t->ids ? t->ids + t->first_new : NULL, (size_t)(t->n - t->first_new)};
}

const int64_t *treadle_generator_new_frames(const treadle_generator *generator, size_t row, size_t *out_n) {
    const td_timeline *t = timeline(generator, row);
    size_t first = TD_MIN((size_t)t->first_new, t->frames.n);
    if (out_n) *out_n = t->frames.n - first;
    return t->frames.n > first ? t->frames.items + first : NULL;
}

size_t treadle_generator_n_sequences(const treadle_generator *generator, size_t row) {
    if (row >= treadle_generator_n_rows(generator)) return 0;
    return TD_MAX(generator->generation->timelines[row].n_sequences, (size_t)1);
}

treadle_ids treadle_generator_sequence(const treadle_generator *generator, size_t row, size_t rank, double *out_score) {
    if (out_score) *out_score = 0;
    if (rank >= treadle_generator_n_sequences(generator, row)) return (treadle_ids){NULL, 0};
    const td_timeline *t = timeline(generator, row);
    if (!t->n_sequences) return treadle_generator_new_ids(generator, row);
    if (out_score) *out_score = t->sequences[rank].score;
    return (treadle_ids){t->sequences[rank].ids, t->sequences[rank].n};
}

treadle_string treadle_generator_text(const treadle_generator *generator, size_t row) {
    if (row >= treadle_generator_n_rows(generator)) return (treadle_string){NULL, 0};
    return td_request_text((treadle_generator *)(uintptr_t)generator, row); /* made when first asked for */
}

treadle_finish treadle_generator_finish(const treadle_generator *generator, size_t row) {
    return timeline(generator, row)->finish;
}

static treadle_status check_row(const treadle_generator *generator, size_t row, const void *out, treadle_error *error) {
    TD_NEED(generator);
    TD_NEED(out);
    if (row < generator->generation->n_rows) return TREADLE_OK;
    if (!treadle_generator_n_rows(generator))
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected an append before a row is asked for");
    return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected a row below %zu, found %zu",
                   generator->generation->n_rows, row);
}

treadle_status treadle_generator_output(const treadle_generator *generator, size_t row, const char *name,
                                        treadle_tensor *out, treadle_error *error) {
    const td_tensor *tensor = NULL;
    TD_TRY(check_row(generator, row, out, error));
    TD_NEED(name);
    TD_TRY(td_generation_output(generator->generation, row, name, &tensor, error));
    td_tensor_to_public(tensor, out);
    return TREADLE_OK;
}

size_t treadle_generator_n_outputs(const treadle_generator *generator, size_t row) {
    td_str session, name;
    const td_tensor *tensor;
    size_t n = 0;
    if (row >= treadle_generator_n_rows(generator)) return 0;
    while (td_generation_output_at(generator->generation, row, n, &session, &name, &tensor)) n++;
    return n;
}

treadle_status treadle_generator_output_at(const treadle_generator *generator, size_t row, size_t index,
                                           treadle_string *out_session, treadle_string *out_name, treadle_tensor *out,
                                           treadle_error *error) {
    td_str session, name;
    const td_tensor *tensor;
    TD_TRY(check_row(generator, row, out, error));
    if (!td_generation_output_at(generator->generation, row, index, &session, &name, &tensor))
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected an output below %zu, found %zu",
                       treadle_generator_n_outputs(generator, row), index);
    if (out_session) *out_session = (treadle_string){session.p, session.n};
    if (out_name) *out_name = (treadle_string){name.p, name.n};
    td_tensor_to_public(tensor, out);
    return TREADLE_OK;
}

treadle_status treadle_generator_embedding(treadle_generator *generator, size_t row, treadle_tensor *out,
                                           treadle_error *error) {
    const float *vector = NULL;
    int64_t dim = 0;
    TD_TRY(check_row(generator, row, out, error));
    TD_TRY(td_generation_embedding(generator->generation, row, &vector, &dim, error));
    *out = (treadle_tensor){.dtype = TREADLE_DTYPE_FLOAT, .rank = 1, .dims = {dim}, .data = vector};
    return TREADLE_OK;
}

static void float_view(const float *data, int64_t rows, int64_t vocab, treadle_tensor *out) {
    *out = (treadle_tensor){.dtype = TREADLE_DTYPE_FLOAT, .rank = rows < 0 ? 1 : 2, .data = data};
    if (rows < 0) out->dims[0] = vocab;
    else out->dims[0] = rows, out->dims[1] = vocab;
}

treadle_status treadle_generator_last_logits(const treadle_generator *generator, size_t row, treadle_tensor *out,
                                             treadle_error *error) {
    TD_TRY(check_row(generator, row, out, error));
    const td_generation *g = generator->generation;
    if (!g->rows[row].logits)
        return td_fail(error, TREADLE_INVALID_ARGUMENT,
                       "row %zu has no logits: expected a prefill after its last token", row);
    float_view(g->rows[row].logits, -1, g->exec->vocab, out);
    return TREADLE_OK;
}

treadle_status treadle_generator_step_logits(const treadle_generator *generator, size_t row, treadle_tensor *out,
                                             treadle_error *error) {
    TD_TRY(check_row(generator, row, out, error));
    const td_generation *g = generator->generation;
    if (!g->options.keep_logits) return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected the option keep_logits");
    const td_floats *steps = &g->timelines[row].steps;
    float_view(steps->items, g->exec->vocab ? (int64_t)steps->n / g->exec->vocab : 0, g->exec->vocab, out);
    return TREADLE_OK;
}

treadle_status treadle_generator_prompt_logits(const treadle_generator *generator, size_t row, treadle_tensor *out,
                                               treadle_error *error) {
    TD_TRY(check_row(generator, row, out, error));
    const td_generation *g = generator->generation;
    if (!g->options.prompt_logits) return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected the option prompt_logits");
    const td_floats *all = &g->exec->all[row];
    float_view(all->items, g->exec->vocab ? (int64_t)all->n / g->exec->vocab : 0, g->exec->vocab, out);
    return TREADLE_OK;
}

void treadle_generator_get_stats(const treadle_generator *generator, treadle_stats *out) {
    if (!generator || !out) return;
    const td_generation *g = generator->generation;
    treadle_stats stats = {
        .struct_size = out->struct_size,
        .prompt_tokens = g->prompt_tokens,
        .new_tokens = g->new_tokens,
        .prefill_ms = (double)g->prefill_ns / 1e6,
        .decode_ms = (double)g->decode_ns / 1e6,
        .first_token_ms = (double)g->first_token_ns / 1e6,
        .decode_steps = g->decode_steps,
        .state_bytes = g->exec ? td_state_bytes(g->exec->state) : 0,
    };
    memcpy(out, &stats, TD_MIN(out->struct_size, sizeof stats));
}

int64_t treadle_generator_runs(const treadle_generator *generator, size_t index, const char **out_name) {
    if (!generator) return -1;
    const td_generation *g = generator->generation;
    const td_plan *plan = g->runtime->plan;
    if (index >= plan->n_sessions) return -1;
    if (out_name) *out_name = plan->sessions[index].c_name;
    return g->exec ? g->exec->runs[index] : 0;
}

treadle_status treadle_generator_profile(const treadle_generator *generator, bool by_op, char **out,
                                         treadle_error *error) {
    TD_NEED(generator);
    TD_NEED(out);
    const td_generation *g = generator->generation;
    td_buf text = {0};
    for (size_t i = 0; g->exec && i < g->exec->plan->n_sessions; i++)
        g->runtime->engines[i]->profile(g->exec->ctx[i], by_op, &text);
    return td_api_take_text(&text, out, NULL, error);
}

treadle_status treadle_process_logits(const treadle_generate_options *options, const float *logits, size_t vocab,
                                      const int32_t *sequence, size_t n_sequence, size_t prompt_length,
                                      float *probabilities, int64_t *out_kept, treadle_error *error) {
    TD_NEED(logits);
    TD_NEED(probabilities);
    TD_NEED(out_kept);
    if (n_sequence) TD_NEED(sequence);
    if (!vocab || vocab > INT32_MAX)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected a vocabulary of 1 to %d, found %zu", INT32_MAX,
                       vocab);
    if (prompt_length > n_sequence)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected a prompt_length of at most %zu, found %zu",
                       n_sequence, prompt_length);
    treadle_generate_options o;
    td_sample_params params;
    td_sampler sampler = {0};
    td_arena arena;
    td_arena_init(&arena);
    treadle_status status = td_request_options(options, &o, error);
    if (status == TREADLE_OK) status = td_request_params(&o, NULL, &arena, &params, error);
    if (status == TREADLE_OK) status = td_sampler_init(&sampler, vocab, error);
    if (status == TREADLE_OK)
        status =
            td_sampler_distribution(&sampler, &params, logits,
                                    (td_sequence_so_far){.ids = sequence, .n = n_sequence, .n_prompt = prompt_length},
                                    probabilities, out_kept, error);
    td_sampler_free(&sampler);
    td_arena_free(&arena);
    return status;
}
