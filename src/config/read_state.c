/* config/read_state.c - pipeline.state. */
#include "config/read.h"

static bool read_window(td_config *c, const td_json *window, td_messages *m) {
    td_config_window *w = &c->state.window;
    int64_t context = c->generation.context_length;
    w->size = TD_MAX(td_json_int_or(window, "window_size", 0), (int64_t)0);
    w->slide_inputs = td_json_bool_or(window, "slide_inputs", false);
    w->slide_cache = td_json_bool_or(window, "slide_key_value_cache", true);
    w->pad_value = TD_MAX(td_read_id(window, "pad_value"), 0);
    w->alignment = (td_alignment)td_read_word(window, "alignment", td_alignment_words, TD_ALIGNMENT_RIGHT);
    w->json = window;
    if (w->size > 0 && context > 0 && w->size > context)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, td_json_get(window, "window_size")),
                        "expected a window of at most the context length %lld, found %lld", (long long)context,
                        (long long)w->size);
    return td_read_numbers(c, td_json_get(window, "layers"), &w->layers, &w->n_layers);
}

/* init: a number, "zeros", "ones", or the output that gives the start. */
static void read_init(const td_json *init, td_config_recurrent *row) {
    if (!init) return;
    if (init->kind == TD_JSON_INT || init->kind == TD_JSON_DOUBLE) row->init = init->as_double;
    else if (init->kind != TD_JSON_STRING || td_str_is(init->string, "zeros")) return;
    else if (td_str_is(init->string, "ones")) row->init = 1;
    else row->init_from = init->string;
}

static bool read_recurrent(td_config *c, const td_json *list) {
    td_config_recurrent *rows = TD_ARENA_ARRAY(&c->arena, td_config_recurrent, td_list_count(list));
    if (!rows) return false;
    for (const td_json *v = td_list_first(list); v; v = td_list_next(list, v)) {
        const td_json *input = td_json_get(v, "input"), *output = td_json_get(v, "output");
        if (!input || input->kind != TD_JSON_STRING || !output || output->kind != TD_JSON_STRING) continue;
        td_config_recurrent *row = &rows[c->state.n_recurrent++];
        *row = (td_config_recurrent){
            .input = input->string, .output = output->string, .json = v, .input_json = input, .output_json = output};
        read_init(td_json_get(v, "init"), row);
    }
    c->state.recurrent = rows;
    return true;
}

bool td_read_state(td_config *c, const td_json *state, td_messages *m) {
    const td_json *kv = td_json_get(state, "kv_cache"), *cross = td_json_get(state, "cross_cache");
    const td_json *positions = td_json_get(state, "position_ids");
    c->state = (td_config_state){
        .kv_format = (td_kv_format)td_read_word(kv, "format", td_kv_format_words, TD_KV_FORMAT_AUTO),
        .past_key = td_json_string_or(kv, "past_key_pattern", ""),
        .past_value = td_json_string_or(kv, "past_value_pattern", ""),
        .present_key = td_json_string_or(kv, "present_key_pattern", ""),
        .present_value = td_json_string_or(kv, "present_value_pattern", ""),
        .past = td_json_string_or(kv, "past_pattern", ""),
        .present = td_json_string_or(kv, "present_pattern", ""),
        .kv_present = (td_present)td_read_word(kv, "present", td_present_words, TD_PRESENT_AUTO),
        .heads = td_json_int_or(kv, "heads", 0),
        .head_dim = td_json_int_or(kv, "head_dim", 0),
        .cross_source = td_json_string_or(cross, "source", ""),
        .position = (td_position)td_read_word(positions, "strategy", td_position_words, TD_POSITION_AUTO),
        .position_input = td_json_string_or(positions, "input_name", ""),
        .grid_source = td_json_string_or(positions, "grid_source", ""),
        .merge_size = td_json_int_or(positions, "merge_size", 0),
        .tokens_per_second = td_json_double_or(positions, "tokens_per_second", 0),
        .json = state,
        .position_json = positions,
    };
    return read_window(c, td_json_get(kv, "sliding_window"), m) && read_recurrent(c, td_json_get(state, "recurrent"));
}
