/* engine/engine_light.c - the native engine behind the vtable. Sessions and contexts are td_light
 * and td_light_ctx themselves. */
#include "base/cpu.h"
#include "engine/engine.h"

static const td_light *light_of(const td_session *session) { return (const td_light *)(const void *)session; }

static td_light_ctx *ctx_of(td_session_ctx *ctx) { return (td_light_ctx *)(void *)ctx; }

static treadle_status light_providers(const td_engine_options *options, td_arena *arena, const char *const **out,
                                      treadle_error *err) {
    static const char *const names[] = {"CPUExecutionProvider", NULL};
    (void)options, (void)arena, (void)err;
    *out = names;
    return TREADLE_OK;
}

static treadle_status light_open(const char *path, const td_engine_options *options, td_session **out,
                                 treadle_error *err) {
    td_light *light = NULL;
    td_light_options own = {0};
    if (options)
        own = (td_light_options){
            .n_threads = options->n_threads,
            .no_passes = options->no_passes,
            .skip_passes = options->skip_passes,
            .activations = options->activations,
            .pack_dir = options->pack_dir,
            .profile = options->profile,
        };
    TD_TRY(td_light_open(path, &own, &light, err));
    *out = (td_session *)(void *)light;
    return TREADLE_OK;
}

static void light_close(td_session *session) { td_light_close((td_light *)(void *)session); }

static void light_drop(const td_session *session) { td_light_drop(light_of(session)); }

static size_t light_n_inputs(const td_session *session) { return td_light_n_inputs(light_of(session)); }

static size_t light_n_outputs(const td_session *session) { return td_light_n_outputs(light_of(session)); }

static const td_light_port *light_output(const td_session *session, size_t index) {
    return td_light_output(light_of(session), index);
}

static bool light_aliases(const td_session *session, size_t input, size_t output) {
    (void)session, (void)input, (void)output;
    return true;
}

static treadle_status light_ctx_new(const td_session *session, td_session_ctx **out, treadle_error *err) {
    td_light_ctx *ctx = NULL;
    TD_TRY(td_light_ctx_new(light_of(session), &ctx, err));
    *out = (td_session_ctx *)(void *)ctx;
    return TREADLE_OK;
}

static void light_ctx_free(td_session_ctx *ctx) { td_light_ctx_free(ctx_of(ctx)); }

static treadle_status light_run(td_session_ctx *ctx, const td_value *inputs, td_value *outputs, const bool *skip,
                                treadle_error *err) {
    return td_light_run(ctx_of(ctx), inputs, outputs, skip, err);
}

static void light_interrupt(td_session_ctx *ctx, bool on) { td_light_interrupt(ctx_of(ctx), on); }

static bool light_can_pick_rows(const td_session *session, size_t output) {
    return td_light_can_pick_rows(light_of(session), output);
}

static treadle_status light_pick_rows(td_session_ctx *ctx, size_t output, const int64_t *positions, size_t batch,
                                      size_t n, int64_t seq, treadle_error *err) {
    return td_light_pick_rows(ctx_of(ctx), output, positions, batch, n, seq, err);
}

static void light_keep(td_session_ctx *ctx, size_t output, bool on) { (void)ctx, (void)output, (void)on; }

static treadle_status light_describe(const td_engine_options *options, td_json_writer *w, treadle_error *err) {
    (void)options, (void)err;
    td_json_key(w, "providers");
    td_json_begin_array(w);
    td_json_write_text(w, "CPUExecutionProvider");
    td_json_end_array(w);
    td_json_key(w, "devices");
    td_json_begin_array(w);
    td_json_begin_object(w);
    td_json_key(w, "provider");
    td_json_write_text(w, "CPUExecutionProvider");
    td_json_key(w, "type");
    td_json_write_text(w, "cpu");
    td_json_key(w, "name");
    td_json_write_text(w, td_cpu_name());
    td_json_end_object(w);
    td_json_end_array(w);
    return TREADLE_OK;
}

static void light_profile(const td_session_ctx *ctx, bool by_op, td_buf *out) {
    td_light_profile((const td_light_ctx *)(const void *)ctx, by_op, out);
}

const td_engine td_engine_light = {
    .name = "light",
    .capabilities = TD_ENGINE_ALIASES | TD_ENGINE_CONCURRENT | TD_ENGINE_WINDOWS,
    .providers = light_providers,
    .open = light_open,
    .close = light_close,
    .drop = light_drop,
    .n_inputs = light_n_inputs,
    .n_outputs = light_n_outputs,
    .output = light_output,
    .aliases = light_aliases,
    .ctx_new = light_ctx_new,
    .ctx_free = light_ctx_free,
    .run = light_run,
    .interrupt = light_interrupt,
    .can_pick_rows = light_can_pick_rows,
    .pick_rows = light_pick_rows,
    .keep = light_keep,
    .profile = light_profile,
    .describe = light_describe,
};
