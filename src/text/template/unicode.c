/* template/unicode.c - character classes, case and the walk over characters.
 *
 * The tables are those of the Unicode version that Python 3.11 has, since templates are written against Python. The
 * final sigma rule is Unicode's SpecialCasing: a capital sigma is a final one after a cased letter and before none,
 * looking through case-ignorable characters. */
#include "text/template/unicode.h"

#include "base/compiler.h"
#include "base/utf8.h"

typedef struct case_run {
    uint32_t first, last;
    int32_t step, delta;
} case_run;

typedef struct case_many {
    uint32_t from, to[3];
} case_many;

#include "text/template/unicode_data.inc"

static const struct {
    const case_run *runs;
    const case_many *many;
    size_t n_runs, n_many;
} cases[TD_N_CASES] = {
    [TD_CASE_LOWER] = {lower_runs, lower_many, TD_COUNT(lower_runs), TD_COUNT(lower_many)},
    [TD_CASE_UPPER] = {upper_runs, upper_many, TD_COUNT(upper_runs), TD_COUNT(upper_many)},
    [TD_CASE_TITLE] = {title_runs, title_many, TD_COUNT(title_runs), TD_COUNT(title_many)},
    [TD_CASE_FOLD] = {fold_runs, fold_many, TD_COUNT(fold_runs), TD_COUNT(fold_many)},
};

unsigned td_tpl_uni_flags(uint32_t code_point) {
    size_t low = 0, high = TD_COUNT(flag_runs); /* flag_runs[low] starts at or before the code point */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (flag_runs[middle] >> 10 <= code_point) low = middle;
        else high = middle;
    }
    return flag_runs[low] & 1023;
}

/* how many */
static int map_case(td_case which, uint32_t code_point, uint32_t out[3]) {
    out[0] = code_point;
    size_t low = 0, high = cases[which].n_runs;
    const case_run *runs = cases[which].runs;
    while (low < high) { /* runs of step 2 may interleave with their neighbours, never by more than one run */
        size_t middle = (low + high) / 2;
        if (runs[middle].first <= code_point) low = middle + 1;
        else high = middle;
    }
    for (size_t i = low, tries = 0; i-- > 0 && tries < 3; tries++) {
        const case_run *run = &runs[i];
        if (code_point <= run->last && (code_point - run->first) % (uint32_t)run->step == 0) {
            out[0] = (uint32_t)((int32_t)code_point + run->delta);
            return 1;
        }
    }
    const case_many *many = cases[which].many;
    low = 0, high = cases[which].n_many;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (many[middle].from < code_point) low = middle + 1;
        else high = middle;
    }
    if (low == cases[which].n_many || many[low].from != code_point) return 1;
    for (int i = 0; i < 3; i++) out[i] = many[low].to[i];
    return out[2] ? 3 : 2;
}

uint32_t td_tpl_uni_next(td_str text, size_t *at) {
    const uint8_t *b = (const uint8_t *)text.p + *at;
    if (b[0] < 0x80) {
        *at += 1;
        return b[0];
    }
    if (b[0] < 0xE0) {
        *at += 2;
        return (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
    }
    if (b[0] < 0xF0) {
        *at += 3;
        return (b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu);
    }
    *at += 4;
    return (b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu);
}

uint32_t td_tpl_uni_previous(td_str text, size_t *at) {
    do *at -= 1;
    while (((uint8_t)text.p[*at] & 0xC0) == 0x80);
    size_t copy = *at;
    return td_tpl_uni_next(text, &copy);
}

void td_tpl_uni_append(td_buf *out, uint32_t c) {
    char bytes[4];
    int n = td_utf8_encode(c, bytes);
    if (n == 0) { /* a surrogate */
        bytes[0] = (char)(0xE0 | c >> 12);
        bytes[1] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[2] = (char)(0x80 | (c & 0x3F));
        n = 3;
    }
    td_buf_append(out, bytes, (size_t)n);
}

size_t td_tpl_uni_count(td_str text) {
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) n += ((uint8_t)text.p[i] & 0xC0) != 0x80;
    return n;
}

size_t td_tpl_uni_offset(td_str text, size_t n_chars) {
    size_t at = 0;
    for (; at < text.n && n_chars; n_chars--) td_tpl_uni_next(text, &at);
    return at;
}

td_str td_tpl_uni_strip_space(td_str text, bool left, bool right) {
    while (left && text.n) {
        size_t at = 0;
        if (!(td_tpl_uni_flags(td_tpl_uni_next(text, &at)) & TD_U_SPACE)) break;
        text.p += at;
        text.n -= at;
    }
    while (right && text.n) {
        size_t at = text.n;
        if (!(td_tpl_uni_flags(td_tpl_uni_previous(text, &at)) & TD_U_SPACE)) break;
        text.n = at;
    }
    return text;
}

static bool is_final_sigma(td_str text, size_t before, size_t after) {
    bool cased = false;
    while (before > 0) {
        unsigned flags = td_tpl_uni_flags(td_tpl_uni_previous(text, &before));
        if (flags & TD_U_CASE_IGNORABLE) continue;
        cased = flags & TD_U_CASED;
        break;
    }
    if (!cased) return false;
    while (after < text.n) {
        unsigned flags = td_tpl_uni_flags(td_tpl_uni_next(text, &after));
        if (flags & TD_U_CASE_IGNORABLE) continue;
        return !(flags & TD_U_CASED);
    }
    return true;
}

static void append_case(td_str text, size_t before, size_t after, uint32_t c, td_case which, td_buf *out) {
    if (c < 0x80) {
        bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        bool to_lower = which == TD_CASE_LOWER || which == TD_CASE_FOLD;
        td_buf_char(out, (char)(upper && to_lower ? c + 32 : lower && !to_lower ? c - 32 : c));
        return;
    }
    if (c == 0x3A3 && which == TD_CASE_LOWER) {
        td_tpl_uni_append(out, is_final_sigma(text, before, after) ? 0x3C2 : 0x3C3);
        return;
    }
    uint32_t to[3];
    int n = map_case(which, c, to);
    for (int i = 0; i < n; i++) td_tpl_uni_append(out, to[i]);
}

static void convert(td_str text, td_case which, td_buf *out) {
    for (size_t at = 0; at < text.n;) {
        size_t before = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        append_case(text, before, at, c, which, out);
    }
}

void td_tpl_uni_lower(td_str text, td_buf *out) { convert(text, TD_CASE_LOWER, out); }
void td_tpl_uni_upper(td_str text, td_buf *out) { convert(text, TD_CASE_UPPER, out); }
void td_tpl_uni_fold(td_str text, td_buf *out) { convert(text, TD_CASE_FOLD, out); }

void td_tpl_uni_title(td_str text, td_buf *out) {
    bool inside = false; /* of a run of cased characters */
    for (size_t at = 0; at < text.n;) {
        size_t before = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        append_case(text, before, at, c, inside ? TD_CASE_LOWER : TD_CASE_TITLE, out);
        inside = td_tpl_uni_flags(c) & TD_U_CASED;
    }
}

void td_tpl_uni_capitalize(td_str text, td_buf *out) {
    for (size_t at = 0; at < text.n;) {
        size_t before = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        append_case(text, before, at, c, before == 0 ? TD_CASE_TITLE : TD_CASE_LOWER, out);
    }
}

void td_tpl_uni_swapcase(td_str text, td_buf *out) {
    for (size_t at = 0; at < text.n;) {
        size_t before = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        unsigned flags = td_tpl_uni_flags(c);
        if (flags & TD_U_UPPER) append_case(text, before, at, c, TD_CASE_LOWER, out);
        else if (flags & TD_U_LOWER) append_case(text, before, at, c, TD_CASE_UPPER, out);
        else td_tpl_uni_append(out, c);
    }
}
