/* compile/output_hf.c - the text files of a folder made from a Hugging Face checkpoint. See output.h. */
#include "compile/output.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_COPY_BYTES = 256 << 20, MAX_EOS = 64 };

/* What the files of the checkpoint say; NULL where there is no such file. */
typedef struct said {
    const td_output *o;
    td_hf *hf;
    td_json *generation, *tokenizer, *preprocessor, *ctranslate; /* the last: config.json of a CTranslate2 conversion */
} said;

/* --- copies */

static treadle_status copy_file(const said *s, const char *name, bool *copied, treadle_error *err) {
    char *from, *to = td_folder_file(s->o->folder, name), *text;
    size_t n;
    *copied = false;
    TD_TRY(td_path_find_inside(&s->hf->arena, s->hf->dir, name, &from, err));
    if (!from) return TREADLE_OK;
    if (!to) return td_fail_memory(err, "a path", 0);
    TD_TRY(td_file_read(from, MAX_COPY_BYTES, &text, &n, err));
    treadle_status status = td_file_write(to, text, n, err);
    td_free(text);
    *copied = status == TREADLE_OK;
    return status;
}

static treadle_status copy_tokenizer(const said *s, treadle_error *err) {
    for (size_t i = 0; td_tokenizer_files[i]; i++) {
        bool copied;
        TD_TRY(copy_file(s, td_tokenizer_files[i], &copied, err));
        if (i == 0 && !copied)
            td_output_note(s->o, "the checkpoint has no %s: the model runs by token ids only", td_tokenizer_files[0]);
    }
    return TREADLE_OK;
}

/* --- looking things up */

static const td_json *member(const td_json *object, const char *key) {
    const td_json *v = td_json_get(object, key);
    return v && v->kind != TD_JSON_NULL ? v : NULL;
}

/* generation_config.json first, then config.json. */
static const td_json *setting(const said *s, const char *key) {
    const td_json *v = member(s->generation, key);
    return v ? v : member(s->hf->config, key);
}

/* The id of an added token, or -1. */
static int64_t added_token(const said *s, const char *content) {
    const td_json *added = td_json_get(s->tokenizer, "added_tokens");
    for (const td_json *t = added && added->kind == TD_JSON_ARRAY ? added->first : NULL; t; t = t->next)
        if (td_str_is(td_json_string_or(t, "content", ""), content)) return td_json_int_or(t, "id", -1);
    return -1;
}

/* --- genai_config.json */

static void write_setting(const said *s, td_json_writer *w, const char *key, const char *theirs) {
    const td_json *v = setting(s, theirs);
    bool fits = v && (v->kind == TD_JSON_INT || v->kind == TD_JSON_ARRAY);
    if (!fits) return;
    td_json_key(w, key);
    td_json_write_value(w, v);
}

static void write_config(const said *s, td_json_writer *w) {
    const td_model *m = s->o->model;
    bool speech = m->n_encoder_layers > 0;
    td_output_begin_config(s->o, w, speech ? "encoder-decoder" : "autoregressive-decoder");
    if (speech) {
        td_json_key(w, "preprocessing");
        td_json_begin_object(w);
        td_json_key(w, "audio");
        td_json_begin_object(w);
        td_json_key(w, "config");
        td_json_write_text(w, "preprocessor_config.json");
        td_json_key(w, "format");
        td_json_write_text(w, "hf");
        td_json_end_object(w);
        td_json_end_object(w);
    }
    td_json_end_object(w);
    td_json_key(w, "tokens");
    td_json_begin_object(w);
    write_setting(s, w, "bos", "bos_token_id");
    write_setting(s, w, "eos", "eos_token_id");
    write_setting(s, w, "pad", "pad_token_id");
    if (speech) write_setting(s, w, "decoder_start", "decoder_start_token_id");
    td_json_end_object(w);
    td_json_key(w, "generation");
    td_json_begin_object(w);
    td_json_key(w, "context_length");
    td_json_write_int(w, m->context);
    td_json_key(w, "max_length");
    td_json_write_int(w, m->context);
    td_json_end_object(w);
    td_output_begin_metadata(s->o, w);
    td_json_key(w, "architecture");
    td_json_write_text(w, m->arch->name);
    td_json_end_object(w);
    td_json_end_object(w);
}

/* --- generation_config.json: the checkpoint's own, and for a speech recogniser what its prompts and timestamps need */

/* Writes "key": value unless the checkpoint's own file has the key. */
static void add_value(const said *s, td_json_writer *w, const char *key, const td_json *value) {
    if (!value || member(s->generation, key)) return;
    td_json_key(w, key);
    td_json_write_value(w, value);
}

static void add_int(const said *s, td_json_writer *w, const char *key, int64_t value) {
    if (value < 0 || member(s->generation, key)) return;
    td_json_key(w, key);
    td_json_write_int(w, value);
}

/* <|en|>, <|haw|>: two or three small letters. */
static bool is_language(td_str text) {
    if (text.n < 6 || text.n > 7 || !td_str_starts(text, TD_STR("<|")) || !td_str_ends(text, TD_STR("|>")))
        return false;
    for (size_t i = 2; i < text.n - 2; i++)
        if (text.p[i] < 'a' || text.p[i] > 'z') return false;
    return true;
}

static size_t write_languages(const said *s, td_json_writer *w) {
    const td_json *added = td_json_get(s->tokenizer, "added_tokens");
    size_t n = 0;
    for (const td_json *t = added && added->kind == TD_JSON_ARRAY ? added->first : NULL; t; t = t->next) {
        td_str text = td_json_string_or(t, "content", "");
        int64_t id = td_json_int_or(t, "id", -1);
        if (!is_language(text) || id < 0) continue;
        if (w && n == 0) {
            td_json_key(w, "lang_to_id");
            td_json_begin_object(w);
        }
        n++;
        if (!w) continue;
        td_json_key_str(w, text);
        td_json_write_int(w, id);
    }
    if (w && n) td_json_end_object(w);
    return n;
}

static void write_tasks(const said *s, td_json_writer *w) {
    int64_t transcribe = added_token(s, "<|transcribe|>"), translate = added_token(s, "<|translate|>");
    if (transcribe < 0 && translate < 0) return;
    td_json_key(w, "task_to_id");
    td_json_begin_object(w);
    if (transcribe >= 0) {
        td_json_key(w, "transcribe");
        td_json_write_int(w, transcribe);
    }
    if (translate >= 0) {
        td_json_key(w, "translate");
        td_json_write_int(w, translate);
    }
    td_json_end_object(w);
}

/* One language takes the models that are not multilingual; they have 51864 tokens, others 51865 and more. */
static bool is_multilingual(const said *s) {
    enum { ENGLISH_VOCABULARY = 51864 };
    const td_json *said_so = member(s->generation, "is_multilingual");
    if (said_so) return said_so->as_bool;
    return s->o->model->sizes[TD_SIZE_VOCAB] != ENGLISH_VOCABULARY && write_languages(s, NULL) > 0;
}

static void complete_speech(const said *s, td_json_writer *w) {
    bool multilingual = is_multilingual(s);
    int64_t no_speech = added_token(s, "<|nospeech|>");
    add_value(s, w, "decoder_start_token_id", member(s->hf->config, "decoder_start_token_id"));
    add_value(s, w, "eos_token_id", member(s->hf->config, "eos_token_id"));
    add_int(s, w, "max_length", s->o->model->context);
    add_value(s, w, "suppress_tokens", member(s->hf->config, "suppress_tokens"));
    add_value(s, w, "begin_suppress_tokens", member(s->hf->config, "begin_suppress_tokens"));
    if (!member(s->hf->config, "suppress_tokens"))
        add_value(s, w, "suppress_tokens", member(s->ctranslate, "suppress_ids"));
    if (!member(s->hf->config, "begin_suppress_tokens"))
        add_value(s, w, "begin_suppress_tokens", member(s->ctranslate, "suppress_ids_begin"));
    add_value(s, w, "alignment_heads", member(s->ctranslate, "alignment_heads"));
    add_int(s, w, "no_timestamps_token_id", added_token(s, "<|notimestamps|>"));
    add_int(s, w, "prev_sot_token_id", added_token(s, "<|startofprev|>"));
    add_int(s, w, "no_speech_token_id", no_speech >= 0 ? no_speech : added_token(s, "<|nocaptions|>"));
    if (!member(s->generation, "is_multilingual")) {
        td_json_key(w, "is_multilingual");
        td_json_write_bool(w, multilingual);
    }
    if (multilingual && !member(s->generation, "lang_to_id")) (void)write_languages(s, w);
    if (multilingual && !member(s->generation, "task_to_id")) write_tasks(s, w);
}

static void write_generation(const said *s, td_json_writer *w) {
    td_json_begin_object(w);
    for (const td_json *v = s->generation ? s->generation->first : NULL; v; v = v->next) {
        if (v->kind == TD_JSON_NULL) continue; /* unset, and may be set below */
        td_json_key_str(w, v->key);
        td_json_write_value(w, v);
    }
    if (s->o->model->n_encoder_layers > 0) complete_speech(s, w);
    td_json_end_object(w);
}

/* --- preprocessor_config.json: the checkpoint's own, else the log-mel front that its shapes say */

static void write_preprocessor(const said *s, td_json_writer *w) {
    enum { RATE_HZ = 16000, HOP = 160, WINDOW = 400 };
    const int64_t frames = 2 * s->o->model->sizes[TD_SIZE_ENCODER_CONTEXT];
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        {"feature_size", s->o->model->sizes[TD_SIZE_MELS]},
        {"sampling_rate", RATE_HZ},
        {"hop_length", HOP},
        {"n_fft", WINDOW},
        {"chunk_length", frames * HOP / RATE_HZ},
        {"n_samples", frames * HOP},
        {"nb_max_frames", frames},
    };
    td_json_begin_object(w);
    td_json_key(w, "feature_extractor_type");
    td_json_write_text(w, "WhisperFeatureExtractor");
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        td_json_key(w, rows[i].key);
        td_json_write_int(w, rows[i].value);
    }
    td_json_key(w, "padding_side");
    td_json_write_text(w, "right");
    td_json_key(w, "padding_value");
    td_json_write_double(w, 0);
    td_json_key(w, "return_attention_mask");
    td_json_write_bool(w, false);
    td_json_end_object(w);
}

/* --- all of them */

static treadle_status read_said(said *s, treadle_error *err) {
    TD_TRY(td_hf_json(s->hf, "generation_config.json", &s->generation, err));
    if (s->o->model->n_encoder_layers == 0) return TREADLE_OK;
    TD_TRY(td_hf_json(s->hf, "tokenizer.json", &s->tokenizer, err));
    TD_TRY(td_hf_json(s->hf, "preprocessor_config.json", &s->preprocessor, err));
    return td_hf_json(s->hf, "ct2/config.json", &s->ctranslate, err);
}

static treadle_status save_json(const said *s, const char *name, void (*write)(const said *, td_json_writer *),
                                td_buf *bytes, treadle_error *err) {
    td_json_writer w;
    td_buf_clear(bytes);
    td_json_writer_init(&w, bytes, 2);
    write(s, &w);
    return td_output_save(s->o, name, bytes, err);
}

treadle_status td_output_hf_files(const td_output *o, treadle_error *err) {
    said s = {.o = o, .hf = o->model->checkpoint->hf};
    bool speech = o->model->n_encoder_layers > 0, copied;
    td_buf bytes = {0};
    TD_TRY(read_said(&s, err));
    treadle_status status = save_json(&s, "genai_config.json", write_config, &bytes, err);
    if (status == TREADLE_OK && (speech || s.generation))
        status = save_json(&s, "generation_config.json", write_generation, &bytes, err);
    if (status == TREADLE_OK && s.preprocessor) status = copy_file(&s, "preprocessor_config.json", &copied, err);
    else if (status == TREADLE_OK && speech)
        status = save_json(&s, "preprocessor_config.json", write_preprocessor, &bytes, err);
    td_buf_free(&bytes);
    return status == TREADLE_OK ? copy_tokenizer(&s, err) : status;
}
