/* config/v1_flow.c - the flow of the sections, the wires between names that differ, and state. Where the file says too
 * little, the flow is left to the plan. */
#include "config/v1.h"

enum { MAX_LAYERS = 4096, MAX_WIRES = 1024 };

/* --- wires */

void td_v1_wire(td_v1 *v, td_str from, td_str output, td_str to, td_str input, const td_json *origin) {
    char *source = td_arena_printf(&v->c->arena, "%.*s.%.*s", TD_STR_ARGS(from), TD_STR_ARGS(output));
    char *target = td_arena_printf(&v->c->arena, "%.*s.%.*s", TD_STR_ARGS(to), TD_STR_ARGS(input));
    if (!source || !target) v->failed = true;
    if (v->n_wires++ >= MAX_WIRES) return; /* no pipeline of use has so many */
    td_json *wire = td_v1_new_object(v, origin);
    if (!wire) return;
    td_v1_string(v, wire, "from", td_str_from(source), origin);
    td_v1_string(v, wire, "to", td_str_from(target), origin);
    td_v1_push(v, td_v1_object(v, v->out, "pipeline", v->model), "dataflow", wire, origin);
}

static td_str port_name(const td_v1 *v, const char *section, const char *ports, const char *key, const td_json **at) {
    *at = td_json_get(td_json_get(td_json_get(v->model, section), ports), key);
    return td_json_string_or(td_json_get(td_json_get(v->model, section), ports), key, "");
}

/* Equal names find each other; a wire is needed only where they differ. */
static void add_wires(td_v1 *v) {
    static const struct {
        const char *from, *output, *to, *input;
    } rows[] = {
        {"vision", "image_features", "embedding", "image_features"},
        {"speech", "audio_features", "embedding", "audio_features"},
        {"embedding", "inputs_embeds", "decoder", "inputs_embeds"},
        {"embedding", "per_layer_inputs", "decoder", "per_layer_inputs"},
        {"encoder", "encoder_hidden_states", "decoder", "encoder_hidden_states"},
        {"encoder", "encoder_outputs", "decoder", "encoder_hidden_states"},
        {"encoder", "encoder_outputs", "joiner", "encoder_outputs"},
        {"decoder", "outputs", "joiner", "decoder_outputs"},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_json *output_at, *input_at;
        td_str output = port_name(v, rows[i].from, "outputs", rows[i].output, &output_at);
        td_str input = port_name(v, rows[i].to, "inputs", rows[i].input, &input_at);
        td_str from = td_v1_session_name(v, rows[i].from), to = td_v1_session_name(v, rows[i].to);
        if (!from.n || !to.n || !output.n || !input.n || td_str_equal(output, input)) continue;
        td_v1_wire(v, from, output, to, input, input_at);
    }
}

/* --- flow */

td_json *td_v1_step(td_v1 *v, td_str session, const char *when, const td_json *origin) {
    td_json *step = td_v1_new_object(v, origin);
    td_v1_string(v, step, "run", session, origin);
    td_v1_string(v, step, "when", td_str_from(when), origin);
    td_v1_push(v, td_v1_object(v, v->out, "pipeline", v->model), "flow", step, v->model);
    return step;
}

static td_v1_loop vision_loop(const td_v1 *v) {
    const td_json *inputs = td_json_get(td_json_get(v->model, "vision"), "inputs");
    if (v->type && v->type->loop != TD_V1_LOOP_FOUND) return v->type->loop;
    return td_json_get(inputs, "image_grid_thw") ? TD_V1_LOOP_GRID : TD_V1_LOOP_FOUND;
}

static void add_loop(td_v1 *v, td_json *step, td_v1_loop loop, const td_json *vision) {
    const td_json *type = td_json_get(v->model, "type");
    const td_json *origin = v->type && type ? type : vision;
    if (loop == TD_V1_LOOP_BATCHED) return;
    td_v1_string(v, step, "loop", TD_STR("per_image"), origin);
    td_str pixels = td_json_string_or(td_json_get(vision, "inputs"), "pixel_values", "pixel_values");
    td_v1_string(v, step, "loop_over", pixels, origin);
    if (loop == TD_V1_LOOP_GRID) td_v1_string(v, step, "loop_rows", TD_STR("grid"), origin);
    if (loop != TD_V1_LOOP_CROP) return;
    td_json *crop = td_v1_object(v, step, "dynamic_shape", origin);
    td_v1_string(v, crop, "source", TD_STR("image_sizes"), origin);
    for (int64_t d = 2; d <= 3; d++) {
        td_json *dim = v->failed ? NULL : td_tree_derive(&v->c->arena, TD_JSON_INT, origin);
        if (!dim) {
            v->failed = true;
            return;
        }
        dim->as_int = d;
        dim->as_double = (double)d;
        td_v1_push(v, crop, "apply_to_dims", dim, origin);
    }
}

/* Vision and speech at the prompt, then embedding and decoder at every step. */
static void add_modal_flow(td_v1 *v) {
    td_str vision = td_v1_session_name(v, "vision"), speech = td_v1_session_name(v, "speech");
    td_str embedding = td_v1_session_name(v, "embedding"), decoder = td_v1_session_name(v, "decoder");
    const td_json *eyes = td_json_get(v->model, "vision"), *ears = td_json_get(v->model, "speech");
    td_v1_loop loop = vision_loop(v);
    if (!embedding.n || !decoder.n || (!vision.n && !speech.n) || (vision.n && loop == TD_V1_LOOP_FOUND)) return;
    if (vision.n) {
        td_json *step = td_v1_step(v, vision, "prompt", eyes);
        td_v1_string(v, step, "if_present", TD_STR("image"), eyes);
        add_loop(v, step, loop, eyes);
    }
    if (speech.n) td_v1_string(v, td_v1_step(v, speech, "prompt", ears), "if_present", TD_STR("audio"), ears);
    td_v1_step(v, embedding, "always", td_json_get(v->model, "embedding"));
    td_v1_step(v, decoder, "always", td_json_get(v->model, "decoder"));
}

static void add_encoder_flow(td_v1 *v) {
    td_str encoder = td_v1_session_name(v, "encoder"), decoder = td_v1_session_name(v, "decoder");
    td_str joiner = td_v1_session_name(v, "joiner");
    if (!encoder.n || !decoder.n) return;
    td_v1_step(v, encoder, "once", td_json_get(v->model, "encoder"));
    td_v1_step(v, decoder, "always", td_json_get(v->model, "decoder"));
    if (joiner.n) td_v1_step(v, joiner, "always", td_json_get(v->model, "joiner"));
}

/* --- state */

/* "past.%d.key" to "past.{layer}.key". */
static void add_pattern(td_v1 *v, td_str name, const char *ours, const td_json *at, const td_json *decoder) {
    for (size_t i = 0; i + 1 < name.n; i++) {
        if (name.p[i] != '%' || name.p[i + 1] != 'd') continue;
        char *text =
            td_arena_printf(&v->c->arena, "%.*s{layer}%.*s", (int)i, name.p, (int)(name.n - i - 2), name.p + i + 2);
        if (!text) v->failed = true;
        td_json *state = td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "state", decoder);
        if (text) td_v1_string(v, td_v1_object(v, state, "kv_cache", decoder), ours, td_str_from(text), at);
        return;
    }
    td_v1_note(v, at, "a name pattern without %d matches nothing and is left out");
}

/* Names that are found without being told are not declared. */
static void add_patterns(td_v1 *v, const td_json *decoder) {
    static const struct {
        const char *past, *usual_past, *present, *usual_present, *our_past, *our_present;
    } rows[] = {
        {"past_key_names", "past_key_values.%d.key", "present_key_names", "present.%d.key", "past_key_pattern",
         "present_key_pattern"},
        {"past_value_names", "past_key_values.%d.value", "present_value_names", "present.%d.value",
         "past_value_pattern", "present_value_pattern"},
        {"past_names", "past_%d", "present_names", "present_%d", "past_pattern", "present_pattern"},
    };
    const td_json *inputs = td_json_get(decoder, "inputs"), *outputs = td_json_get(decoder, "outputs");
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_json *past_at = td_json_get(inputs, rows[i].past), *present_at = td_json_get(outputs, rows[i].present);
        td_str past = td_json_string_or(inputs, rows[i].past, rows[i].usual_past);
        td_str present = td_json_string_or(outputs, rows[i].present, rows[i].usual_present);
        bool usual = td_str_is(past, rows[i].usual_past) && td_str_is(present, rows[i].usual_present);
        if (usual || !past.n || !present.n) continue;
        add_pattern(v, past, rows[i].our_past, past_at ? past_at : present_at, decoder);
        add_pattern(v, present, rows[i].our_present, present_at ? present_at : past_at, decoder);
    }
}

/* What counts where the graph leaves the sizes of its caches free. */
static void add_heads(td_v1 *v, const td_json *decoder) {
    static const struct {
        const char *theirs, *ours;
    } rows[] = {{"num_key_value_heads", "heads"}, {"head_size", "head_dim"}};
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        if (td_json_int_or(decoder, rows[i].theirs, 0) <= 0) continue;
        td_json *state = td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "state", decoder);
        td_v1_copy(v, td_v1_object(v, state, "kv_cache", decoder), rows[i].ours, td_json_get(decoder, rows[i].theirs));
    }
}

static void add_window(td_v1 *v, const td_json *decoder) {
    static const char *const keys[] = {"window_size", "layers", "pad_value", "alignment", "slide_key_value_cache"};
    const td_json *window = td_json_get(decoder, "sliding_window");
    int64_t size = td_json_int_or(window, "window_size", 0), context = td_json_int_or(v->model, "context_length", 0);
    bool inputs = td_json_bool_or(window, "slide_inputs", true);
    if (size <= 0) return;
    if (!inputs && context > 0 && size > context) {
        td_v1_note(v, window, "a window wider than the context hides nothing and is left out");
        return;
    }
    td_json *state = td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "state", decoder);
    td_json *ours = td_v1_object(v, td_v1_object(v, state, "kv_cache", decoder), "sliding_window", window);
    for (size_t i = 0; i < TD_COUNT(keys); i++) td_v1_copy(v, ours, keys[i], td_json_get(window, keys[i]));
    const td_json *slide = td_json_get(window, "slide_inputs");
    td_v1_bool(v, ours, "slide_inputs", inputs, slide ? slide : window);
}

static void add_pair(td_v1 *v, td_str session, td_str input, td_str output, const td_json *origin) {
    char *in = td_arena_printf(&v->c->arena, "%.*s.%.*s", TD_STR_ARGS(session), TD_STR_ARGS(input));
    char *out = td_arena_printf(&v->c->arena, "%.*s.%.*s", TD_STR_ARGS(session), TD_STR_ARGS(output));
    if (!in || !out) v->failed = true;
    td_json *pair = td_v1_new_object(v, origin);
    if (!pair) return;
    td_v1_string(v, pair, "input", td_str_from(in), origin);
    td_v1_string(v, pair, "output", td_str_from(out), origin);
    td_json *state = td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "state", v->model);
    td_v1_push(v, state, "recurrent", pair, origin);
}

static void add_recurrent(td_v1 *v) {
    static const struct {
        const char *section, *input, *output;
    } rows[] = {
        {"decoder", "rnn_states_prev", "rnn_states"},
        {"decoder", "lstm_hidden_state", "lstm_hidden_state"},
        {"decoder", "lstm_cell_state", "lstm_cell_state"},
        {"encoder", "cache_last_channel", "cache_last_channel_next"},
        {"encoder", "cache_last_time", "cache_last_time_next"},
        {"encoder", "cache_last_channel_len", "cache_last_channel_len_next"},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_json *input_at, *output_at;
        td_str input = port_name(v, rows[i].section, "inputs", rows[i].input, &input_at);
        td_str output = port_name(v, rows[i].section, "outputs", rows[i].output, &output_at);
        td_str session = td_v1_session_name(v, rows[i].section);
        if (session.n && input.n && output.n) add_pair(v, session, input, output, input_at);
    }
}

/* The name of one layer; NULL: the pattern has no %d, or out of memory. */
static char *fill_layer(td_v1 *v, td_str pattern, int64_t layer) {
    for (size_t i = 0; i + 1 < pattern.n; i++) {
        if (pattern.p[i] != '%' || pattern.p[i + 1] != 'd') continue;
        char *text = td_arena_printf(&v->c->arena, "%.*s%lld%.*s", (int)i, pattern.p, (long long)layer,
                                     (int)(pattern.n - i - 2), pattern.p + i + 2);
        if (!text) v->failed = true;
        return text;
    }
    return NULL;
}

/* Convolution states per layer, where their names are not those that are found anyway. */
static void add_conv_states(td_v1 *v, const td_json *decoder) {
    const td_json *past = td_json_get(td_json_get(decoder, "inputs"), "past_conv_names");
    const td_json *present = td_json_get(td_json_get(decoder, "outputs"), "present_conv_names");
    const td_json *types = td_json_get(decoder, "layer_types");
    td_str session = td_v1_session_name(v, "decoder");
    if (!past || !present || past->kind != TD_JSON_STRING || present->kind != TD_JSON_STRING || !session.n) return;
    if (td_str_is(past->string, "past_conv.%d") && td_str_is(present->string, "present_conv.%d")) return;
    int64_t layer = 0;
    for (const td_json *t = types && types->kind == TD_JSON_ARRAY ? types->first : NULL; t && layer < MAX_LAYERS;
         t = t->next, layer++) {
        if (t->kind != TD_JSON_STRING || td_str_is(t->string, "full_attention")) continue;
        char *input = fill_layer(v, past->string, layer), *output = fill_layer(v, present->string, layer);
        if (input && output) add_pair(v, session, td_str_from(input), td_str_from(output), past);
    }
}

/* What three-dimensional positions need; whether there are any, the graph says. */
static void add_positions(td_v1 *v) {
    const td_json *vision = td_json_get(v->model, "vision");
    if (!vision || vision->kind != TD_JSON_OBJECT || vision_loop(v) != TD_V1_LOOP_GRID) return;
    const td_json *merge = td_json_get(vision, "spatial_merge_size"), *speed = td_json_get(vision, "tokens_per_second");
    td_json *state = td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "state", vision);
    td_json *positions = td_v1_object(v, state, "position_ids", vision);
    if (merge) td_v1_copy(v, positions, "merge_size", merge);
    else td_v1_int(v, positions, "merge_size", 2, vision);
    if (speed) td_v1_copy(v, positions, "tokens_per_second", speed);
    else td_v1_int(v, positions, "tokens_per_second", 2, vision);
}

void td_v1_flow(td_v1 *v) {
    const td_json *decoder = td_json_get(v->model, "decoder"), *stages = td_json_get(decoder, "pipeline");
    const td_json *eyes = td_json_get(td_json_get(v->model, "vision"), "pipeline");
    if ((!stages || !stages->n) && (!eyes || !eyes->n)) {
        add_modal_flow(v);
        add_encoder_flow(v);
    }
    add_wires(v);
    add_patterns(v, decoder);
    add_heads(v, decoder);
    add_window(v, decoder);
    add_recurrent(v);
    add_conv_states(v, decoder);
    add_positions(v);
}
