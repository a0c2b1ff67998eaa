/* text/post_processors.c - the post-processor slot: special tokens around the ids of a text. */
#include "text/parts.h"

/* What becomes of a single text: items in order, each an id or (-1) the text's own ids. */
typedef struct id_template {
    int32_t *items;
    size_t n;
} id_template;

static treadle_status push_id(td_loader *loader, const td_json *at, int64_t id, td_ids *ids) {
    if (at->kind != TD_JSON_INT || id < 0 || id > INT32_MAX)
        return td_loader_fail(loader, at, TREADLE_FORMAT, "expected a token id to be a whole number from 0 up");
    return td_vec_push(ids, (int32_t)id) ? TREADLE_OK : td_loader_memory(loader, "a post-processor");
}

static treadle_status keep_template(td_loader *loader, td_ids *ids, treadle_status status, void **data) {
    id_template *out = NULL;
    if (status == TREADLE_OK) {
        out = TD_ARENA_NEW(loader->arena, id_template);
        if (out) out->items = TD_ARENA_ARRAY(loader->arena, int32_t, ids->n);
        if (!out || !out->items) {
            status = td_loader_memory(loader, "a post-processor");
        } else {
            if (ids->n) memcpy(out->items, ids->items, ids->n * sizeof *ids->items);
            out->n = ids->n;
            *data = out;
        }
    }
    td_vec_free(ids);
    return status;
}

/* One item of "single": {"SpecialToken": {"id": name}} or {"Sequence": {"id": "A"}}. */
static treadle_status template_item(td_loader *loader, const td_json *json, const td_json *item, td_ids *ids) {
    if (td_json_get(item, "Sequence"))
        return td_vec_push(ids, -1) ? TREADLE_OK : td_loader_memory(loader, "a post-processor");
    const td_json *special, *name, *tokens, *token, *list;
    TD_TRY(td_loader_need(loader, item, "SpecialToken", TD_JSON_OBJECT, &special));
    TD_TRY(td_loader_need(loader, special, "id", TD_JSON_STRING, &name));
    TD_TRY(td_loader_need(loader, json, "special_tokens", TD_JSON_OBJECT, &tokens));
    token = td_json_get_str(tokens, name->string);
    if (!token)
        return td_loader_fail(loader, name, TREADLE_FORMAT, "\"%.*s\" is not among the special_tokens of its template",
                              TD_STR_ARGS(name->string));
    TD_TRY(td_loader_need(loader, token, "ids", TD_JSON_ARRAY, &list));
    for (const td_json *id = list->first; id; id = id->next) TD_TRY(push_id(loader, id, id->as_int, ids));
    return TREADLE_OK;
}

static treadle_status parse_template(td_loader *loader, const td_json *json, void **data) {
    const td_json *single;
    td_ids ids = {0};
    TD_TRY(td_loader_need(loader, json, "single", TD_JSON_ARRAY, &single));
    treadle_status status = TREADLE_OK;
    for (const td_json *item = single->first; item && status == TREADLE_OK; item = item->next)
        status = template_item(loader, json, item, &ids);
    return keep_template(loader, &ids, status, data);
}

/* The id of a ["token", id] pair. */
static treadle_status pair_id(td_loader *loader, const td_json *json, const char *key, td_ids *ids) {
    const td_json *pair;
    TD_TRY(td_loader_need(loader, json, key, TD_JSON_ARRAY, &pair));
    if (pair->n != 2) return td_loader_fail(loader, pair, TREADLE_FORMAT, "expected \"%s\" to be [token, id]", key);
    const td_json *id = td_json_at(pair, 1);
    return push_id(loader, id, id->as_int, ids);
}

/* [CLS] text [SEP] */
static treadle_status parse_cls_sep(td_loader *loader, const td_json *json, void **data) {
    td_ids ids = {0};
    treadle_status status = pair_id(loader, json, "cls", &ids);
    if (status == TREADLE_OK && !td_vec_push(&ids, -1)) status = td_loader_memory(loader, "a post-processor");
    if (status == TREADLE_OK) status = pair_id(loader, json, "sep", &ids);
    return keep_template(loader, &ids, status, data);
}

static treadle_status run_template(const void *data, td_ids *ids, size_t from, treadle_error *err) {
    const id_template *template = data;
    size_t n_own = ids->n - from, n_new = 0;
    for (size_t i = 0; i < template->n; i++)
        if (TD_ADD_OVERFLOWS(n_new, template->items[i] < 0 ? n_own : 1, &n_new) || n_new > INT32_MAX)
            return td_fail(err, TREADLE_LIMIT, "the post-processor's template makes too many tokens");
    /* The result is written behind the ids and then moved to their place. */
    if (!td_vec_reserve(ids, ids->n + n_new)) return td_fail_memory(err, "token ids", n_new * sizeof *ids->items);
    int32_t *own = ids->items + from, *out = own + n_own;
    for (size_t i = 0; i < template->n; i++) {
        if (template->items[i] < 0) {
            memcpy(out, own, n_own * sizeof *out);
            out += n_own;
        } else {
            *out++ = template->items[i];
        }
    }
    memmove(own, own + n_own, n_new * sizeof *own);
    ids->n = from + n_new;
    return TREADLE_OK;
}

/* ByteLevel trims offsets and changes no ids. */
static treadle_status run_nothing(const void *data, td_ids *ids, size_t from, treadle_error *err) {
    (void)data, (void)ids, (void)from, (void)err;
    return TREADLE_OK;
}

static const td_part_kind kinds[] = {
    {.type = "TemplateProcessing", .parse = parse_template, .post_process = run_template},
    {.type = "ByteLevel", .post_process = run_nothing},
    {.type = "RobertaProcessing", .parse = parse_cls_sep, .post_process = run_template},
    {.type = "BertProcessing", .parse = parse_cls_sep, .post_process = run_template},
};

const td_slot td_post_processor_slot = {"post_processor", "processors", kinds, TD_COUNT(kinds)};
