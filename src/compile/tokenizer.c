/* compile/tokenizer.c - tokenizer.json (Hugging Face form) from a vocabulary.
 *
 * Byte-level BPE: one Split per pattern of the pre-tokenizer, then ByteLevel. SentencePiece BPE: the same model with
 * byte fallback, merges reconstructed from the scores: every way to cut a token into two tokens is a merge, ranked by
 * the token's score, which is the order in which SentencePiece joins pieces. */
#include "compile/tokenizer.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <stdlib.h>

/* --- merges */

typedef struct merge {
    td_str left, right;
    double score, left_score, right_score;
    size_t order; /* of creation: keeps the sort stable */
} merge;

static double score_of(const td_vocab *v, uint64_t id) {
    double score = 0;
    (void)td_gguf_double_at(v->scores, id, &score);
    return score;
}

static bool joins(const td_vocab *v, uint64_t id) {
    return v->types[id] == TD_TOKEN_NORMAL || v->types[id] == TD_TOKEN_USER || v->types[id] == TD_TOKEN_UNUSED;
}

/* Best scores first; of one token, the cut with the better parts first. NaN scores sort as equal, which is harmless. */
static int compare_merges(const void *a, const void *b) {
    const merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

typedef TD_VEC(merge) merge_list;

/* All cuts of one token; they are few, so a selection by parts' scores is enough. */
static bool add_cuts(const td_vocab *v, size_t id, merge_list *list) {
    td_str text = v->tokens[id];
    size_t first = list->n;
    for (size_t cut = 1; cut < text.n; cut++) {
        uint64_t l, r;
        if (((uint8_t)text.p[cut] & 0xc0) == 0x80) continue; /* inside a character */
        td_str left = {text.p, cut}, right = {text.p + cut, text.n - cut};
        if (!td_map_get(&v->ids, left, &l) || !td_map_get(&v->ids, right, &r) || !joins(v, l) || !joins(v, r)) continue;
        merge m = {left, right, score_of(v, id), score_of(v, l), score_of(v, r), 0};
        if (!td_vec_push(list, m)) return false;
    }
    for (size_t i = first; i < list->n; i++) {
        size_t best = i;
        for (size_t k = i + 1; k < list->n; k++) {
            const merge *x = &list->items[k], *y = &list->items[best];
            if (x->left_score > y->left_score || (x->left_score == y->left_score && x->right_score > y->right_score))
                best = k;
        }
        merge chosen = list->items[best];
        memmove(&list->items[i + 1], &list->items[i], (best - i) * sizeof chosen);
        chosen.order = i;
        list->items[i] = chosen;
    }
    return true;
}

static void write_pair(td_json_writer *w, td_str left, td_str right) {
    td_json_begin_array(w);
    td_json_write_string(w, left);
    td_json_write_string(w, right);
    td_json_end_array(w);
}

/* Tokens longer than this are never made by merging anything but themselves; cutting a hostile
 * one would take quadratic time. */
enum { MAX_CUT_BYTES = 1024 };

static treadle_status write_score_merges(const td_vocab *v, td_json_writer *w, treadle_error *err) {
    merge_list list = {0};
    bool ok = true;
    for (size_t i = 0; i < v->n && ok; i++)
        if (joins(v, i) && v->tokens[i].n <= MAX_CUT_BYTES) ok = add_cuts(v, i, &list);
    if (ok && list.n) qsort(list.items, list.n, sizeof *list.items, compare_merges);
    for (size_t i = 0; i < list.n && ok; i++) write_pair(w, list.items[i].left, list.items[i].right);
    td_vec_free(&list);
    return ok ? TREADLE_OK : td_fail_memory(err, "merges", 0);
}

/* Merges whose parts or result are no tokens can never apply and would make other readers refuse the file. */
static treadle_status write_listed_merges(const td_vocab *v, td_json_writer *w, treadle_error *err) {
    td_buf joined = {0};
    for (size_t i = 0; i < v->n_merges; i++) {
        td_str m = v->merges[i];
        const char *space = m.n > 1 ? memchr(m.p + 1, ' ', m.n - 1) : NULL;
        if (!space) continue;
        td_str left = {m.p, (size_t)(space - m.p)}, right = {space + 1, m.n - (size_t)(space - m.p) - 1};
        td_buf_clear(&joined);
        td_buf_str(&joined, left);
        td_buf_str(&joined, right);
        if (td_map_get(&v->ids, left, NULL) && td_map_get(&v->ids, right, NULL) &&
            td_map_get(&v->ids, td_buf_view(&joined), NULL))
            write_pair(w, left, right);
    }
    bool failed = joined.failed;
    td_buf_free(&joined);
    return failed ? td_fail_memory(err, "merges", 0) : TREADLE_OK;
}

/* --- the parts of the file */

static void write_type(td_json_writer *w, const char *type) {
    td_json_begin_object(w);
    td_json_key(w, "type");
    td_json_write_text(w, type);
}

/* {"type": type} */
static void write_simple(td_json_writer *w, const char *type) {
    write_type(w, type);
    td_json_end_object(w);
}

static void write_text_field(td_json_writer *w, const char *key, const char *value) {
    td_json_key(w, key);
    td_json_write_text(w, value);
}

static void write_bool_field(td_json_writer *w, const char *key, bool value) {
    td_json_key(w, key);
    td_json_write_bool(w, value);
}

static void write_added_tokens(const td_vocab *v, td_json_writer *w) {
    td_json_key(w, "added_tokens");
    td_json_begin_array(w);
    for (size_t i = 0; i < v->n; i++) {
        uint64_t id;
        bool special = v->types[i] == TD_TOKEN_CONTROL || v->types[i] == TD_TOKEN_UNKNOWN;
        if (!special && v->types[i] != TD_TOKEN_USER) continue;
        if (!td_map_get(&v->ids, v->tokens[i], &id) || id != i) continue;
        td_json_begin_object(w);
        td_json_key(w, "id");
        td_json_write_int(w, (int64_t)i);
        td_json_key(w, "content");
        td_json_write_string(w, v->tokens[i]);
        write_bool_field(w, "single_word", false);
        write_bool_field(w, "lstrip", false);
        write_bool_field(w, "rstrip", false);
        write_bool_field(w, "normalized", false);
        write_bool_field(w, "special", special);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

/* {"type": "Replace", "pattern": {"String": from}, "content": to} */
static void write_replace(td_json_writer *w, const char *from, const char *to) {
    write_type(w, "Replace");
    td_json_key(w, "pattern");
    td_json_begin_object(w);
    write_text_field(w, "String", from);
    td_json_end_object(w);
    write_text_field(w, "content", to);
    td_json_end_object(w);
}

static const char spm_space[] = "\xe2\x96\x81"; /* U+2581 */

static void write_normalizer(const td_vocab *v, td_json_writer *w) {
    td_json_key(w, "normalizer");
    if (v->kind == TD_VOCAB_BPE && v->pretokenizer->nfc) {
        write_simple(w, "NFC");
        return;
    }
    if (v->kind == TD_VOCAB_BPE) {
        td_json_write_null(w);
        return;
    }
    write_type(w, "Sequence");
    td_json_key(w, "normalizers");
    td_json_begin_array(w);
    if (v->add_space_prefix) {
        write_type(w, "Prepend");
        write_text_field(w, "prepend", spm_space);
        td_json_end_object(w);
    }
    write_replace(w, " ", spm_space);
    td_json_end_array(w);
    td_json_end_object(w);
}

static void write_byte_level(td_json_writer *w, bool add_prefix_space, bool use_regex) {
    write_type(w, "ByteLevel");
    write_bool_field(w, "add_prefix_space", add_prefix_space);
    write_bool_field(w, "trim_offsets", true);
    write_bool_field(w, "use_regex", use_regex);
    td_json_end_object(w);
}

static void write_pre_tokenizer(const td_vocab *v, td_json_writer *w) {
    td_json_key(w, "pre_tokenizer");
    if (v->kind == TD_VOCAB_SPM) {
        td_json_write_null(w);
        return;
    }
    write_type(w, "Sequence");
    td_json_key(w, "pretokenizers");
    td_json_begin_array(w);
    for (const char *const *p = v->pretokenizer->patterns; *p; p++) {
        write_type(w, "Split");
        td_json_key(w, "pattern");
        td_json_begin_object(w);
        write_text_field(w, "Regex", *p);
        td_json_end_object(w);
        write_text_field(w, "behavior", "Isolated");
        write_bool_field(w, "invert", false);
        td_json_end_object(w);
    }
    write_byte_level(w, false, false);
    td_json_end_array(w);
    td_json_end_object(w);
}

static void write_template_item(td_json_writer *w, const char *kind, td_str id, int64_t type_id) {
    td_json_begin_object(w);
    td_json_key(w, kind);
    td_json_begin_object(w);
    td_json_key(w, "id");
    td_json_write_string(w, id);
    td_json_key(w, "type_id");
    td_json_write_int(w, type_id);
    td_json_end_object(w);
    td_json_end_object(w);
}

static void write_sequence(const td_vocab *v, td_json_writer *w, td_str id, int64_t type_id) {
    if (v->add_bos) write_template_item(w, "SpecialToken", td_vocab_text(v, v->bos), type_id);
    write_template_item(w, "Sequence", id, type_id);
    if (v->add_eos) write_template_item(w, "SpecialToken", td_vocab_text(v, v->eos), type_id);
}

static void write_special(const td_vocab *v, td_json_writer *w, int64_t id) {
    td_str text = td_vocab_text(v, id);
    td_json_key_str(w, text);
    td_json_begin_object(w);
    td_json_key(w, "id");
    td_json_write_string(w, text);
    td_json_key(w, "ids");
    td_json_begin_array(w);
    td_json_write_int(w, id);
    td_json_end_array(w);
    td_json_key(w, "tokens");
    td_json_begin_array(w);
    td_json_write_string(w, text);
    td_json_end_array(w);
    td_json_end_object(w);
}

static void write_post_processor(const td_vocab *v, td_json_writer *w) {
    td_json_key(w, "post_processor");
    if (!v->add_bos && !v->add_eos) {
        td_json_write_null(w);
        return;
    }
    write_type(w, "TemplateProcessing");
    td_json_key(w, "single");
    td_json_begin_array(w);
    write_sequence(v, w, TD_STR("A"), 0);
    td_json_end_array(w);
    td_json_key(w, "pair");
    td_json_begin_array(w);
    write_sequence(v, w, TD_STR("A"), 0);
    write_sequence(v, w, TD_STR("B"), 1);
    td_json_end_array(w);
    td_json_key(w, "special_tokens");
    td_json_begin_object(w);
    if (v->add_bos) write_special(v, w, v->bos);
    if (v->add_eos && (!v->add_bos || v->eos != v->bos)) write_special(v, w, v->eos);
    td_json_end_object(w);
    td_json_end_object(w);
}

static void write_decoder(const td_vocab *v, td_json_writer *w) {
    td_json_key(w, "decoder");
    if (v->kind == TD_VOCAB_BPE) {
        write_byte_level(w, true, true);
        return;
    }
    write_type(w, "Sequence");
    td_json_key(w, "decoders");
    td_json_begin_array(w);
    write_replace(w, spm_space, " ");
    write_simple(w, "ByteFallback");
    write_simple(w, "Fuse");
    if (v->add_space_prefix) {
        write_type(w, "Strip");
        write_text_field(w, "content", " ");
        td_json_key(w, "start");
        td_json_write_int(w, 1);
        td_json_key(w, "stop");
        td_json_write_int(w, 0);
        td_json_end_object(w);
    }
    td_json_end_array(w);
    td_json_end_object(w);
}

static treadle_status write_model(const td_vocab *v, td_json_writer *w, treadle_error *err) {
    bool spm = v->kind == TD_VOCAB_SPM, bytes = false;
    for (size_t i = 0; i < v->n; i++) bytes |= v->types[i] == TD_TOKEN_BYTE;
    td_json_key(w, "model");
    write_type(w, "BPE");
    td_json_key(w, "dropout");
    td_json_write_null(w);
    td_json_key(w, "unk_token");
    if (spm && v->unk >= 0) td_json_write_string(w, td_vocab_text(v, v->unk));
    else td_json_write_null(w);
    td_json_key(w, "continuing_subword_prefix");
    td_json_write_null(w);
    td_json_key(w, "end_of_word_suffix");
    td_json_write_null(w);
    write_bool_field(w, "fuse_unk", spm);
    write_bool_field(w, "byte_fallback", spm && bytes);
    write_bool_field(w, "ignore_merges", !spm && v->pretokenizer->ignore_merges);
    td_json_key(w, "vocab");
    td_json_begin_object(w);
    for (size_t i = 0; i < v->n; i++) {
        uint64_t id;
        if (!td_map_get(&v->ids, v->tokens[i], &id) || id != i) continue; /* a later token has the same text */
        td_json_key_str(w, v->tokens[i]);
        td_json_write_int(w, (int64_t)i);
    }
    td_json_end_object(w);
    td_json_key(w, "merges");
    td_json_begin_array(w);
    TD_TRY(spm ? write_score_merges(v, w, err) : write_listed_merges(v, w, err));
    td_json_end_array(w);
    td_json_end_object(w);
    return TREADLE_OK;
}

treadle_status td_tokenizer_write(const td_vocab *v, td_buf *out, treadle_error *err) {
    td_json_writer w;
    td_json_writer_init(&w, out, 0);
    td_json_begin_object(&w);
    write_text_field(&w, "version", "1.0");
    td_json_key(&w, "truncation");
    td_json_write_null(&w);
    td_json_key(&w, "padding");
    td_json_write_null(&w);
    write_added_tokens(v, &w);
    write_normalizer(v, &w);
    write_pre_tokenizer(v, &w);
    write_post_processor(v, &w);
    write_decoder(v, &w);
    TD_TRY(write_model(v, &w, err));
    td_json_end_object(&w);
    return out->failed ? td_fail_memory(err, "tokenizer.json", out->n) : TREADLE_OK;
}
