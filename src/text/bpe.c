/* text/bpe.c - byte-pair encoding: a piece starts as its characters; the adjacent pair of the best rank
 * is merged until none has a rank.
 *
 * Pairs wait in a heap of (rank, place) and symbols are a linked list, so a piece of n characters costs n log n
 * whatever it holds. An entry whose pair has changed since is skipped when it comes up. Source: Sennrich et al. 2016;
 * options as in Hugging Face tokenizers. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "text/json_pull.h"
#include "text/parts.h"
#include "text/unicode.h"
#include "text/vocab.h"

enum { N_DIRECT = 0x800 }; /* characters whose id is looked up without hashing: all of one or two bytes */

typedef struct merge {
    int32_t left, right; /* left -1: a free slot */
    int32_t rank;
} merge;

typedef struct bpe {
    td_vocab vocab;
    merge *merges; /* [n_slots], open addressing by (left, right) */
    uint32_t n_slots;
    int32_t n_ranks;
    int32_t *ranked;          /* [n_ranks] id that the merge of a rank makes */
    int32_t direct[N_DIRECT]; /* id of a character, -1: none */
    int32_t byte_ids[256];    /* of <0xNN>, -1: none */
    td_str unk;               /* .p NULL: none */
    int32_t unk_id;           /* -1: unk is not in the vocabulary */
    td_str prefix, suffix;    /* of a character that is not the first, of the last one */
    bool fuse_unk, byte_fallback, ignore_merges;
    bool cuts_at_space; /* no merge reaches over the start of a U+2581 behind another character */
} bpe;

typedef struct symbol {
    int32_t id;             /* -1: merged into the one before */
    int32_t previous, next; /* indices, -1: none */
} symbol;

typedef struct bpe_scratch {
    TD_VEC(symbol) symbols;
    TD_VEC(uint64_t) heap; /* rank << 32 | index of the left symbol; the least on top */
    td_buf text;
} bpe_scratch;

/* --- merges */

static uint32_t pair_hash(int32_t left, int32_t right) {
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 15);
}

/* The slot of the pair, or the free one where it belongs. */
static merge *find_slot(const bpe *model, int32_t left, int32_t right) {
    uint32_t mask = model->n_slots - 1;
    for (uint32_t i = pair_hash(left, right) & mask;; i = (i + 1) & mask) {
        merge *slot = &model->merges[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

static const merge *find_merge(const bpe *model, int32_t left, int32_t right) {
    const merge *slot = find_slot(model, left, right);
    return slot->left < 0 ? NULL : slot;
}

static bool set_slots(bpe *model, uint32_t n_slots) {
    uint32_t n_old = model->n_slots;
    merge *old = model->merges, *slots = td_alloc_array(n_slots, sizeof *slots);
    if (!slots) return false;
    memset(slots, 0xFF, n_slots * sizeof *slots);
    model->merges = slots;
    model->n_slots = n_slots;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].left >= 0) *find_slot(model, old[i].left, old[i].right) = old[i];
    td_free(old);
    return true;
}

/* At most three quarters of the slots are taken. */
static bool grow_merges(bpe *model) {
    return (uint64_t)model->n_ranks * 4 < (uint64_t)model->n_slots * 3 || set_slots(model, model->n_slots * 2);
}

typedef struct merge_list {
    td_pull pull;
    td_buf left, right, joined;
    int32_t capacity; /* of model->ranked */
    int32_t last_id;  /* of the merge before: the next one mostly makes the next token, so that is tried first */
} merge_list;

static treadle_status merge_fails(td_loader *loader, merge_list *list, size_t offset, const char *what, td_str token) {
    uint32_t line, column;
    td_loader_fail(loader, NULL, TREADLE_FORMAT, "merge %s \"%.*s\"", what, (int)TD_MIN(token.n, (size_t)100), token.p);
    td_text_place(list->pull.text, offset, &line, &column);
    td_error_place(loader->err, line, column);
    td_error_pointer(loader->err, "/model/merges");
    return TREADLE_FORMAT;
}

/* The id of left and right joined; the right one without the prefix of continuing
 * characters. -1: not in the vocabulary. */
static int32_t joined_id(const bpe *model, merge_list *list, td_str left, td_str right) {
    td_buf *joined = &list->joined;
    if (right.n < model->prefix.n) return -1;
    td_buf_clear(joined);
    td_buf_str(joined, left);
    td_buf_append(joined, right.p + model->prefix.n, right.n - model->prefix.n);
    if (joined->failed) return -1;
    for (int32_t id = list->last_id; id <= list->last_id + 1; id++)
        if (td_str_equal(td_vocab_token(&model->vocab, id), td_buf_view(joined))) return id;
    return td_vocab_id(&model->vocab, td_buf_view(joined));
}

static const td_str space_mark = {"\xE2\x96\x81", 3}; /* U+2581 */

static treadle_status add_merge(td_loader *loader, bpe *model, merge_list *list, size_t offset, td_str left,
                                td_str right) {
    int32_t left_id = td_vocab_id(&model->vocab, left), right_id = td_vocab_id(&model->vocab, right);
    if (left_id < 0) return merge_fails(loader, list, offset, "of a token that is not in the vocabulary:", left);
    if (right_id < 0) return merge_fails(loader, list, offset, "of a token that is not in the vocabulary:", right);
    int32_t id = joined_id(model, list, left, right);
    if (list->joined.failed) return td_loader_memory(loader, "merges");
    if (id < 0)
        return merge_fails(loader, list, offset,
                           "makes a token that is not in the vocabulary:", td_buf_view(&list->joined));
    list->last_id = id;
    if (model->n_ranks == list->capacity) {
        int32_t capacity = TD_MAX(list->capacity * 2, 64);
        int32_t *ranked = td_realloc_array(model->ranked, (size_t)capacity, sizeof *ranked);
        if (!ranked) return td_loader_memory(loader, "merges");
        model->ranked = ranked;
        list->capacity = capacity;
    }
    if (!grow_merges(model)) return td_loader_memory(loader, "merges");
    *find_slot(model, left_id, right_id) = (merge){left_id, right_id, model->n_ranks};
    model->ranked[model->n_ranks++] = id;
    if (td_str_starts(right, space_mark) && !td_str_ends(left, space_mark)) model->cuts_at_space = false;
    return TREADLE_OK;
}

/* "left right". Tokens that hold spaces themselves make more than one cut possible; then the one is taken whose
 * halves and whole are tokens. */
static treadle_status string_merge(td_loader *loader, bpe *model, merge_list *list, size_t offset, td_str text) {
    if (td_str_starts(text, TD_STR("#version"))) return TREADLE_OK;
    td_buf_clear(&list->left);
    td_buf_str(&list->left, text); /* text may lie in the reader's scratch */
    if (list->left.failed) return td_loader_memory(loader, "merges");
    td_str line = td_buf_view(&list->left), left = {0}, right = {0};
    size_t n_spaces = 0, n_fits = 0;
    for (size_t i = 0; i < line.n; i++) n_spaces += line.p[i] == ' ';
    for (size_t i = 0; i < line.n; i++) {
        if (line.p[i] != ' ') continue;
        td_str a = {line.p, i}, b = {line.p + i + 1, line.n - i - 1};
        if (n_spaces > 1 && (td_vocab_id(&model->vocab, a) < 0 || td_vocab_id(&model->vocab, b) < 0 ||
                             joined_id(model, list, a, b) < 0))
            continue;
        left = a;
        right = b;
        n_fits++;
    }
    if (list->joined.failed) return td_loader_memory(loader, "merges");
    if (n_fits != 1) return merge_fails(loader, list, offset, "cannot be cut at one space into two tokens:", line);
    return add_merge(loader, model, list, offset, left, right);
}

/* ["left", "right"] */
static treadle_status pair_merge(td_loader *loader, bpe *model, merge_list *list, size_t offset) {
    td_str text;
    TD_TRY(td_pull_expect(&list->pull, '['));
    TD_TRY(td_pull_string(&list->pull, &text));
    td_buf_clear(&list->left);
    td_buf_str(&list->left, text);
    if (list->left.failed) return td_loader_memory(loader, "merges");
    TD_TRY(td_pull_expect(&list->pull, ','));
    TD_TRY(td_pull_string(&list->pull, &text));
    TD_TRY(td_pull_expect(&list->pull, ']'));
    return add_merge(loader, model, list, offset, td_buf_view(&list->left), text);
}

static treadle_status read_merges(td_loader *loader, bpe *model, merge_list *list) {
    size_t n = TD_MIN(loader->merges.n_items, (size_t)INT32_MAX / 4);
    uint32_t n_slots = 64;
    while ((uint64_t)n_slots * 3 < (uint64_t)n * 4) n_slots *= 2;
    list->capacity = (int32_t)n;
    model->ranked = td_alloc_array(n, sizeof *model->ranked);
    if (!model->ranked || !set_slots(model, n_slots)) return td_loader_memory(loader, "merges");
    if (loader->merges.begin == loader->merges.end) return TREADLE_OK;
    TD_TRY(td_pull_expect(&list->pull, '['));
    for (bool first = true;; first = false) {
        bool more;
        TD_TRY(td_pull_more(&list->pull, ']', first, &more));
        if (!more) return TREADLE_OK;
        size_t offset = td_pull_offset(&list->pull);
        if (td_pull_peek(&list->pull) == '[') {
            TD_TRY(pair_merge(loader, model, list, offset));
        } else {
            td_str text;
            TD_TRY(td_pull_string(&list->pull, &text));
            TD_TRY(string_merge(loader, model, list, offset, text));
        }
    }
}

static treadle_status load_merges(td_loader *loader, bpe *model) {
    merge_list list = {0};
    td_pull_init(&list.pull, loader->text, loader->merges.begin, loader->merges.end, loader->err);
    treadle_status status = read_merges(loader, model, &list);
    td_pull_free(&list.pull);
    td_buf_free(&list.left);
    td_buf_free(&list.right);
    td_buf_free(&list.joined);
    return status;
}

/* --- loading */

static treadle_status read_vocab(td_loader *loader, bpe *model, td_pull *pull) {
    td_buf key = {0};
    treadle_status status = td_pull_expect(pull, '{');
    bool more = true;
    for (bool first = true; status == TREADLE_OK; first = false) {
        td_str token;
        int64_t id;
        TD_TRY_GOTO(td_pull_more(pull, '}', first, &more), done);
        if (!more) break;
        TD_TRY_GOTO(td_pull_string(pull, &token), done);
        if (token.p == pull->scratch.p) { /* unescaped: the next call of the reader may write there */
            td_buf_clear(&key);
            td_buf_str(&key, token);
            if (key.failed) {
                status = td_loader_memory(loader, "a token");
                break;
            }
            token = td_buf_view(&key);
        }
        TD_TRY_GOTO(td_pull_expect(pull, ':'), done);
        TD_TRY_GOTO(td_pull_int(pull, &id), done);
        TD_TRY_GOTO(td_vocab_add(&model->vocab, token, id, loader->err), done);
    }
done:
    td_buf_free(&key);
    return status;
}

static treadle_status load_vocab(td_loader *loader, const td_json *json, bpe *model) {
    if (loader->vocab.begin == loader->vocab.end)
        return td_loader_fail(loader, json, TREADLE_FORMAT, "expected a member \"vocab\" (an object), found none");
    td_pull pull;
    td_vocab_init(&model->vocab, loader->arena,
                  (int32_t)TD_MIN(TD_MAX(loader->text.n, (size_t)1 << 20), (size_t)1 << 28));
    if (!td_vocab_reserve(&model->vocab, loader->vocab.n_items)) return td_loader_memory(loader, "a vocabulary");
    td_pull_init(&pull, loader->text, loader->vocab.begin, loader->vocab.end, loader->err);
    treadle_status status = read_vocab(loader, model, &pull);
    td_pull_free(&pull);
    return status;
}

static void index_chars(bpe *model) {
    for (uint32_t c = 0; c < N_DIRECT; c++) {
        char text[4];
        model->direct[c] = td_vocab_id(&model->vocab, (td_str){text, (size_t)td_utf8_encode(c, text)});
    }
}

static void index_bytes(bpe *model) {
    static const char hex[] = "0123456789ABCDEF";
    char token[] = "<0x00>";
    for (int b = 0; b < 256; b++) {
        token[3] = hex[b >> 4];
        token[4] = hex[b & 15];
        model->byte_ids[b] = td_vocab_id(&model->vocab, td_str_from(token));
    }
}

static treadle_status affix(td_loader *loader, const td_json *json, const char *key, td_str *out) {
    *out = td_arena_str(loader->arena, td_json_string_or(json, key, ""));
    return out->p ? TREADLE_OK : td_loader_memory(loader, "a model");
}

static treadle_status load(td_loader *loader, const td_json *json, void **out) {
    bpe *model = *out = td_alloc_zero(1, sizeof *model);
    if (!model) return td_loader_memory(loader, "a model");
    const td_json *dropout = td_json_get(json, "dropout"), *unk = td_json_get(json, "unk_token");
    if (dropout && (dropout->kind == TD_JSON_INT || dropout->kind == TD_JSON_DOUBLE) && dropout->as_double != 0.0)
        return td_loader_fail(loader, dropout, TREADLE_UNSUPPORTED,
                              "dropout makes tokenizing random and is for training only; set it to null");
    model->fuse_unk = td_json_bool_or(json, "fuse_unk", false);
    model->byte_fallback = td_json_bool_or(json, "byte_fallback", false);
    model->ignore_merges = td_json_bool_or(json, "ignore_merges", false);
    TD_TRY(affix(loader, json, "continuing_subword_prefix", &model->prefix));
    TD_TRY(affix(loader, json, "end_of_word_suffix", &model->suffix));
    TD_TRY(load_vocab(loader, json, model));
    model->cuts_at_space = model->prefix.n == 0 && model->suffix.n == 0 && td_vocab_id(&model->vocab, space_mark) >= 0;
    TD_TRY(load_merges(loader, model));
    model->unk_id = -1;
    if (unk && unk->kind == TD_JSON_STRING) {
        TD_TRY(affix(loader, json, "unk_token", &model->unk));
        model->unk_id = td_vocab_id(&model->vocab, unk->string);
    }
    index_chars(model);
    index_bytes(model);
    return TREADLE_OK;
}

static void free_model(void *data) {
    bpe *model = data;
    if (!model) return;
    td_vocab_free(&model->vocab);
    td_free(model->merges);
    td_free(model->ranked);
    td_free(model);
}

/* --- tokenizing */

static bool push_symbol(bpe_scratch *scratch, int32_t id) {
    int32_t n = (int32_t)scratch->symbols.n;
    return td_vec_push(&scratch->symbols, (symbol){id, n - 1, n + 1});
}

/* The id of the character text[begin..end) of a piece, with what goes before and behind it. */
static int32_t char_id(const bpe *model, bpe_scratch *scratch, td_str piece, size_t begin, size_t end,
                       td_str *spelled) {
    *spelled = (td_str){piece.p + begin, end - begin};
    if ((begin > 0 && model->prefix.n > 0) || (end == piece.n && model->suffix.n > 0)) {
        td_buf_clear(&scratch->text);
        if (begin > 0) td_buf_str(&scratch->text, model->prefix);
        td_buf_append(&scratch->text, piece.p + begin, end - begin);
        if (end == piece.n) td_buf_str(&scratch->text, model->suffix);
        *spelled = td_buf_view(&scratch->text);
    } else if (end - begin <= 2) {
        size_t length;
        return model->direct[td_unicode_next(piece.p + begin, &length)];
    }
    return td_vocab_id(&model->vocab, *spelled);
}

/* The ids of a character's bytes; *all false: not all bytes have one, nothing is pushed. */
static bool push_bytes(const bpe *model, bpe_scratch *scratch, td_str spelled, bool *all) {
    *all = true;
    for (size_t i = 0; i < spelled.n; i++) *all &= model->byte_ids[(uint8_t)spelled.p[i]] >= 0;
    bool ok = true;
    for (size_t i = 0; *all && ok && i < spelled.n; i++)
        ok = push_symbol(scratch, model->byte_ids[(uint8_t)spelled.p[i]]);
    return ok;
}

/* The first symbols of a piece. An unknown character waits until the next known one (or, unless they are fused, the
 * next unknown one): bytes of a fallback do not end the wait, so they come before it. That order is the reference's. */
static treadle_status first_symbols(const bpe *model, bpe_scratch *scratch, td_str piece, treadle_error *err) {
    bool waiting = false, ok = true;
    scratch->symbols.n = 0;
    for (size_t begin = 0, length; ok && begin < piece.n; begin += length) {
        td_str spelled;
        td_unicode_next(piece.p + begin, &length);
        int32_t id = char_id(model, scratch, piece, begin, begin + length, &spelled);
        if (id >= 0) {
            ok = (!waiting || push_symbol(scratch, model->unk_id)) && push_symbol(scratch, id);
            waiting = false;
            continue;
        }
        if (model->byte_fallback) {
            bool all;
            ok = push_bytes(model, scratch, spelled, &all);
            if (all) continue;
        }
        if (!model->unk.p) continue;
        if (model->unk_id < 0)
            return td_fail(err, TREADLE_CONFIG, "a character is not in the vocabulary, nor is the unk_token \"%.*s\"",
                           TD_STR_ARGS(model->unk));
        ok = ok && (!waiting || model->fuse_unk || push_symbol(scratch, model->unk_id));
        waiting = true;
    }
    ok = ok && (!waiting || push_symbol(scratch, model->unk_id));
    return ok && !scratch->text.failed ? TREADLE_OK : td_fail_memory(err, "a piece of a text", piece.n);
}

static void sift_up(uint64_t *heap, size_t i) {
    uint64_t one = heap[i];
    for (; i > 0 && heap[(i - 1) / 2] > one; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = one;
}

static void sift_down(uint64_t *heap, size_t n) {
    uint64_t one = heap[0];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= one) break;
        heap[i] = heap[child];
    }
    heap[i] = one;
}

/* Queues the pair whose left symbol is at `at`, if it has a rank. */
static bool queue_pair(const bpe *model, bpe_scratch *scratch, int32_t at) {
    const symbol *left = &scratch->symbols.items[at];
    const merge *pair = find_merge(model, left->id, scratch->symbols.items[left->next].id);
    if (!pair) return true;
    if (!td_vec_push(&scratch->heap, (uint64_t)(uint32_t)pair->rank << 32 | (uint32_t)at)) return false;
    sift_up(scratch->heap.items, scratch->heap.n - 1);
    return true;
}

static bool merge_all(const bpe *model, bpe_scratch *scratch) {
    symbol *symbols = scratch->symbols.items;
    int32_t n = (int32_t)scratch->symbols.n;
    symbols[n - 1].next = -1;
    scratch->heap.n = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        if (!queue_pair(model, scratch, i)) return false;
    while (scratch->heap.n > 0) {
        uint64_t top = scratch->heap.items[0];
        scratch->heap.items[0] = scratch->heap.items[--scratch->heap.n];
        if (scratch->heap.n > 1) sift_down(scratch->heap.items, scratch->heap.n);
        symbol *left = &symbols[(uint32_t)top];
        if (left->id < 0 || left->next < 0) continue;
        symbol *right = &symbols[left->next];
        const merge *now = find_merge(model, left->id, right->id);
        int32_t id = model->ranked[top >> 32];
        if (!now || model->ranked[now->rank] != id) continue; /* the pair has changed since */
        left->id = id;
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0) symbols[left->next].previous = (int32_t)(uint32_t)top;
        if (left->previous >= 0 && !queue_pair(model, scratch, left->previous)) return false;
        if (left->next >= 0 && !queue_pair(model, scratch, (int32_t)(uint32_t)top)) return false;
    }
    return true;
}

static treadle_status tokenize_part(const bpe *model, bpe_scratch *scratch, td_str piece, td_ids *ids,
                                    treadle_error *err) {
    TD_TRY(first_symbols(model, scratch, piece, err));
    if (scratch->symbols.n == 0) return TREADLE_OK;
    if (!merge_all(model, scratch) || !td_vec_reserve(ids, ids->n + scratch->symbols.n))
        return td_fail_memory(err, "token ids", piece.n);
    for (int32_t i = 0; i >= 0; i = scratch->symbols.items[i].next) ids->items[ids->n++] = scratch->symbols.items[i].id;
    return TREADLE_OK;
}

/* Length of the part of text up to the next U+2581 behind another character. */
static size_t part_length(td_str text) {
    size_t at = 0;
    while (text.n - at >= space_mark.n && memcmp(text.p + at, space_mark.p, space_mark.n) == 0) at += space_mark.n;
    ptrdiff_t next = td_str_find((td_str){text.p + at, text.n - at}, space_mark);
    return next < 0 ? text.n : at + (size_t)next;
}

static treadle_status tokenize(const void *data, td_work *work, td_str piece, td_ids *ids, treadle_error *err) {
    const bpe *model = data;
    if (!work->model_scratch) work->model_scratch = td_alloc_zero(1, sizeof(bpe_scratch));
    bpe_scratch *scratch = work->model_scratch;
    if (!scratch) return td_fail_memory(err, "a text", sizeof *scratch);
    if (model->ignore_merges) {
        int32_t id = td_vocab_id(&model->vocab, piece);
        if (id >= 0) return td_vec_push(ids, id) ? TREADLE_OK : td_fail_memory(err, "token ids", ids->n);
    }
    if (!model->cuts_at_space) return tokenize_part(model, scratch, piece, ids, err);
    /* Texts without a pre-tokenizer are one piece. Parts that no merge joins are tokenised one by one: the same
     * ids, and the heap stays small. */
    for (size_t length; piece.n > 0; piece = (td_str){piece.p + length, piece.n - length}) {
        length = part_length(piece);
        TD_TRY(tokenize_part(model, scratch, (td_str){piece.p, length}, ids, err));
    }
    return TREADLE_OK;
}

static void free_scratch(void *data) {
    bpe_scratch *scratch = data;
    if (!scratch) return;
    td_vec_free(&scratch->symbols);
    td_vec_free(&scratch->heap);
    td_buf_free(&scratch->text);
    td_free(scratch);
}

static int32_t id_of(const void *model, td_str token) { return td_vocab_id(&((const bpe *)model)->vocab, token); }

static td_str token_of(const void *model, int64_t id) { return td_vocab_token(&((const bpe *)model)->vocab, id); }

static int32_t n_ids(const void *model) { return ((const bpe *)model)->vocab.n_ids; }

static int32_t n_tokens(const void *model) { return (int32_t)((const bpe *)model)->vocab.n; }

const td_model_kind td_bpe_kind = {
    .type = "BPE",
    .load = load,
    .free = free_model,
    .tokenize = tokenize,
    .free_scratch = free_scratch,
    .id = id_of,
    .token = token_of,
    .n_ids = n_ids,
    .n_tokens = n_tokens,
};
