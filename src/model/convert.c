/* model/convert.c - the config that a folder has, in whatever version, as a version 2 file that plans the same: only
 * what the file says itself, or what the folder's layout says, and of that only what its graphs have. Defaults of
 * presets and of other files stay where they are. */
#include "model/model.h"

typedef struct convert_ctx {
    const treadle_model *m;
    td_arena *arena;
    td_messages *messages; /* what is left out */
    bool failed;
} convert_ctx;

/* --- what is said */

static bool is_said(const convert_ctx *c, const td_json *value) {
    const td_source *source = td_tree_source(value);
    const char *file = c->m->config->file;
    if (strcmp(source->label, "setting") == 0 || strcmp(source->label, "folder") == 0) return true;
    return file && source->path && strcmp(source->path, file) == 0;
}

/* A copy without the values of others; NULL: nothing is left, or c->failed. */
static td_json *copy_said(convert_ctx *c, const td_json *value) {
    bool container = value->kind == TD_JSON_OBJECT || value->kind == TD_JSON_ARRAY;
    if (!container || value->kind == TD_JSON_ARRAY) {
        if (!is_said(c, value)) return NULL;
        td_json *copy = td_tree_derive_copy(c->arena, value);
        if (!copy) c->failed = true;
        return copy;
    }
    td_json *out = td_tree_derive(c->arena, TD_JSON_OBJECT, value);
    if (!out) c->failed = true;
    for (const td_json *child = value->first; child && !c->failed; child = child->next) {
        td_json *copy = copy_said(c, child);
        if (copy && !td_tree_put(c->arena, out, child->key, copy)) c->failed = true;
    }
    return out && out->n && !c->failed ? out : NULL;
}

static void remove_if_empty(td_json *parent, const char *key) {
    const td_json *child = td_json_get(parent, key);
    if (child && child->n == 0) td_tree_remove(parent, td_str_from(key));
}

static void left_out(convert_ctx *c, const td_json *value, const char *why) {
    td_messages_add(c->messages, TREADLE_MESSAGE_WARNING, td_tree_place(c->messages->arena, value, false),
                    "left out: %s", why);
}

/* --- sessions */

static const td_plan_session *session_named(const convert_ctx *c, td_str name) {
    int32_t i = td_plan_find_session(c->m->plan, name);
    return i >= 0 && c->m->plan->sessions[i].signature ? &c->m->plan->sessions[i] : NULL;
}

static void prune_names(convert_ctx *c, const td_plan_session *s, td_json *io, const char *key, bool inputs) {
    td_json *map = td_json_get(io, key);
    for (td_json *v = map && map->kind == TD_JSON_OBJECT ? map->first : NULL, *next; v; v = next) {
        next = v->next;
        if (v->kind != TD_JSON_STRING) continue;
        ptrdiff_t at = inputs ? td_signature_find_input(s->signature, v->string)
                              : td_signature_find_output(s->signature, v->string);
        if (at >= 0) continue;
        left_out(c, v, "the graph has no such name");
        td_tree_remove(map, v->key);
    }
    if (map) remove_if_empty(io, key);
}

static void prune_sessions(convert_ctx *c, td_json *sessions) {
    for (td_json *v = sessions ? sessions->first : NULL; v; v = v->next) {
        const td_plan_session *s = session_named(c, v->key);
        const td_json *provider = td_json_get(v, "execution_provider");
        if (s && provider && s->config->engine == TD_ENGINE_LIGHT) {
            left_out(c, provider, "the execution provider is not available here");
            td_tree_remove(v, TD_STR("execution_provider"));
            td_tree_remove(v, TD_STR("provider_options"));
        }
        if (!s || !td_json_get(v, "io")) continue;
        prune_names(c, s, td_json_get(v, "io"), "inputs", true);
        prune_names(c, s, td_json_get(v, "io"), "outputs", false);
        remove_if_empty(v, "io");
    }
}

/* --- wires, pairs, patterns */

/* Whether "session.tensor" is there, as far as the session's graph could be read. */
static bool exists(const convert_ctx *c, td_str end, bool input) {
    const char *dot = memchr(end.p, '.', end.n);
    if (!dot) return true;
    td_str name = {end.p, (size_t)(dot - end.p)}, port = {dot + 1, end.n - name.n - 1};
    const td_plan_session *s = session_named(c, name);
    if (!s) return td_plan_find_session(c->m->plan, name) >= 0;
    return (input ? td_plan_input_index(s, port) : td_plan_output_index(s, port)) >= 0;
}

static void remove_item(td_json *array, const td_json *item) {
    td_json **at = &array->first;
    while (*at && *at != item) at = &(*at)->next;
    if (!*at) return;
    *at = item->next;
    array->n--;
}

/* Objects that name an input and an output. */
static void prune_pairs(convert_ctx *c, td_json *parent, const char *list, const char *input, const char *output) {
    td_json *array = td_json_get(parent, list);
    for (td_json *v = array && array->kind == TD_JSON_ARRAY ? array->first : NULL, *next; v; v = next) {
        next = v->next;
        if (exists(c, td_json_string_or(v, input, ""), true) && exists(c, td_json_string_or(v, output, ""), false))
            continue;
        left_out(c, v, "the graphs have no such names");
        remove_item(array, v);
    }
    if (array) remove_if_empty(parent, list);
}

/* A pattern that no input or output follows says nothing. */
static bool says_something(const convert_ctx *c, td_str pattern) {
    const char *brace = memchr(pattern.p, '{', pattern.n);
    td_str head = {pattern.p, brace ? (size_t)(brace - pattern.p) : pattern.n};
    for (size_t i = 0; i < c->m->plan->n_sessions; i++) {
        const td_signature *s = c->m->plan->sessions[i].signature;
        if (!s) return true;
        for (size_t k = 0; k < s->n_inputs; k++)
            if (td_str_starts(s->inputs[k].name, head)) return true;
        for (size_t k = 0; k < s->n_outputs; k++)
            if (td_str_starts(s->outputs[k].name, head)) return true;
    }
    return false;
}

static void prune_patterns(const convert_ctx *c, td_json *cache) {
    for (td_json *v = cache && cache->kind == TD_JSON_OBJECT ? cache->first : NULL, *next; v; v = next) {
        next = v->next;
        if (v->kind == TD_JSON_STRING && td_str_ends(v->key, TD_STR("_pattern")) && !says_something(c, v->string))
            td_tree_remove(cache, v->key);
    }
}

static void prune(convert_ctx *c, td_json *root) {
    td_json *pipeline = td_json_get(root, "pipeline");
    td_json *state = td_json_get(pipeline, "state");
    prune_sessions(c, td_json_get(pipeline, "sessions"));
    prune_pairs(c, pipeline, "dataflow", "to", "from");
    if (!state) return;
    prune_pairs(c, state, "recurrent", "input", "output");
    prune_patterns(c, td_json_get(state, "kv_cache"));
    remove_if_empty(state, "kv_cache");
    remove_if_empty(pipeline, "state");
}

/* --- the whole */

static bool put_version(convert_ctx *c, td_json *root) {
    const td_json *old = td_json_get(root, "version");
    td_json *version = td_tree_int(c->arena, 2, td_tree_source(c->m->config->root));
    if (!version || !td_tree_put(c->arena, root, TD_STR("version"), version)) return false;
    if (old) return true;
    td_json **at = &root->first; /* made last, stands first */
    while (*at != version) at = &(*at)->next;
    *at = NULL;
    version->next = root->first;
    root->first = version;
    return true;
}

treadle_status td_model_convert(treadle_model *m, td_buf *out, treadle_error *err) {
    convert_ctx c = {.m = m, .arena = &m->arena, .messages = &m->messages};
    td_json *root = copy_said(&c, m->config->root);
    if (!root && !c.failed) root = td_tree_derive(c.arena, TD_JSON_OBJECT, m->config->root);
    if (!root || !put_version(&c, root)) return td_fail_memory(err, "a config", 0);
    if (m->config->version != 2) prune(&c, root);
    td_json_writer w;
    td_json_writer_init(&w, out, 2);
    td_json_write_value(&w, root);
    td_buf_char(out, '\n');
    return out->failed || m->messages.failed ? td_fail_memory(err, "a config", out->n) : TREADLE_OK;
}
