/* text/unicode.c - see unicode.h. Source: The Unicode Standard, section 3.11 and UAX #15 for the normal forms. */
#include "text/unicode.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <utf8proc.h>

typedef struct td_code_range {
    uint32_t first, last;
} td_code_range;

typedef struct td_stand_in {
    uint32_t first, last, stand_in;
} td_stand_in;

typedef struct td_case_range {
    uint32_t first, last, step;
    int32_t delta;
} td_case_range;

#include "text/unicode_tables.inc"

/* Index of the row that holds the code point, or -1. All row types start with first and last. */
TD_INLINE ptrdiff_t find_row(const void *rows, size_t n, size_t row_bytes, uint32_t code_point) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        td_code_range row;
        memcpy(&row, (const char *)rows + middle * row_bytes, sizeof row);
        if (code_point < row.first) high = middle;
        else if (code_point > row.last) low = middle + 1;
        else return (ptrdiff_t)middle;
    }
    return -1;
}

#define FIND(table, code_point) find_row(table, TD_COUNT(table), sizeof(table)[0], code_point)

bool td_unicode_in(td_unicode_set set, uint32_t code_point) {
    switch (set) {
#define CASE(name, table)                                                                                              \
    case TD_UNICODE_##name: return FIND(table, code_point) >= 0;
        TD_UNICODE_SETS(CASE)
#undef CASE
    }
    return false;
}

int td_unicode_lower(uint32_t code_point, uint32_t out[2]) {
    out[0] = code_point;
    if (code_point < 0x80) {
        if (code_point >= 'A' && code_point <= 'Z') out[0] += 'a' - 'A';
        return 1;
    }
    if (code_point == 0x130) { /* the one letter whose lower case is two: i and a dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    ptrdiff_t row = FIND(lower, code_point);
    if (row >= 0 && (code_point - lower[row].first) % lower[row].step == 0)
        out[0] = (uint32_t)((int32_t)code_point + lower[row].delta);
    return 1;
}

void td_unicode_append(td_buf *out, uint32_t code_point) {
    char bytes[4];
    int n = td_utf8_encode(code_point, bytes);
    td_buf_append(out, bytes, (size_t)n);
}

td_str td_unicode_stand_in(td_str text, td_buf *scratch) {
    bool copied = false;
    for (size_t i = 0, length; i < text.n; i += length) {
        if ((uint8_t)text.p[i] < 0xE0) { /* every row has three or four bytes */
            length = (uint8_t)text.p[i] < 0x80 ? 1 : 2;
            continue;
        }
        uint32_t code_point = td_unicode_next(text.p + i, &length);
        ptrdiff_t row = FIND(stand_ins, code_point);
        if (row < 0) continue;
        if (!copied) {
            td_buf_clear(scratch);
            td_buf_str(scratch, text);
            if (scratch->failed) return text;
            copied = true;
        }
        td_utf8_encode(stand_ins[row].stand_in, scratch->p + i);
    }
    return copied ? td_buf_view(scratch) : text;
}

/* --- normal forms */

typedef struct normal_char {
    int32_t code_point;
    int32_t combining; /* canonical combining class */
} normal_char;

typedef TD_VEC(normal_char) normal_vec;

static bool push_decomposed(normal_vec *chars, uint32_t code_point, bool compat) {
    if (FIND(inert, code_point) >= 0) return td_vec_push(chars, (normal_char){(int32_t)code_point, 0});
    utf8proc_int32_t parts[32]; /* the longest decomposition, U+FDFA, has 18 */
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)code_point, parts, TD_COUNT(parts),
                                (utf8proc_option_t)(UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0)), &boundary);
    if (n <= 0 || n > (utf8proc_ssize_t)TD_COUNT(parts))
        return td_vec_push(chars, (normal_char){(int32_t)code_point, 0});
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        const utf8proc_property_t *property = utf8proc_get_property(parts[i]);
        if (!td_vec_push(chars, (normal_char){parts[i], property->combining_class})) return false;
    }
    return true;
}

/* Canonical ordering of a run of marks: a stable counting sort for long runs would be faster than this insertion sort
 * only on hostile text, so runs are merge-sorted: n log n at worst. scratch has room for n. */
static void sort_marks(normal_char *chars, normal_char *scratch, size_t n) {
    if (n <= 8) {
        for (size_t i = 1; i < n; i++) {
            normal_char one = chars[i];
            size_t j = i;
            for (; j > 0 && chars[j - 1].combining > one.combining; j--) chars[j] = chars[j - 1];
            chars[j] = one;
        }
        return;
    }
    size_t half = n / 2;
    sort_marks(chars, scratch, half);
    sort_marks(chars + half, scratch, n - half);
    memcpy(scratch, chars, half * sizeof *chars);
    for (size_t i = 0, j = half, k = 0; i < half; k++)
        chars[k] = j < n && chars[j].combining < scratch[i].combining ? chars[j++] : scratch[i++];
}

static bool order(normal_vec *chars) {
    normal_vec scratch = {0};
    for (size_t i = 0; i < chars->n;) {
        size_t end = i;
        while (end < chars->n && chars->items[end].combining != 0) end++;
        if (end > i + 1) {
            if (!td_vec_reserve(&scratch, end - i)) return false;
            sort_marks(chars->items + i, scratch.items, end - i);
        }
        i = end + (end == i);
    }
    td_vec_free(&scratch);
    return true;
}

/* The canonical composite of two code points, or -1. */
static int32_t compose_pair(int32_t first, int32_t second) {
    bool jamo = second >= 0x1161 && second <= 0x11C2;
    if (!jamo && utf8proc_get_property(second)->comb_index == UINT16_MAX) return -1; /* composes with nothing */
    if (FIND(inert, (uint32_t)first) >= 0 || FIND(inert, (uint32_t)second) >= 0) return -1;
    utf8proc_int32_t pair[2] = {first, second};
    utf8proc_ssize_t n = utf8proc_normalize_utf32(pair, 2, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return n == 1 ? pair[0] : -1;
}

static void compose(normal_vec *chars) {
    normal_char *items = chars->items;
    size_t n_out = 0;
    ptrdiff_t starter = -1;
    int32_t last_class = -1; /* of what stands between the starter and here; -1: nothing */
    for (size_t i = 0; i < chars->n; i++) {
        normal_char one = items[i];
        if (starter >= 0 && (last_class < one.combining || last_class == -1)) {
            int32_t composite = compose_pair(items[starter].code_point, one.code_point);
            if (composite >= 0) {
                items[starter].code_point = composite;
                continue;
            }
        }
        if (one.combining == 0) {
            starter = (ptrdiff_t)n_out;
            last_class = -1;
        } else {
            last_class = one.combining;
        }
        items[n_out++] = one;
    }
    chars->n = n_out;
}

/* Length of the longest prefix that the form leaves alone and that what follows cannot touch: ASCII, and for NFC what
 * lies below the first combining mark. The last character of it may still combine, so it is kept out. */
static size_t untouched(td_str text, td_normal_form form) {
    size_t i = 0, last = 0;
    while (i < text.n) {
        uint8_t b = (uint8_t)text.p[i];
        if (b >= 0x80 && (form != TD_NFC || b >= 0xCC)) return last; /* 0xCC 0x80 is U+0300 */
        last = i;
        i += b < 0x80 ? 1 : 2;
    }
    return text.n;
}

bool td_unicode_normalize(td_str text, td_normal_form form, td_buf *out) {
    size_t plain = untouched(text, form);
    td_buf_append(out, text.p, plain);
    if (plain == text.n) return !out->failed;
    normal_vec chars = {0};
    bool compat = form == TD_NFKC || form == TD_NFKD, ok = td_vec_reserve(&chars, text.n - plain);
    for (size_t i = plain, length; ok && i < text.n; i += length) {
        uint32_t code_point = td_unicode_next(text.p + i, &length);
        ok = code_point < 0x80 ? td_vec_push(&chars, (normal_char){(int32_t)code_point, 0})
                               : push_decomposed(&chars, code_point, compat);
    }
    ok = ok && order(&chars);
    if (ok && (form == TD_NFC || form == TD_NFKC)) compose(&chars);
    for (size_t i = 0; ok && i < chars.n; i++) td_unicode_append(out, (uint32_t)chars.items[i].code_point);
    td_vec_free(&chars);
    return ok && !out->failed;
}
