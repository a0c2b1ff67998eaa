/* text/tokenizer.c - loading and encoding; see tokenizer.h and parts.h. Decoding is in decoding.c.
 *
 * The vocabulary and the merges are most of a tokenizer.json, so they are not parsed into a tree: their spans are found
 * first, the tree is made of the rest with "null" in their place, and the model reads the spans itself. */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/json_pull.h"
#include "text/parts.h"

/* --- finding the spans of model.vocab and model.merges */

/* Calls for every member of the object at the reader; the reader stands at the member's value. */
typedef treadle_status member_fn(td_loader *loader, td_pull *pull, td_str key);

static treadle_status each_member(td_loader *loader, td_pull *pull, member_fn *fn) {
    TD_TRY(td_pull_expect(pull, '{'));
    for (bool first = true, more;; first = false) {
        td_str key;
        TD_TRY(td_pull_more(pull, '}', first, &more));
        if (!more) return TREADLE_OK;
        TD_TRY(td_pull_string(pull, &key));
        TD_TRY(td_pull_expect(pull, ':'));
        TD_TRY(fn(loader, pull, key));
    }
}

static treadle_status model_member(td_loader *loader, td_pull *pull, td_str key) {
    td_span *span = td_str_is(key, "vocab") ? &loader->vocab : td_str_is(key, "merges") ? &loader->merges : NULL;
    char open = td_pull_peek(pull);
    if (span && (open == '{' || open == '[')) span->begin = td_pull_offset(pull);
    TD_TRY(td_pull_skip(pull, span ? &span->n_items : NULL));
    if (span && (open == '{' || open == '[')) span->end = pull->at;
    return TREADLE_OK;
}

static treadle_status top_member(td_loader *loader, td_pull *pull, td_str key) {
    if (td_str_is(key, "model") && td_pull_peek(pull) == '{') return each_member(loader, pull, model_member);
    return td_pull_skip(pull, NULL);
}

/* Appends the file's text without the two spans. */
static void cut_spans(const td_loader *loader, td_buf *out) {
    td_span cuts[2] = {loader->vocab, loader->merges};
    if (cuts[0].begin > cuts[1].begin) cuts[0] = loader->merges, cuts[1] = loader->vocab;
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        if (cuts[i].begin == cuts[i].end) continue;
        td_buf_append(out, loader->text.p + at, cuts[i].begin - at);
        td_buf_text(out, "null");
        at = cuts[i].end;
    }
    td_buf_append(out, loader->text.p + at, loader->text.n - at);
}

/* --- loading */

static treadle_status load_steps(td_loader *loader, const td_json *root) {
    td_tokenizer *tokenizer = loader->tokenizer;
    const td_slot *slots[] = {&td_normalizer_slot, &td_pre_tokenizer_slot, &td_post_processor_slot, &td_decoder_slot};
    td_steps *steps[] = {&tokenizer->normalizers, &tokenizer->pre_tokenizers, &tokenizer->post_processors,
                         &tokenizer->decoders};
    for (size_t i = 0; i < TD_COUNT(slots); i++)
        TD_TRY(td_steps_load(loader, slots[i], td_json_get(root, slots[i]->name), steps[i]));
    return TREADLE_OK;
}

static treadle_status load_tree(td_loader *loader, td_arena *scratch) {
    td_json *root;
    const td_json *model;
    td_tokenizer *tokenizer = loader->tokenizer;
    td_json_options options = {.allow_duplicate_keys = true};
    TD_TRY(td_json_parse(loader->tree_text, &options, scratch, &root, loader->err));
    TD_TRY(td_loader_need(loader, root, "model", TD_JSON_OBJECT, &model));
    TD_TRY(load_steps(loader, root));
    TD_TRY(td_model_find(loader, model, &tokenizer->model_kind));
    TD_TRY(tokenizer->model_kind->load(loader, model, &tokenizer->model));
    return td_added_load(loader, td_json_get(root, "added_tokens"), &tokenizer->added);
}

static treadle_status load_file(td_loader *loader) {
    td_pull pull;
    td_arena scratch;
    td_buf tree = {0};
    td_pull_init(&pull, loader->text, 0, loader->text.n, loader->err);
    treadle_status status = each_member(loader, &pull, top_member);
    td_pull_free(&pull);
    TD_TRY(status);
    cut_spans(loader, &tree);
    if (tree.failed) {
        td_buf_free(&tree);
        return td_loader_memory(loader, "a tokenizer");
    }
    td_arena_init(&scratch);
    loader->tree_text = td_buf_view(&tree);
    status = load_tree(loader, &scratch);
    td_arena_free(&scratch);
    td_buf_free(&tree);
    return status;
}

static treadle_status load_config(td_loader *loader, td_str text) {
    td_arena scratch;
    td_json *root;
    td_json_options options = {.allow_duplicate_keys = true, .allow_nonfinite = true};
    td_arena_init(&scratch);
    loader->file = "tokenizer_config.json";
    loader->text = loader->tree_text = text;
    loader->vocab = loader->merges = (td_span){0};
    treadle_status status = td_json_parse(text, &options, &scratch, &root, loader->err);
    if (status == TREADLE_OK)
        status = td_added_load_decoder(loader, td_json_get(root, "added_tokens_decoder"), &loader->tokenizer->added);
    td_arena_free(&scratch);
    return status;
}

treadle_status td_tokenizer_load(td_str tokenizer_json, td_str config_json, td_tokenizer **out, treadle_error *err) {
    td_tokenizer *tokenizer = td_alloc_zero(1, sizeof *tokenizer);
    if (!tokenizer) return td_fail_memory(err, "a tokenizer", sizeof *tokenizer);
    td_arena_init(&tokenizer->arena);
    td_loader loader = {.tokenizer = tokenizer,
                        .arena = &tokenizer->arena,
                        .text = tokenizer_json,
                        .file = "tokenizer.json",
                        .err = err};
    treadle_status status =
        tokenizer_json.n > INT32_MAX
            ? td_fail(err, TREADLE_LIMIT, "expected a file of less than 2 GiB, found %zu bytes", tokenizer_json.n)
            : load_file(&loader);
    if (status == TREADLE_OK && config_json.n > 0) status = load_config(&loader, config_json);
    if (status == TREADLE_OK) status = td_added_finish(&loader, &tokenizer->added);
    if (status == TREADLE_OK) {
        *out = tokenizer;
        return TREADLE_OK;
    }
    td_error_file(err, loader.file);
    td_tokenizer_free(tokenizer);
    return status;
}

void td_tokenizer_free(td_tokenizer *tokenizer) {
    if (!tokenizer) return;
    for (size_t i = 0; i < tokenizer->regexes.n; i++) td_regex_free(tokenizer->regexes.items[i]);
    td_vec_free(&tokenizer->regexes);
    td_vec_free(&tokenizer->normalizers);
    td_vec_free(&tokenizer->pre_tokenizers);
    td_vec_free(&tokenizer->post_processors);
    td_vec_free(&tokenizer->decoders);
    td_added_free(&tokenizer->added);
    if (tokenizer->model_kind) tokenizer->model_kind->free(tokenizer->model);
    td_arena_free(&tokenizer->arena);
    td_free(tokenizer);
}

/* --- encoding */

void td_work_free(td_work *work, const td_tokenizer *tokenizer) {
    td_buf_free(&work->text);
    td_buf_free(&work->spare_text);
    td_vec_free(&work->pieces);
    td_vec_free(&work->spare_pieces);
    td_vec_free(&work->matches);
    td_vec_free(&work->parts);
    td_regex_scratch_free(&work->regex);
    if (tokenizer->model_kind) tokenizer->model_kind->free_scratch(work->model_scratch);
}

treadle_status td_tokenizer_normalize(const td_tokenizer *tokenizer, td_work *work, td_str in, td_str *out,
                                      treadle_error *err) {
    *out = in;
    work->front_dropped = false;
    for (size_t i = 0; i < tokenizer->normalizers.n; i++) {
        td_buf *to = &work->spare_text;
        td_step *step = &tokenizer->normalizers.items[i];
        td_buf_clear(to);
        TD_TRY(step->kind->normalize(step->data, work, out->n ? *out : TD_STR(""), to, err));
        if (to->n > INT32_MAX)
            return td_fail(err, TREADLE_LIMIT, "expected a text that stays below 2 GiB when it is normalised");
        td_buf done = *to; /* the result is always in work->text */
        work->spare_text = work->text;
        work->text = done;
        *out = td_buf_view(&work->text);
    }
    return TREADLE_OK;
}

/* Pre-tokenizes a text without added tokens, which lies in no buffer of work, and appends its ids. */
static treadle_status encode_text(const td_tokenizer *tokenizer, td_work *work, td_str text, bool at_start, td_ids *ids,
                                  treadle_error *err) {
    td_buf_clear(&work->text);
    td_buf_str(&work->text, text);
    work->pieces.n = 0;
    if (work->text.failed || !td_vec_push(&work->pieces, (td_piece){0, (uint32_t)text.n, at_start}))
        return td_fail_memory(err, "a text", text.n);
    for (size_t i = 0; i < tokenizer->pre_tokenizers.n; i++) {
        td_step *step = &tokenizer->pre_tokenizers.items[i];
        TD_TRY(step->kind->pre_tokenize(step->data, work, err));
    }
    for (size_t i = 0; i < work->pieces.n; i++) {
        td_piece piece = work->pieces.items[i];
        td_str bytes = {work->text.p + piece.begin, piece.end - piece.begin};
        if (bytes.n > 0) TD_TRY(tokenizer->model_kind->tokenize(tokenizer->model, work, bytes, ids, err));
    }
    return TREADLE_OK;
}

typedef struct encoding {
    const td_tokenizer *tokenizer;
    bool parse_special;
    td_work work;
    td_segment_vec segments, inner;
    td_buf normalized;
    td_ids *ids;
} encoding;

static treadle_status push_token(encoding *e, int32_t index, treadle_error *err) {
    int32_t id = e->tokenizer->added.items[index].id;
    return td_vec_push(e->ids, id) ? TREADLE_OK : td_fail_memory(err, "token ids", e->ids->n);
}

/* A stretch of the text between added tokens: normalised, then searched for the added tokens that are normalised
 * too. */
static treadle_status encode_segment(encoding *e, td_str text, bool at_start, treadle_error *err) {
    const td_tokenizer *tokenizer = e->tokenizer;
    td_str normal;
    TD_TRY(td_tokenizer_normalize(tokenizer, &e->work, text, &normal, err));
    if (tokenizer->normalizers.n > 0) { /* out of work's buffers, which are wanted for the pieces */
        td_buf held = e->normalized;
        e->normalized = e->work.text;
        e->work.text = held;
        normal = td_buf_view(&e->normalized);
        at_start = at_start && !e->work.front_dropped;
    }
    e->inner.n = 0;
    TD_TRY(td_added_split(&tokenizer->added, &tokenizer->added.normalized, normal, !e->parse_special, &e->inner, err));
    for (size_t i = 0; i < e->inner.n; i++) {
        td_segment part = e->inner.items[i];
        td_str piece = {normal.p + part.begin, part.end - part.begin};
        if (part.token >= 0) TD_TRY(push_token(e, part.token, err));
        else TD_TRY(encode_text(tokenizer, &e->work, piece, at_start && part.begin == 0, e->ids, err));
    }
    return TREADLE_OK;
}

static treadle_status encode_all(encoding *e, td_str text, bool add_special, treadle_error *err) {
    const td_tokenizer *tokenizer = e->tokenizer;
    size_t from = e->ids->n;
    TD_TRY(td_added_split(&tokenizer->added, &tokenizer->added.plain, text, !e->parse_special, &e->segments, err));
    for (size_t i = 0; i < e->segments.n; i++) {
        td_segment part = e->segments.items[i];
        td_str piece = {text.p + part.begin, part.end - part.begin};
        if (part.token >= 0) TD_TRY(push_token(e, part.token, err));
        else TD_TRY(encode_segment(e, piece, part.begin == 0, err));
    }
    for (size_t i = 0; add_special && i < tokenizer->post_processors.n; i++) {
        td_step *step = &tokenizer->post_processors.items[i];
        TD_TRY(step->kind->post_process(step->data, e->ids, from, err));
    }
    return TREADLE_OK;
}

treadle_status td_tokenizer_encode(const td_tokenizer *tokenizer, td_str text, bool add_special, bool parse_special,
                                   td_ids *ids, treadle_error *err) {
    if (text.n > INT32_MAX / 4)
        return td_fail(err, TREADLE_LIMIT, "expected a text of less than 512 MiB, found %zu bytes", text.n);
    encoding e = {.tokenizer = tokenizer, .parse_special = parse_special, .ids = ids};
    td_buf valid = {0};
    size_t n_before = ids->n;
    treadle_status status = TREADLE_OK;
    if (!td_utf8_valid(text)) {
        td_utf8_replace_invalid(text, &valid);
        text = td_buf_view(&valid);
        if (valid.failed) status = td_fail_memory(err, "a text", text.n);
    }
    if (status == TREADLE_OK) status = encode_all(&e, text, add_special, err);
    if (status != TREADLE_OK) ids->n = n_before;
    td_work_free(&e.work, tokenizer);
    td_vec_free(&e.segments);
    td_vec_free(&e.inner);
    td_buf_free(&e.normalized);
    td_buf_free(&valid);
    return status;
}

/* --- looking up */

td_str td_tokenizer_token(const td_tokenizer *tokenizer, int64_t id) {
    const td_added_token *added = td_added_by_id(&tokenizer->added, id);
    return added ? added->pattern : tokenizer->model_kind->token(tokenizer->model, id);
}

int32_t td_tokenizer_id(const td_tokenizer *tokenizer, td_str token) {
    const td_added_token *added = td_added_by_content(&tokenizer->added, token);
    return added ? added->id : tokenizer->model_kind->id(tokenizer->model, token);
}

bool td_tokenizer_is_special(const td_tokenizer *tokenizer, int64_t id) {
    const td_added_token *added = td_added_by_id(&tokenizer->added, id);
    return added && added->special;
}

int32_t td_tokenizer_vocab_size(const td_tokenizer *tokenizer) {
    const td_added *added = &tokenizer->added;
    int32_t n = tokenizer->model_kind->n_ids(tokenizer->model);
    return added->n ? TD_MAX(n, added->items[added->n - 1].id + 1) : n;
}
