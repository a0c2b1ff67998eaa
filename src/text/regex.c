/* text/regex.c - compiling and matching; see regex.h. Literals are searched for without PCRE2.
 *
 * Cost: PCRE2's match limit ends a match that backtracks without end. It does not see a match that is merely long,
 * repeated from every character of a long text, which is quadratic. So a search covers WINDOW starting places only, and
 * every CALLS_PER_CHECK searches the thread's processor time is compared with what a text of this length may take. */
#include "text/regex.h"

#include "base/alloc.h"
#include "text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

struct td_regex {
    pcre2_code *code; /* NULL: a literal */
    bool jit;
    bool windowed; /* false: the pattern says \G, so where a search starts matters */
    td_buf literal;
};

static void *pcre_alloc(PCRE2_SIZE bytes, void *ctx) {
    (void)ctx;
    return td_alloc(bytes);
}

static void pcre_free(void *memory, void *ctx) {
    (void)ctx;
    td_free(memory);
}

enum {
    MAX_PATTERN_BYTES = 1 << 16,
    MAX_HEAP_KIB = 20000,
    MAX_STEPS = 10000000, /* of one search */
    WINDOW = 16,
    CALLS_PER_CHECK = 64,
};
/* Ordinary patterns take a fiftieth of it. */
static const uint64_t max_ns_base = 2000000000, max_ns_per_byte = 4000;

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static treadle_status pattern_fails(td_str pattern, int code, PCRE2_SIZE offset, treadle_error *err) {
    PCRE2_UCHAR text[128] = "";
    if (code == PCRE2_ERROR_HEAP_FAILED) return td_fail_memory(err, "a regular expression", pattern.n);
    pcre2_get_error_message(code, text, sizeof text);
    return td_fail(err, TREADLE_UNSUPPORTED,
                   "the regular expression \"%.*s\" cannot be compiled: %s (near byte %zu of its "
                   "translation)",
                   (int)TD_MIN(pattern.n, (size_t)300), pattern.p, (const char *)text, (size_t)offset);
}

static treadle_status compile_translated(td_str pattern, td_str translated, td_regex *regex, treadle_error *err) {
    pcre2_general_context *general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    treadle_status status = TREADLE_OK;
    if (!context) {
        status = td_fail_memory(err, "a regular expression", pattern.n);
    } else {
        int code = 0;
        PCRE2_SIZE offset = 0;
        const uint32_t options =
            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
        regex->windowed = td_str_find(translated, TD_STR("\\G")) < 0;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(context, MAX_PATTERN_BYTES);
        regex->code = pcre2_compile((PCRE2_SPTR)translated.p, translated.n, options, &code, &offset, context);
        if (!regex->code) status = pattern_fails(pattern, code, offset, err);
        else /* refused where memory may not be made executable: the interpreter then */
            regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return status;
}

treadle_status td_regex_compile(td_str pattern, td_regex **out, treadle_error *err) {
    td_regex *regex = td_alloc_zero(1, sizeof *regex);
    td_buf translated = {0};
    if (!regex) return td_fail_memory(err, "a regular expression", sizeof *regex);
    treadle_status status = td_regex_translate(pattern, &translated, err);
    if (status == TREADLE_OK)
        status = compile_translated(pattern, translated.n ? td_buf_view(&translated) : TD_STR(""), regex, err);
    td_buf_free(&translated);
    if (status == TREADLE_OK) *out = regex;
    else td_regex_free(regex);
    return status;
}

treadle_status td_regex_literal(td_str text, td_regex **out, treadle_error *err) {
    if (text.n == 0) return td_regex_compile(text, out, err); /* matches between all characters */
    td_regex *regex = td_alloc_zero(1, sizeof *regex);
    if (regex) td_buf_str(&regex->literal, text);
    if (!regex || regex->literal.failed) {
        td_regex_free(regex);
        return td_fail_memory(err, "a pattern", text.n);
    }
    *out = regex;
    return TREADLE_OK;
}

bool td_regex_is_char(const td_regex *regex) {
    size_t length = 0;
    if (!regex->code) td_unicode_next(regex->literal.p, &length);
    return !regex->code && length == regex->literal.n;
}

void td_regex_free(td_regex *regex) {
    if (!regex) return;
    pcre2_code_free(regex->code);
    td_buf_free(&regex->literal);
    td_free(regex);
}

void td_regex_scratch_free(td_regex_scratch *scratch) {
    pcre2_match_data_free(scratch->match_data);
    pcre2_match_context_free(scratch->match_context);
    td_buf_free(&scratch->stand_in);
    *scratch = (td_regex_scratch){0};
}

static treadle_status scratch_init(td_regex_scratch *scratch, treadle_error *err) {
    if (scratch->match_data) return TREADLE_OK;
    pcre2_general_context *general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (general) {
        scratch->match_context = pcre2_match_context_create(general);
        scratch->match_data = scratch->match_context ? pcre2_match_data_create(1, general) : NULL;
    }
    pcre2_general_context_free(general);
    if (!scratch->match_data) return td_fail_memory(err, "matching of a regular expression", 0);
    pcre2_set_heap_limit(scratch->match_context, MAX_HEAP_KIB);
    pcre2_set_match_limit(scratch->match_context, MAX_STEPS);
    return TREADLE_OK;
}

static treadle_status takes_too_long(size_t at, td_str text, treadle_error *err) {
    return td_fail(err, TREADLE_LIMIT,
                   "a regular expression of the tokenizer takes too long on this text (at byte %zu of %zu)", at,
                   text.n);
}

/* Now and then: whether the thread has used up its time. The first check sets the deadline. */
static bool out_of_time(td_regex_scratch *scratch) {
    if (++scratch->n_calls % CALLS_PER_CHECK != 0) return false;
    uint64_t now = thread_ns();
    if (scratch->n_calls == CALLS_PER_CHECK) scratch->deadline_ns = now + max_ns_base;
    return now > scratch->deadline_ns + max_ns_per_byte * scratch->n_bytes;
}

/* The first match that begins at start or in the window behind it. */
static treadle_status match_in_window(const td_regex *regex, td_regex_scratch *scratch, td_str text, size_t start,
                                      bool *found, treadle_error *err) {
    uint32_t options = PCRE2_NO_UTF_CHECK | (regex->jit ? 0 : PCRE2_NO_JIT);
    if (out_of_time(scratch)) return takes_too_long(start, text, err);
    pcre2_set_offset_limit(scratch->match_context, regex->windowed ? start + WINDOW : PCRE2_UNSET);
    int code = pcre2_match(regex->code, (PCRE2_SPTR)text.p, text.n, start, options, scratch->match_data,
                           scratch->match_context);
    if (code ==
        PCRE2_ERROR_JIT_STACKLIMIT) /* too deep for the machine's stack: the interpreter keeps its own on the heap */
        code = pcre2_match(regex->code, (PCRE2_SPTR)text.p, text.n, start, options | PCRE2_NO_JIT, scratch->match_data,
                           scratch->match_context);
    *found = code >= 0;
    if (code >= 0 || code == PCRE2_ERROR_NOMATCH) return TREADLE_OK;
    if (code == PCRE2_ERROR_NOMEMORY) return td_fail_memory(err, "matching of a regular expression", 0);
    return takes_too_long(start, text, err);
}

/* The next place to start from after a window without a match: the character behind it. */
static size_t behind_window(const td_regex *regex, td_str text, size_t start) {
    if (!regex->windowed || text.n - start <= WINDOW) return text.n + 1;
    for (start += WINDOW + 1; start < text.n && ((uint8_t)text.p[start] & 0xC0) == 0x80;) start++;
    return start;
}

static treadle_status find_literal(const td_regex *regex, td_str text, td_match_vec *matches, treadle_error *err) {
    td_str literal = td_buf_view(&regex->literal);
    for (size_t at = 0; at + literal.n <= text.n;) {
        const char *hit = memmem(text.p + at, text.n - at, literal.p, literal.n);
        if (!hit) break;
        uint32_t begin = (uint32_t)(hit - text.p);
        at = begin + literal.n;
        if (!td_vec_push(matches, (td_match){begin, (uint32_t)at})) return td_fail_memory(err, "matches", matches->n);
    }
    return TREADLE_OK;
}

treadle_status td_regex_find_all(const td_regex *regex, td_regex_scratch *scratch, td_str text, td_match_vec *matches,
                                 treadle_error *err) {
    if (text.n == 0) return TREADLE_OK;
    if (!regex->code) return find_literal(regex, text, matches, err);
    TD_TRY(scratch_init(scratch, err));
    text = td_unicode_stand_in(text, &scratch->stand_in);
    if (scratch->stand_in.failed) return td_fail_memory(err, "a text", text.n);
    scratch->n_bytes += text.n;
    size_t at = 0, last_end = SIZE_MAX;
    while (at <= text.n) {
        bool found = false;
        TD_TRY(match_in_window(regex, scratch, text, at, &found, err));
        if (!found) {
            at = behind_window(regex, text, at);
            continue;
        }
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(scratch->match_data);
        if (span[0] >= span[1] && span[1] == last_end) { /* empty, right behind a match: look one character further */
            size_t length = 1;
            if (at < text.n) td_unicode_next(text.p + at, &length);
            at += length;
            continue;
        }
        if (span[0] > span[1]) break; /* \K in a lookahead */
        at = last_end = span[1];
        if (!td_vec_push(matches, (td_match){(uint32_t)span[0], (uint32_t)span[1]}))
            return td_fail_memory(err, "matches", matches->n);
    }
    return TREADLE_OK;
}
