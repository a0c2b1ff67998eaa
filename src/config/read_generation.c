/* config/read_generation.c - tokens and generation. */
#include "config/read.h"

bool td_read_tokens(td_config *c, const td_json *v) {
    td_config_tokens *t = &c->tokens;
    t->json = v;
    t->bos = td_read_id(v, "bos");
    t->pad = td_read_id(v, "pad");
    t->blank = td_read_id(v, "blank");
    t->image = td_read_id(v, "image_token");
    t->video = td_read_id(v, "video_token");
    t->audio = td_read_id(v, "audio_token");
    return td_read_ids(c, td_json_get(v, "eos"), &t->eos) &&
           td_read_ids(c, td_json_get(v, "decoder_start"), &t->decoder_start);
}

/* true, false or "never". */
static td_early_stopping early_stopping(const td_json *v, td_messages *m) {
    if (v && v->kind == TD_JSON_BOOL) return v->as_bool ? TD_EARLY_STOPPING_YES : TD_EARLY_STOPPING_NO;
    if (!v || v->kind != TD_JSON_STRING) return TD_EARLY_STOPPING_NO;
    if (!td_str_is(v->string, "never"))
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, v), "expected true, false or \"never\", found \"%.*s\"",
                        (int)TD_MIN(v->string.n, (size_t)200), v->string.p);
    return TD_EARLY_STOPPING_NEVER;
}

static void read_beam(td_config_beam *b, const td_json *v, td_messages *m) {
    *b = (td_config_beam){
        .num_beams = td_json_int_or(v, "num_beams", 1),
        .length_penalty = td_json_double_or(v, "length_penalty", 1.0),
        .early_stopping = early_stopping(td_json_get(v, "early_stopping"), m),
        .num_return_sequences = td_json_int_or(v, "num_return_sequences", 1),
    };
    if (b->num_beams > 0 && b->num_return_sequences > b->num_beams)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, td_json_get(v, "num_return_sequences")),
                        "expected num_return_sequences of at most num_beams, which is %lld, found %lld",
                        (long long)b->num_beams, (long long)b->num_return_sequences);
}

static bool read_named_tokens(td_config *c, const td_json *map, const td_named_token **out, size_t *n) {
    bool object = map && map->kind == TD_JSON_OBJECT && map->n <= TD_LIST_MAX;
    td_named_token *rows = TD_ARENA_ARRAY(&c->arena, td_named_token, object ? map->n : 0);
    if (!rows) return false;
    for (const td_json *v = object ? map->first : NULL; v; v = v->next)
        if (v->kind == TD_JSON_INT && v->as_int >= 0 && v->as_int <= INT32_MAX)
            rows[(*n)++] = (td_named_token){v->key, (int32_t)v->as_int};
    *out = rows;
    return true;
}

/* [[layer, head], ...] */
static bool read_alignment_heads(td_config *c, const td_json *list, td_messages *m) {
    td_config_transcription *t = &c->generation.transcription;
    bool array = list && list->kind == TD_JSON_ARRAY && list->n <= TD_LIST_MAX;
    td_alignment_head *heads = TD_ARENA_ARRAY(&c->arena, td_alignment_head, array ? list->n : 0);
    if (!heads) return false;
    for (const td_json *v = array ? list->first : NULL; v; v = v->next) {
        const td_json *layer = td_json_at(v, 0), *head = td_json_at(v, 1);
        bool fits = v->kind == TD_JSON_ARRAY && v->n == 2 && layer->kind == TD_JSON_INT && head->kind == TD_JSON_INT &&
                    layer->as_int >= 0 && layer->as_int <= UINT16_MAX && head->as_int >= 0 &&
                    head->as_int <= UINT16_MAX;
        if (fits) heads[t->n_alignment_heads++] = (td_alignment_head){(int32_t)layer->as_int, (int32_t)head->as_int};
        else
            td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, v),
                            "expected a pair [layer, head] of numbers from 0 to 65535, found %s",
                            v->kind == TD_JSON_ARRAY ? "something else" : td_json_kind_name(v->kind));
    }
    t->alignment_heads = heads;
    return true;
}

static const td_named_token *find_named(const td_named_token *rows, size_t n, td_str name) {
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(rows[i].name, name)) return &rows[i];
    return NULL;
}

static void check_named(const td_json *v, const td_named_token *rows, size_t n, const char *what, td_messages *m) {
    if (!v || v->kind != TD_JSON_STRING || find_named(rows, n, v->string)) return;
    td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, v),
                    "expected one of the %zu names under \"%s\", found \"%.*s\"", n, what,
                    (int)TD_MIN(v->string.n, (size_t)200), v->string.p);
}

static bool read_transcription(td_config *c, const td_json *v, td_messages *m) {
    td_config_transcription *t = &c->generation.transcription;
    t->declared = v != NULL;
    t->json = v;
    if (!read_named_tokens(c, td_json_get(v, "languages"), &t->languages, &t->n_languages) ||
        !read_named_tokens(c, td_json_get(v, "tasks"), &t->tasks, &t->n_tasks) ||
        !read_alignment_heads(c, td_json_get(v, "alignment_heads"), m))
        return false;
    t->multilingual = td_json_bool_or(v, "multilingual", t->n_languages > 0);
    t->language = td_json_string_or(v, "language", "");
    t->task = td_json_string_or(v, "task", "");
    check_named(td_json_get(v, "language"), t->languages, t->n_languages, "languages", m);
    check_named(td_json_get(v, "task"), t->tasks, t->n_tasks, "tasks", m);
    t->no_timestamps = td_read_id(v, "no_timestamps");
    t->previous_text = td_read_id(v, "previous_text");
    t->timestamp_begin = td_read_id(v, "timestamp_begin");
    if (t->timestamp_begin < 0 && t->no_timestamps >= 0 && t->no_timestamps < INT32_MAX)
        t->timestamp_begin = t->no_timestamps + 1;
    t->timestamps = td_json_bool_or(v, "timestamps", false);
    t->max_initial_timestamp = td_json_int_or(v, "max_initial_timestamp", -1);
    t->timestamp_seconds = td_json_double_or(v, "timestamp_seconds", 0.02);
    return true;
}

/* [[id, ...], ...] as the ids of each list and -1 behind them. */
static bool read_bad_words(td_config *c, const td_json *words, td_messages *m) {
    size_t n = 0;
    for (const td_json *w = td_list_first(words); w; w = td_list_next(words, w)) n += td_list_count(w) + 1;
    int32_t *ids = TD_ARENA_ARRAY(&c->arena, int32_t, n);
    if (!ids) return false;
    n = 0;
    for (const td_json *w = td_list_first(words); w; w = td_list_next(words, w)) {
        size_t first = n;
        bool fits = w->kind == TD_JSON_ARRAY && w->n > 0;
        for (const td_json *v = td_list_first(w); v && fits; v = td_list_next(w, v)) {
            fits = v->kind == TD_JSON_INT && v->as_int >= 0 && v->as_int <= INT32_MAX;
            if (fits) ids[n++] = (int32_t)v->as_int;
        }
        if (fits) ids[n++] = -1;
        else {
            td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, w), "expected a list of token ids, found %s",
                            w->kind == TD_JSON_ARRAY ? "something else" : td_json_kind_name(w->kind));
            n = first;
        }
    }
    c->generation.bad_words = (td_token_list){ids, n};
    return true;
}

bool td_read_generation(td_config *c, const td_json *g, td_messages *m) {
    const td_json *s = td_json_get(g, "sampling");
    td_config_generation *out = &c->generation;
    out->max_length_json = td_json_get(g, "max_length");
    out->context_length_json = td_json_get(g, "context_length");
    out->max_length = td_json_int_or(g, "max_length", -1);
    out->max_new_tokens = td_json_int_or(g, "max_new_tokens", -1);
    out->min_length = td_json_int_or(g, "min_length", 0);
    out->min_new_tokens = td_json_int_or(g, "min_new_tokens", 0);
    out->source_ngram_size = td_json_int_or(g, "source_no_repeat_ngram_size", 0);
    out->context_length = td_json_int_or(g, "context_length", -1);
    out->prefill_chunk = td_json_int_or(g, "prefill_chunk", -1);
    out->max_symbols_per_step = td_json_int_or(g, "max_symbols_per_step", -1);
    out->reprefill_at = td_json_int_or(g, "reprefill_at", -1);
    out->blank_penalty = td_json_double_or(g, "blank_penalty", 0);
    out->forced_first = td_read_id(g, "forced_first");
    out->forced_last = td_read_id(g, "forced_last");
    out->sampling = (td_sampling){
        .do_sample = td_json_bool_or(s, "do_sample", false),
        .temperature = td_json_double_or(s, "temperature", 1.0),
        .top_p = td_json_double_or(s, "top_p", 1.0),
        .min_p = td_json_double_or(s, "min_p", 0.0),
        .repetition_penalty = td_json_double_or(s, "repetition_penalty", 1.0),
        .top_k = td_json_int_or(s, "top_k", 0),
        .no_repeat_ngram_size = td_json_int_or(s, "no_repeat_ngram_size", 0),
        .seed = td_json_int_or(s, "seed", -1),
    };
    read_beam(&out->beam, td_json_get(g, "beam"), m);
    if (out->max_length > 0 && out->context_length > 0 && out->max_length > out->context_length)
        td_messages_add(m, TREADLE_MESSAGE_NOTE, td_read_at(m, out->max_length_json),
                        "max_length %lld is lowered to the context length %lld", (long long)out->max_length,
                        (long long)out->context_length);
    return td_read_strings(c, td_json_get(g, "stop"), &out->stop, &out->n_stop) &&
           td_read_ids(c, td_json_get(g, "suppress"), &out->suppress) &&
           td_read_ids(c, td_json_get(g, "begin_suppress"), &out->begin_suppress) &&
           read_bad_words(c, td_json_get(g, "bad_words"), m) &&
           td_read_numbers(c, td_json_get(g, "durations"), &out->durations, &out->n_durations) &&
           read_transcription(c, td_json_get(g, "transcription"), m);
}
