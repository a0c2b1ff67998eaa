/* compile/output.c - what all sources share, and the files made of the keys of a GGUF file. See output.h. */
#include "compile/output.h"

#include "base/log.h"
#include "compile/tokenizer.h"
#include "compile/vocab.h"

#include <stdio.h>

void td_output_note(const td_output *o, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (o->options->note) o->options->note(o->options->ctx, text);
    else td_log(TD_LOG_WARNING, "%s", text);
}

treadle_status td_output_save(const td_output *o, const char *name, td_buf *bytes, treadle_error *err) {
    char *path = td_folder_file(o->folder, name);
    td_buf_char(bytes, '\n');
    if (bytes->failed || !path) return td_fail_memory(err, name, bytes->n);
    return td_file_write(path, bytes->p, bytes->n, err);
}

void td_output_begin_config(const td_output *o, td_json_writer *w, const char *preset) {
    const td_arch *arch = o->model->arch;
    td_json_begin_object(w);
    td_json_key(w, "version");
    td_json_write_int(w, 2);
    td_json_key(w, "pipeline");
    td_json_begin_object(w);
    td_json_key(w, "extends");
    td_json_write_text(w, preset);
    if (o->options->single_file) return; /* the file is its own session, whatever its name */
    td_json_key(w, "sessions");
    td_json_begin_object(w);
    for (size_t i = 0; i < arch->n_graphs; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.onnx", arch->graphs[i].file);
        /* a graph on its own is the decoder */
        td_json_key(w, arch->n_graphs == 1 ? "decoder" : arch->graphs[i].file);
        td_json_begin_object(w);
        td_json_key(w, "file");
        td_json_write_text(w, file);
        td_json_end_object(w);
    }
    td_json_end_object(w);
}

void td_output_begin_metadata(const td_output *o, td_json_writer *w) {
    td_json_key(w, "metadata");
    td_json_begin_object(w);
    td_json_key(w, "producer");
    td_json_write_text(w, TD_PRODUCER);
    td_json_key(w, "source");
    td_json_write_text(w, td_path_base(o->options->source));
}

static void write_id(td_json_writer *w, const char *key, int64_t id) {
    if (id < 0) return;
    td_json_key(w, key);
    td_json_write_int(w, id);
}

/* Sampling defaults that newer files carry. */
static treadle_status write_sampling(const td_output *o, td_json_writer *w, treadle_error *err) {
    static const struct {
        const char *key, *name;
        bool integer;
    } rows[] = {
        {"general.sampling.temp", "temperature", false},
        {"general.sampling.top_k", "top_k", true},
        {"general.sampling.top_p", "top_p", false},
        {"general.sampling.min_p", "min_p", false},
        {"general.sampling.penalty_repeat", "repetition_penalty", false},
    };
    bool any = false;
    for (size_t i = 0; i < TD_COUNT(rows); i++) any |= td_gguf_find(o->model->checkpoint->gguf, rows[i].key) != NULL;
    if (!any) return TREADLE_OK;
    td_json_key(w, "sampling");
    td_json_begin_object(w);
    td_json_key(w, "do_sample");
    td_json_write_bool(w, true);
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        double value;
        if (!td_gguf_find(o->model->checkpoint->gguf, rows[i].key)) continue;
        TD_TRY(td_gguf_get_double(o->model->checkpoint->gguf, rows[i].key, 0, &value, err));
        if (!(value >= 0) || value > 1e6) continue; /* negative: off */
        td_json_key(w, rows[i].name);
        if (rows[i].integer) td_json_write_int(w, (int64_t)value);
        else td_json_write_double(w, (double)(float)value);
    }
    td_json_end_object(w);
    return TREADLE_OK;
}

static void write_metadata(const td_output *o, td_json_writer *w) {
    static const struct {
        const char *key, *name;
    } rows[] = {{"general.architecture", "architecture"},
                {"general.name", "name"},
                {"general.license", "license"},
                {"general.size_label", "size"}};
    td_output_begin_metadata(o, w);
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_gguf_value *v = td_gguf_find(o->model->checkpoint->gguf, rows[i].key);
        if (!v || v->type != TD_GGUF_STRING) continue;
        td_json_key(w, rows[i].name);
        td_json_write_string(w, v->text);
    }
    td_json_end_object(w);
}

static treadle_status write_config(const td_output *o, const td_vocab *v, td_json_writer *w, treadle_error *err) {
    td_output_begin_config(o, w, "autoregressive-decoder");
    td_json_end_object(w);
    td_json_key(w, "tokens");
    td_json_begin_object(w);
    write_id(w, "bos", v->bos);
    td_json_key(w, "eos");
    td_json_begin_array(w);
    for (size_t i = 0; i < v->n_eog; i++) td_json_write_int(w, v->eog[i]);
    td_json_end_array(w);
    write_id(w, "pad", v->pad);
    td_json_end_object(w);
    td_json_key(w, "generation");
    td_json_begin_object(w);
    td_json_key(w, "context_length");
    td_json_write_int(w, o->model->context);
    td_json_key(w, "max_length");
    td_json_write_int(w, o->model->context);
    TD_TRY(write_sampling(o, w, err));
    td_json_end_object(w);
    write_metadata(o, w);
    td_json_end_object(w);
    return TREADLE_OK;
}

/* --- tokenizer_config.json */

static void write_token_text(const td_vocab *v, td_json_writer *w, const char *key, int64_t id) {
    if (id < 0) return;
    td_json_key(w, key);
    td_json_write_string(w, td_vocab_text(v, id));
}

/* One template is a string; named ones beside it (tokenizer.chat_template.NAME) make a list of both. */
static void write_templates(const td_gguf *g, td_json_writer *w) {
    const td_str prefix = TD_STR("tokenizer.chat_template.");
    const td_gguf_value *main = td_gguf_find(g, "tokenizer.chat_template");
    size_t named = 0;
    for (size_t i = 0; i < g->n_values; i++)
        named += td_str_starts(g->values[i].key, prefix) && g->values[i].type == TD_GGUF_STRING;
    bool has_main = main && main->type == TD_GGUF_STRING;
    if (!has_main && named == 0) return;
    td_json_key(w, "chat_template");
    if (named == 0) {
        td_json_write_string(w, main->text);
        return;
    }
    td_json_begin_array(w);
    for (size_t i = 0; i < g->n_values; i++) {
        const td_gguf_value *v = &g->values[i];
        bool is_main = has_main && v == main;
        if (!is_main && (!td_str_starts(v->key, prefix) || v->type != TD_GGUF_STRING)) continue;
        td_json_begin_object(w);
        td_json_key(w, "name");
        td_json_write_string(w, is_main ? TD_STR("default") : (td_str){v->key.p + prefix.n, v->key.n - prefix.n});
        td_json_key(w, "template");
        td_json_write_string(w, v->text);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

static void write_tokenizer_config(const td_output *o, const td_vocab *v, td_json_writer *w) {
    td_json_begin_object(w);
    td_json_key(w, "tokenizer_class");
    td_json_write_text(w, "PreTrainedTokenizerFast");
    write_token_text(v, w, "bos_token", v->bos);
    write_token_text(v, w, "eos_token", v->eos);
    write_token_text(v, w, "unk_token", v->unk);
    write_token_text(v, w, "pad_token", v->pad);
    td_json_key(w, "add_bos_token");
    td_json_write_bool(w, v->add_bos);
    td_json_key(w, "add_eos_token");
    td_json_write_bool(w, v->add_eos);
    td_json_key(w, "clean_up_tokenization_spaces");
    td_json_write_bool(w, false);
    td_json_key(w, "model_max_length");
    td_json_write_int(w, o->model->context);
    write_templates(o->model->checkpoint->gguf, w);
    td_json_end_object(w);
}

/* --- all of them */

static treadle_status save_config(const td_output *o, const td_vocab *v, td_buf *bytes, treadle_error *err) {
    td_json_writer w;
    td_json_writer_init(&w, bytes, 2);
    TD_TRY(write_config(o, v, &w, err));
    return td_output_save(o, "genai_config.json", bytes, err);
}

static treadle_status save_tokenizer(const td_output *o, const td_vocab *v, td_buf *bytes, treadle_error *err) {
    if (v->kind == TD_VOCAB_NONE) {
        td_output_note(o, "the file has no vocabulary: the model runs by token ids only");
        return TREADLE_OK;
    }
    if (v->kind == TD_VOCAB_OTHER) {
        td_output_note(o, "the vocabulary is of type '%.*s' (known: gpt2, llama): the model runs by token ids only",
                       (int)TD_MIN(v->model.n, 100), v->model.p);
        return TREADLE_OK;
    }
    if (v->kind == TD_VOCAB_BPE && !v->pre_known)
        td_output_note(o, "pre-tokenizer '%.*s' is not known; 'default' is used and some texts may be cut differently",
                       (int)TD_MIN(v->pre.n, 100), v->pre.n ? v->pre.p : "");
    if (v->n > (uint64_t)o->model->sizes[TD_SIZE_VOCAB])
        td_output_note(o, "the vocabulary has %zu tokens, the model only %lld", v->n,
                       (long long)o->model->sizes[TD_SIZE_VOCAB]);
    TD_TRY(td_tokenizer_write(v, bytes, err));
    return td_output_save(o, "tokenizer.json", bytes, err);
}

static treadle_status save_tokenizer_config(const td_output *o, const td_vocab *v, td_buf *bytes, treadle_error *err) {
    td_json_writer w;
    td_json_writer_init(&w, bytes, 2);
    write_tokenizer_config(o, v, &w);
    return td_output_save(o, "tokenizer_config.json", bytes, err);
}

static treadle_status gguf_files(const td_output *o, treadle_error *err) {
    static treadle_status (*const steps[])(const td_output *, const td_vocab *, td_buf *,
                                           treadle_error *) = {save_config, save_tokenizer, save_tokenizer_config};
    td_vocab vocab;
    td_buf bytes = {0};
    TD_TRY(td_vocab_read(o->model->checkpoint->gguf, o->arena, &vocab, err));
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < TD_COUNT(steps) && status == TREADLE_OK; i++) {
        td_buf_clear(&bytes);
        status = steps[i](o, &vocab, &bytes, err);
    }
    td_buf_free(&bytes);
    td_vocab_discard(&vocab);
    return status;
}

treadle_status td_output_text_files(const td_output *o, treadle_error *err) {
    return o->model->checkpoint->gguf ? gguf_files(o, err) : td_output_hf_files(o, err);
}
