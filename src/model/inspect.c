/* model/inspect.c - what files hold, without loading weights. */
#include "model/model.h"

#include "base/map.h"

enum { METADATA_BYTES = 4096 };

static void write_str(td_json_writer *w, const char *key, td_str value) {
    td_json_key(w, key);
    td_json_write_string(w, value);
}

static void write_int(td_json_writer *w, const char *key, int64_t value) {
    td_json_key(w, key);
    td_json_write_int(w, value);
}

static const char *kind_text(const td_light_port *port) {
    switch (port->kind) {
    case TD_ONNX_TYPE_TENSOR: return "tensor";
    case TD_ONNX_TYPE_SEQUENCE: return "sequence";
    case TD_ONNX_TYPE_OPTIONAL: return "optional";
    case TD_ONNX_TYPE_MAP: return "map";
    case TD_ONNX_TYPE_SPARSE: return "sparse tensor";
    case TD_ONNX_TYPE_NONE: break;
    }
    return "unknown";
}

static void write_ports(const char *key, const td_light_port *ports, size_t n, td_json_writer *w) {
    td_json_key(w, key);
    td_json_begin_array(w);
    for (size_t i = 0; i < n; i++) {
        const td_light_port *p = &ports[i];
        td_json_begin_object(w);
        write_str(w, "name", p->name);
        write_str(w, "kind", td_str_from(kind_text(p)));
        write_str(w, "dtype", td_str_from(td_dtype_name(p->dtype)));
        td_json_key(w, "shape");
        if (p->shape.rank < 0) td_json_write_null(w);
        else td_json_begin_array(w);
        for (int k = 0; k < p->shape.rank; k++) {
            if (p->shape.dims[k] >= 0) td_json_write_int(w, p->shape.dims[k]);
            else if (p->dim_names[k].n) td_json_write_string(w, p->dim_names[k]);
            else td_json_write_null(w);
        }
        if (p->shape.rank >= 0) td_json_end_array(w);
        td_json_key(w, "optional");
        td_json_write_bool(w, p->optional);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

static int64_t tensor_bytes(const td_onnx_tensor *t) {
    size_t bytes;
    if (t->dtype == TD_STRING || !td_dtype_bytes(t->dtype, t->count, &bytes)) return (int64_t)t->data_bytes;
    return (int64_t)bytes;
}

/* All tensors of a model by type: initializers and constants, in subgraphs and functions too. */
typedef struct weights {
    int64_t n[TD_DTYPE_END], bytes[TD_DTYPE_END];
} weights;

static bool add_weight(void *ctx, const td_onnx_tensor *t) {
    weights *w = ctx;
    if (t->dtype <= TD_UNDEFINED || t->dtype >= TD_DTYPE_END) return true;
    w->n[t->dtype]++;
    w->bytes[t->dtype] += tensor_bytes(t);
    return true;
}

/* Weights as stored, in bytes. */
static int64_t weight_bytes(const td_signature *s) {
    weights all = {0};
    int64_t total = 0;
    td_onnx_each_tensor(s->model, add_weight, &all);
    for (int d = 0; d < TD_DTYPE_END; d++) total += all.bytes[d];
    return total;
}

static void write_weights(const td_onnx_model *model, td_json_writer *w) {
    weights all = {0};
    td_onnx_each_tensor(model, add_weight, &all);
    td_json_key(w, "weights");
    td_json_begin_array(w);
    for (int d = 1; d < TD_DTYPE_END; d++) {
        if (!all.n[d]) continue;
        td_json_begin_object(w);
        write_str(w, "dtype", td_str_from(td_dtype_name((td_dtype)d)));
        write_int(w, "tensors", all.n[d]);
        write_int(w, "bytes", all.bytes[d]);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

static td_str domain_text(td_str domain) { return domain.n ? domain : TD_STR("ai.onnx"); }

static treadle_status write_ops(const td_onnx_model *model, td_json_writer *w, treadle_error *err) {
    td_arena arena;
    td_light_op_count *ops = NULL;
    size_t n = 0;
    td_arena_init(&arena);
    treadle_status status = td_light_count_ops(model, &arena, &ops, &n, err);
    if (status == TREADLE_OK) {
        td_json_key(w, "ops");
        td_json_begin_array(w);
        for (size_t i = 0; i < n; i++) {
            td_json_begin_object(w);
            write_str(w, "domain", domain_text(ops[i].domain));
            write_str(w, "op", ops[i].op_type);
            write_int(w, "since_version", ops[i].since_version);
            write_int(w, "count", (int64_t)ops[i].n);
            td_json_key(w, "supported");
            td_json_write_bool(w, ops[i].supported);
            td_json_end_object(w);
        }
        td_json_end_array(w);
        td_json_key(w, "missing");
        td_json_begin_array(w);
        for (size_t i = 0; i < n; i++) {
            char *name = ops[i].supported
                             ? NULL
                             : td_arena_printf(&arena, "%.*s::%.*s-%lld", TD_STR_ARGS(domain_text(ops[i].domain)),
                                               TD_STR_ARGS(ops[i].op_type), (long long)ops[i].since_version);
            if (name) td_json_write_text(w, name);
        }
        td_json_end_array(w);
    }
    td_arena_free(&arena);
    return status;
}

/* A key that comes twice is written once: JSON with it twice would be refused by its readers. */
static treadle_status write_metadata(const td_onnx_model *model, td_json_writer *w, treadle_error *err) {
    td_map seen = {0};
    bool ok = true;
    td_json_key(w, "metadata");
    td_json_begin_object(w);
    for (size_t i = 0; i < model->n_props && ok; i++) {
        const td_onnx_prop *prop = &model->props[i];
        if (prop->value.n > METADATA_BYTES || td_map_get(&seen, prop->key, NULL))
            continue; /* whole files may lie there */
        ok = td_map_set(&seen, prop->key, i);
        td_json_key_str(w, prop->key);
        td_json_write_string(w, prop->value);
    }
    td_json_end_object(w);
    td_map_free(&seen);
    return ok ? TREADLE_OK : td_fail_memory(err, "metadata", 0);
}

treadle_status td_inspect_file(const td_signature *s, td_json_writer *w, treadle_error *err) {
    const td_onnx_model *model = s->model;
    write_int(w, "ir_version", model->ir_version);
    write_str(w, "producer", model->producer_name);
    td_json_key(w, "opsets");
    td_json_begin_array(w);
    for (size_t i = 0; i < model->n_opsets; i++) {
        td_json_begin_object(w);
        write_str(w, "domain", domain_text(model->opsets[i].domain));
        write_int(w, "version", model->opsets[i].version);
        td_json_end_object(w);
    }
    td_json_end_array(w);
    write_ports("inputs", s->inputs, s->n_inputs, w);
    write_ports("outputs", s->outputs, s->n_outputs, w);
    TD_TRY(write_ops(model, w, err));
    write_weights(model, w);
    return write_metadata(model, w, err);
}

static int64_t length_or_default(const treadle_model *m, int64_t context_length) {
    return context_length > 0 ? context_length : m->plan->max_length;
}

static int64_t all_weights(const treadle_model *m) {
    int64_t total = 0;
    for (size_t i = 0; i < m->plan->n_sessions; i++)
        if (m->plan->sessions[i].signature) total += weight_bytes(m->plan->sessions[i].signature);
    return total;
}

static treadle_status inspect_json(const treadle_model *m, int64_t context_length, td_buf *out, treadle_error *err) {
    td_json_writer w;
    td_json_writer_init(&w, out, 1);
    td_json_begin_object(&w);
    td_json_key(&w, "sessions");
    td_json_begin_array(&w);
    for (size_t i = 0; i < m->plan->n_sessions; i++) {
        const td_plan_session *s = &m->plan->sessions[i];
        if (!s->signature) continue;
        td_json_begin_object(&w);
        write_str(&w, "name", s->name);
        write_str(&w, "file", td_str_from(s->config->path));
        TD_TRY(td_inspect_file(s->signature, &w, err));
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    td_json_key(&w, "plan");
    td_plan_write_json(m->plan, &w);
    td_json_key(&w, "memory");
    td_json_begin_object(&w);
    int64_t length = length_or_default(m, context_length);
    write_int(&w, "context_length", length);
    write_int(&w, "weights_bytes", all_weights(m));
    write_int(&w, "state_bytes", td_plan_state_bytes(m->plan, length));
    td_json_end_object(&w);
    const td_json *metadata = td_json_get(m->config->root, "metadata");
    if (metadata) {
        td_json_key(&w, "metadata");
        td_json_write_value(&w, metadata);
    }
    td_json_end_object(&w);
    return TREADLE_OK;
}

static void text_ports(const char *title, const td_light_port *ports, size_t n, td_buf *out) {
    td_buf_printf(out, "  %s\n", title);
    for (size_t i = 0; i < n; i++) {
        td_buf_printf(out, "    %-32.*s %s [", TD_STR_ARGS(ports[i].name), td_dtype_name(ports[i].dtype));
        for (int k = 0; k < ports[i].shape.rank; k++) {
            if (k) td_buf_text(out, ", ");
            if (ports[i].shape.dims[k] >= 0) td_buf_printf(out, "%lld", (long long)ports[i].shape.dims[k]);
            else
                td_buf_printf(out, "%.*s", (int)TD_MAX(ports[i].dim_names[k].n, (size_t)1),
                              ports[i].dim_names[k].n ? ports[i].dim_names[k].p : "?");
        }
        td_buf_text(out, ports[i].optional ? "] optional\n" : "]\n");
    }
}

static treadle_status text_session(const td_plan_session *s, td_buf *out, treadle_error *err) {
    td_arena arena;
    td_light_op_count *ops = NULL;
    size_t n = 0;
    td_arena_init(&arena);
    treadle_status status = td_light_count_ops(s->signature->model, &arena, &ops, &n, err);
    td_buf_printf(out, "session %.*s: %s\n", TD_STR_ARGS(s->name), s->config->path);
    text_ports("inputs", s->signature->inputs, s->signature->n_inputs, out);
    text_ports("outputs", s->signature->outputs, s->signature->n_outputs, out);
    td_buf_text(out, "  ops\n");
    for (size_t i = 0; status == TREADLE_OK && i < n; i++)
        td_buf_printf(out, "    %6zu %.*s::%.*s%s\n", ops[i].n, TD_STR_ARGS(domain_text(ops[i].domain)),
                      TD_STR_ARGS(ops[i].op_type), ops[i].supported ? "" : "  (missing)");
    td_buf_printf(out, "  weights: %.1f MB\n", (double)weight_bytes(s->signature) / 1e6);
    td_arena_free(&arena);
    return status;
}

treadle_status td_model_inspect(const treadle_model *m, int64_t context_length, bool json, td_buf *out,
                                treadle_error *err) {
    if (json) return inspect_json(m, context_length, out, err);
    for (size_t i = 0; i < m->plan->n_sessions; i++)
        if (m->plan->sessions[i].signature) TD_TRY(text_session(&m->plan->sessions[i], out, err));
    td_plan_write_text(m->plan, out);
    int64_t length = length_or_default(m, context_length);
    td_buf_printf(out, "memory: weights %.1f MB, state of %lld tokens %.1f MB\n", (double)all_weights(m) / 1e6,
                  (long long)length, (double)td_plan_state_bytes(m->plan, length) / 1e6);
    const td_json *metadata = td_json_get(m->config->root, "metadata");
    if (metadata) {
        td_json_writer w;
        td_json_writer_init(&w, out, 2);
        td_buf_text(out, "metadata: ");
        td_json_write_value(&w, metadata);
        td_buf_char(out, '\n');
    }
    return TREADLE_OK;
}
