/* text/parts.h - the insides of a tokenizer: five slots, each a list of steps, each step a row of its slot's table.
 *
 *     text --added tokens cut out--> segments --normalizers--> text --pre_tokenizers--> pieces --model--> ids
 *     ids --post_processors--> ids with BOS, EOS ...                ids --decoders--> text
 *
 * A kind of part is one row (its "type" in tokenizer.json, how to read its options, how to run it) in normalizers.c,
 * pre_tokenizers.c, models.c, post_processors.c or decoders.c; one that needs more than a page has a file of its own. A
 * "Sequence" is no kind: its members are steps one after another. */
#ifndef TD_TEXT_PARTS_H
#define TD_TEXT_PARTS_H

#include "base/arena.h"
#include "base/json.h"
#include "text/regex.h"
#include "text/tokenizer.h"

/* --- loading */

/* The text of a part of tokenizer.json that is too large for a tree, by byte offsets; begin == end: there is none. */
typedef struct td_span {
    size_t begin, end;
    size_t n_items; /* about how many: an estimate for tables */
} td_span;

typedef struct td_loader {
    td_tokenizer *tokenizer;
    td_arena *arena;       /* the tokenizer's: what a part keeps */
    td_str text;           /* the whole tokenizer.json */
    td_str tree_text;      /* the same with "null" for model.vocab and model.merges: what the tree's offsets count in */
    td_span vocab, merges; /* those two, in text */
    const char *file;
    treadle_error *err;
} td_loader;

/* Fails with the place of `at`, which may be NULL. */
treadle_status td_loader_fail(td_loader *loader, const td_json *at, treadle_status code, const char *format, ...)
    TD_PRINTF(4, 5);
treadle_status td_loader_memory(td_loader *loader, const char *what);
/* A compiled pattern that lives as long as the tokenizer, from {"String": s} or {"Regex": s}. */
treadle_status td_loader_pattern(td_loader *loader, const td_json *pattern, const td_regex **out);
treadle_status td_loader_literal(td_loader *loader, const td_json *at, td_str text, const td_regex **out);
/* What the Replace normalizer and the Replace decoder do. */
typedef struct td_replace {
    const td_regex *pattern;
    td_str content;
} td_replace;
treadle_status td_loader_replace(td_loader *loader, const td_json *object, void **out); /* *out: a td_replace */
/* A member of a kind that must be there. */
treadle_status td_loader_need(td_loader *loader, const td_json *object, const char *key, td_json_kind kind,
                              const td_json **out);
/* A string member that must be exactly one character. */
treadle_status td_loader_char(td_loader *loader, const td_json *object, const char *key, uint32_t *out);

/* --- running */

/* A piece of text on its way to the model. */
typedef struct td_piece {
    uint32_t begin, end; /* in td_work.text */
    bool at_start;       /* begins where the whole input begins */
} td_piece;

typedef struct td_piece_vec {
    td_piece *items;
    size_t n, capacity;
} td_piece_vec;

/* Scratch of one call of encode. */
typedef struct td_work {
    td_buf text, spare_text;
    td_piece_vec pieces, spare_pieces;
    td_match_vec matches, parts;
    td_regex_scratch regex;
    void *model_scratch;
    bool front_dropped; /* a normalizer took away what the text began with */
} td_work;

typedef enum td_split_behavior {
    TD_SPLIT_REMOVED,
    TD_SPLIT_ISOLATED,
    TD_SPLIT_MERGED_WITH_PREVIOUS,
    TD_SPLIT_MERGED_WITH_NEXT,
    TD_SPLIT_CONTIGUOUS,
} td_split_behavior;

typedef struct td_decoding td_decoding;

/* A piece of a token between decoders. Whole tokens have both flags; where a decoder makes one token of many, text that
 * is certain is passed on early when the caller wants it so. */
typedef struct td_fragment {
    td_str text;
    bool begins, ends;
} td_fragment;

/* What a decoder remembers between tokens; each uses the fields as it likes. */
typedef struct td_decoder_state {
    uint64_t n, m;
    bool open;
    td_buf held;
    td_buf scratch;
    td_regex_scratch regex;
    td_match_vec matches;
} td_decoder_state;

typedef treadle_status td_normalize_fn(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err);
/* Makes the next pieces of work->pieces. */
typedef treadle_status td_pre_tokenize_fn(const void *data, td_work *work, treadle_error *err);
/* Puts special tokens around ids[from..]. */
typedef treadle_status td_post_process_fn(const void *data, td_ids *ids, size_t from, treadle_error *err);
/* Takes a fragment, or the end if fragment is NULL, and passes on what comes of it with td_decoding_send(step + 1). */
typedef treadle_status td_decode_fn(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment);

typedef struct td_part_kind {
    const char *type;
    treadle_status (*parse)(td_loader *loader, const td_json *json, void **data); /* NULL: no options */
    td_normalize_fn *normalize;
    td_pre_tokenize_fn *pre_tokenize;
    td_post_process_fn *post_process;
    td_decode_fn *decode;
    /* Of decoders: makes one token of several; what a token becomes depends on whether another follows;
     * gives the same for a token in fragments as for the whole (NULL: does not). What rules out eager
     * decoding, see can_stream in decoding.c. */
    bool joins, looks_ahead;
    bool (*takes_fragments)(const void *data);
} td_part_kind;

typedef struct td_slot {
    const char *name;     /* member of tokenizer.json */
    const char *sequence; /* member of a Sequence that lists its steps */
    const td_part_kind *kinds;
    size_t n_kinds;
} td_slot;

extern const td_slot td_normalizer_slot, td_pre_tokenizer_slot, td_post_processor_slot, td_decoder_slot;

typedef struct td_step {
    const td_part_kind *kind;
    void *data;
} td_step;

typedef struct td_steps {
    td_step *items;
    size_t n, capacity;
} td_steps;

treadle_status td_steps_load(td_loader *loader, const td_slot *slot, const td_json *json, td_steps *steps);

/* One kind of model. tokenize appends the ids of one piece. */
typedef struct td_model_kind {
    const char *type;
    treadle_status (*load)(td_loader *loader, const td_json *json, void **model); /* json: without vocab and merges */
    void (*free)(void *model);                                                    /* also of a half-loaded one */
    treadle_status (*tokenize)(const void *model, td_work *work, td_str piece, td_ids *ids, treadle_error *err);
    void (*free_scratch)(void *scratch);
    int32_t (*id)(const void *model, td_str token);
    td_str (*token)(const void *model, int64_t id);
    int32_t (*n_ids)(const void *model);    /* highest id + 1 */
    int32_t (*n_tokens)(const void *model); /* distinct tokens */
} td_model_kind;

extern const td_model_kind td_bpe_kind;
treadle_status td_model_find(td_loader *loader, const td_json *json, const td_model_kind **out);

/* --- pre-tokenizing (split.c) */

void td_work_swap_pieces(td_work *work); /* spare_pieces become the pieces */

/* Cuts every piece where the pattern matches. invert: where it does not. */
treadle_status td_split_by_regex(td_work *work, const td_regex *regex, td_split_behavior behavior, bool invert,
                                 treadle_error *err);
/* Cuts every piece at the characters for which is_match holds, each a match of its own. */
typedef bool td_char_test(uint32_t code_point, uint32_t arg);
treadle_status td_split_by_char(td_work *work, td_char_test *is_match, uint32_t arg, td_split_behavior behavior,
                                treadle_error *err);

/* --- the byte-level alphabet (byte_level.c): every byte is a printable character */
void td_byte_level_append(td_str bytes, td_buf *out);
/* The bytes of a token in that alphabet; a token with a character outside of it stays as it is. */
void td_byte_level_decode(td_str token, td_buf *out);

/* --- added tokens (added.c) */

typedef struct td_added_token {
    td_str content;
    td_str pattern; /* what is searched for and what the id decodes to: the content, normalised if `normalized` */
    int32_t id;
    bool special, normalized, single_word, lstrip, rstrip;
    bool skipped; /* by a decoder that skips special tokens: the pattern is the content of a special token */
} td_added_token;

typedef struct td_added {
    td_added_token *items; /* sorted by id once loaded */
    size_t n, capacity;
    struct td_added_matcher {
        uint32_t *tokens; /* indices into items, sorted by pattern */
        size_t n;
        uint32_t first[257]; /* tokens[first[b]..first[b+1]) begin with byte b */
    } plain, normalized;
} td_added;

/* A stretch of text, or an added token in it. */
typedef struct td_segment {
    uint32_t begin, end;
    int32_t token; /* index into items; -1: text */
} td_segment;

typedef struct td_segment_vec {
    td_segment *items;
    size_t n, capacity;
} td_segment_vec;

/* Takes an array of added tokens; of those of the same content the last one wins. */
treadle_status td_added_load(td_loader *loader, const td_json *array, td_added *added);
/* Takes the added_tokens_decoder object of tokenizer_config.json, {"id": {"content": ...}}:
 * contents that are not there. */
treadle_status td_added_load_decoder(td_loader *loader, const td_json *object, td_added *added);
treadle_status td_added_finish(td_loader *loader, td_added *added); /* builds the matchers */
void td_added_free(td_added *added);
const td_added_token *td_added_by_id(const td_added *added, int64_t id);
const td_added_token *td_added_by_content(const td_added *added, td_str content);
treadle_status td_added_split(const td_added *added, const struct td_added_matcher *matcher, td_str text,
                              bool skip_special, td_segment_vec *out, treadle_error *err);

/* --- decoding (decoders.c) */

struct td_decoding {
    const td_tokenizer *tokenizer;
    bool eager;               /* pass text on as soon as it is certain */
    td_decoder_state *states; /* one a step */
    td_buf *out;
    treadle_error *err;
};

treadle_status td_decoding_send(td_decoding *decoding, size_t step, td_str text, bool begins, bool ends);

/* --- the tokenizer */

struct td_tokenizer {
    td_arena arena;
    td_steps normalizers, pre_tokenizers, post_processors, decoders;
    const td_model_kind *model_kind;
    void *model;
    td_added added;
    TD_VEC(td_regex *) regexes;
};

/* Runs all normalizers; *out is in, or a view of one of work's buffers. */
treadle_status td_tokenizer_normalize(const td_tokenizer *tokenizer, td_work *work, td_str in, td_str *out,
                                      treadle_error *err);
void td_work_free(td_work *work, const td_tokenizer *tokenizer);

#endif
