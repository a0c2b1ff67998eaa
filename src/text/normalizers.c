/* text/normalizers.c - the normalizer slot. Each row turns a text into another. */
#include "text/parts.h"
#include "text/unicode.h"

/* The end of an append to out. */
static treadle_status done(const td_buf *out, treadle_error *err) {
    return out->failed ? td_fail_memory(err, "a normalised text", out->n) : TREADLE_OK;
}

/* --- normal forms */

static treadle_status normal_form(td_normal_form form, td_str in, td_buf *out, treadle_error *err) {
    return td_unicode_normalize(in, form, out) ? TREADLE_OK : td_fail_memory(err, "a normalised text", in.n);
}

#define NORMAL_FORM(name, form)                                                                                        \
    static treadle_status name(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {          \
        (void)data, (void)work;                                                                                        \
        return normal_form(form, in, out, err);                                                                        \
    }
NORMAL_FORM(nfc, TD_NFC)
NORMAL_FORM(nfd, TD_NFD)
NORMAL_FORM(nfkc, TD_NFKC)
NORMAL_FORM(nfkd, TD_NFKD)

/* --- character by character */

static treadle_status lowercase(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    (void)data, (void)work;
    for (size_t i = 0, length; i < in.n; i += length) {
        uint32_t lower[2], code_point = td_unicode_next(in.p + i, &length);
        int n = td_unicode_lower(code_point, lower);
        for (int k = 0; k < n; k++) td_unicode_append(out, lower[k]);
    }
    return done(out, err);
}

/* Drops the characters for which drops holds. */
static treadle_status drop(td_char_test *drops, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    for (size_t i = 0, length; i < in.n; i += length) {
        uint32_t code_point = td_unicode_next(in.p + i, &length);
        if (!drops(code_point, 0)) td_buf_append(out, in.p + i, length);
        else if (i == 0) work->front_dropped = true;
    }
    return done(out, err);
}

static bool is_mark(uint32_t code_point, uint32_t arg) {
    (void)arg;
    return code_point >= 0x300 && td_unicode_in(TD_UNICODE_MARK, code_point);
}

static treadle_status strip_accents(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    (void)data;
    return drop(is_mark, work, in, out, err);
}

/* The character map of SentencePiece's nmt rules: controls go, odd spaces become plain ones. */
static bool nmt_drops(uint32_t c, uint32_t arg) {
    (void)arg;
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}

static bool nmt_blanks(uint32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

static treadle_status nmt(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    (void)data;
    for (size_t i = 0, length; i < in.n; i += length) {
        uint32_t code_point = td_unicode_next(in.p + i, &length);
        if (nmt_drops(code_point, 0)) work->front_dropped |= i == 0;
        else if (nmt_blanks(code_point)) td_buf_char(out, ' ');
        else td_buf_append(out, in.p + i, length);
    }
    return done(out, err);
}

/* --- Strip */

typedef struct strip_options {
    bool left, right;
} strip_options;

static treadle_status parse_strip(td_loader *loader, const td_json *json, void **data) {
    strip_options *options = TD_ARENA_NEW(loader->arena, strip_options);
    if (!options) return td_loader_memory(loader, "a normalizer");
    options->left = td_json_bool_or(json, "strip_left", true);
    options->right = td_json_bool_or(json, "strip_right", true);
    *data = options;
    return TREADLE_OK;
}

static treadle_status strip(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    const strip_options *options = data;
    size_t begin = 0, end = 0; /* end: behind the last character that is no space */
    bool leading = options->left;
    for (size_t i = 0, length; i < in.n; i += length) {
        bool space = td_unicode_in(TD_UNICODE_WHITE_SPACE, td_unicode_next(in.p + i, &length));
        leading = leading && space;
        if (leading) begin = i + length;
        if (!space || !options->right) end = i + length;
    }
    work->front_dropped |= begin > 0;
    if (end > begin) td_buf_append(out, in.p + begin, end - begin);
    return done(out, err);
}

/* --- Replace */

static treadle_status replace(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    const td_replace *options = data;
    size_t at = 0;
    work->matches.n = 0;
    TD_TRY(td_regex_find_all(options->pattern, &work->regex, in, &work->matches, err));
    for (size_t i = 0; i < work->matches.n; i++) {
        td_match match = work->matches.items[i];
        td_buf_append(out, in.p + at, match.begin - at);
        td_buf_str(out, options->content);
        at = match.end;
        work->front_dropped |= match.begin == 0 && match.end > 0 && options->content.n == 0;
    }
    td_buf_append(out, in.p + at, in.n - at);
    return done(out, err);
}

/* --- Prepend, ByteLevel */

static treadle_status parse_prepend(td_loader *loader, const td_json *json, void **data) {
    td_str *text = TD_ARENA_NEW(loader->arena, td_str);
    const td_json *prepend;
    TD_TRY(td_loader_need(loader, json, "prepend", TD_JSON_STRING, &prepend));
    if (text) *text = td_arena_str(loader->arena, prepend->string);
    if (!text || !text->p) return td_loader_memory(loader, "a normalizer");
    *data = text;
    return TREADLE_OK;
}

static treadle_status prepend(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    (void)work;
    if (in.n > 0) td_buf_str(out, *(const td_str *)data);
    td_buf_str(out, in);
    return done(out, err);
}

static treadle_status byte_level(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    (void)data, (void)work;
    td_byte_level_append(in, out);
    return done(out, err);
}

/* --- the text of word-piece vocabularies */

typedef struct word_piece_options {
    bool clean_text, handle_chinese, strip_accents, lowercase;
} word_piece_options;

static treadle_status parse_word_piece_text(td_loader *loader, const td_json *json, void **data) {
    word_piece_options *options = TD_ARENA_NEW(loader->arena, word_piece_options);
    if (!options) return td_loader_memory(loader, "a normalizer");
    options->clean_text = td_json_bool_or(json, "clean_text", true);
    options->handle_chinese = td_json_bool_or(json, "handle_chinese_chars", true);
    options->lowercase = td_json_bool_or(json, "lowercase", true);
    options->strip_accents = td_json_bool_or(json, "strip_accents", options->lowercase); /* null: as lowercase */
    *data = options;
    return TREADLE_OK;
}

static bool is_nonspacing(uint32_t code_point, uint32_t arg) {
    (void)arg;
    return td_unicode_in(TD_UNICODE_NONSPACING, code_point);
}

/* The blocks that word-piece vocabularies set apart by spaces; the last but two begins where the reference has
 * it, not where the block does. */
static bool is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

static void word_piece_chars(const word_piece_options *options, td_work *work, td_str in, td_buf *out) {
    for (size_t i = 0, length; i < in.n; i += length) {
        uint32_t code_point = td_unicode_next(in.p + i, &length);
        bool space = options->clean_text && td_unicode_in(TD_UNICODE_WHITE_SPACE, code_point);
        bool apart = options->handle_chinese && is_chinese(code_point);
        if (options->clean_text && td_unicode_in(TD_UNICODE_CONTROL, code_point)) { /* some spaces are controls too */
            work->front_dropped |= i == 0;
            continue;
        }
        if (space || apart) td_buf_char(out, ' ');
        if (!space) td_buf_append(out, in.p + i, length);
        if (apart) td_buf_char(out, ' ');
    }
}

static treadle_status word_piece_text(const void *data, td_work *work, td_str in, td_buf *out, treadle_error *err) {
    const word_piece_options *options = data;
    td_buf chars = {0}, plain = {0};
    treadle_status status = TREADLE_OK;
    word_piece_chars(options, work, in, &chars);
    if (options->strip_accents) {
        td_buf decomposed = {0};
        status = normal_form(TD_NFD, td_buf_view(&chars), &decomposed, err);
        if (status == TREADLE_OK) status = drop(is_nonspacing, work, td_buf_view(&decomposed), &plain, err);
        td_buf_free(&decomposed);
    }
    td_buf *last = options->strip_accents ? &plain : &chars;
    if (status == TREADLE_OK && options->lowercase) status = lowercase(NULL, work, td_buf_view(last), out, err);
    else td_buf_str(out, td_buf_view(last));
    if (status == TREADLE_OK && chars.failed) status = done(&chars, err);
    td_buf_free(&chars);
    td_buf_free(&plain);
    return status == TREADLE_OK ? done(out, err) : status;
}

static const td_part_kind kinds[] = {
    {.type = "NFC", .normalize = nfc},
    {.type = "NFD", .normalize = nfd},
    {.type = "NFKC", .normalize = nfkc},
    {.type = "NFKD", .normalize = nfkd},
    {.type = "Lowercase", .normalize = lowercase},
    {.type = "StripAccents", .normalize = strip_accents},
    {.type = "Nmt", .normalize = nmt},
    {.type = "Strip", .parse = parse_strip, .normalize = strip},
    {.type = "Replace", .parse = td_loader_replace, .normalize = replace},
    {.type = "Prepend", .parse = parse_prepend, .normalize = prepend},
    {.type = "ByteLevel", .normalize = byte_level},
    {.type = "BertNormalizer", .parse = parse_word_piece_text, .normalize = word_piece_text},
};

const td_slot td_normalizer_slot = {"normalizer", "normalizers", kinds, TD_COUNT(kinds)};
