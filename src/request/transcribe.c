/* request/transcribe.c - speech to text, window by window.
 *
 * A window's prompt is [previous text] start [language task] [no times]. A recording that fits one window is padded to
 * it and may do without times; a longer one has its features made in one piece, so that they are normalised as a
 * whole, and each window begins where the one before has closed its last text. Source: transformers, long-form
 * generation of speech models. */
#include "request/transcribe.h"

#include "base/alloc.h"
#include "model/audio_part.h"

#include <math.h>

void treadle_transcribe_options_init(treadle_transcribe_options *options) {
    *options = (treadle_transcribe_options){
        .struct_size = sizeof *options, .timestamps = -1, .max_new_tokens = -1, .num_beams = -1};
}

/* --- what the request asks for */

static treadle_status find_name(const td_named_token *rows, size_t n, td_str name, const char *what, int32_t *out,
                                treadle_error *err) {
    td_buf names = {0};
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(rows[i].name, name)) {
            *out = rows[i].id;
            return TREADLE_OK;
        }
    for (size_t i = 0; i < n && i < 128; i++) td_buf_printf(&names, "%s%.*s", i ? ", " : "", TD_STR_ARGS(rows[i].name));
    treadle_status status =
        td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a %s that the model has, found \"%.*s\" (%.*s)", what,
                (int)TD_MIN(name.n, (size_t)60), name.p, (int)TD_MIN(names.n, (size_t)900), names.p ? names.p : "none");
    td_buf_free(&names);
    return status;
}

static treadle_status read_wishes(td_transcriber *t, treadle_error *err) {
    const td_config_transcription *c = t->config;
    td_str language = t->options.language ? td_str_from(t->options.language) : c->language;
    td_str task = t->options.task ? td_str_from(t->options.task) : c->task;
    t->language = t->task = -1;
    t->timestamps = t->options.timestamps >= 0 ? t->options.timestamps > 0 : c->timestamps;
    if (!c->multilingual) {
        if (t->options.task && !td_str_is(task, "transcribe"))
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "the model has one task, transcribe, found \"%s\"",
                           t->options.task);
        return TREADLE_OK;
    }
    if (language.n) TD_TRY(find_name(c->languages, c->n_languages, language, "language", &t->language, err));
    if (!c->n_tasks) return TREADLE_OK;
    return find_name(c->tasks, c->n_tasks, task.n ? task : TD_STR("transcribe"), "task", &t->task, err);
}

/* The tensor of the recipe that the graphs take: by name, else the only one they take. */
static treadle_status find_features(td_transcriber *t, treadle_error *err) {
    const td_plan *plan = t->model->plan;
    size_t n = 0;
    const td_feature_spec *specs = td_recipe_outputs(t->recipe, &n);
    for (size_t i = 0; i < n; i++)
        if (specs[i].kind == TD_FEATURE_VALUES) {
            t->clip_frames = specs[i].shape.rank == 3 ? specs[i].shape.dims[2] : -1;
            t->features_name = specs[i].name;
            for (size_t k = 0; k < plan->n_requests; k++)
                if (td_str_is(plan->requests[k].name, specs[i].name)) return TREADLE_OK;
            if (plan->n_requests != 1)
                return td_fail(err, TREADLE_UNSUPPORTED,
                               "the model takes no tensor \"%s\", which its preprocessing makes", specs[i].name);
            t->features_name = td_arena_strndup(&t->out->arena, plan->requests[0].name.p, plan->requests[0].name.n);
            return t->features_name ? TREADLE_OK : td_fail_memory(err, "a name", 0);
        }
    return td_fail(err, TREADLE_UNSUPPORTED, "the model's preprocessing makes no features");
}

static treadle_status open_generation(td_transcriber *t, treadle_error *err) {
    const td_config *c = t->model->config;
    const td_config_transcription *tc = t->config;
    treadle_generate_options defaults;
    td_generation_options options = {
        .max_new_tokens = -1, .max_length = t->model->plan->max_length, .max_symbols = -1, .image_token = -1};
    treadle_generate_options_init(&defaults);
    defaults.do_sample = 0;
    TD_TRY(td_request_params(&defaults, c, &t->out->arena, &options.sample, err));
    options.beam = (td_beam_params){
        .num_beams = t->options.num_beams > 0 ? t->options.num_beams : TD_MAX(c->generation.beam.num_beams, (int64_t)1),
        .length_penalty = c->generation.beam.length_penalty,
        .early_stopping = c->generation.beam.early_stopping,
        .num_return_sequences = 1};
    if (options.beam.num_beams > 1024)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected num_beams of at most 1024, found %lld",
                       (long long)options.beam.num_beams);
    t->rules = (td_timestamp_rules){.begin = tc->timestamp_begin,
                                    .no_timestamps = tc->no_timestamps,
                                    .eos = c->tokens.eos.n ? c->tokens.eos.ids[0] : -1,
                                    .max_initial = tc->max_initial_timestamp};
    if (t->timestamps && tc->timestamp_begin < 0)
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "the model's tokens tell no times (generation.transcription.timestamp_begin)");
    if (t->timestamps) options.sample.timestamps = &t->rules;
    return td_generation_new(t->model->runtime, &options, &t->generation, err);
}

/* --- features */

static treadle_status give(td_transcriber *t, const td_tensor *features, treadle_error *err) {
    return td_generation_set_tensor(t->generation, t->features_name, features, err);
}

static const td_tensor *values_of(const td_features *f) {
    for (size_t i = 0; i < f->n; i++)
        if (f->specs[i].kind == TD_FEATURE_VALUES) return &f->tensors[i];
    return NULL;
}

/* The features of a recording: one window's, or all. */
static treadle_status make_features(td_transcriber *t, const td_audio *mono, treadle_error *err) {
    int64_t clip = td_recipe_clip(t->recipe);
    td_features features = {0};
    td_feature_options options = {.whole = clip > 0 && mono->n_frames > clip};
    if (options.whole && t->clip_frames < 1)
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "the recording is longer than a window, and the features have no frames to cut");
    TD_TRY(td_recipe_run(t->recipe, mono->samples, mono->n_frames, &options, &features, err));
    const td_tensor *values = values_of(&features);
    td_value borrowed = {.kind = TD_VALUE_TENSOR};
    if (values) borrowed.tensor = *values;
    treadle_status status = TREADLE_OK;
    if (!values || !td_value_copy(&t->whole, &borrowed)) status = td_fail_memory(err, "features", 0);
    td_features_free(&features);
    return status;
}

/* One window of a long recording's features; what lies beyond its end is 0. */
static treadle_status cut_window(td_transcriber *t, int64_t first, td_value *out, treadle_error *err) {
    const td_tensor *all = &t->whole.tensor;
    td_shape shape = {.rank = 3, .dims = {1, all->shape.dims[1], t->clip_frames}};
    int64_t n = TD_MAX(TD_MIN(t->clip_frames, all->shape.dims[2] - first), (int64_t)0);
    *out = (td_value){0};
    if (!td_value_resize(out, all->dtype, &shape)) return td_fail_memory(err, "features of a window", 0);
    memset(out->tensor.data, 0, out->tensor.buffer->bytes);
    td_tensor from = td_tensor_slice(all, 2, first, n), to = td_tensor_slice(&out->tensor, 2, 0, n);
    if (n > 0) td_tensor_copy(&to, &from);
    return TREADLE_OK;
}

/* --- language */

/* The likeliest of all languages after the start token, from what the first window sounds like. */
static treadle_status detect_language(td_transcriber *t, treadle_error *err) {
    const td_config_transcription *c = t->config;
    double best = -INFINITY, total = 0;
    size_t found = 0;
    TD_TRY(td_generation_prefill(t->generation, err));
    const float *logits = t->generation->rows[0].logits;
    if (!logits) return td_fail(err, TREADLE_INTERNAL, "a prefill gave no logits");
    for (size_t i = 0; i < c->n_languages; i++) {
        int32_t id = c->languages[i].id;
        if (id >= t->generation->exec->vocab || !(logits[id] > best)) continue;
        best = logits[id];
        found = i;
    }
    for (size_t i = 0; i < c->n_languages; i++)
        if (c->languages[i].id < t->generation->exec->vocab) total += exp((double)logits[c->languages[i].id] - best);
    t->language = c->languages[found].id;
    t->out->language_probability = total > 0 ? 1 / total : 1;
    return TREADLE_OK;
}

static treadle_status name_language(td_transcriber *t, treadle_error *err) {
    t->out->language = "";
    for (size_t i = 0; i < t->config->n_languages; i++) {
        if (t->config->languages[i].id != t->language) continue;
        td_str name = t->config->languages[i].name;
        t->out->language = td_arena_strndup(&t->out->arena, name.p, name.n);
        if (!t->out->language) return td_fail_memory(err, "a name", 0);
    }
    return TREADLE_OK;
}

/* --- a window */

typedef TD_VEC(int32_t) id_list;

static treadle_status append(td_transcriber *t, const int32_t *ids, size_t n, treadle_error *err) {
    treadle_ids row = {ids, n};
    return n ? td_generation_append(t->generation, &row, 1, err) : TREADLE_OK;
}

/* The transcript so far, as much of it as half the context holds. */
static treadle_status append_previous(td_transcriber *t, treadle_error *err) {
    const td_config_transcription *c = t->config;
    int64_t room = t->generation->options.max_length / 2 - 1;
    id_list ids = {0};
    if (!t->options.previous_text || c->previous_text < 0 || !t->out->ids.n) return TREADLE_OK;
    bool ok = td_vec_push(&ids, c->previous_text);
    size_t first = t->out->ids.n > (size_t)room ? t->out->ids.n - (size_t)room : 0;
    for (size_t i = first; ok && i < t->out->ids.n; i++)
        if (t->out->ids.items[i] != t->rules.eos) ok = td_vec_push(&ids, t->out->ids.items[i]);
    treadle_status status = ok ? append(t, ids.items, ids.n, err) : td_fail_memory(err, "a prompt", 0);
    td_vec_free(&ids);
    return status;
}

/* The prompt in two parts: up to the start token, from which a language can be detected, and the rest. */
static treadle_status append_prompt(td_transcriber *t, treadle_error *err) {
    const td_config_tokens *tokens = &t->model->config->tokens;
    int32_t rest[3];
    size_t n = 0;
    TD_TRY(append_previous(t, err));
    if (!tokens->decoder_start.n)
        return td_fail(err, TREADLE_CONFIG,
                       "expected tokens.decoder_start, which a transcript begins with, found none");
    TD_TRY(append(t, tokens->decoder_start.ids, tokens->decoder_start.n, err));
    if (t->config->multilingual && t->language < 0 && t->config->n_languages) TD_TRY(detect_language(t, err));
    if (t->language >= 0) rest[n++] = t->language;
    if (t->task >= 0) rest[n++] = t->task;
    if (!t->timestamps && t->config->no_timestamps >= 0) rest[n++] = t->config->no_timestamps;
    return append(t, rest, n, err);
}

static bool is_time(const td_transcriber *t, int32_t id) {
    return t->config->timestamp_begin >= 0 && id >= t->config->timestamp_begin;
}

static treadle_status add_text(td_transcriber *t, const int32_t *ids, size_t n, treadle_error *err) {
    size_t from = 0;
    for (size_t i = 0; i <= n; i++) { /* pieces between times */
        if (i < n && !is_time(t, ids[i])) continue;
        if (i > from) TD_TRY(td_tokenizer_decode(t->tokenizer, ids + from, i - from, true, &t->out->text, err));
        from = i + 1;
    }
    return t->out->text.failed ? td_fail_memory(err, "a transcript", 0) : TREADLE_OK;
}

static bool has_text(const td_transcriber *t, const int32_t *ids, const td_segment *s) {
    for (size_t i = s->first; i < s->first + s->n; i++)
        if (!is_time(t, ids[i])) return true;
    return false;
}

/* first_id: where the window's ids stand in the transcript. */
static treadle_status add_segments(td_transcriber *t, const td_decoded_window *window, size_t first_id,
                                   treadle_error *err) {
    for (size_t i = 0; i < window->n_segments; i++) {
        const td_segment *from = &window->segments[i];
        td_transcript_segment s = {.start_s = window->offset_s + from->start_s,
                                   .end_s = window->offset_s + from->end_s,
                                   .first_id = first_id + from->first,
                                   .n_ids = from->n,
                                   .first_byte = t->out->text.n};
        if (!has_text(t, window->ids, from)) continue;
        TD_TRY(add_text(t, window->ids + from->first, from->n, err));
        s.n_bytes = t->out->text.n - s.first_byte;
        if (!td_vec_push(&t->out->segments, s)) return td_fail_memory(err, "a transcript", 0);
    }
    return TREADLE_OK;
}

/* Runs the window at offset_s; *next_s: where the next one begins. */
static treadle_status transcribe_window(td_transcriber *t, double offset_s, double *next_s, treadle_error *err) {
    TD_TRY(append_prompt(t, err));
    if (!t->out->language) TD_TRY(name_language(t, err));
    TD_TRY(td_generation_run(t->generation, t->options.max_new_tokens, NULL, NULL, err));
    const td_timeline *line = &t->generation->timelines[0];
    size_t first_id = t->out->ids.n, n = (size_t)(line->n - line->first_new);
    if (!td_vec_reserve(&t->out->ids, first_id + n)) return td_fail_memory(err, "a transcript", 0);
    if (n) memcpy(t->out->ids.items + first_id, line->ids + line->first_new, n * sizeof *line->ids);
    t->out->ids.n += n;
    const int32_t *ids = n ? t->out->ids.items + first_id : NULL;
    if (n && line->finish == TREADLE_FINISH_EOS) n--;
    td_time_tokens times = {t->timestamps ? t->config->timestamp_begin : INT32_MAX, t->config->timestamp_seconds,
                            TD_MIN(t->clip_s, t->duration_s - offset_s)};
    td_segment *segments = td_alloc_array(n + 1, sizeof *segments);
    if (!segments) return td_fail_memory(err, "segments", 0);
    td_decoded_window window = {.ids = ids,
                                .n = n,
                                .segments = segments,
                                .n_segments = td_segments_cut(&times, ids, n, segments, next_s),
                                .first_segment = t->out->segments.n,
                                .offset_s = offset_s,
                                .clip_s = times.clip_s};
    treadle_status status = add_segments(t, &window, first_id, err);
    if (status == TREADLE_OK && t->options.word_times) status = td_transcribe_words(t, &window, err);
    td_free(segments);
    return status;
}

/* --- the recording */

/* Gives the caller what the latest window added. */
static bool report_segments(td_transcriber *t, size_t first) {
    for (size_t i = first; t->options.on_segment && i < t->out->segments.n; i++) {
        treadle_segment s;
        treadle_transcript_segment(t->out, i, &s);
        if (!t->options.on_segment(t->options.ctx, &s)) return false;
    }
    return true;
}

static treadle_status transcribe_windows(td_transcriber *t, bool is_long, treadle_error *err) {
    double at = 0, next = 0, frames_per_s = t->clip_frames > 0 ? (double)t->clip_frames / t->clip_s : 0;
    bool going = true;
    while (going && at < t->duration_s) {
        td_value window = {0};
        size_t before = t->out->segments.n;
        int64_t first = is_long ? llround(at * frames_per_s) : 0;
        if (t->generation->n_rows) TD_TRY(td_generation_rewind(t->generation, 0, 0, err));
        if (is_long) TD_TRY(cut_window(t, first, &window, err));
        treadle_status status = give(t, is_long ? &window.tensor : &t->whole.tensor, err);
        td_value_release(&window);
        if (status == TREADLE_OK) status = transcribe_window(t, at, &next, err);
        if (status != TREADLE_OK) return status;
        going = report_segments(t, before) && is_long;
        at += TD_MAX(next, t->config->timestamp_seconds); /* a window that says nothing new must not be run for ever */
    }
    return TREADLE_OK;
}

static treadle_status open_all(td_transcriber *t, const td_audio *audio, td_audio **mono, treadle_error *err) {
    if (!t->config->declared)
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "the model is no transcriber: neither its config (generation.transcription) nor its "
                       "generation_config.json says how its prompt names a language or a task");
    TD_TRY(td_text_part_tokenizer(t->model->text, &t->tokenizer, err));
    TD_TRY(read_wishes(t, err));
    TD_TRY(td_audio_part_recipe(t->model->config, (td_str){0}, &t->recipe, err));
    TD_TRY(find_features(t, err));
    TD_TRY(td_audio_to_mono(audio, td_recipe_rate_hz(t->recipe), mono, err));
    if ((*mono)->n_frames < 1) return td_fail(err, TREADLE_INVALID_ARGUMENT, "the recording has no samples");
    int64_t clip = td_recipe_clip(t->recipe);
    t->duration_s = (double)(*mono)->n_frames / td_recipe_rate_hz(t->recipe);
    t->clip_s = clip > 0 ? (double)clip / td_recipe_rate_hz(t->recipe) : t->duration_s;
    if (clip > 0 && (*mono)->n_frames > clip) t->timestamps = true;
    TD_TRY(open_generation(t, err));
    return make_features(t, *mono, err);
}

treadle_status td_transcribe(const treadle_model *model, const td_audio *audio,
                             const treadle_transcribe_options *options, treadle_transcript **out, treadle_error *err) {
    td_transcriber t = {.model = model, .config = &model->config->generation.transcription, .options = *options};
    td_audio *mono = NULL;
    t.out = td_alloc_zero(1, sizeof *t.out);
    if (!t.out) return td_fail_memory(err, "a transcript", sizeof *t.out);
    td_arena_init(&t.out->arena);
    t.out->language_probability = 1;
    treadle_status status = open_all(&t, audio, &mono, err);
    if (status == TREADLE_OK) status = transcribe_windows(&t, t.duration_s > t.clip_s, err);
    td_audio_free(mono);
    td_value_release(&t.whole);
    td_generation_free(t.generation);
    td_recipe_free(t.recipe);
    if (status != TREADLE_OK) {
        treadle_transcript_free(t.out);
        return status;
    }
    *out = t.out;
    return TREADLE_OK;
}

/* --- results */

void treadle_transcript_free(treadle_transcript *t) {
    if (!t) return;
    td_vec_free(&t->ids);
    td_vec_free(&t->segments);
    td_buf_free(&t->text);
    td_arena_free(&t->arena);
    td_free(t);
}

treadle_string treadle_transcript_text(const treadle_transcript *t) {
    return t && t->text.p ? (treadle_string){t->text.p, t->text.n} : (treadle_string){"", 0};
}

const char *treadle_transcript_language(const treadle_transcript *t) { return t ? t->language : ""; }

double treadle_transcript_language_probability(const treadle_transcript *t) { return t ? t->language_probability : 1; }

size_t treadle_transcript_n_segments(const treadle_transcript *t) { return t ? t->segments.n : 0; }

void treadle_transcript_segment(const treadle_transcript *t, size_t index, treadle_segment *out) {
    if (!out) return;
    *out = (treadle_segment){0};
    if (index >= treadle_transcript_n_segments(t)) return;
    const td_transcript_segment *s = &t->segments.items[index];
    *out = (treadle_segment){.start_s = s->start_s,
                             .end_s = s->end_s,
                             .ids = {s->n_ids ? t->ids.items + s->first_id : NULL, s->n_ids},
                             .text = {s->n_bytes ? t->text.p + s->first_byte : "", s->n_bytes},
                             .words = s->words,
                             .n_words = s->n_words};
}

treadle_ids treadle_transcript_ids(const treadle_transcript *t) {
    return t ? (treadle_ids){t->ids.items, t->ids.n} : (treadle_ids){NULL, 0};
}
