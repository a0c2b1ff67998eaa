/* config/settings.c - the caller's settings: values put at JSON pointers of the tree. */
#include "config/config.h"
#include "config/fields.h"

/* The number that an array's key is; -1: none. */
static int64_t index_of(td_str key) {
    int64_t index = 0;
    if (key.n == 0 || key.n > 9 || (key.n > 1 && key.p[0] == '0')) return -1;
    for (size_t i = 0; i < key.n; i++) {
        if (key.p[i] < '0' || key.p[i] > '9') return -1;
        index = index * 10 + (key.p[i] - '0');
    }
    return index;
}

/* Replaces or appends an array's item. false: out of memory, or reported. */
static bool put_item(td_json *array, td_str key, td_json *value, const treadle_setting *setting,
                     td_messages *messages) {
    int64_t index = index_of(key);
    bool append = td_str_is(key, "-") || index == array->n;
    if (!append && (index < 0 || index > array->n)) {
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.pointer = setting->pointer},
                        "expected an index from 0 to %u, or -, in a setting, found \"%.*s\"", array->n,
                        TD_STR_ARGS(key));
        return true;
    }
    if (append) {
        if (value->kind != TD_JSON_NULL) td_tree_push(array, value);
        return true;
    }
    td_json **at = &array->first;
    for (; index > 0; index--) at = &(*at)->next;
    value->next = (*at)->next;
    value->parent = array;
    if (value->kind == TD_JSON_NULL) array->n--;
    *at = value->kind == TD_JSON_NULL ? (*at)->next : value;
    return true;
}

/* One key of a pointer without its escapes: ~1 is a slash, ~0 a tilde. */
static td_str unescape(td_config *c, td_str key) {
    char *out = td_arena_strndup(&c->arena, key.p, key.n);
    size_t n = 0;
    for (size_t i = 0; out && i < key.n; i++) {
        bool escape = key.p[i] == '~' && i + 1 < key.n && (key.p[i + 1] == '0' || key.p[i + 1] == '1');
        out[n++] = escape ? (key.p[i + 1] == '0' ? '~' : '/') : key.p[i];
        i += escape;
    }
    return (td_str){out, n};
}

/* Where a setting goes: a value of the tree, and what the table says it is (NULL: it says nothing). */
typedef struct spot {
    td_json *at;
    const td_field *field;
} spot;

static const td_field *field_of(const spot *s, td_str key) {
    if (!s->field) return NULL;
    if (s->at->kind == TD_JSON_ARRAY) return s->field->flags & TD_FIELD_LIST ? s->field : NULL;
    return td_field_child(s->field, key);
}

/* The member under a key, made where it is missing. A list is a list: what is one value alone becomes its first item if
 * the pointer goes on with an index. NULL: out of memory. */
static td_json *member_of(td_config *c, const spot *s, td_str key, bool index_follows, const td_source *source) {
    const td_field *field = field_of(s, key);
    bool list = field && field->flags & TD_FIELD_LIST && index_follows;
    td_json *found = td_json_get_str(s->at, key);
    if (found && (!list || found->kind == TD_JSON_ARRAY)) return found;
    td_json *made = td_tree_new(&c->arena, list ? TD_JSON_ARRAY : TD_JSON_OBJECT, source);
    if (!made || !td_tree_put(&c->arena, s->at, key, made)) return NULL;
    if (found) td_tree_push(made, found);
    return made;
}

static void refuse(const treadle_setting *setting, td_messages *messages, const char *wanted, td_str key,
                   const char *found) {
    td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.pointer = setting->pointer},
                    "expected %s \"%.*s\" in a setting, found %s", wanted, TD_STR_ARGS(key), found);
}

static bool put_last(td_config *c, td_json *at, td_str key, td_json *value, const treadle_setting *setting,
                     td_messages *messages) {
    if (at->kind == TD_JSON_ARRAY) return put_item(at, key, value, setting, messages);
    if (value->kind != TD_JSON_NULL) return td_tree_put(&c->arena, at, key, value);
    td_tree_remove(at, key);
    return true;
}

static bool put_at_pointer(td_config *c, const td_field *root, const treadle_setting *setting, const td_source *source,
                           td_json *value, td_messages *messages) {
    spot s = {.at = c->root, .field = root};
    td_str rest = td_str_from(setting->pointer);
    if (rest.n < 2 || rest.p[0] != '/') {
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.pointer = setting->pointer},
                        "expected a JSON pointer like /generation/max_length in a setting, found \"%s\"",
                        setting->pointer);
        return true;
    }
    for (;;) {
        rest = (td_str){rest.p + 1, rest.n - 1};
        const char *slash = memchr(rest.p, '/', rest.n);
        size_t n = slash ? (size_t)(slash - rest.p) : rest.n;
        td_str key = unescape(c, (td_str){rest.p, n});
        if (!key.p) return false;
        if (s.at->kind != TD_JSON_OBJECT && s.at->kind != TD_JSON_ARRAY) {
            refuse(setting, messages, "an object or array above", key, td_json_kind_name(s.at->kind));
            return true;
        }
        if (!slash) return put_last(c, s.at, key, value, setting, messages);
        rest = (td_str){slash, rest.n - n};
        const td_field *field = field_of(&s, key);
        if (s.at->kind == TD_JSON_ARRAY) {
            int64_t index = index_of(key);
            s.at = index < 0 ? NULL : td_json_at(s.at, (size_t)index);
            if (!s.at) {
                refuse(setting, messages, "an index of an item for", key, "none");
                return true;
            }
        } else {
            td_str next = {rest.p + 1, rest.n - 1};
            const char *end = memchr(next.p, '/', next.n);
            if (end) next.n = (size_t)(end - next.p);
            s.at = member_of(c, &s, key, index_of(next) >= 0 || td_str_is(next, "-"), source);
            if (!s.at) return false;
        }
        s.field = field;
    }
}

static bool points_into_v1(const char *pointer) {
    static const char *const tops[] = {"/model/", "/search/", "/engine/", "/speculative/"};
    for (size_t i = 0; i < TD_COUNT(tops); i++)
        if (strncmp(pointer, tops[i], strlen(tops[i])) == 0) return true;
    return false;
}

bool td_config_apply_settings(td_config *c, const td_config_options *options, bool v1, td_messages *messages) {
    for (size_t i = 0; options && i < options->n_settings; i++) {
        const treadle_setting *setting = &options->settings[i];
        if (c->version == 1 || v1 ? points_into_v1(setting->pointer) != v1 : false) continue;
        char *text = td_arena_strdup(&c->arena, setting->value);
        const td_source *source = text ? td_config_source(c, "setting", NULL, td_str_from(text)) : NULL;
        if (!source) return false;
        td_json *parsed = NULL;
        treadle_error problem = {0};
        treadle_status status = td_json_parse(source->text, NULL, &c->arena, &parsed, &problem);
        if (status == TREADLE_OUT_OF_MEMORY) return false;
        if (status != TREADLE_OK) {
            td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.pointer = setting->pointer},
                            "setting is no JSON value: %s", problem.message);
            continue;
        }
        td_json *value = td_tree_copy(&c->arena, parsed, source);
        if (!value || !put_at_pointer(c, v1 ? NULL : &td_config_root, setting, source, value, messages)) return false;
    }
    return true;
}
