/* text/pre_tokenizers.c - the pre-tokenizer slot. Each row cuts the pieces of a text further; some also rewrite
 * them. */
#include "text/parts.h"
#include "text/unicode.h"

static const char byte_level_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Rewrites every piece: write appends the new text of one. */
typedef void rewrite_fn(const void *arg, const td_piece *piece, td_str text, td_buf *out);

static treadle_status rewrite_pieces(td_work *work, rewrite_fn *write, const void *arg, treadle_error *err) {
    td_buf *out = &work->spare_text;
    td_buf_clear(out);
    for (size_t i = 0; i < work->pieces.n; i++) {
        td_piece *piece = &work->pieces.items[i];
        size_t begin = out->n;
        write(arg, piece, (td_str){work->text.p + piece->begin, piece->end - piece->begin}, out);
        if (out->n > INT32_MAX)
            return td_fail(err, TREADLE_LIMIT, "expected a text that stays below 2 GiB when it is rewritten");
        piece->begin = (uint32_t)begin;
        piece->end = (uint32_t)out->n;
    }
    if (out->failed) return td_fail_memory(err, "pieces of a text", out->n);
    td_buf done = *out;
    work->spare_text = work->text;
    work->text = done;
    return TREADLE_OK;
}

/* --- ByteLevel */

typedef struct byte_level_options {
    bool add_prefix_space;
    const td_regex *pattern; /* NULL: no cutting */
} byte_level_options;

static treadle_status parse_byte_level(td_loader *loader, const td_json *json, void **data) {
    byte_level_options *options = TD_ARENA_NEW(loader->arena, byte_level_options);
    if (!options) return td_loader_memory(loader, "a pre-tokenizer");
    options->add_prefix_space = td_json_bool_or(json, "add_prefix_space", true);
    if (td_json_bool_or(json, "use_regex", true)) {
        td_regex *regex = NULL;
        TD_TRY(td_regex_compile(TD_STR(byte_level_pattern), &regex, loader->err));
        if (!td_vec_push(&loader->tokenizer->regexes, regex)) {
            td_regex_free(regex);
            return td_loader_memory(loader, "a pre-tokenizer");
        }
        options->pattern = regex;
    }
    *data = options;
    return TREADLE_OK;
}

static void write_with_space(const void *arg, const td_piece *piece, td_str text, td_buf *out) {
    (void)arg, (void)piece;
    if (text.p[0] != ' ') td_buf_char(out, ' ');
    td_buf_str(out, text);
}

static void write_byte_level(const void *arg, const td_piece *piece, td_str text, td_buf *out) {
    (void)arg, (void)piece;
    td_byte_level_append(text, out);
}

static treadle_status byte_level(const void *data, td_work *work, treadle_error *err) {
    const byte_level_options *options = data;
    if (options->add_prefix_space) TD_TRY(rewrite_pieces(work, write_with_space, NULL, err));
    if (options->pattern) TD_TRY(td_split_by_regex(work, options->pattern, TD_SPLIT_ISOLATED, false, err));
    return rewrite_pieces(work, write_byte_level, NULL, err);
}

/* --- Metaspace */

typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

typedef struct metaspace_options {
    uint32_t replacement;
    td_str text; /* of the replacement */
    prepend_scheme scheme;
    bool split;
} metaspace_options;

static treadle_status parse_scheme(td_loader *loader, const td_json *json, prepend_scheme *out) {
    const td_json *scheme = td_json_get(json, "prepend_scheme");
    *out = td_json_bool_or(json, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER; /* the older spelling */
    if (!scheme || scheme->kind == TD_JSON_NULL) return TREADLE_OK;
    td_str text = scheme->string;
    if (td_str_is(text, "always")) *out = PREPEND_ALWAYS;
    else if (td_str_is(text, "first")) *out = PREPEND_FIRST;
    else if (td_str_is(text, "never")) *out = PREPEND_NEVER;
    else
        return td_loader_fail(loader, scheme, TREADLE_FORMAT,
                              "expected \"prepend_scheme\" to be \"always\", \"first\" or \"never\"");
    return TREADLE_OK;
}

static treadle_status parse_metaspace(td_loader *loader, const td_json *json, void **data) {
    metaspace_options *options = TD_ARENA_NEW(loader->arena, metaspace_options);
    if (!options) return td_loader_memory(loader, "a pre-tokenizer");
    TD_TRY(td_loader_char(loader, json, "replacement", &options->replacement));
    TD_TRY(parse_scheme(loader, json, &options->scheme));
    options->split = td_json_bool_or(json, "split", true);
    options->text = td_arena_str(loader->arena, td_json_string_or(json, "replacement", ""));
    if (!options->text.p) return td_loader_memory(loader, "a pre-tokenizer");
    *data = options;
    return TREADLE_OK;
}

static void write_metaspace(const void *arg, const td_piece *piece, td_str text, td_buf *out) {
    const metaspace_options *options = arg;
    bool prepend = options->scheme == PREPEND_ALWAYS || (options->scheme == PREPEND_FIRST && piece->at_start);
    if (prepend && text.p[0] != ' ' && !td_str_starts(text, options->text)) td_buf_str(out, options->text);
    for (size_t i = 0; i < text.n;) {
        size_t run = i;
        while (run < text.n && text.p[run] != ' ') run++;
        td_buf_append(out, text.p + i, run - i);
        if (run < text.n) td_buf_str(out, options->text);
        i = run + 1;
    }
}

static bool is_char(uint32_t code_point, uint32_t arg) { return code_point == arg; }

static treadle_status metaspace(const void *data, td_work *work, treadle_error *err) {
    const metaspace_options *options = data;
    TD_TRY(rewrite_pieces(work, write_metaspace, options, err));
    if (!options->split) return TREADLE_OK;
    return td_split_by_char(work, is_char, options->replacement, TD_SPLIT_MERGED_WITH_NEXT, err);
}

/* --- Split, Punctuation */

static treadle_status parse_behavior(td_loader *loader, const td_json *json, bool optional, td_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const td_json *text = td_json_get(json, "behavior");
    *out = TD_SPLIT_ISOLATED;
    if (!text && optional) return TREADLE_OK;
    TD_TRY(td_loader_need(loader, json, "behavior", TD_JSON_STRING, &text));
    for (size_t i = 0; i < TD_COUNT(names); i++) {
        if (!td_str_is(text->string, names[i])) continue;
        *out = (td_split_behavior)i;
        return TREADLE_OK;
    }
    return td_loader_fail(loader, text, TREADLE_UNSUPPORTED,
                          "behavior \"%.*s\" is not known; known: Removed, Isolated, "
                          "MergedWithPrevious, MergedWithNext, Contiguous",
                          TD_STR_ARGS(text->string));
}

typedef struct split_options {
    const td_regex *pattern;
    td_split_behavior behavior;
    bool invert;
} split_options;

static treadle_status parse_split(td_loader *loader, const td_json *json, void **data) {
    split_options *options = TD_ARENA_NEW(loader->arena, split_options);
    const td_json *pattern;
    if (!options) return td_loader_memory(loader, "a pre-tokenizer");
    TD_TRY(td_loader_need(loader, json, "pattern", TD_JSON_OBJECT, &pattern));
    TD_TRY(td_loader_pattern(loader, pattern, &options->pattern));
    TD_TRY(parse_behavior(loader, json, false, &options->behavior));
    options->invert = td_json_bool_or(json, "invert", false);
    *data = options;
    return TREADLE_OK;
}

static treadle_status split(const void *data, td_work *work, treadle_error *err) {
    const split_options *options = data;
    return td_split_by_regex(work, options->pattern, options->behavior, options->invert, err);
}

static treadle_status parse_punctuation(td_loader *loader, const td_json *json, void **data) {
    td_split_behavior *behavior = TD_ARENA_NEW(loader->arena, td_split_behavior);
    if (!behavior) return td_loader_memory(loader, "a pre-tokenizer");
    *data = behavior;
    return parse_behavior(loader, json, true, behavior);
}

static bool is_in(uint32_t code_point, uint32_t set) { return td_unicode_in((td_unicode_set)set, code_point); }

static treadle_status punctuation(const void *data, td_work *work, treadle_error *err) {
    return td_split_by_char(work, is_in, TD_UNICODE_PUNCTUATION, *(const td_split_behavior *)data, err);
}

/* --- Digits, white space, delimiters */

static treadle_status parse_digits(td_loader *loader, const td_json *json, void **data) {
    bool *individual = TD_ARENA_NEW(loader->arena, bool);
    if (!individual) return td_loader_memory(loader, "a pre-tokenizer");
    *individual = td_json_bool_or(json, "individual_digits", false);
    *data = individual;
    return TREADLE_OK;
}

static treadle_status digits(const void *data, td_work *work, treadle_error *err) {
    td_split_behavior behavior = *(const bool *)data ? TD_SPLIT_ISOLATED : TD_SPLIT_CONTIGUOUS;
    return td_split_by_char(work, is_in, TD_UNICODE_NUMERIC, behavior, err);
}

static treadle_status whitespace_split(const void *data, td_work *work, treadle_error *err) {
    (void)data;
    return td_split_by_char(work, is_in, TD_UNICODE_WHITE_SPACE, TD_SPLIT_REMOVED, err);
}

static treadle_status word_piece_cut(const void *data, td_work *work, treadle_error *err) {
    TD_TRY(whitespace_split(data, work, err));
    return td_split_by_char(work, is_in, TD_UNICODE_PUNCTUATION, TD_SPLIT_ISOLATED, err);
}

static bool is_other_kind(uint32_t code_point, uint32_t arg) {
    (void)arg;
    return !td_unicode_in(TD_UNICODE_WORD, code_point);
}

/* Runs of word characters and runs of others, without the space between. */
static treadle_status whitespace(const void *data, td_work *work, treadle_error *err) {
    TD_TRY(whitespace_split(data, work, err));
    return td_split_by_char(work, is_other_kind, 0, TD_SPLIT_CONTIGUOUS, err);
}

static treadle_status parse_delimiter(td_loader *loader, const td_json *json, void **data) {
    uint32_t *delimiter = TD_ARENA_NEW(loader->arena, uint32_t);
    if (!delimiter) return td_loader_memory(loader, "a pre-tokenizer");
    *data = delimiter;
    return td_loader_char(loader, json, "delimiter", delimiter);
}

static treadle_status char_delimiter_split(const void *data, td_work *work, treadle_error *err) {
    return td_split_by_char(work, is_char, *(const uint32_t *)data, TD_SPLIT_REMOVED, err);
}

static treadle_status parse_fixed_length(td_loader *loader, const td_json *json, void **data) {
    int64_t *length = TD_ARENA_NEW(loader->arena, int64_t);
    if (!length) return td_loader_memory(loader, "a pre-tokenizer");
    *length = td_json_int_or(json, "length", 5);
    if (*length < 1) return td_loader_fail(loader, json, TREADLE_FORMAT, "expected \"length\" to be at least 1");
    *data = length;
    return TREADLE_OK;
}

/* Pieces of so many characters. */
static treadle_status fixed_length(const void *data, td_work *work, treadle_error *err) {
    int64_t want = *(const int64_t *)data;
    work->spare_pieces.n = 0;
    for (size_t i = 0; i < work->pieces.n; i++) {
        td_piece piece = work->pieces.items[i];
        for (uint32_t begin = piece.begin, end; begin < piece.end; begin = end) {
            end = begin;
            for (int64_t n = 0; n < want && end < piece.end; n++) {
                size_t length;
                td_unicode_next(work->text.p + end, &length);
                end += (uint32_t)length;
            }
            if (!td_vec_push(&work->spare_pieces, (td_piece){begin, end, piece.at_start && begin == piece.begin}))
                return td_fail_memory(err, "pieces of a text", work->text.n);
        }
    }
    td_work_swap_pieces(work);
    return TREADLE_OK;
}

static const td_part_kind kinds[] = {
    {.type = "ByteLevel", .parse = parse_byte_level, .pre_tokenize = byte_level},
    {.type = "Split", .parse = parse_split, .pre_tokenize = split},
    {.type = "Metaspace", .parse = parse_metaspace, .pre_tokenize = metaspace},
    {.type = "Digits", .parse = parse_digits, .pre_tokenize = digits},
    {.type = "Punctuation", .parse = parse_punctuation, .pre_tokenize = punctuation},
    {.type = "Whitespace", .pre_tokenize = whitespace},
    {.type = "WhitespaceSplit", .pre_tokenize = whitespace_split},
    {.type = "BertPreTokenizer", .pre_tokenize = word_piece_cut},
    {.type = "FixedLength", .parse = parse_fixed_length, .pre_tokenize = fixed_length},
    {.type = "CharDelimiterSplit", .parse = parse_delimiter, .pre_tokenize = char_delimiter_split},
};

const td_slot td_pre_tokenizer_slot = {"pre_tokenizer", "pretokenizers", kinds, TD_COUNT(kinds)};
