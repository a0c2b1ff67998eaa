/* plugin/plugin.c - see plugin.h. */
#include "plugin/plugin.h"

#include "base/alloc.h"
#include "tensor/public.h"
#include "treadle/plugin.h"

#include <dlfcn.h>
#include <stdio.h>

struct treadle_plugin_model {
    const td_runtime *runtime;
    const char *config;
};

struct treadle_plugin_run {
    td_exec *exec;
    const td_exec_row *row; /* NULL: before its first tokens */
};

struct td_plugin {
    void *library;
    treadle_plugin table; /* as much as the plugin filled, the rest zero */
    treadle_plugin_model model;
    void *opened; /* what the plugin's open gave */
    td_exec_hook hook;
};

/* --- the host's table */

static treadle_status host_fail(treadle_error *error, treadle_status code, const char *message) {
    return td_fail(error, code == TREADLE_OK ? TREADLE_RUN : code, "%s", message ? message : "no reason given");
}

static const td_plan_session *session_of(const treadle_plugin_model *model, int32_t session) {
    const td_plan *plan = model->runtime->plan;
    return session >= 0 && (size_t)session < plan->n_sessions ? &plan->sessions[session] : NULL;
}

static int32_t host_find_session(const treadle_plugin_model *model, const char *name) {
    return td_plan_find_session(model->runtime->plan, td_str_from(name));
}

static int32_t host_find_input(const treadle_plugin_model *model, int32_t session, const char *name) {
    const td_plan_session *s = session_of(model, session);
    return s ? td_plan_input_index(s, td_str_from(name)) : -1;
}

static int32_t host_find_output(const treadle_plugin_model *model, int32_t session, const char *name) {
    const td_plan_session *s = session_of(model, session);
    return s ? td_plan_output_index(s, td_str_from(name)) : -1;
}

static int32_t host_n_inputs(const treadle_plugin_model *model, int32_t session) {
    const td_plan_session *s = session_of(model, session);
    return s ? (int32_t)s->signature->n_inputs : 0;
}

static int32_t host_n_outputs(const treadle_plugin_model *model, int32_t session) {
    const td_plan_session *s = session_of(model, session);
    return s ? (int32_t)s->signature->n_outputs : 0;
}

static const char *host_config(const treadle_plugin_model *model) { return model->config; }

static treadle_status host_run(treadle_plugin_run *run, int32_t session, const treadle_tensor *inputs,
                               treadle_tensor *outputs, const bool *skip, treadle_error *error) {
    td_exec *e = run->exec;
    size_t bytes;
    if (session < 0 || (size_t)session >= e->plan->n_sessions)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected a session below %zu, found %d", e->plan->n_sessions,
                       session);
    const td_signature *sig = e->plan->sessions[session].signature;
    for (size_t i = 0; i < sig->n_inputs; i++) {
        td_value *value = &e->inputs[session][i];
        *value = (td_value){0};
        if (inputs[i].dtype == TREADLE_DTYPE_UNDEFINED) continue;
        value->kind = TD_VALUE_TENSOR;
        if (!inputs[i].data || td_tensor_from_public(&inputs[i], &value->tensor, &bytes, NULL) != TREADLE_OK)
            return td_fail(error, TREADLE_INVALID_ARGUMENT,
                           "the plugin's tensor for input \"%.*s\" has no shape or no data",
                           TD_STR_ARGS(sig->inputs[i].name));
    }
    for (size_t o = 0; o < sig->n_outputs; o++) {
        e->outputs[session][o] = (td_value){0};
        e->skip[session][o] = skip && skip[o];
        outputs[o] = (treadle_tensor){0};
    }
    TD_TRY(td_exec_call(e, session, error));
    for (size_t o = 0; o < sig->n_outputs; o++) {
        const td_value *value = &e->outputs[session][o];
        if (value->kind != TD_VALUE_TENSOR) continue;
        if (!td_tensor_is_dense(&value->tensor))
            return td_fail(error, TREADLE_INTERNAL, "output \"%.*s\" is not dense", TD_STR_ARGS(sig->outputs[o].name));
        td_tensor_to_public(&value->tensor, &outputs[o]);
    }
    return TREADLE_OK;
}

static bool host_request(const treadle_plugin_run *run, const char *name, treadle_tensor *out) {
    const td_plan *plan = run->exec->plan;
    for (size_t i = 0; run->row && run->row->requests && i < plan->n_requests; i++) {
        const td_value *value = &run->row->requests[i];
        if (value->kind != TD_VALUE_TENSOR || !td_str_is(plan->requests[i].name, name)) continue;
        td_tensor_to_public(&value->tensor, out);
        return true;
    }
    return false;
}

static const treadle_plugin_host host_table = {
    .size = sizeof(treadle_plugin_host),
    .version = TREADLE_PLUGIN_VERSION,
    .fail = host_fail,
    .find_session = host_find_session,
    .find_input = host_find_input,
    .find_output = host_find_output,
    .n_inputs = host_n_inputs,
    .n_outputs = host_n_outputs,
    .config = host_config,
    .run = host_run,
    .request = host_request,
};

/* --- the hook */

static treadle_status with_reason(treadle_status status, treadle_error *err) {
    if (status == TREADLE_OK) return status;
    if (strcmp(treadle_status_text(status), treadle_status_text((treadle_status)-1)) == 0) status = TREADLE_RUN;
    if (err && (!err->message[0] || err->code == TREADLE_OK)) (void)td_fail(err, status, "failed without a reason");
    return status;
}

/* Where a failure was, also one without a reason. */
static treadle_status named(const td_plugin *p, treadle_status status, treadle_error *err) {
    if (status == TREADLE_OK) return status;
    status = with_reason(status, err);
    td_error_context(err, "plugin \"%s\"", p->table.name ? p->table.name : "");
    return status;
}

static treadle_status hook_begin(void *self, td_exec *exec, size_t row, void **out, treadle_error *err) {
    td_plugin *p = self;
    treadle_plugin_run run = {.exec = exec};
    void *data = NULL; /* what a begin that fails leaves there is not the host's */
    (void)row;
    *out = NULL;
    TD_TRY(named(p, p->table.begin(p->opened, &run, &data, err), err));
    *out = data;
    return data ? TREADLE_OK : named(p, td_fail(err, TREADLE_RUN, "begin gave no row"), err);
}

static void hook_end(void *self, void *data) { ((td_plugin *)self)->table.end(data); }

static treadle_status hook_forward(void *self, void *data, td_exec *exec, size_t row, const td_exec_row *tokens,
                                   int64_t n_done, const float **out_logits, size_t *out_n, treadle_error *err) {
    td_plugin *p = self;
    treadle_plugin_run run = {.exec = exec, .row = tokens};
    (void)row;
    exec->run_number++;
    return named(
        p, p->table.forward(data, &run, tokens->ids, (size_t)tokens->n_ids, (size_t)n_done, out_logits, out_n, err),
        err);
}

static bool hook_rewind(void *self, void *data, int64_t length) {
    td_plugin *p = self;
    return p->table.rewind && p->table.rewind(data, (size_t)length, NULL) == TREADLE_OK;
}

/* --- opening */

static treadle_status load(td_plugin *p, const char *path, const char *entry_point, treadle_error *err) {
    p->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!p->library) {
        const char *why = dlerror();
        return td_fail(err, TREADLE_NOT_FOUND, "the plugin cannot be loaded: %s", why ? why : "no reason given");
    }
    void *symbol = dlsym(p->library, entry_point);
    if (!symbol) return td_fail(err, TREADLE_FORMAT, "the plugin has no function \"%s\"", entry_point);
    treadle_plugin_init_fn *init;
    memcpy(&init, &symbol, sizeof init);
    TD_TRY(with_reason(init(&host_table, &p->table, err), err));
    if (p->table.version > TREADLE_PLUGIN_VERSION)
        return td_fail(err, TREADLE_UNSUPPORTED, "the plugin is of version %u, this host knows versions up to %d",
                       p->table.version, TREADLE_PLUGIN_VERSION);
    if (p->table.version < 1) return td_fail(err, TREADLE_FORMAT, "the plugin's table says version 0, expected 1");
    if (p->table.size < offsetof(treadle_plugin, rewind))
        return td_fail(err, TREADLE_FORMAT,
                       "the plugin's table is too small: expected version 1 with %zu bytes, found %zu",
                       offsetof(treadle_plugin, rewind), p->table.size);
    if (p->table.size < sizeof p->table) p->table.rewind = NULL;
    if (!p->table.begin || !p->table.end || !p->table.forward)
        return td_fail(err, TREADLE_FORMAT, "the plugin's table lacks begin, end or forward");
    return TREADLE_OK;
}

treadle_status td_plugin_open(const char *path, const char *entry_point, const td_runtime *runtime,
                              const char *config_text, td_plugin **out, treadle_error *err) {
    td_plugin *p = td_alloc_zero(1, sizeof *p);
    if (!p) return td_fail_memory(err, "a plugin", sizeof *p);
    p->model = (treadle_plugin_model){runtime, config_text};
    p->hook = (td_exec_hook){p, hook_begin, hook_end, hook_forward, hook_rewind};
    treadle_status status = load(p, path, entry_point ? entry_point : TREADLE_PLUGIN_ENTRY, err);
    if (status == TREADLE_OK && p->table.open)
        status = named(p, p->table.open(&host_table, &p->model, &p->opened, err), err);
    if (status != TREADLE_OK) {
        td_error_file(err, path);
        p->table.close = NULL; /* not opened */
        td_plugin_close(p);
        return status;
    }
    *out = p;
    return TREADLE_OK;
}

void td_plugin_close(td_plugin *p) {
    if (!p) return;
    if (p->table.close) p->table.close(p->opened);
    if (p->library) dlclose(p->library);
    td_free(p);
}

const td_exec_hook *td_plugin_hook(const td_plugin *p) { return &p->hook; }
