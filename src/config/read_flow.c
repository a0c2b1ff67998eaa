/* config/read_flow.c - pipeline.flow and pipeline.dataflow. */
#include "config/read.h"

static bool declared(const td_config *c, td_str name) {
    for (size_t i = 0; i < c->n_sessions; i++)
        if (td_str_equal(c->sessions[i].name, name)) return true;
    return false;
}

static bool is_preset(const td_json *value) { return strncmp(td_tree_source(value)->label, "preset ", 7) == 0; }

/* loop_rows: "grid" or {"source": name}. */
static void read_loop_rows(const td_json *rows, td_config_step *s, td_messages *m) {
    if (!rows) return;
    if (rows->kind == TD_JSON_OBJECT) {
        s->loop_rows = TD_LOOP_ROWS_SOURCE;
        s->loop_rows_source = td_json_string_or(rows, "source", "");
    } else if (rows->kind == TD_JSON_STRING && td_str_is(rows->string, "grid")) {
        s->loop_rows = TD_LOOP_ROWS_GRID;
    } else if (rows->kind == TD_JSON_STRING) {
        td_messages_add(
            m, TREADLE_MESSAGE_ERROR, td_read_at(m, rows),
            "Unknown loop_rows \"%.*s\" of a flow step. Valid options: grid, {\"source\": \"name of a tensor\"}",
            (int)TD_MIN(rows->string.n, (size_t)200), rows->string.p);
    }
}

static bool read_step(td_config *c, const td_json *v, td_config_step *s, td_messages *m) {
    const td_json *crop = td_json_get(v, "dynamic_shape");
    *s = (td_config_step){
        .run = td_json_string_or(v, "run", ""),
        .when = (td_when)td_read_word(v, "when", td_when_words, TD_WHEN_ALWAYS),
        .loop = (td_loop)td_read_word(v, "loop", td_loop_words, TD_LOOP_BATCHED),
        .loop_over = td_json_string_or(v, "loop_over", ""),
        .crop_source = td_json_string_or(crop, "source", ""),
        .cross_attention_from = td_json_string_or(v, "cross_attention_from", ""),
        .if_present = (td_modality)td_read_word(v, "if_present", td_modality_words, TD_MODALITY_NONE),
        .json = v,
        .run_json = td_json_get(v, "run"),
        .loop_over_json = td_json_get(v, "loop_over"),
        .from_preset = is_preset(v),
    };
    read_loop_rows(td_json_get(v, "loop_rows"), s, m);
    return td_read_numbers(c, td_json_get(crop, "apply_to_dims"), &s->crop_dims, &s->n_crop_dims) &&
           td_read_strings(c, td_json_get(v, "release"), &s->release, &s->n_release);
}

/* "`what` references session ..." in the words of the contract. */
static void check_declared(const td_config *c, const td_json *name, const char *what, td_messages *m) {
    if (!name || name->kind != TD_JSON_STRING || declared(c, name->string)) return;
    const char **names = TD_ARENA_ARRAY(m->arena, const char *, c->n_sessions + 1);
    for (size_t i = 0; names && i < c->n_sessions; i++) {
        names[i] = td_arena_strndup(m->arena, c->sessions[i].name.p, c->sessions[i].name.n);
        if (!names[i]) names = NULL;
    }
    const char *list = names ? td_words_join(m->arena, names) : NULL;
    if (!list) {
        m->failed = true;
        return;
    }
    td_str shown = {name->string.p, TD_MIN(name->string.n, (size_t)200)};
    td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, name),
                    "%s references session \"%.*s\" but no such session is declared in pipeline.sessions "
                    "(declared: %s)%s",
                    what, TD_STR_ARGS(shown), list, td_did_you_mean(m->arena, shown, names, c->n_sessions));
}

static bool read_steps(td_config *c, const td_json *flow, td_messages *m) {
    if (!flow || (flow->kind != TD_JSON_ARRAY && flow->kind != TD_JSON_OBJECT)) return true;
    td_config_step *steps = TD_ARENA_ARRAY(&c->arena, td_config_step, td_list_count(flow));
    size_t n = 0;
    bool all_declared = true;
    if (!steps) return false;
    for (const td_json *v = td_list_first(flow); v; v = td_list_next(flow, v)) {
        const td_json *run = td_json_get(v, "run");
        if (!run || run->kind != TD_JSON_STRING) continue;
        if (!read_step(c, v, &steps[n++], m)) return false;
        all_declared &= declared(c, run->string);
    }
    if (is_preset(flow) && !all_declared) return true; /* the plan finds one from the graphs */
    c->steps = steps;
    c->n_steps = n;
    for (size_t i = 0; i < n; i++) {
        check_declared(c, steps[i].run_json, "Flow step", m);
        check_declared(c, td_json_get(steps[i].json, "cross_attention_from"), "cross_attention_from", m);
        const td_json *release = td_json_get(steps[i].json, "release");
        for (const td_json *v = td_list_first(release); v; v = td_list_next(release, v))
            check_declared(c, v, "release", m);
    }
    return true;
}

static bool read_wires(td_config *c, const td_json *wires) {
    if (!wires || (wires->kind != TD_JSON_ARRAY && wires->kind != TD_JSON_OBJECT)) return true;
    c->wires = TD_ARENA_ARRAY(&c->arena, td_config_wire, td_list_count(wires));
    if (!c->wires) return false;
    for (const td_json *v = td_list_first(wires); v; v = td_list_next(wires, v)) {
        const td_json *from = td_json_get(v, "from"), *to = td_json_get(v, "to");
        if (!from || from->kind != TD_JSON_STRING || !to || to->kind != TD_JSON_STRING) continue;
        c->wires[c->n_wires++] = (td_config_wire){.from = from->string,
                                                  .to = to->string,
                                                  .hold = td_json_bool_or(v, "hold", false),
                                                  .json = v,
                                                  .from_json = from,
                                                  .to_json = to};
    }
    return true;
}

bool td_read_flow(td_config *c, const td_json *pipeline, td_messages *m) {
    return read_steps(c, td_json_get(pipeline, "flow"), m) && read_wires(c, td_json_get(pipeline, "dataflow"));
}
