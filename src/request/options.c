/* request/options.c - the caller's options over the model's. */
#include "request/request.h"

#include "base/utf8.h"

treadle_status td_request_options(const treadle_generate_options *options, treadle_generate_options *out,
                                  treadle_error *err) {
    treadle_generate_options_init(out);
    if (!options) return TREADLE_OK;
    if (options->struct_size < sizeof options->struct_size || options->struct_size > sizeof *out)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected struct_size up to %zu in the options (use treadle_generate_options_init), found %zu",
                       sizeof *out, options->struct_size);
    memcpy(out, options, options->struct_size);
    out->struct_size = sizeof *out;
    return TREADLE_OK;
}

static double real_or(double given, double fallback) {
    return given < 0 ? fallback : given; /* NaN stays and is refused by the range check */
}

static int64_t int_or(int64_t given, int64_t fallback) { return given == -1 ? fallback : given; }

treadle_status td_request_params(const treadle_generate_options *o, const td_config *config, td_arena *arena,
                                 td_sample_params *out, treadle_error *err) {
    static const td_config none = {.generation.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
    const td_config *c = config ? config : &none;
    const td_sampling *s = &c->generation.sampling;
    size_t n_eos = o->n_eos >= 0 ? (size_t)o->n_eos : c->tokens.eos.n;
    const int32_t *eos = o->n_eos >= 0 ? o->eos : c->tokens.eos.ids;
    if (o->do_sample > 1)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected do_sample from -1 to 1, found %d", o->do_sample);
    if (n_eos && !eos) return td_fail(err, TREADLE_INVALID_ARGUMENT, "eos is NULL, but n_eos says %zu tokens", n_eos);
    if (n_eos > 65536)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected eos to list up to 65536 tokens, found %zu", n_eos);
    for (size_t i = 0; i < n_eos; i++)
        if (eos[i] < 0)
            return td_fail(err, TREADLE_INVALID_ARGUMENT,
                           "expected eos to list token ids, found %d (no entry: none ends)", (int)eos[i]);
    int32_t *copy = TD_ARENA_ARRAY(arena, int32_t, n_eos);
    if (!copy) return td_fail_memory(err, "end tokens", n_eos * sizeof *copy);
    if (n_eos) memcpy(copy, eos, n_eos * sizeof *copy);
    *out = (td_sample_params){
        .do_sample = o->do_sample < 0 ? s->do_sample : o->do_sample > 0,
        .temperature = real_or(o->temperature, s->temperature),
        .top_k = int_or(o->top_k, s->top_k),
        .top_p = real_or(o->top_p, s->top_p),
        .min_p = real_or(o->min_p, s->min_p),
        .repetition_penalty = real_or(o->repetition_penalty, s->repetition_penalty),
        .no_repeat_ngram_size = int_or(o->no_repeat_ngram_size, s->no_repeat_ngram_size),
        .min_length = int_or(o->min_length, c->generation.min_length),
        .eos = copy,
        .n_eos = n_eos,
        .suppress = c->generation.suppress.ids, /* the config's: they live as long as the model */
        .n_suppress = c->generation.suppress.n,
        .begin_suppress = c->generation.begin_suppress.ids,
        .n_begin_suppress = c->generation.begin_suppress.n,
        .bad_words = c->generation.bad_words.ids,
        .n_bad_words = c->generation.bad_words.n,
        .source_ngram_size = c->generation.source_ngram_size,
        .min_new_tokens = c->generation.min_new_tokens,
        .forces_first = config && c->generation.forced_first >= 0,
        .forces_last = config && c->generation.forced_last >= 0,
        .forced_first = c->generation.forced_first,
        .forced_last = c->generation.forced_last,
    };
    return td_sample_params_check(out, err);
}

static treadle_status copy_stops(treadle_generator *g, const treadle_generate_options *o, treadle_error *err) {
    const td_config *c = g->model->config;
    if (o->n_stop < 0) {
        g->stops = c->generation.stop;
        g->n_stops = c->generation.n_stop;
        return TREADLE_OK;
    }
    if (o->n_stop && !o->stop)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "stop is NULL, but n_stop says %lld strings",
                       (long long)o->n_stop);
    if (o->n_stop > 4096)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected stop to list up to 4096 strings, found %lld",
                       (long long)o->n_stop);
    td_str *stops = TD_ARENA_ARRAY(&g->arena, td_str, (size_t)o->n_stop);
    for (int64_t i = 0; stops && i < o->n_stop; i++) {
        const char *fault = !o->stop[i]                               ? "NULL"
                            : !o->stop[i][0]                          ? "empty"
                            : !td_utf8_valid(td_str_from(o->stop[i])) ? "not UTF-8"
                                                                      : NULL;
        if (fault) return td_fail(err, TREADLE_INVALID_ARGUMENT, "stop string %lld is %s", (long long)i, fault);
        stops[i] = td_arena_str(&g->arena, td_str_from(o->stop[i]));
        if (!stops[i].p) return td_fail_memory(err, "stop strings", 0);
    }
    if (!stops) return td_fail_memory(err, "stop strings", 0);
    g->stops = stops;
    g->n_stops = (size_t)o->n_stop;
    return TREADLE_OK;
}

static treadle_status copy_ids(td_arena *arena, const int32_t *ids, size_t n, const int32_t **out, treadle_error *err) {
    int32_t *copy = TD_ARENA_ARRAY(arena, int32_t, n);
    if (!copy) return td_fail_memory(err, "ids", n * sizeof *copy);
    if (n) memcpy(copy, ids, n * sizeof *copy);
    *out = copy;
    return TREADLE_OK;
}

/* The caller's, else the model's, else the token that texts begin with. */
static treadle_status copy_decoder_start(treadle_generator *g, const treadle_generate_options *o,
                                         td_generation_options *out, treadle_error *err) {
    const td_config_tokens *tokens = &g->model->config->tokens;
    const int32_t *ids = o->decoder_start;
    size_t n = o->n_decoder_start >= 0 ? (size_t)o->n_decoder_start : 0;
    if (o->n_decoder_start < 0) {
        ids = tokens->decoder_start.n ? tokens->decoder_start.ids : &tokens->bos;
        n = tokens->decoder_start.n ? tokens->decoder_start.n : tokens->bos >= 0;
    }
    if (n && !ids)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "decoder_start is NULL, but n_decoder_start says %zu tokens", n);
    if (n > 65536)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected decoder_start to list up to 65536 tokens, found %zu",
                       n);
    out->n_decoder_start = n;
    return copy_ids(&g->arena, ids, n, &out->decoder_start, err);
}

treadle_status td_request_copy_options(treadle_generator *to, const treadle_generator *from, treadle_error *err) {
    td_generation_options *o = &to->generation->options;
    td_str *stops = TD_ARENA_ARRAY(&to->arena, td_str, from->n_stops);
    if (!stops) return td_fail_memory(err, "stop strings", 0);
    for (size_t i = 0; i < from->n_stops; i++) {
        stops[i] = td_arena_str(&to->arena, from->stops[i]);
        if (!stops[i].p) return td_fail_memory(err, "stop strings", 0);
    }
    to->stops = stops;
    to->n_stops = from->n_stops;
    TD_TRY(copy_ids(&to->arena, o->sample.eos, o->sample.n_eos, &o->sample.eos, err));
    return copy_ids(&to->arena, o->decoder_start, o->n_decoder_start, &o->decoder_start, err);
}

/* Beams as the caller wants them, else as the model does. */
static treadle_status fill_beams(const treadle_generate_options *o, const td_config *c, td_generation_options *out,
                                 treadle_error *err) {
    const td_config_beam *b = &c->generation.beam;
    out->beam = (td_beam_params){
        .num_beams = int_or(o->num_beams, b->num_beams > 0 ? b->num_beams : 1),
        .length_penalty = o->has_length_penalty ? o->length_penalty : b->length_penalty,
        .early_stopping = o->early_stopping >= 0 ? (td_early_stopping)o->early_stopping : b->early_stopping,
        .num_return_sequences =
            int_or(o->num_return_sequences, o->num_beams >= 0 ? 1 : TD_MAX(b->num_return_sequences, (int64_t)1)),
    };
    if (out->beam.num_beams < 1 || out->beam.num_beams > 1024)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected num_beams from 1 to 1024, found %lld",
                       (long long)out->beam.num_beams);
    if (out->beam.num_return_sequences < 1 || out->beam.num_return_sequences > out->beam.num_beams)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected num_return_sequences from 1 to %lld (num_beams), found %lld",
                       (long long)out->beam.num_beams, (long long)out->beam.num_return_sequences);
    if (!(out->beam.length_penalty >= -1e3 && out->beam.length_penalty <= 1e3))
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a length_penalty from -1000 to 1000, found %g",
                       out->beam.length_penalty);
    if (o->early_stopping > TD_EARLY_STOPPING_NEVER)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected early_stopping from -1 to 2, found %d",
                       o->early_stopping);
    return TREADLE_OK;
}

treadle_status td_request_fill(treadle_generator *g, const treadle_generate_options *options,
                               td_generation_options *out, treadle_error *err) {
    const td_config *c = g->model->config;
    treadle_generate_options o;
    TD_TRY(td_request_options(options, &o, err));
    if (g->model->plan->transducer.present && (o.num_beams > 1 || o.do_sample > 0))
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "a transducer is searched greedily: expected neither num_beams above 1 nor do_sample");
    *out = (td_generation_options){
        .max_new_tokens = int_or(o.max_new_tokens, c->generation.max_new_tokens),
        .max_length = int_or(o.max_length, g->model->plan->max_length),
        .ignore_eos = o.ignore_eos,
        .has_seed = o.seed >= 0 || c->generation.sampling.seed >= 0,
        .seed = (uint64_t)(o.seed >= 0 ? o.seed : c->generation.sampling.seed),
        .keep_logits = o.keep_logits,
        .prompt_logits = o.prompt_logits,
        .max_symbols = int_or(o.max_symbols_per_step, c->generation.max_symbols_per_step),
        .image_token = c->tokens.image,
    };
    if (out->max_length < 1)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a max_length of at least 1, found %lld",
                       (long long)out->max_length);
    if (out->max_new_tokens < -1)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected max_new_tokens of at least 0, found %lld",
                       (long long)out->max_new_tokens);
    TD_TRY(fill_beams(&o, c, out, err));
    TD_TRY(copy_stops(g, &o, err));
    TD_TRY(copy_decoder_start(g, &o, out, err));
    return td_request_params(&o, c, &g->arena, &out->sample, err);
}
