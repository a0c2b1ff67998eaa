/* api/session.c - one ONNX file on named tensors. */
#include "api/session.h"

#include "base/alloc.h"
#include "light/op.h"

void treadle_session_options_init(treadle_session_options *options) {
    *options = (treadle_session_options){.struct_size = sizeof *options};
}

static bool copy_port(td_arena *arena, const td_light_port *from, treadle_port *to) {
    *to = (treadle_port){.dtype = (treadle_dtype)from->dtype, .rank = from->shape.rank, .optional = from->optional};
    bool tensor = from->kind == TD_ONNX_TYPE_TENSOR || from->kind == TD_ONNX_TYPE_OPTIONAL;
    to->kind = tensor                                ? TREADLE_VALUE_TENSOR
               : from->kind == TD_ONNX_TYPE_SEQUENCE ? TREADLE_VALUE_SEQUENCE
                                                     : TREADLE_VALUE_NONE;
    to->name = td_arena_strndup(arena, from->name.p ? from->name.p : "", from->name.n);
    bool ok = to->name != NULL;
    for (int i = 0; i < TREADLE_MAX_RANK; i++) {
        to->dim_names[i] = "";
        if (i >= from->shape.rank) continue;
        to->dims[i] = from->shape.dims[i] < 0 ? -1 : from->shape.dims[i];
        if (from->dim_names[i].n)
            to->dim_names[i] = td_arena_strndup(arena, from->dim_names[i].p, from->dim_names[i].n);
        ok = ok && to->dim_names[i];
    }
    return ok;
}

/* A JSON object of the caller's, kept with the session. */
static treadle_status read_object(treadle_session *s, const char *text, const char *what, const td_json **out,
                                  treadle_error *error) {
    td_json *root;
    *out = NULL;
    if (!text || !text[0]) return TREADLE_OK;
    td_str own = td_arena_str(&s->arena, td_str_from(text));
    if (!own.p) return td_fail_memory(error, what, strlen(text));
    treadle_status status = td_json_parse(own, NULL, &s->arena, &root, error);
    if (status != TREADLE_OK) {
        td_error_context(error, "%s", what);
        return status;
    }
    if (root->kind != TD_JSON_OBJECT)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "%s: expected an object, found %s", what,
                       td_json_kind_name(root->kind));
    *out = root;
    return TREADLE_OK;
}

static treadle_status open_engine(treadle_session *s, const char *path, const treadle_session_options *o,
                                  treadle_error *error) {
    td_engine_options base = {
        .engine = o->engine,
        .n_threads = o->n_threads,
        .no_passes = o->no_passes,
        .profile = o->profile,
        .skip_passes = o->skip_passes,
        .activations = (td_activations)o->activations,
        .pack_dir = o->pack_dir,
        .library = o->ort_library,
        .provider_libraries = o->provider_libraries,
        .n_provider_libraries = o->n_provider_libraries,
    };
    td_engine_options options;
    td_engine_wish wish = {.provider = td_arena_str(&s->arena, td_str_from(o->provider))};
    if (o->provider && !wish.provider.p) return td_fail_memory(error, "a name", strlen(o->provider));
    TD_TRY(read_object(s, o->provider_options, "provider_options", &wish.provider_options, error));
    TD_TRY(read_object(s, o->session_options, "session_options", &wish.session_options, error));
    TD_TRY(read_object(s, o->run_options, "run_options", &wish.run_options, error));
    TD_TRY(td_engine_for_session(&base, &wish, &s->engine, &options, error));
    treadle_status status = td_signature_open(path, &s->signature, error);
    if (status == TREADLE_OK) status = s->engine->open(path, &options, &s->session, error);
    if (status != TREADLE_OK) td_error_file(error, path);
    return status;
}

static treadle_status copy_ports(treadle_session *s, treadle_error *error) {
    const td_signature *signature = s->signature;
    s->n_inputs = signature->n_inputs;
    s->n_outputs = signature->n_outputs;
    s->inputs = TD_ARENA_ARRAY(&s->arena, treadle_port, s->n_inputs);
    s->outputs = TD_ARENA_ARRAY(&s->arena, treadle_port, s->n_outputs);
    bool ok = s->inputs && s->outputs;
    for (size_t i = 0; ok && i < s->n_inputs; i++) ok = copy_port(&s->arena, &signature->inputs[i], &s->inputs[i]);
    for (size_t i = 0; ok && i < s->n_outputs; i++) ok = copy_port(&s->arena, &signature->outputs[i], &s->outputs[i]);
    return ok ? TREADLE_OK : td_fail_memory(error, "a session", 0);
}

treadle_status treadle_session_open(const char *path, const treadle_session_options *options, treadle_session **out,
                                    treadle_error *error) {
    TD_NEED(path);
    TD_NEED(out);
    treadle_session_options o;
    treadle_session_options_init(&o);
    TD_TRY(td_api_options(options, &o, sizeof o, "treadle_session_options_init", error));
    TD_TRY(td_api_engine_options(o.engine, o.n_threads, o.activations, error));
    TD_TRY(td_api_names(o.provider_libraries, o.n_provider_libraries, "provider_libraries", error));
    treadle_session *s = td_alloc_zero(1, sizeof *s);
    if (!s) return td_fail_memory(error, "a session", sizeof *s);
    td_arena_init(&s->arena);
    pthread_mutex_init(&s->lock, NULL);
    treadle_status status = open_engine(s, path, &o, error);
    if (status == TREADLE_OK) status = copy_ports(s, error);
    if (status != TREADLE_OK) {
        treadle_session_close(s);
        return status;
    }
    *out = s;
    return TREADLE_OK;
}

void treadle_session_close(treadle_session *s) {
    if (!s) return;
    if (s->idle) s->engine->ctx_free(s->idle);
    if (s->session) s->engine->close(s->session);
    td_signature_close(s->signature);
    pthread_mutex_destroy(&s->lock);
    td_arena_free(&s->arena);
    td_free(s);
}

size_t treadle_session_n_inputs(const treadle_session *session) { return session ? session->n_inputs : 0; }

size_t treadle_session_n_outputs(const treadle_session *session) { return session ? session->n_outputs : 0; }

void treadle_session_input(const treadle_session *session, size_t index, treadle_port *out) {
    if (!out) return;
    *out = index < treadle_session_n_inputs(session) ? session->inputs[index] : (treadle_port){.name = ""};
}

void treadle_session_output(const treadle_session *session, size_t index, treadle_port *out) {
    if (!out) return;
    *out = index < treadle_session_n_outputs(session) ? session->outputs[index] : (treadle_port){.name = ""};
}

static treadle_status take_context(treadle_session *s, td_session_ctx **out, treadle_error *error) {
    pthread_mutex_lock(&s->lock);
    *out = s->idle;
    s->idle = NULL;
    pthread_mutex_unlock(&s->lock);
    return *out ? TREADLE_OK : s->engine->ctx_new(s->session, out, error);
}

static void give_back(treadle_session *s, td_session_ctx *ctx) {
    pthread_mutex_lock(&s->lock);
    td_session_ctx *old = s->idle;
    s->idle = ctx;
    pthread_mutex_unlock(&s->lock);
    if (old) s->engine->ctx_free(old);
}

static treadle_status copy_outputs(const td_value *from, size_t n, treadle_value **to, treadle_error *error) {
    for (size_t i = 0; i < n; i++) {
        td_value own;
        size_t bytes = 0;
        if (from[i].kind == TD_VALUE_TENSOR) (void)td_tensor_bytes(&from[i].tensor, &bytes);
        treadle_status status = td_value_copy(&own, &from[i]) ? td_api_value_take(&own, &to[i], error)
                                                              : td_fail_memory(error, "an output", bytes);
        if (status == TREADLE_OK) continue;
        while (i-- > 0) treadle_value_release(to[i]);
        return status;
    }
    return TREADLE_OK;
}

treadle_status treadle_session_run(treadle_session *s, const treadle_value *const *inputs, treadle_value **outputs,
                                   treadle_error *error) {
    TD_NEED(s);
    if (s->n_inputs) TD_NEED(inputs);
    if (s->n_outputs) TD_NEED(outputs);
    td_session_ctx *ctx = NULL;
    td_value *in = td_alloc_zero(s->n_inputs + s->n_outputs, sizeof *in);
    treadle_value **made = td_alloc_zero(s->n_outputs, sizeof *made);
    treadle_status status = in && made ? take_context(s, &ctx, error) : td_fail_memory(error, "bindings", 0);
    if (status == TREADLE_OK) {
        td_value *out = in + s->n_inputs;
        for (size_t i = 0; i < s->n_inputs; i++)
            if (inputs[i]) in[i] = inputs[i]->value;
        status = s->engine->run(ctx, in, out, NULL, error);
        if (status == TREADLE_OK) status = copy_outputs(out, s->n_outputs, made, error);
    }
    if (status == TREADLE_OK)
        for (size_t i = 0; i < s->n_outputs; i++) outputs[i] = made[i];
    if (ctx) give_back(s, ctx);
    td_free(in);
    td_free(made);
    return status;
}

treadle_status treadle_session_profile(treadle_session *s, bool by_op, char **out, treadle_error *error) {
    TD_NEED(s);
    TD_NEED(out);
    td_buf text = {0};
    pthread_mutex_lock(&s->lock);
    if (s->idle) s->engine->profile(s->idle, by_op, &text);
    pthread_mutex_unlock(&s->lock);
    return td_api_take_text(&text, out, NULL, error);
}

treadle_status treadle_file_inspect(const char *path, char **out_json, treadle_error *error) {
    TD_NEED(path);
    TD_NEED(out_json);
    td_signature *signature = NULL;
    td_buf text = {0};
    td_json_writer w;
    treadle_status status = td_signature_open(path, &signature, error);
    if (status != TREADLE_OK) {
        td_error_file(error, path);
        return status;
    }
    td_json_writer_init(&w, &text, 1);
    td_json_begin_object(&w);
    td_json_key(&w, "file");
    td_json_write_text(&w, path);
    status = td_inspect_file(signature, &w, error);
    td_json_end_object(&w);
    td_signature_close(signature);
    if (status == TREADLE_OK) return td_api_take_text(&text, out_json, NULL, error);
    td_buf_free(&text);
    return status;
}

treadle_status treadle_ops_list(char **out_json, treadle_error *error) {
    TD_NEED(out_json);
    td_buf text = {0};
    td_json_writer w;
    td_json_writer_init(&w, &text, 0);
    td_json_begin_array(&w);
    for (size_t i = 0; i < td_op_count(); i++) {
        const td_op *op = td_op_at(i);
        td_json_begin_object(&w);
        td_json_key(&w, "domain");
        td_json_write_text(&w, op->domain[0] ? op->domain : "ai.onnx");
        td_json_key(&w, "op");
        td_json_write_text(&w, op->name);
        td_json_key(&w, "since_version");
        td_json_write_int(&w, op->since);
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    return td_api_take_text(&text, out_json, NULL, error);
}
