/* text/models.c - the table of models, and which one a tokenizer.json means. */
#include "text/parts.h"

static const td_model_kind *const kinds[] = {&td_bpe_kind};

/* Old files have no "type": what the model has tells it. */
static const char *infer(const td_loader *loader, const td_json *json) {
    if (loader->merges.begin < loader->merges.end) return "BPE";
    if (td_json_get(json, "unk_id")) return "Unigram";
    return td_json_get(json, "max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

treadle_status td_model_find(td_loader *loader, const td_json *json, const td_model_kind **out) {
    const td_json *type = td_json_get(json, "type");
    td_str name = type && type->kind == TD_JSON_STRING ? type->string : td_str_from(infer(loader, json));
    td_buf known = {0};
    for (size_t i = 0; i < TD_COUNT(kinds); i++) {
        if (td_str_is(name, kinds[i]->type)) {
            *out = kinds[i];
            td_buf_free(&known);
            return TREADLE_OK;
        }
        td_buf_printf(&known, i ? ", %s" : "%s", kinds[i]->type);
    }
    td_loader_fail(loader, type ? type : json, TREADLE_UNSUPPORTED, "model type \"%.*s\" is not supported; known: %s",
                   TD_STR_ARGS(name), known.p ? known.p : "");
    td_buf_free(&known);
    return TREADLE_UNSUPPORTED;
}
