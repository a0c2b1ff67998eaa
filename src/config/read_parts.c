/* config/read_parts.c - pooling, plugin and preprocessing. */
#include <stdlib.h>

#include "base/file.h"
#include "config/read.h"

enum { PREPROCESS_MAX_BYTES = 64 << 20 };

/* --- pooling */

void td_read_pooling(td_config *c, const td_json *pipeline) {
    const td_json *pooling = td_json_get(c->root, "pooling");
    if (!pooling) pooling = td_json_get(pipeline, "pooling");
    c->pooling = (td_config_pooling){
        .declared = pooling != NULL,
        .mode = (td_pooling)td_read_word(pooling, "mode", td_pooling_words, TD_POOLING_MEAN),
        .normalize = td_json_bool_or(pooling, "normalize", false),
        .json = pooling,
    };
}

/* --- plugin */

/* The real path of `library` if it is a file inside the folder `dir`; NULL: it is not, or out of memory. */
static const char *find_allowed(td_config *c, const char *library, const char *dir) {
    char *real_dir = realpath(dir, NULL), *real = NULL;
    char *path = td_path_join(&c->arena, strchr(library, '/') ? c->dir : dir, library);
    const char *found = NULL;
    if (real_dir && path) real = realpath(path, NULL);
    size_t n = real_dir ? strlen(real_dir) : 0;
    bool below = real && strncmp(real, real_dir, n) == 0 && (real[n] == '/' || (n == 1 && real_dir[0] == '/'));
    if (below && td_path_is_file(real)) found = td_arena_strdup(&c->arena, real);
    free(real);
    free(real_dir);
    return found;
}

bool td_read_plugin(td_config *c, const td_json *plugin, const td_config_options *options, td_messages *m) {
    const td_json *library = td_json_get(plugin, "library");
    if (!library || library->kind != TD_JSON_STRING) return true;
    td_str entry = td_json_string_or(plugin, "entry_point", "");
    c->plugin.json = plugin;
    c->plugin.library = td_arena_strndup(&c->arena, library->string.p, library->string.n);
    if (entry.n) c->plugin.entry_point = td_arena_strndup(&c->arena, entry.p, entry.n);
    if (!c->plugin.library || (entry.n && !c->plugin.entry_point)) return false;
    bool whole = strlen(c->plugin.library) == library->string.n && strlen(c->plugin.library) > 0;
    for (size_t i = 0; whole && options && i < options->n_plugin_dirs && !c->plugin.path; i++)
        c->plugin.path = find_allowed(c, c->plugin.library, options->plugin_dirs[i]);
    if (!c->plugin.path)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, plugin),
                        "plugin \"%.*s\" is not allowed: native code is loaded only from folders that the host allows "
                        "(--allow-plugins DIR)",
                        (int)TD_MIN(library->string.n, (size_t)200), library->string.p);
    return true;
}

/* --- preprocessing */

/* A JSON file must at least be JSON; what it says is the media module's business. A file that the model carries has no
 * path: its tree takes the place of its name. */
static bool check_preprocess_text(td_config *c, td_config_preprocess *p, const char *name, td_messages *m) {
    td_str text = {0};
    const char *shown = NULL;
    td_json *parsed = NULL;
    treadle_error problem = {0};
    treadle_status status =
        td_model_files_read(c->files, name, PREPROCESS_MAX_BYTES, &c->arena, &text, &shown, &problem);
    if (status == TREADLE_OK && !text.p) return true; /* only a path leads to it: reported */
    if (status == TREADLE_OK) status = td_json_parse(text, NULL, &c->arena, &parsed, &problem);
    if (status == TREADLE_OUT_OF_MEMORY) return false;
    if (status != TREADLE_OK) {
        td_place place = {.file = shown, .line = problem.line, .column = problem.column, .pointer = problem.pointer};
        td_messages_add_error(m, place, &problem);
        return true;
    }
    if (p->path) return true;
    const td_source *source = td_config_source(c, name, shown, text);
    p->config = source ? td_tree_copy(&c->arena, parsed, source) : NULL;
    return p->config != NULL;
}

static bool find_preprocess_file(td_config *c, td_config_preprocess *p, td_messages *m) {
    char *path = NULL;
    treadle_error problem = {0};
    td_str name = p->config->string, shown = {name.p, TD_MIN(name.n, (size_t)200)};
    treadle_status status = td_path_resolve_inside(&c->arena, c->dir, name, &path, &problem);
    if (status == TREADLE_OUT_OF_MEMORY) return false;
    char *text = td_arena_strndup(&c->arena, name.p, name.n);
    if (!text) return false;
    bool carried = status == TREADLE_NOT_FOUND && td_model_files_has(c->files, text);
    if (status == TREADLE_OK && td_path_is_file(path)) p->path = path;
    else if (status == TREADLE_OK || (status == TREADLE_NOT_FOUND && !carried))
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, p->config),
                        "expected a file of the model folder, found %s\"%.*s\"%s", status == TREADLE_OK ? "" : "no ",
                        TD_STR_ARGS(shown), status == TREADLE_OK ? ", which is a folder, device or pipe" : "");
    else if (!carried)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, p->config),
                        "expected a file inside the model folder, found \"%.*s\": %s", TD_STR_ARGS(shown),
                        problem.message);
    bool graph = p->format == TD_PREPROCESS_FORMAT_ONNX || td_str_ends(name, TD_STR(".onnx"));
    return graph || (!p->path && !carried) || check_preprocess_text(c, p, text, m);
}

bool td_read_preprocessing(td_config *c, const td_json *preprocessing, td_messages *m) {
    static const char *const names[TD_PREPROCESS_KINDS] = {
        [TD_PREPROCESS_IMAGE] = "image", [TD_PREPROCESS_AUDIO] = "audio", [TD_PREPROCESS_TEXT] = "text"};
    for (int i = 0; i < TD_PREPROCESS_KINDS; i++) {
        const td_json *v = td_json_get(preprocessing, names[i]);
        td_config_preprocess *p = &c->preprocess[i];
        if (!v || v->kind != TD_JSON_OBJECT) continue;
        p->json = v;
        p->config = td_json_get(v, "config");
        p->expected_outputs = td_json_get(v, "expected_outputs");
        p->prompt = td_json_get(v, "prompt");
        p->format =
            (td_preprocess_format)td_read_word(v, "format", td_preprocess_format_words, TD_PREPROCESS_FORMAT_AUTO);
        if (p->config && p->config->kind == TD_JSON_STRING && !find_preprocess_file(c, p, m)) return false;
    }
    return true;
}
