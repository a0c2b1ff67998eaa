/* config/sessions.c - the sessions of a folder that has no config, or whose config has no pipeline: every .onnx file, named after
 * itself, and every sub-folder with a model.onnx, named after the folder. The latter also where a version 1 file leaves them out. */
#include "config/config.h"

#include "base/file.h"

static bool add_session(td_config *c, td_json *sessions, const td_source *source, td_str name, const char *file) {
    td_json *session = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
    td_json *value = td_tree_string(&c->arena, td_str_from(file), source);
    return session && value && td_tree_put(&c->arena, session, TD_STR("file"), value) &&
           td_tree_put(&c->arena, sessions, name, session);
}

/* Is `file` that of a session? */
static bool is_named(const td_json *sessions, const char *file) {
    for (const td_json *v = sessions->first; v; v = v->next)
        if (td_str_is(td_json_string_or(v, "file", ""), file)) return true;
    return false;
}

static bool scan(td_config *c, td_json *sessions, const td_source *source, bool folders_only, td_messages *messages) {
    char **names = NULL;
    size_t n = 0;
    treadle_error problem = {0};
    treadle_status status = td_list_dir(&c->arena, c->dir, &names, &n, &problem);
    if (status == TREADLE_OUT_OF_MEMORY) return false;
    if (status != TREADLE_OK) {
        td_messages_add_error(messages, (td_place){.file = c->dir}, &problem);
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        td_str name = td_str_from(names[i]);
        char *path = td_path_join(&c->arena, c->dir, names[i]);
        if (!path) return false;
        if (!folders_only && td_str_ends(name, TD_STR(".onnx")) && name.n > 5 && td_path_is_file(path)) {
            if (!add_session(c, sessions, source, (td_str){name.p, name.n - 5}, names[i])) return false;
        } else if (name.p[0] != '.' && td_path_is_dir(path)) {
            char *file = td_arena_printf(&c->arena, "%s/model.onnx", names[i]);
            char *inner = file ? td_path_join(&c->arena, c->dir, file) : NULL;
            if (!inner) return false;
            if (!td_path_is_file(inner) || is_named(sessions, file) || td_json_get(sessions, names[i])) continue;
            if (!add_session(c, sessions, source, name, file)) return false;
        }
    }
    if (!sessions->n && messages->n_errors == 0)
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.file = c->dir},
                        "expected genai_config.json or an .onnx file in the folder, found neither");
    return true;
}

/* A flow made of the sections of a version 1 file does not hold for sessions that it does not know. */
static bool find_unnamed(td_config *c, td_json *pipeline, td_json *sessions, td_messages *messages) {
    const td_source *source = td_config_source(c, "folder", NULL, (td_str){0});
    uint32_t before = sessions->n;
    if (!source || !scan(c, sessions, source, true, messages)) return false;
    if (sessions->n > before) td_tree_remove(pipeline, TD_STR("flow"));
    return true;
}

/* The one session that a flow runs; "decoder" where there is no flow. */
static td_str only_name(const td_json *pipeline) {
    const td_json *flow = td_json_get(pipeline, "flow");
    const td_json *step = flow && flow->kind == TD_JSON_ARRAY && flow->n == 1 ? flow->first : flow;
    return td_json_string_or(step, "run", "decoder");
}

/* The .onnx file that carries the config is its session. */
static bool add_carrier(td_config *c, td_json *pipeline) {
    const td_source *source = td_config_source(c, "folder", NULL, (td_str){0});
    td_json *sessions = source ? td_tree_new(&c->arena, TD_JSON_OBJECT, source) : NULL;
    return sessions && td_tree_put(&c->arena, pipeline, TD_STR("sessions"), sessions) &&
           add_session(c, sessions, source, only_name(pipeline), td_path_base(c->files->carrier));
}

bool td_config_find_sessions(td_config *c, td_messages *messages) {
    td_json *pipeline = td_json_get(c->root, "pipeline");
    const char *only_file = c->files->only;
    bool v1 = c->version == 1, carried = c->file && c->files->carrier;
    if (pipeline && (!v1 || td_json_get(pipeline, "sessions"))) {
        td_json *sessions = td_json_get(pipeline, "sessions");
        bool none = !sessions || (sessions->kind == TD_JSON_OBJECT && !sessions->n);
        if (pipeline->kind == TD_JSON_OBJECT && none && carried) return add_carrier(c, pipeline);
        if (v1) return find_unnamed(c, pipeline, sessions, messages);
        if (pipeline->kind == TD_JSON_OBJECT && none)
            td_messages_add(messages, TREADLE_MESSAGE_ERROR, td_tree_place(messages->arena, pipeline, false),
                            "Pipeline config requires at least one session. Add \"sessions\": {\"decoder\": {\"file\": "
                            "\"model.onnx\"}}");
        return true;
    }
    const td_source *source = td_config_source(c, "folder", NULL, (td_str){0});
    if (!source) return false;
    if (!pipeline) pipeline = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
    td_json *sessions = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
    if (!pipeline || !sessions || !td_tree_put(&c->arena, pipeline, TD_STR("sessions"), sessions) ||
        !(pipeline->parent || td_tree_put(&c->arena, c->root, TD_STR("pipeline"), pipeline)))
        return false;
    if (!only_file) return scan(c, sessions, source, false, messages);
    td_str name = td_str_from(only_file);
    if (td_str_ends(name, TD_STR(".onnx")) && name.n > 5) name.n -= 5;
    return add_session(c, sessions, source, name, only_file);
}
