/* engine/engine_ort.c - ONNX Runtime behind the engine's vtable.
 *
 * A session is the file's signature, which orders and names inputs and outputs, and an OrtSession. A context is scratch
 * for one run at a time and the outputs of the latest one. An output in memory of the context is an OrtValue in a
 * td_buffer: whoever retains the buffer keeps it beyond the next run, and gets it back in as an input without a copy.
 * An output that is bound to the caller's memory is written there by ONNX Runtime where its shape is known beforehand,
 * else copied there after the run.
 * Only GroupQueryAttention extends a cache in place: it sees one memory as past and present, both at full capacity. */
#include "engine/ort.h"

#include "base/alloc.h"

#include <stdatomic.h>

typedef struct ort_session {
    td_ort *ort;
    td_signature *signature;
    OrtSession *session;
    const char **input_names, **output_names; /* in the signature's order */
    int32_t *alias;                           /* [n_outputs]: the input that may share the output's memory; -1: none */
    const OrtMemoryInfo **places;             /* [n_outputs]: where the engine makes them; NULL: in host memory */
    const td_json *run_options;
    td_arena arena;
} ort_session;

typedef struct ort_ctx {
    const ort_session *session;
    OrtRunOptions *run_options;
    atomic_bool interrupted; /* run_options says it too */
    OrtIoBinding *binding;   /* made when an output is kept on a device */
    /* of one run, in the order in which ONNX Runtime is given them */
    const char **input_names, **output_names;
    OrtValue **inputs, **outputs;
    bool *owned;       /* [n_inputs]: released after the run */
    size_t *output_of; /* [n_outputs] */
    bool *bound;       /* [n_outputs]: written to the caller's memory by ONNX Runtime */
    /* from run to run */
    td_ort_scratch *scratch; /* [n_inputs] */
    td_value *held;          /* [n_outputs]: outputs in memory of the context */
    bool *keep;              /* [n_outputs]: may stay on the device */
    bool keeps_any;
    size_t n_in, n_out;
} ort_ctx;

static const ort_session *session_of(const td_session *session) { return (const ort_session *)(const void *)session; }

static ort_ctx *ctx_of(td_session_ctx *ctx) { return (ort_ctx *)(void *)ctx; }

/* --- opening */

static treadle_status engine_providers(const td_engine_options *options, td_arena *arena, const char *const **out,
                                       treadle_error *err) {
    td_ort *ort = NULL;
    TD_TRY(td_ort_open(options, &ort, err));
    treadle_status status = td_ort_provider_names(ort, arena, out, err);
    td_ort_release(ort);
    return status;
}

static treadle_status c_names(ort_session *s, const td_light_port *ports, size_t n, const char ***out,
                              treadle_error *err) {
    const char **names = TD_ARENA_ARRAY(&s->arena, const char *, n);
    bool ok = names != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        names[i] = td_arena_strndup(&s->arena, ports[i].name.p ? ports[i].name.p : "", ports[i].name.n);
        ok = names[i] != NULL;
    }
    *out = names;
    return ok ? TREADLE_OK : td_fail_memory(err, "names", n * sizeof *names);
}

/* --- caches that grow in place */

static size_t count_uses(const td_onnx_graph *g, td_str name) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (size_t k = 0; k < g->nodes[i].n_inputs; k++) n += td_str_equal(g->nodes[i].inputs[k], name);
    return n;
}

/* The input that a GroupQueryAttention extends into this output; -1. Shared memory is given whole, so nothing else may
 * look at past or present, neither of keys nor of values: the op wants all of one length. */
static int32_t find_alias(const td_signature *s, td_str output) {
    enum { PAST_KEY = 3, PAST_VALUE = 4 };
    const td_onnx_graph *g = &s->model->graph;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const td_onnx_node *node = &g->nodes[i];
        if (!td_str_is(node->op_type, "GroupQueryAttention") || node->n_inputs <= PAST_VALUE || node->n_outputs < 3)
            continue;
        bool key = td_str_equal(node->outputs[1], output), value = td_str_equal(node->outputs[2], output);
        if (!key && !value) continue;
        for (size_t k = PAST_KEY; k <= PAST_VALUE; k++)
            if (count_uses(g, node->inputs[k]) != 1 || count_uses(g, node->outputs[k - 2]) != 0) return -1;
        return (int32_t)td_signature_find_input(s, node->inputs[key ? PAST_KEY : PAST_VALUE]);
    }
    return -1;
}

/* Only in host memory: a device's provider works on copies of what it is given there. */
static treadle_status find_aliases(ort_session *s, const td_engine_options *options, treadle_error *err) {
    bool in_host_memory = td_engine_is_cpu_provider(options->provider);
    s->alias = TD_ARENA_ARRAY(&s->arena, int32_t, s->signature->n_outputs);
    if (!s->alias) return td_fail_memory(err, "a session", 0);
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        s->alias[o] = in_host_memory ? find_alias(s->signature, s->signature->outputs[o].name) : -1;
    return TREADLE_OK;
}

/* Where outputs are made: what is kept stays there. Older libraries do not tell; values then go through host memory. */
static treadle_status find_places(ort_session *s, const td_engine_options *options, treadle_error *err) {
    const td_ort *ort = s->ort;
    size_t n = s->signature->n_outputs;
    s->places = TD_ARENA_ARRAY(&s->arena, const OrtMemoryInfo *, n);
    if (!s->places) return td_fail_memory(err, "a session", 0);
    if (td_engine_is_cpu_provider(options->provider) || !ort->api.SessionGetMemoryInfoForOutputs) return TREADLE_OK;
    TD_ORT_TRY(ort->api.SessionGetMemoryInfoForOutputs(s->session, s->places, n), TREADLE_INTERNAL);
    for (size_t o = 0; o < n; o++) {
        OrtMemoryInfoDeviceType type = OrtMemoryInfoDeviceType_CPU;
        if (s->places[o]) ort->api.MemoryInfoGetDeviceType(s->places[o], &type);
        if (type == OrtMemoryInfoDeviceType_CPU) s->places[o] = NULL;
    }
    return TREADLE_OK;
}

static treadle_status create_session(ort_session *s, const char *path, const td_engine_options *options,
                                     treadle_error *err) {
    const td_ort *ort = s->ort;
    OrtSessionOptions *so = NULL;
    TD_TRY(td_ort_session_options(ort, options, &so, err));
    treadle_status status = td_ort_append_provider(ort, options, so, err);
    if (status == TREADLE_OK) {
        OrtStatus *failed = ort->api.CreateSession(ort->env, path, so, &s->session);
        if (failed) status = td_ort_fail(ort, failed, TREADLE_UNSUPPORTED, err);
    }
    ort->api.ReleaseSessionOptions(so);
    return status;
}

static void engine_close(td_session *session) {
    ort_session *s = (ort_session *)(void *)session;
    if (s->session) s->ort->api.ReleaseSession(s->session);
    td_signature_close(s->signature);
    td_arena_free(&s->arena);
    td_ort_release(s->ort);
    td_free(s);
}

static treadle_status open_all(ort_session *s, const char *path, const td_engine_options *options, treadle_error *err) {
    TD_TRY(td_signature_open(path, &s->signature, err));
    TD_TRY(td_signature_check_external(s->signature, err));
    TD_TRY(td_ort_open(options, &s->ort, err));
    TD_TRY(c_names(s, s->signature->inputs, s->signature->n_inputs, &s->input_names, err));
    TD_TRY(c_names(s, s->signature->outputs, s->signature->n_outputs, &s->output_names, err));
    TD_TRY(find_aliases(s, options, err));
    TD_TRY(create_session(s, path, options, err));
    s->run_options = options->run_options;
    return find_places(s, options, err);
}

static treadle_status engine_open(const char *path, const td_engine_options *options, td_session **out,
                                  treadle_error *err) {
    static const td_engine_options defaults;
    ort_session *s = td_alloc_zero(1, sizeof *s);
    if (!s) return td_fail_memory(err, "a session", sizeof *s);
    treadle_status status = open_all(s, path, options ? options : &defaults, err);
    if (status != TREADLE_OK) {
        engine_close((td_session *)(void *)s);
        return status;
    }
    *out = (td_session *)(void *)s;
    return TREADLE_OK;
}

static size_t engine_n_inputs(const td_session *session) { return session_of(session)->signature->n_inputs; }

static size_t engine_n_outputs(const td_session *session) { return session_of(session)->signature->n_outputs; }

static bool engine_aliases(const td_session *session, size_t input, size_t output) {
    return session_of(session)->alias[output] == (int32_t)input;
}

/* --- contexts */

static void release_held(ort_ctx *c) {
    for (size_t i = 0; c->held && i < c->session->signature->n_outputs; i++) td_value_release(&c->held[i]);
}

static void engine_ctx_free(td_session_ctx *ctx) {
    ort_ctx *c = ctx_of(ctx);
    if (!c) return;
    const td_ort_api *api = &c->session->ort->api;
    release_held(c);
    for (size_t i = 0; c->scratch && i < c->session->signature->n_inputs; i++) td_free_aligned(c->scratch[i].data);
    if (c->binding) api->ReleaseIoBinding(c->binding);
    if (c->run_options) api->ReleaseRunOptions(c->run_options);
    td_free(c->input_names);
    td_free(c->output_names);
    td_free(c->inputs);
    td_free(c->outputs);
    td_free(c->owned);
    td_free(c->output_of);
    td_free(c->bound);
    td_free(c->scratch);
    td_free(c->held);
    td_free(c->keep);
    td_free(c);
}

static treadle_status engine_ctx_new(const td_session *session, td_session_ctx **out, treadle_error *err) {
    const ort_session *s = session_of(session);
    size_t n_in = s->signature->n_inputs, n_out = s->signature->n_outputs;
    ort_ctx *c = td_alloc_zero(1, sizeof *c);
    if (!c) return td_fail_memory(err, "a context", sizeof *c);
    c->session = s;
    c->input_names = td_alloc_zero(n_in, sizeof *c->input_names);
    c->output_names = td_alloc_zero(n_out, sizeof *c->output_names);
    c->inputs = td_alloc_zero(n_in, sizeof *c->inputs);
    c->outputs = td_alloc_zero(n_out, sizeof *c->outputs);
    c->owned = td_alloc_zero(n_in, sizeof *c->owned);
    c->output_of = td_alloc_zero(n_out, sizeof *c->output_of);
    c->bound = td_alloc_zero(n_out, sizeof *c->bound);
    c->scratch = td_alloc_zero(n_in, sizeof *c->scratch);
    c->held = td_alloc_zero(n_out, sizeof *c->held);
    c->keep = td_alloc_zero(n_out, sizeof *c->keep);
    bool ok = c->input_names && c->output_names && c->inputs && c->outputs && c->owned && c->output_of && c->bound &&
              c->scratch && c->held && c->keep;
    treadle_status status = ok ? td_ort_run_options(s->ort, s->run_options, &c->run_options, err)
                               : td_fail_memory(err, "a context", (n_in + n_out) * sizeof(void *));
    if (status != TREADLE_OK) {
        engine_ctx_free((td_session_ctx *)(void *)c);
        return status;
    }
    *out = (td_session_ctx *)(void *)c;
    return TREADLE_OK;
}

/* --- running */

/* A past that shares its output's memory is given at the output's capacity: that is how the
 * op knows it may write there. */
static const td_tensor *shared_past(const ort_session *s, size_t input, const td_value *in, const td_value *outputs,
                                    const bool *skip) {
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        if (s->alias[o] != (int32_t)input || (skip && skip[o]) || outputs[o].kind != TD_VALUE_TENSOR) continue;
        const td_tensor *to = &outputs[o].tensor;
        if (to->data == in->tensor.data && to->dtype == in->tensor.dtype && td_tensor_is_dense(to)) return to;
    }
    return NULL;
}

static treadle_status take_inputs(ort_ctx *c, const td_value *inputs, const td_value *outputs, const bool *skip,
                                  treadle_error *err) {
    const ort_session *s = c->session;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        if (inputs[i].kind == TD_VALUE_NONE) {
            if (port->optional) continue;
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "input \"%.*s\" is not given", TD_STR_ARGS(port->name));
        }
        td_value value = inputs[i];
        const td_tensor *shared = value.kind == TD_VALUE_TENSOR ? shared_past(s, i, &value, outputs, skip) : NULL;
        if (shared) value.tensor = *shared;
        treadle_status status =
            td_ort_value_of(s->ort, &value, &c->scratch[i], &c->inputs[c->n_in], &c->owned[c->n_in], err);
        if (status != TREADLE_OK) {
            td_error_context(err, "input \"%.*s\"", TD_STR_ARGS(port->name));
            return status;
        }
        c->input_names[c->n_in++] = s->input_names[i];
    }
    return TREADLE_OK;
}

/* The bytes between the first and the last element; strides are not negative. */
static void extent(const td_tensor *t, uintptr_t *begin, uintptr_t *end) {
    int64_t last = 0, count = td_tensor_count(t);
    for (int d = 0; d < t->shape.rank && count > 0; d++) last += (t->shape.dims[d] - 1) * t->strides[d];
    *begin = (uintptr_t)t->data;
    *end = *begin + (count > 0 ? (size_t)(last + 1) * (size_t)td_dtype_bits(t->dtype) / 8 : 0);
}

static bool overlaps_input(const ort_session *s, const td_tensor *to, const td_value *inputs) {
    uintptr_t a, a_end, b, b_end;
    extent(to, &a, &a_end);
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (inputs[i].kind != TD_VALUE_TENSOR) continue;
        extent(&inputs[i].tensor, &b, &b_end);
        if (a < b_end && b < a_end) return true;
    }
    return false;
}

/* The output's memory can be given before the run if its shape is certain: fixed by the graph, or the whole
 * of a shared past. Memory of an input cannot else: ONNX Runtime writes an output when its node runs, and
 * others may still read the input. */
static bool can_bind(const ort_session *s, size_t o, const td_tensor *to, const td_value *inputs) {
    if (!td_tensor_is_dense(to) || to->dtype == TD_STRING) return false;
    if (s->alias[o] >= 0) {
        const td_value *past = &inputs[s->alias[o]];
        if (past->kind == TD_VALUE_TENSOR && past->tensor.data == to->data) return true;
    }
    return td_shape_equal(&s->signature->outputs[o].shape, &to->shape) && !overlaps_input(s, to, inputs);
}

static treadle_status take_outputs(ort_ctx *c, const td_value *inputs, const td_value *outputs, const bool *skip,
                                   treadle_error *err) {
    const ort_session *s = c->session;
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        if (skip && skip[o]) continue;
        c->outputs[c->n_out] = NULL;
        c->bound[c->n_out] = outputs[o].kind == TD_VALUE_TENSOR && can_bind(s, o, &outputs[o].tensor, inputs);
        if (c->bound[c->n_out])
            TD_TRY(td_ort_wrap(s->ort, &outputs[o].tensor, s->ort->cpu, &c->outputs[c->n_out], err));
        c->output_names[c->n_out] = s->output_names[o];
        c->output_of[c->n_out++] = o;
    }
    return TREADLE_OK;
}

/* Writes what ONNX Runtime allocated to the caller's memory. */
static treadle_status copy_bound(const td_value *made, td_value *to, td_str name, treadle_error *err) {
    char want[128], got[128];
    if (made->kind != TD_VALUE_TENSOR)
        return td_fail(err, TREADLE_RUN, "output \"%.*s\" is no tensor", TD_STR_ARGS(name));
    const td_tensor *from = &made->tensor;
    if (from->dtype != to->tensor.dtype)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "output \"%.*s\" is %s, bound to memory of %s", TD_STR_ARGS(name),
                       td_dtype_name(from->dtype), td_dtype_name(to->tensor.dtype));
    bool fits = from->shape.rank == to->tensor.shape.rank;
    for (int d = 0; fits && d < from->shape.rank; d++) fits = from->shape.dims[d] <= to->tensor.shape.dims[d];
    if (!fits)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "output \"%.*s\" is %s, bound to memory for %s at most",
                       TD_STR_ARGS(name), td_shape_text(&from->shape, got), td_shape_text(&to->tensor.shape, want));
    to->tensor.shape = from->shape;
    td_tensor_copy(&to->tensor, from);
    return TREADLE_OK;
}

static treadle_status give_outputs(ort_ctx *c, td_value *outputs, treadle_error *err) {
    const ort_session *s = c->session;
    for (size_t k = 0; k < c->n_out; k++) {
        size_t o = c->output_of[k];
        td_str name = s->signature->outputs[o].name;
        if (c->bound[k]) continue;
        OrtValue *value = c->outputs[k];
        c->outputs[k] = NULL;
        treadle_status status = value ? td_ort_value_take(s->ort, value, &c->held[o], err) : TREADLE_OK;
        if (status != TREADLE_OK) {
            td_error_context(err, "output \"%.*s\"", TD_STR_ARGS(name));
            return status;
        }
        if (outputs[o].kind == TD_VALUE_TENSOR) {
            TD_TRY(copy_bound(&c->held[o], &outputs[o], name, err));
            td_value_release(&c->held[o]);
        } else {
            outputs[o] = c->held[o];
        }
    }
    return TREADLE_OK;
}

/* With a binding, outputs that are kept stay where they are made. */
static treadle_status run_binding(ort_ctx *c, treadle_error *err) {
    const ort_session *s = c->session;
    const td_ort *ort = s->ort;
    OrtValue **made = NULL;
    size_t n = 0;
    if (!c->binding) TD_ORT_TRY(ort->api.CreateIoBinding(s->session, &c->binding), TREADLE_RUN);
    ort->api.ClearBoundInputs(c->binding);
    ort->api.ClearBoundOutputs(c->binding);
    for (size_t i = 0; i < c->n_in; i++)
        TD_ORT_TRY(ort->api.BindInput(c->binding, c->input_names[i], c->inputs[i]), TREADLE_INVALID_ARGUMENT);
    for (size_t k = 0; k < c->n_out; k++) {
        const OrtMemoryInfo *place = s->places[c->output_of[k]];
        if (!place || !c->keep[c->output_of[k]]) place = ort->cpu;
        OrtStatus *failed = c->outputs[k] ? ort->api.BindOutput(c->binding, c->output_names[k], c->outputs[k])
                                          : ort->api.BindOutputToDevice(c->binding, c->output_names[k], place);
        if (failed) return td_ort_fail(ort, failed, TREADLE_RUN, err);
    }
    TD_ORT_TRY(ort->api.RunWithBinding(s->session, c->run_options, c->binding), TREADLE_RUN);
    TD_ORT_TRY(ort->api.GetBoundOutputValues(c->binding, ort->allocator, &made, &n), TREADLE_RUN);
    for (size_t k = 0; k < n; k++) {
        if (k < c->n_out && !c->bound[k]) c->outputs[k] = made[k];
        else ort->api.ReleaseValue(made[k]);
    }
    OrtStatus *failed = made ? ort->api.AllocatorFree(ort->allocator, made) : NULL;
    return failed ? td_ort_fail(ort, failed, TREADLE_INTERNAL, err) : TREADLE_OK;
}

static treadle_status run_plain(ort_ctx *c, treadle_error *err) {
    const td_ort *ort = c->session->ort;
    TD_ORT_TRY(ort->api.Run(c->session->session, c->run_options, c->input_names, (const OrtValue *const *)c->inputs,
                            c->n_in, c->output_names, c->n_out, c->outputs),
               TREADLE_RUN);
    return TREADLE_OK;
}

static treadle_status engine_run(td_session_ctx *ctx, const td_value *inputs, td_value *outputs, const bool *skip,
                                 treadle_error *err) {
    ort_ctx *c = ctx_of(ctx);
    const ort_session *s = c->session;
    const td_ort_api *api = &s->ort->api;
    c->n_in = c->n_out = 0;
    treadle_status status = take_inputs(c, inputs, outputs, skip, err);
    if (status == TREADLE_OK) status = take_outputs(c, inputs, outputs, skip, err);
    if (status == TREADLE_OK && c->n_out) status = c->keeps_any ? run_binding(c, err) : run_plain(c, err);
    if (status != TREADLE_OK && atomic_load_explicit(&c->interrupted, memory_order_relaxed))
        status = td_fail(err, TREADLE_CANCELLED, "cancelled");
    for (size_t i = 0; i < c->n_in; i++)
        if (c->owned[i]) api->ReleaseValue(c->inputs[i]);
    release_held(c); /* only now: an input may have been one of them */
    if (status == TREADLE_OK) status = give_outputs(c, outputs, err);
    for (size_t k = 0; k < c->n_out; k++) {
        if (c->outputs[k]) api->ReleaseValue(c->outputs[k]);
        c->outputs[k] = NULL;
    }
    return status;
}

/* ONNX Runtime looks at its flag before each node. */
static void engine_interrupt(td_session_ctx *ctx, bool on) {
    ort_ctx *c = ctx_of(ctx);
    const td_ort_api *api = &c->session->ort->api;
    atomic_store_explicit(&c->interrupted, on, memory_order_relaxed);
    OrtStatus *failed =
        on ? api->RunOptionsSetTerminate(c->run_options) : api->RunOptionsUnsetTerminate(c->run_options);
    if (failed) api->ReleaseStatus(failed); /* it then runs to its end */
}

/* ONNX Runtime computes all positions. */
static bool engine_can_pick_rows(const td_session *session, size_t output) {
    (void)session, (void)output;
    return false;
}

static treadle_status engine_pick_rows(td_session_ctx *ctx, size_t output, const int64_t *positions, size_t batch,
                                       size_t n, int64_t seq, treadle_error *err) {
    (void)ctx, (void)batch, (void)n, (void)seq;
    if (!positions) return TREADLE_OK;
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "positions of output %zu cannot be picked by ONNX Runtime", output);
}

static void engine_keep(td_session_ctx *ctx, size_t output, bool on) {
    ort_ctx *c = ctx_of(ctx);
    c->keep[output] = on;
    c->keeps_any = false;
    for (size_t o = 0; o < c->session->signature->n_outputs; o++) c->keeps_any |= c->keep[o] && c->session->places[o];
}

static void engine_profile(const td_session_ctx *ctx, bool by_op, td_buf *out) {
    (void)ctx, (void)by_op;
    td_buf_text(out, "ONNX Runtime gives no times of nodes\n");
}

static treadle_status engine_describe(const td_engine_options *options, td_json_writer *w, treadle_error *err) {
    td_ort *ort = NULL;
    TD_TRY(td_ort_open(options, &ort, err));
    td_json_key(w, "library");
    td_json_write_text(w, ort->path);
    td_json_key(w, "version");
    td_json_write_text(w, ort->version);
    treadle_status status = td_ort_list_devices(ort, w, err);
    td_ort_release(ort);
    return status;
}

const td_engine td_engine_ort = {
    .name = "ort",
    .capabilities = TD_ENGINE_CONCURRENT | TD_ENGINE_DEVICE | TD_ENGINE_GIVES,
    .providers = engine_providers,
    .open = engine_open,
    .close = engine_close,
    .n_inputs = engine_n_inputs,
    .n_outputs = engine_n_outputs,
    .aliases = engine_aliases,
    .ctx_new = engine_ctx_new,
    .ctx_free = engine_ctx_free,
    .run = engine_run,
    .interrupt = engine_interrupt,
    .can_pick_rows = engine_can_pick_rows,
    .pick_rows = engine_pick_rows,
    .keep = engine_keep,
    .profile = engine_profile,
    .describe = engine_describe,
};
