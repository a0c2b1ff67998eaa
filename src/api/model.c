/* api/model.c - folders: open, check, explain, inspect. */
#include "api/api.h"

#include "base/alloc.h"

struct treadle_report {
    treadle_model *model; /* looked at, not opened: it owns the messages */
};

void treadle_model_options_init(treadle_model_options *options) {
    *options = (treadle_model_options){.struct_size = sizeof *options};
}

static treadle_status read_options(const treadle_model_options *options, treadle_model_options *out,
                                   treadle_error *error) {
    treadle_model_options_init(out);
    TD_TRY(td_api_options(options, out, sizeof *out, "treadle_model_options_init", error));
    TD_TRY(td_api_engine_options(out->engine, out->n_threads, out->activations, error));
    for (size_t i = 0; i < out->n_settings; i++)
        if (!out->settings || !out->settings[i].pointer || !out->settings[i].value)
            return td_fail(error, TREADLE_INVALID_ARGUMENT, "setting %zu has no pointer or no value", i);
    TD_TRY(td_api_names(out->provider_libraries, out->n_provider_libraries, "provider_libraries", error));
    return td_api_names(out->plugin_dirs, out->n_plugin_dirs, "plugin_dirs", error);
}

treadle_status treadle_model_open(const char *path, const treadle_model_options *options, treadle_model **out,
                                  treadle_error *error) {
    treadle_model_options o;
    TD_NEED(path);
    TD_NEED(out);
    TD_TRY(read_options(options, &o, error));
    return td_model_open(path, &o, out, error);
}

void treadle_model_close(treadle_model *model) { td_model_close(model); }

void treadle_model_get_info(const treadle_model *model, treadle_model_info *out) {
    if (!model || !out) return;
    const td_plan *plan = model->plan;
    const td_config *config = model->config;
    treadle_model_info info = {
        .vocab_size = plan->vocab,
        .context_length = plan->context_length,
        .max_length = plan->max_length,
        .n_sessions = (int32_t)plan->n_sessions,
        .has_tokenizer = td_text_part_has_tokenizer(model->text),
        .has_chat_template = td_text_part_has_template(model->text),
        .has_logits = !plan->cannot_run,
        .rewinds = !plan->transducer.present,
        .transduces = plan->transducer.present,
        .transcribes = config->generation.transcription.declared,
        .prompt_logits = plan->logits_rank == 3 && !plan->logits_last_only,
        .eos = config->tokens.eos.ids,
        .n_eos = config->tokens.eos.n,
        .bos = config->tokens.bos,
        .do_sample = config->generation.sampling.do_sample,
    };
    size_t size = out->struct_size;
    info.struct_size = size;
    memcpy(out, &info, TD_MIN(size, sizeof info));
}

static treadle_status write_engines(const treadle_model_options *o, td_json_writer *w, treadle_error *error) {
    td_engine_options options = {
        .library = o->ort_library,
        .provider_libraries = o->provider_libraries,
        .n_provider_libraries = o->n_provider_libraries,
    };
    td_json_begin_array(w);
    for (size_t i = 0; i < td_engine_count(); i++) {
        const td_engine *engine = td_engine_at(i);
        treadle_error why = {0};
        td_json_begin_object(w);
        td_json_key(w, "engine");
        td_json_write_text(w, engine->name);
        treadle_status status = engine->describe(&options, w, &why);
        if (status == TREADLE_OUT_OF_MEMORY) return td_fail_memory(error, "a list of engines", 0);
        if (status != TREADLE_OK) {
            char text[sizeof why];
            treadle_error_format(&why, text, sizeof text);
            td_json_key(w, "error");
            td_json_write_text(w, text);
        }
        td_json_end_object(w);
    }
    td_json_end_array(w);
    return TREADLE_OK;
}

treadle_status treadle_engines_list(const treadle_model_options *options, char **out_json, treadle_error *error) {
    treadle_model_options o;
    TD_NEED(out_json);
    TD_TRY(read_options(options, &o, error));
    td_buf text = {0};
    td_json_writer w;
    td_json_writer_init(&w, &text, 1);
    treadle_status status = write_engines(&o, &w, error);
    if (status == TREADLE_OK) return td_api_take_text(&text, out_json, NULL, error);
    td_buf_free(&text);
    return status;
}

const treadle_text *treadle_model_text(const treadle_model *model) { return model ? model->text : NULL; }

/* graphs: look for what they lack too. */
static treadle_status check(const char *path, const treadle_model_options *options, bool graphs, treadle_report **out,
                            treadle_error *error) {
    treadle_model_options o;
    TD_NEED(path);
    TD_NEED(out);
    TD_TRY(read_options(options, &o, error));
    treadle_report *report = td_alloc_zero(1, sizeof *report);
    if (!report) return td_fail_memory(error, "a report", sizeof *report);
    treadle_status status = td_model_examine(path, &o, &report->model, error);
    if (status == TREADLE_OK && graphs) status = td_model_check_graphs(report->model, error);
    if (status != TREADLE_OK) {
        treadle_report_free(report);
        return status;
    }
    *out = report;
    return TREADLE_OK;
}

treadle_status treadle_model_check(const char *path, const treadle_model_options *options, treadle_report **out,
                                   treadle_error *error) {
    return check(path, options, true, out, error);
}

void treadle_report_free(treadle_report *report) {
    if (!report) return;
    td_model_close(report->model);
    td_free(report);
}

size_t treadle_report_count(const treadle_report *report) { return report ? report->model->messages.list.n : 0; }

size_t treadle_report_errors(const treadle_report *report) { return report ? report->model->messages.n_errors : 0; }

void treadle_report_get(const treadle_report *report, size_t index, treadle_message *out) {
    if (!out) return;
    *out = (treadle_message){.file = "", .pointer = "", .message = ""};
    if (index >= treadle_report_count(report)) return;
    const td_message *m = &report->model->messages.list.items[index];
    *out = (treadle_message){
        .level = m->level,
        .file = m->place.file ? m->place.file : "",
        .pointer = m->place.pointer ? m->place.pointer : "",
        .line = m->place.line,
        .column = m->place.column,
        .message = m->text,
    };
}

static void write_message(const treadle_message *m, td_json_writer *w) {
    static const char *const levels[] = {"error", "warning", "note"};
    td_json_begin_object(w);
    td_json_key(w, "level");
    td_json_write_text(w, levels[m->level]);
    td_json_key(w, "file");
    td_json_write_text(w, m->file);
    td_json_key(w, "pointer");
    td_json_write_text(w, m->pointer);
    td_json_key(w, "line");
    td_json_write_int(w, m->line);
    td_json_key(w, "column");
    td_json_write_int(w, m->column);
    td_json_key(w, "message");
    td_json_write_text(w, m->message);
    td_json_end_object(w);
}

treadle_status treadle_report_json(const treadle_report *report, char **out_json, treadle_error *error) {
    TD_NEED(report);
    TD_NEED(out_json);
    td_buf text = {0};
    td_json_writer w;
    td_json_writer_init(&w, &text, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "messages");
    td_json_begin_array(&w);
    for (size_t i = 0; i < treadle_report_count(report); i++) {
        treadle_message m;
        treadle_report_get(report, i, &m);
        write_message(&m, &w);
    }
    td_json_end_array(&w);
    td_json_end_object(&w);
    return td_api_take_text(&text, out_json, NULL, error);
}

/* A folder with errors has nothing true to explain. */
static treadle_status examine(const char *path, const treadle_model_options *options, treadle_model **out,
                              treadle_error *error) {
    treadle_model_options o;
    TD_TRY(read_options(options, &o, error));
    TD_TRY(td_model_examine(path, &o, out, error));
    treadle_status status = td_messages_status(&(*out)->messages, error);
    if (status == TREADLE_OK) return TREADLE_OK;
    td_model_close(*out);
    *out = NULL;
    return status;
}

treadle_status treadle_model_explain(const char *path, const treadle_model_options *options, bool json, char **out,
                                     treadle_error *error) {
    treadle_model *model = NULL;
    td_buf text = {0};
    TD_NEED(path);
    TD_NEED(out);
    TD_TRY(examine(path, options, &model, error));
    td_model_explain(model, json, &text);
    td_model_close(model);
    return td_api_take_text(&text, out, NULL, error);
}

treadle_status treadle_model_convert_config(const char *path, const treadle_model_options *options, char **out_json,
                                            treadle_report **out_report, treadle_error *error) {
    treadle_report *report = NULL;
    td_buf text = {0};
    TD_NEED(out_json);
    TD_TRY(check(path, options, false, &report, error));
    bool readable = !report->model->config->file || report->model->config->version > 0;
    treadle_status status =
        readable ? td_model_convert(report->model, &text, error) : td_messages_status(&report->model->messages, error);
    if (status == TREADLE_OK) status = td_api_take_text(&text, out_json, NULL, error);
    else td_buf_free(&text);
    if (status == TREADLE_OK && out_report) *out_report = report;
    else treadle_report_free(report);
    return status;
}

treadle_status treadle_model_inspect(const char *path, const treadle_model_options *options, int64_t context_length,
                                     bool json, char **out, treadle_error *error) {
    treadle_model *model = NULL;
    td_buf text = {0};
    TD_NEED(path);
    TD_NEED(out);
    if (context_length < 0)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected a context_length of at least 0, found %lld",
                       (long long)context_length);
    TD_TRY(examine(path, options, &model, error));
    treadle_status status = td_model_inspect(model, context_length, json, &text, error);
    td_model_close(model);
    if (status == TREADLE_OK) return td_api_take_text(&text, out, NULL, error);
    td_buf_free(&text);
    return status;
}
