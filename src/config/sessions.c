/* config/sessions.c - the sessions of a folder that has no config, or whose config has no pipeline: every .onnx file, named after
 * itself, and every sub-folder with a model.onnx, named after the folder. */
#include "config/config.h"

#include "base/file.h"

static bool add_session(td_config *c, td_json *sessions, const td_source *source, td_str name, const char *file) {
    td_json *session = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
    td_json *value = td_tree_string(&c->arena, td_str_from(file), source);
    return session && value && td_tree_put(&c->arena, session, TD_STR("file"), value) &&
           td_tree_put(&c->arena, sessions, name, session);
}

static bool scan(td_config *c, td_json *sessions, const td_source *source, td_messages *messages) {
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
        if (td_str_ends(name, TD_STR(".onnx")) && name.n > 5 && td_path_is_file(path)) {
            if (!add_session(c, sessions, source, (td_str){name.p, name.n - 5}, names[i])) return false;
        } else if (name.p[0] != '.' && td_path_is_dir(path)) {
            char *file = td_arena_printf(&c->arena, "%s/model.onnx", names[i]);
            char *inner = file ? td_path_join(&c->arena, c->dir, file) : NULL;
            if (!inner) return false;
            if (td_path_is_file(inner) && !add_session(c, sessions, source, name, file)) return false;
        }
    }
    if (!sessions->n && messages->n_errors == 0)
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.file = c->dir},
                        "expected genai_config.json or an .onnx file in the folder, found neither");
    return true;
}

bool td_config_find_sessions(td_config *c, const char *only_file, td_messages *messages) {
    td_json *pipeline = td_json_get(c->root, "pipeline");
    c->has_pipeline = pipeline != NULL;
    if (pipeline) {
        const td_json *sessions = td_json_get(pipeline, "sessions");
        if (pipeline->kind == TD_JSON_OBJECT && (!sessions || (sessions->kind == TD_JSON_OBJECT && !sessions->n)))
            td_messages_add(messages, TREADLE_MESSAGE_ERROR, td_tree_place(messages->arena, pipeline, false),
                            "Pipeline config requires at least one session. Add \"sessions\": {\"decoder\": {\"file\": "
                            "\"model.onnx\"}}");
        return true;
    }
    const td_source *source = td_config_source(c, "folder", NULL, (td_str){0});
    if (!source) return false;
    pipeline = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
    td_json *sessions = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
    if (!pipeline || !sessions || !td_tree_put(&c->arena, pipeline, TD_STR("sessions"), sessions) ||
        !td_tree_put(&c->arena, c->root, TD_STR("pipeline"), pipeline))
        return false;
    if (!only_file) return scan(c, sessions, source, messages);
    td_str name = td_str_from(only_file);
    if (td_str_ends(name, TD_STR(".onnx")) && name.n > 5) name.n -= 5;
    return add_session(c, sessions, source, name, only_file);
}
