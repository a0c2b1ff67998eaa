/* config/sessions.c - the sessions of a folder that has no config, or whose config has no pipeline: every .onnx
 * file, named after itself, and every sub-folder with a model.onnx, named after the folder. The latter also where a
 * version 1 file leaves them out. Where the folder has no graph of its own, those of a sub-folder are the sessions
 * (onnx/, as exports for browsers lie). */
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

/* A folder's entries, by name. NULL: none, the reason is among the messages or it is out of memory. */
static char **list(td_config *c, const char *dir, size_t *n, td_messages *messages, bool *ok) {
    char **names = NULL;
    treadle_error problem = {0};
    treadle_status status = td_list_dir(&c->arena, dir, &names, n, &problem);
    *ok = status != TREADLE_OUT_OF_MEMORY;
    if (status == TREADLE_OK) return names;
    if (*ok) td_messages_add_error(messages, (td_place){.file = dir}, &problem);
    return NULL;
}

/* Adds the graphs of one sub-folder: its model.onnx, named after the folder; else, or with all, each
 * of them, named after itself. */
static bool scan_folder(td_config *c, td_json *sessions, const td_source *source, const char *folder, bool all,
                        td_messages *messages) {
    size_t n = 0;
    bool ok;
    char *dir = td_path_join(&c->arena, c->dir, folder);
    char **names = dir ? list(c, dir, &n, messages, &ok) : NULL;
    if (!dir || !ok) return false;
    for (size_t i = 0; names && i < n; i++) {
        td_str name = td_str_from(names[i]);
        bool model = td_str_is(name, "model.onnx");
        char *path = td_path_join(&c->arena, dir, names[i]);
        char *file = td_arena_printf(&c->arena, "%s/%s", folder, names[i]);
        if (!path || !file) return false;
        if (!td_str_ends(name, TD_STR(".onnx")) || name.n == 5 || !(all || model) || !td_path_is_file(path)) continue;
        td_str called = model ? td_str_from(folder) : (td_str){name.p, name.n - 5};
        if (is_named(sessions, file)) continue;
        if (td_json_get_str(sessions, called)) {
            if (model) continue;
            called = (td_str){file, strlen(file) - 5};
        }
        if (!add_session(c, sessions, source, called, file)) return false;
    }
    return true;
}

/* The folder's own graphs; sub-folders with a model.onnx; and where neither are, or all are in one
 * sub-folder, all that that one has. */
static bool scan(td_config *c, td_json *sessions, const td_source *source, bool folders_only, td_messages *messages) {
    size_t n = 0, n_own = 0, n_folders = 0;
    bool ok;
    char **names = list(c, c->dir, &n, messages, &ok);
    const char **folders = ok ? TD_ARENA_ARRAY(&c->arena, const char *, n) : NULL;
    if (!ok || !folders) return false;
    for (size_t i = 0; names && i < n; i++) {
        td_str name = td_str_from(names[i]);
        char *path = td_path_join(&c->arena, c->dir, names[i]);
        if (!path) return false;
        if (!folders_only && td_str_ends(name, TD_STR(".onnx")) && name.n > 5 && td_path_is_file(path)) {
            if (!add_session(c, sessions, source, (td_str){name.p, name.n - 5}, names[i])) return false;
            n_own++;
        } else if (name.p[0] != '.' && td_path_is_dir(path)) {
            folders[n_folders++] = names[i];
        }
    }
    for (size_t i = 0; i < n_folders; i++)
        if (!scan_folder(c, sessions, source, folders[i], false, messages)) return false;
    bool alone = sessions->n <= 1 && !n_own && !folders_only;
    for (size_t i = 0; i < n_folders && alone; i++) {
        bool its = !sessions->n || td_str_is(sessions->first->key, folders[i]);
        if (its && !scan_folder(c, sessions, source, folders[i], true, messages)) return false;
    }
    if (!sessions->n && names && messages->n_errors == 0)
        td_messages_add(
            messages, TREADLE_MESSAGE_ERROR, (td_place){.file = c->dir},
            "expected .onnx files in the folder or a sub-folder of it, or a genai_config.json that names them, found neither");
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
