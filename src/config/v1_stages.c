/* config/v1_stages.c - decoder.pipeline and vision.pipeline: stages become sessions and steps of the flow, and names
 * that a stage forwards become wires. */
#include "config/v1.h"

enum { MAX_STAGES = 64 };

typedef struct stage_walk { /* stages in order: members of an object, or of the objects of an array */
    const td_json *outer, *stage;
} stage_walk;

static const td_json *first_stage(const td_json *list, stage_walk *w) {
    *w = (stage_walk){0};
    if (!list) return NULL;
    if (list->kind == TD_JSON_OBJECT) return w->stage = list->first;
    for (w->outer = list->kind == TD_JSON_ARRAY ? list->first : NULL; w->outer; w->outer = w->outer->next)
        if (w->outer->kind == TD_JSON_OBJECT && w->outer->first) return w->stage = w->outer->first;
    return NULL;
}

static const td_json *next_stage(stage_walk *w) {
    if (w->stage->next) return w->stage = w->stage->next;
    for (w->outer = w->outer ? w->outer->next : NULL; w->outer; w->outer = w->outer->next)
        if (w->outer->kind == TD_JSON_OBJECT && w->outer->first) return w->stage = w->outer->first;
    return NULL;
}

static const td_json *stage_at(const td_json *list, int64_t index) {
    stage_walk w;
    for (const td_json *s = first_stage(list, &w); s; s = next_stage(&w))
        if (index-- == 0) return s;
    return NULL;
}

static bool takes(const td_json *stage, td_str input) {
    const td_json *inputs = td_json_get(stage, "inputs");
    for (const td_json *i = inputs ? inputs->first : NULL; i; i = i->next)
        if (i->kind == TD_JSON_STRING && td_str_equal(i->string, input)) return true;
    return false;
}

/* An output that goes by another name: a wire to each later stage that takes that name. */
static void add_forwards(td_v1 *v, const td_json *stage, stage_walk later) {
    const td_json *names = td_json_get(stage, "output_names_forwarder");
    for (const td_json *to = next_stage(&later); to; to = next_stage(&later)) {
        for (const td_json *f = names && names->kind == TD_JSON_OBJECT ? names->first : NULL; f; f = f->next) {
            if (f->kind != TD_JSON_STRING || !takes(to, f->string)) continue;
            td_v1_wire(v, stage->key, f->key, to->key, f->string, f);
        }
    }
}

static void add_step(td_v1 *v, const td_json *list, const td_json *stage, bool vision) {
    bool prompt = td_json_bool_or(stage, "run_on_prompt", true);
    bool tokens = !vision && td_json_bool_or(stage, "run_on_token_gen", true);
    if (!prompt && !tokens) {
        td_v1_note(v, stage, "the stage runs neither on the prompt nor on tokens and is left out of the flow");
        return;
    }
    td_json *step = td_v1_new_object(v, stage);
    td_v1_string(v, step, "run", stage->key, stage);
    td_v1_string(v, step, "when", td_str_from(!tokens ? "prompt" : prompt ? "always" : "decode"), stage);
    if (vision) td_v1_string(v, step, "if_present", TD_STR("image"), stage);
    const td_json *reset = td_json_get(stage, "reset_session_idx");
    const td_json *released = reset && reset->kind == TD_JSON_INT ? stage_at(list, reset->as_int) : NULL;
    if (released) td_v1_string(v, step, "release", released->key, reset);
    td_v1_push(v, td_v1_object(v, v->out, "pipeline", v->model), "flow", step, list);
}

static void add_stages(td_v1 *v, const td_json *list, const td_json *options, bool vision) {
    stage_walk w;
    size_t n = 0;
    for (const td_json *stage = first_stage(list, &w); stage; stage = next_stage(&w)) n++;
    if (n > MAX_STAGES) {
        td_messages_add(v->messages, TREADLE_MESSAGE_ERROR, td_tree_place(v->messages->arena, list, false),
                        "expected at most %d stages, found %zu", MAX_STAGES, n);
        return;
    }
    for (const td_json *stage = first_stage(list, &w); stage; stage = next_stage(&w)) {
        if (stage->kind != TD_JSON_OBJECT) continue; /* reported with the keys */
        td_v1_add_session(v, stage->key, stage, options);
        add_step(v, list, stage, vision);
        add_forwards(v, stage, w);
    }
}

void td_v1_stages(td_v1 *v) {
    const td_json *decoder = td_json_get(v->model, "decoder"), *vision = td_json_get(v->model, "vision");
    const td_json *options = td_json_get(decoder, "session_options");
    const td_json *stages = td_json_get(decoder, "pipeline"), *eyes = td_json_get(vision, "pipeline");
    bool staged = stages && stages->n, sees = eyes && eyes->n;
    if (sees) add_stages(v, eyes, options, true);
    if (!staged && !sees) return;
    td_str embedding = td_v1_session_name(v, "embedding"), whole = td_v1_session_name(v, "decoder");
    if (embedding.n) td_v1_step(v, embedding, "always", td_json_get(v->model, "embedding"));
    if (staged) add_stages(v, stages, options, false);
    else if (whole.n) td_v1_step(v, whole, "always", decoder);
}
