/* text/added.c - added tokens: found in the text before anything else, the leftmost first, the longest of
 * those that start at one place.
 *
 * Patterns lie sorted, so those that begin with what has been read of the text are one range, narrowed byte by byte; of
 * that range the first is the one that ends here, if any does. Patterns are short (MAX_CONTENT_BYTES), so a text of n
 * bytes costs at most n times that. Ids are those that Hugging Face tokenizers gives: the vocabulary's for a content
 * that is in it, else the next free one, whatever the file says. */
#include "base/alloc.h"
#include "text/parts.h"
#include "text/unicode.h"

#include <stdlib.h>

enum { MAX_CONTENT_BYTES = 1024 };

const td_added_token *td_added_by_id(const td_added *added, int64_t id) {
    size_t low = 0, high = added->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (added->items[middle].id == id) return &added->items[middle];
        if (added->items[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const td_added_token *td_added_by_content(const td_added *added, td_str content) {
    for (size_t i = 0; i < added->n; i++)
        if (td_str_equal(added->items[i].content, content)) return &added->items[i];
    return NULL;
}

/* --- loading */

static treadle_status add(td_loader *loader, const td_json *json, td_added *added) {
    const td_json *content;
    td_added_token token = {0};
    if (json->kind != TD_JSON_OBJECT)
        return td_loader_fail(loader, json, TREADLE_FORMAT, "expected an added token to be an object, found %s",
                              td_json_kind_name(json->kind));
    TD_TRY(td_loader_need(loader, json, "content", TD_JSON_STRING, &content));
    if (content->string.n == 0) return TREADLE_OK;
    if (content->string.n > MAX_CONTENT_BYTES)
        return td_loader_fail(loader, content, TREADLE_LIMIT, "an added token may have at most %d bytes, found %zu",
                              MAX_CONTENT_BYTES, content->string.n);
    token.content = td_arena_str(loader->arena, content->string);
    if (!token.content.p) return td_loader_memory(loader, "added tokens");
    token.special = td_json_bool_or(json, "special", false);
    token.normalized = td_json_bool_or(json, "normalized", !token.special);
    token.single_word = td_json_bool_or(json, "single_word", false);
    token.lstrip = td_json_bool_or(json, "lstrip", false);
    token.rstrip = td_json_bool_or(json, "rstrip", false);
    return td_vec_push(added, token) ? TREADLE_OK : td_loader_memory(loader, "added tokens");
}

treadle_status td_added_load(td_loader *loader, const td_json *array, td_added *added) {
    if (!array || array->kind == TD_JSON_NULL) return TREADLE_OK;
    if (array->kind != TD_JSON_ARRAY)
        return td_loader_fail(loader, array, TREADLE_FORMAT, "expected \"added_tokens\" to be an array, found %s",
                              td_json_kind_name(array->kind));
    for (const td_json *item = array->first; item; item = item->next) TD_TRY(add(loader, item, added));
    return TREADLE_OK;
}

treadle_status td_added_load_decoder(td_loader *loader, const td_json *object, td_added *added) {
    if (!object || object->kind != TD_JSON_OBJECT) return TREADLE_OK;
    for (const td_json *item = object->first; item; item = item->next)
        if (!td_added_by_content(added, td_json_string_or(item, "content", ""))) TD_TRY(add(loader, item, added));
    return TREADLE_OK;
}

typedef struct order_key {
    td_str text;
    size_t index;
    bool special;
} order_key;

static int compare_keys(const void *a, const void *b) {
    const order_key *x = a, *y = b;
    int order = td_str_compare(x->text, y->text);
    if (order == 0) order = (int)y->special - (int)x->special;
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int compare_ids(const void *a, const void *b) {
    const td_added_token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Of tokens with one content the last one counts, special if any of them was; it takes the place of the first. */
static bool drop_doubles(td_added *added) {
    order_key *keys = td_alloc_array(added->n, sizeof *keys);
    if (!keys) return false;
    for (size_t i = 0; i < added->n; i++) keys[i] = (order_key){.text = added->items[i].content, .index = i};
    qsort(keys, added->n, sizeof *keys, compare_keys);
    for (size_t i = 1, first = 0; i < added->n; i++) {
        if (!td_str_equal(keys[i].text, keys[first].text)) {
            first = i;
            continue;
        }
        td_added_token *kept = &added->items[keys[first].index], *later = &added->items[keys[i].index];
        later->special |= kept->special;
        *kept = *later;
        later->content.n = 0;
    }
    td_free(keys);
    size_t n = 0;
    for (size_t i = 0; i < added->n; i++)
        if (added->items[i].content.n > 0) added->items[n++] = added->items[i];
    added->n = n;
    return true;
}

static void number(const td_tokenizer *tokenizer, td_added *added) {
    int32_t next = tokenizer->model_kind->n_tokens(tokenizer->model);
    for (size_t i = 0; i < added->n; i++) {
        td_added_token *token = &added->items[i];
        token->id = tokenizer->model_kind->id(tokenizer->model, token->content);
        if (token->id < 0) token->id = next++;
    }
}

static treadle_status set_pattern(td_loader *loader, td_work *work, td_added_token *token) {
    td_str pattern = token->content;
    if (token->normalized) {
        TD_TRY(td_tokenizer_normalize(loader->tokenizer, work, pattern, &pattern, loader->err));
        pattern = td_arena_str(loader->arena, pattern.n > 0 ? pattern : TD_STR(""));
    }
    token->pattern = pattern;
    return pattern.p ? TREADLE_OK : td_loader_memory(loader, "added tokens");
}

static bool build(const td_added *added, struct td_added_matcher *matcher, bool normalized) {
    order_key *keys = td_alloc_array(added->n, sizeof *keys);
    size_t n = 0;
    if (!keys) return false;
    for (size_t i = 0; i < added->n; i++)
        if (added->items[i].normalized == normalized && added->items[i].pattern.n > 0)
            keys[n++] = (order_key){added->items[i].pattern, i, added->items[i].special};
    qsort(keys, n, sizeof *keys, compare_keys);
    matcher->tokens = td_alloc_array(n, sizeof *matcher->tokens);
    matcher->n = n;
    for (size_t i = 0; matcher->tokens && i < n; i++) matcher->tokens[i] = (uint32_t)keys[i].index;
    for (size_t b = 0, i = 0; b <= 256; b++) {
        while (i < n && (uint8_t)keys[i].text.p[0] < b) i++;
        matcher->first[b] = (uint32_t)i;
    }
    td_free(keys);
    return matcher->tokens != NULL;
}

treadle_status td_added_finish(td_loader *loader, td_added *added) {
    if (added->n == 0) return TREADLE_OK;
    td_work work = {0};
    treadle_status status = TREADLE_OK;
    if (!drop_doubles(added)) return td_loader_memory(loader, "added tokens");
    number(loader->tokenizer, added);
    for (size_t i = 0; i < added->n && status == TREADLE_OK; i++) status = set_pattern(loader, &work, &added->items[i]);
    td_work_free(&work, loader->tokenizer);
    TD_TRY(status);
    for (size_t i = 0; i < added->n; i++) {
        td_added_token *token = &added->items[i];
        const td_added_token *same = token->normalized ? td_added_by_content(added, token->pattern) : token;
        token->skipped = same && same->special;
    }
    qsort(added->items, added->n, sizeof *added->items, compare_ids);
    if (!build(added, &added->plain, false) || !build(added, &added->normalized, true))
        return td_loader_memory(loader, "added tokens");
    return TREADLE_OK;
}

void td_added_free(td_added *added) {
    td_free(added->plain.tokens);
    td_free(added->normalized.tokens);
    td_vec_free(added);
}

/* --- finding */

static uint8_t byte_at(const td_added *added, const struct td_added_matcher *matcher, size_t i, size_t depth) {
    return (uint8_t)added->items[matcher->tokens[i]].pattern.p[depth];
}

/* The first of [low, high) whose byte at depth is not below `byte`; all of them are longer than depth. */
static size_t narrow(const td_added *added, const struct td_added_matcher *matcher, size_t low, size_t high,
                     size_t depth, unsigned byte) {
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (byte_at(added, matcher, middle, depth) < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Index of the token with the longest pattern at the start of text, or -1. */
static int32_t longest_at(const td_added *added, const struct td_added_matcher *matcher, td_str text) {
    int32_t best = -1;
    uint8_t byte = (uint8_t)text.p[0];
    size_t low = matcher->first[byte], high = matcher->first[byte + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (added->items[matcher->tokens[low]].pattern.n ==
            depth) { /* the shortest sorts first; of equals the first wins */
            best = (int32_t)matcher->tokens[low];
            while (low < high && added->items[matcher->tokens[low]].pattern.n == depth) low++;
        }
        if (depth == text.n) break;
        byte = (uint8_t)text.p[depth];
        size_t begin = narrow(added, matcher, low, high, depth, byte);
        high = narrow(added, matcher, begin, high, depth, byte + 1u);
        low = begin;
    }
    return best;
}

/* Where the character before `at` begins. */
static size_t previous(td_str text, size_t at) {
    do at--;
    while (at > 0 && ((uint8_t)text.p[at] & 0xC0) == 0x80);
    return at;
}

static bool char_in(td_unicode_set set, td_str text, size_t at) {
    size_t length;
    return td_unicode_in(set, td_unicode_next(text.p + at, &length));
}

static bool is_single_word(td_str text, size_t begin, size_t end) {
    return (begin == 0 || !char_in(TD_UNICODE_WORD, text, previous(text, begin))) &&
           (end == text.n || !char_in(TD_UNICODE_WORD, text, end));
}

treadle_status td_added_split(const td_added *added, const struct td_added_matcher *matcher, td_str text,
                              bool skip_special, td_segment_vec *out, treadle_error *err) {
    size_t done = 0; /* what has become segments */
    bool ok = true;
    for (size_t at = 0; ok && matcher->n > 0 && at < text.n;) {
        int32_t index = longest_at(added, matcher, (td_str){text.p + at, text.n - at});
        if (index < 0) {
            at++;
            continue;
        }
        const td_added_token *token = &added->items[index];
        size_t begin = at, end = at + token->pattern.n;
        at = end;
        if ((skip_special && token->special) || (token->single_word && !is_single_word(text, begin, end))) continue;
        while (token->lstrip && begin > done && char_in(TD_UNICODE_WHITE_SPACE, text, previous(text, begin)))
            begin = previous(text, begin);
        if (token->lstrip) begin = TD_MAX(begin, done);
        for (size_t length; token->rstrip && end < text.n; end += length)
            if (!td_unicode_in(TD_UNICODE_WHITE_SPACE, td_unicode_next(text.p + end, &length))) break;
        if (done < begin) ok = td_vec_push(out, (td_segment){(uint32_t)done, (uint32_t)begin, -1});
        /* The space that the one before took may hold this one: then it is found again, unless
         * lstrip leaves nothing of it. */
        if (begin < end) ok = ok && td_vec_push(out, (td_segment){(uint32_t)begin, (uint32_t)end, index});
        done = end;
    }
    if (ok && done < text.n) ok = td_vec_push(out, (td_segment){(uint32_t)done, (uint32_t)text.n, -1});
    return ok ? TREADLE_OK : td_fail_memory(err, "a text", text.n);
}
