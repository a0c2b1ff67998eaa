/* text/decoders.c - the decoder slot: tokens to text, one token after another.
 *
 * Every decoder is a stage that takes fragments of tokens and passes fragments on, so that decoding a list of ids and
 * decoding a stream is one code. A decoder that makes one token of many (ByteLevel, Fuse, a run of bytes) may pass on
 * what is certain before that token ends: `eager`, for streams. It keeps everything to itself until the end otherwise,
 * because what follows may want the whole token (a Replace by expression) and because a run of bytes that turns out not
 * to be UTF-8 changes as a whole. */
#include "text/parts.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/unicode.h"

static const td_str replacement_char = {"\xEF\xBF\xBD", 3};

static td_decoder_state *state_of(td_decoding *decoding, size_t step) { return &decoding->states[step]; }

static treadle_status no_memory(const td_decoding *decoding) {
    return td_fail_memory(decoding->err, "a decoded text", 0);
}

treadle_status td_decoding_send(td_decoding *decoding, size_t step, td_str text, bool begins, bool ends) {
    const td_steps *steps = &decoding->tokenizer->decoders;
    if (step < steps->n) {
        td_fragment fragment = {text, begins, ends};
        return steps->items[step].kind->decode(steps->items[step].data, decoding, step, &fragment);
    }
    td_buf_str(decoding->out, text);
    return decoding->out->failed ? no_memory(decoding) : TREADLE_OK;
}

/* A fragment of the one token that a stage makes of all its input. */
static treadle_status send_more(td_decoding *decoding, size_t step, td_str text, bool ends) {
    td_decoder_state *state = state_of(decoding, step);
    bool begins = !state->open;
    state->open = !ends;
    return td_decoding_send(decoding, step + 1, text, begins, ends);
}

/* --- ByteLevel */

/* Appends bytes as text, bad ones as U+FFFD; keeps an unfinished character at the end in held unless it is the end. */
static void take_text(td_buf *held, td_buf *out, bool end) {
    td_str bytes = td_buf_view(held);
    size_t n = end ? bytes.n : td_utf8_complete_prefix(bytes);
    td_buf_clear(out);
    if (n) td_utf8_replace_invalid((td_str){bytes.p, n}, out);
    if (n && n < held->n) memmove(held->p, held->p + n, held->n - n);
    held->n -= n;
}

static treadle_status byte_level(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    (void)data;
    td_decoder_state *state = state_of(decoding, step);
    if (fragment) td_byte_level_decode(fragment->text, &state->held);
    if (fragment && !decoding->eager) return state->held.failed ? no_memory(decoding) : TREADLE_OK;
    take_text(&state->held, &state->scratch, !fragment);
    if (state->held.failed || state->scratch.failed) return no_memory(decoding);
    if (fragment && state->scratch.n == 0) return TREADLE_OK;
    return send_more(decoding, step, td_buf_view(&state->scratch), !fragment);
}

/* --- ByteFallback */

/* The byte of a token "<0xNN>", or -1. */
static int byte_token(td_str token) {
    if (token.n != 6 || memcmp(token.p, "<0x", 3) != 0 || token.p[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = token.p[i], low = (char)(c | 32);
        if (c >= '0' && c <= '9') value = value * 16 + c - '0';
        else if (low >= 'a' && low <= 'f') value = value * 16 + low - 'a' + 10;
        else if (c != '+' || i != 3) /* the reference's number parser takes a sign */ return -1;
    }
    return value;
}

/* A run of bytes: n so far, m of them passed on as characters, the others in held; held is kept whole unless eager. */
static treadle_status end_run(td_decoding *decoding, size_t step) {
    td_decoder_state *state = state_of(decoding, step);
    if (state->n == 0) return TREADLE_OK;
    bool good = td_utf8_valid(td_buf_view(&state->held)) && state->n == state->m + state->held.n;
    uint64_t n_bad = good ? 0 : state->n - state->m;
    treadle_status status = TREADLE_OK;
    if (good && (state->held.n > 0 || state->open)) status = send_more(decoding, step, td_buf_view(&state->held), true);
    for (uint64_t i = 0; i < n_bad && status == TREADLE_OK; i++)
        status = send_more(decoding, step, replacement_char, true);
    state->n = state->m = 0;
    td_buf_clear(&state->held);
    return status;
}

static treadle_status run_byte(td_decoding *decoding, size_t step, char byte) {
    td_decoder_state *state = state_of(decoding, step);
    bool bad = state->n != state->m + state->held.n; /* the run has stopped being text: bytes are only counted */
    state->n++;
    if (bad) return TREADLE_OK;
    td_buf_char(&state->held, byte);
    if (state->held.failed) return no_memory(decoding);
    if (!decoding->eager) return TREADLE_OK;
    uint32_t code_point;
    bool incomplete = false;
    if (td_utf8_decode(state->held.p, state->held.n, &code_point, NULL, &incomplete) > 0) {
        state->m += state->held.n;
        TD_TRY(send_more(decoding, step, td_buf_view(&state->held), false));
        td_buf_clear(&state->held);
    } else if (!incomplete) {
        td_buf_clear(&state->held);
    }
    return TREADLE_OK;
}

static treadle_status byte_fallback(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    (void)data;
    int byte = fragment && fragment->begins && fragment->ends ? byte_token(fragment->text) : -1;
    if (byte >= 0) return run_byte(decoding, step, (char)byte);
    TD_TRY(end_run(decoding, step));
    return fragment ? td_decoding_send(decoding, step + 1, fragment->text, fragment->begins, fragment->ends)
                    : TREADLE_OK;
}

/* --- Fuse */

static treadle_status fuse(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    (void)data;
    td_decoder_state *state = state_of(decoding, step);
    if (fragment && decoding->eager) return send_more(decoding, step, fragment->text, false);
    if (fragment) td_buf_str(&state->held, fragment->text);
    if (state->held.failed) return no_memory(decoding);
    return fragment ? TREADLE_OK : send_more(decoding, step, td_buf_view(&state->held), true);
}

/* --- Strip: n characters may still go from the start of this token; m of them are held back at its end. */

typedef struct strip_options {
    td_str content;
    uint64_t start, stop;
} strip_options;

static treadle_status parse_strip(td_loader *loader, const td_json *json, void **data) {
    strip_options *options = TD_ARENA_NEW(loader->arena, strip_options);
    uint32_t ignored;
    if (!options) return td_loader_memory(loader, "a decoder");
    TD_TRY(td_loader_char(loader, json, "content", &ignored));
    options->content = td_arena_str(loader->arena, td_json_string_or(json, "content", ""));
    options->start = (uint64_t)TD_MAX(td_json_int_or(json, "start", 0), 0);
    options->stop = (uint64_t)TD_MAX(td_json_int_or(json, "stop", 0), 0);
    *data = options;
    return options->content.p ? TREADLE_OK : td_loader_memory(loader, "a decoder");
}

static treadle_status strip(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    const strip_options *options = data;
    td_decoder_state *state = state_of(decoding, step);
    td_buf *out = &state->scratch;
    if (!fragment) return TREADLE_OK;
    if (fragment->begins) {
        state->n = options->start;
        state->m = 0;
    }
    td_buf_clear(out);
    td_str text = fragment->text;
    for (size_t i = 0, length; i < text.n; i += length) {
        td_unicode_next(text.p + i, &length);
        td_str one = {text.p + i, length};
        bool equal = td_str_equal(one, options->content);
        if (equal && state->n > 0) {
            state->n--;
        } else if (equal && state->m < options->stop) {
            state->n = 0;
            state->m++;
        } else {
            state->n = 0;
            for (; !equal && state->m > 0; state->m--) td_buf_str(out, options->content);
            td_buf_str(out, one);
        }
    }
    if (out->failed) return no_memory(decoding);
    return td_decoding_send(decoding, step + 1, td_buf_view(out), fragment->begins, fragment->ends);
}

/* --- Replace */

/* Appends text with every match replaced. */
static treadle_status replace_all(td_decoding *decoding, td_decoder_state *state, const td_regex *pattern,
                                  td_str content, td_str text, td_buf *out) {
    td_match_vec *matches = &state->matches; /* kept from token to token: a stream allocates nothing */
    size_t at = 0;
    matches->n = 0;
    TD_TRY(td_regex_find_all(pattern, &state->regex, text, matches, decoding->err));
    for (size_t i = 0; i < matches->n; i++) {
        td_match match = matches->items[i];
        td_buf_append(out, text.p + at, match.begin - at);
        td_buf_str(out, content);
        at = match.end;
    }
    if (at < text.n) td_buf_append(out, text.p + at, text.n - at);
    return out->failed ? no_memory(decoding) : TREADLE_OK;
}

static treadle_status replace(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    const td_replace *options = data;
    td_decoder_state *state = state_of(decoding, step);
    if (!fragment) return TREADLE_OK;
    td_buf_clear(&state->scratch);
    TD_TRY(replace_all(decoding, state, options->pattern, options->content, fragment->text, &state->scratch));
    return td_decoding_send(decoding, step + 1, td_buf_view(&state->scratch), fragment->begins, fragment->ends);
}

/* --- Metaspace */

typedef struct metaspace_options {
    td_str replacement;
    bool drops_first; /* those of the first token vanish instead of becoming spaces */
} metaspace_options;

static treadle_status parse_metaspace(td_loader *loader, const td_json *json, void **data) {
    metaspace_options *options = TD_ARENA_NEW(loader->arena, metaspace_options);
    uint32_t ignored;
    if (!options) return td_loader_memory(loader, "a decoder");
    TD_TRY(td_loader_char(loader, json, "replacement", &ignored));
    options->replacement = td_arena_str(loader->arena, td_json_string_or(json, "replacement", ""));
    options->drops_first = !td_str_is(td_json_string_or(json, "prepend_scheme", "always"), "never") &&
                           td_json_bool_or(json, "add_prefix_space", true);
    *data = options;
    return options->replacement.p ? TREADLE_OK : td_loader_memory(loader, "a decoder");
}

static treadle_status metaspace(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    const metaspace_options *options = data;
    td_decoder_state *state = state_of(decoding, step);
    if (!fragment) return TREADLE_OK;
    state->n += fragment->begins; /* tokens so far, this one included */
    td_buf_clear(&state->scratch);
    td_str text = fragment->text;
    for (size_t i = 0, length; i < text.n; i += length) {
        td_unicode_next(text.p + i, &length);
        td_str one = {text.p + i, length};
        if (!td_str_equal(one, options->replacement)) td_buf_str(&state->scratch, one);
        else if (state->n > 1 || !options->drops_first) td_buf_char(&state->scratch, ' ');
    }
    if (state->scratch.failed) return no_memory(decoding);
    return td_decoding_send(decoding, step + 1, td_buf_view(&state->scratch), fragment->begins, fragment->ends);
}

/* --- WordPiece, CTC */

/* The clean-up of English spacing that both share; each rule over the result of the one before. */
static bool clean_up(td_str text, td_buf *out) {
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    td_buf other = {0};
    td_buf_clear(out);
    td_buf_str(out, text);
    for (size_t r = 0; r < TD_COUNT(rules); r++) {
        td_str rest = td_buf_view(out), from = td_str_from(rules[r][0]);
        ptrdiff_t hit = td_str_find(rest, from);
        if (hit < 0) continue;
        td_buf_clear(&other);
        for (; hit >= 0; hit = td_str_find(rest, from)) {
            td_buf_append(&other, rest.p, (size_t)hit);
            td_buf_text(&other, rules[r][1]);
            rest = (td_str){rest.p + hit + from.n, rest.n - (size_t)hit - from.n};
        }
        td_buf_str(&other, rest);
        td_buf_clear(out);
        td_buf_str(out, td_buf_view(&other));
    }
    bool ok = !out->failed && !other.failed;
    td_buf_free(&other);
    return ok;
}

typedef struct word_piece_options {
    td_str prefix;
    bool cleanup;
} word_piece_options;

static treadle_status parse_word_piece(td_loader *loader, const td_json *json, void **data) {
    word_piece_options *options = TD_ARENA_NEW(loader->arena, word_piece_options);
    if (!options) return td_loader_memory(loader, "a decoder");
    options->prefix = td_arena_str(loader->arena, td_json_string_or(json, "prefix", "##"));
    options->cleanup = td_json_bool_or(json, "cleanup", true);
    *data = options;
    return options->prefix.p ? TREADLE_OK : td_loader_memory(loader, "a decoder");
}

static treadle_status word_piece(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    const word_piece_options *options = data;
    td_decoder_state *state = state_of(decoding, step);
    if (!fragment) return TREADLE_OK;
    td_str text = fragment->text;
    td_buf_clear(&state->held);
    if (fragment->begins && state->n++ > 0) {
        if (td_str_starts(text, options->prefix))
            text = (td_str){text.p + options->prefix.n, text.n - options->prefix.n};
        else td_buf_char(&state->held, ' ');
    }
    td_buf_str(&state->held, text);
    td_buf *out = options->cleanup ? &state->scratch : &state->held;
    if (state->held.failed || (options->cleanup && !clean_up(td_buf_view(&state->held), out)))
        return no_memory(decoding);
    return td_decoding_send(decoding, step + 1, td_buf_view(out), fragment->begins, fragment->ends);
}

typedef struct ctc_options {
    const td_regex *pad, *delimiter;
    bool cleanup;
} ctc_options;

static treadle_status parse_ctc(td_loader *loader, const td_json *json, void **data) {
    ctc_options *options = TD_ARENA_NEW(loader->arena, ctc_options);
    if (!options) return td_loader_memory(loader, "a decoder");
    TD_TRY(td_loader_literal(loader, json, td_json_string_or(json, "pad_token", "<pad>"), &options->pad));
    TD_TRY(td_loader_literal(loader, json, td_json_string_or(json, "word_delimiter_token", "|"), &options->delimiter));
    options->cleanup = td_json_bool_or(json, "cleanup", true);
    *data = options;
    return TREADLE_OK;
}

/* held: the token before; the same again says nothing new. */
static treadle_status ctc(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    const ctc_options *options = data;
    td_decoder_state *state = state_of(decoding, step);
    if (!fragment || (state->open && td_str_equal(fragment->text, td_buf_view(&state->held)))) return TREADLE_OK;
    state->open = true;
    td_buf_clear(&state->held);
    td_buf_str(&state->held, fragment->text);
    td_buf plain = {0}, clean = {0}, *out = &plain;
    treadle_status status = replace_all(decoding, state, options->pad, (td_str){0}, fragment->text, &plain);
    if (status == TREADLE_OK && options->cleanup) {
        if (!clean_up(td_buf_view(&plain), &clean)) status = no_memory(decoding);
        out = &state->scratch;
        td_buf_clear(out);
        if (status == TREADLE_OK)
            status = replace_all(decoding, state, options->delimiter, TD_STR(" "), td_buf_view(&clean), out);
    }
    if (status == TREADLE_OK && state->held.failed) status = no_memory(decoding);
    if (status == TREADLE_OK && out->n > 0) status = td_decoding_send(decoding, step + 1, td_buf_view(out), true, true);
    td_buf_free(&plain);
    td_buf_free(&clean);
    return status;
}

/* --- BPEDecoder: the suffix marks the end of a word, so it becomes a space, but for the last token's. */

static treadle_status parse_bpe(td_loader *loader, const td_json *json, void **data) {
    const td_regex *suffix = NULL;
    TD_TRY(td_loader_literal(loader, json, td_json_string_or(json, "suffix", "</w>"), &suffix));
    *data = (void *)(uintptr_t)suffix;
    return TREADLE_OK;
}

/* held: the token before, sent when it is known whether it is the last. */
static treadle_status bpe(const void *data, td_decoding *decoding, size_t step, const td_fragment *fragment) {
    td_decoder_state *state = state_of(decoding, step);
    td_buf_clear(&state->scratch);
    if (state->open) {
        td_str space = fragment ? TD_STR(" ") : (td_str){0};
        TD_TRY(replace_all(decoding, state, data, space, td_buf_view(&state->held), &state->scratch));
        TD_TRY(td_decoding_send(decoding, step + 1, td_buf_view(&state->scratch), true, true));
    }
    state->open = fragment != NULL;
    td_buf_clear(&state->held);
    if (fragment) td_buf_str(&state->held, fragment->text);
    return state->held.failed ? no_memory(decoding) : TREADLE_OK;
}

static bool always(const void *data) {
    (void)data;
    return true;
}

static bool replaces_chars(const void *data) { return td_regex_is_char(((const td_replace *)data)->pattern); }

static const td_part_kind kinds[] = {
    {.type = "ByteLevel", .decode = byte_level, .joins = true},
    {.type = "ByteFallback", .decode = byte_fallback, .joins = true},
    {.type = "Fuse", .decode = fuse, .joins = true, .takes_fragments = always},
    {.type = "Strip", .parse = parse_strip, .decode = strip, .takes_fragments = always},
    {.type = "Replace", .parse = td_loader_replace, .decode = replace, .takes_fragments = replaces_chars},
    {.type = "Metaspace", .parse = parse_metaspace, .decode = metaspace, .takes_fragments = always},
    {.type = "WordPiece", .parse = parse_word_piece, .decode = word_piece},
    {.type = "CTC", .parse = parse_ctc, .decode = ctc},
    {.type = "BPEDecoder", .parse = parse_bpe, .decode = bpe, .looks_ahead = true},
};

const td_slot td_decoder_slot = {"decoder", "decoders", kinds, TD_COUNT(kinds)};
