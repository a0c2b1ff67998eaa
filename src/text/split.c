/* text/split.c - cutting pieces at matches, in the five ways of Hugging Face tokenizers. */
#include "text/parts.h"
#include "text/unicode.h"

/* Appends [begin, end) of the piece; an empty one is none. */
static bool push(td_work *work, const td_piece *from, uint32_t begin, uint32_t end) {
    return begin == end || td_vec_push(&work->spare_pieces, (td_piece){from->begin + begin, from->begin + end,
                                                                       from->at_start && begin == 0});
}

/* All of a text of n bytes as alternating stretches into work->parts; is_match of stretch i is bit 31 of begin. */
#define MATCH_BIT 0x80000000u

static bool list_parts(td_work *work, uint32_t n, bool invert) {
    uint32_t at = 0, hit = invert ? 0 : MATCH_BIT, gap = MATCH_BIT ^ hit;
    work->parts.n = 0;
    for (size_t i = 0; i < work->matches.n; i++) {
        td_match match = work->matches.items[i];
        if (at < match.begin && !td_vec_push(&work->parts, (td_match){at | gap, match.begin})) return false;
        if (!td_vec_push(&work->parts, (td_match){match.begin | hit, match.end})) return false;
        at = match.end;
    }
    return at == n || td_vec_push(&work->parts, (td_match){at | gap, n});
}

static bool is_match(td_match part) { return part.begin & MATCH_BIT; }

static uint32_t begin_of(td_match part) { return part.begin & ~MATCH_BIT; }

/* Joins parts in place for the merging behaviours; returns how many are left. A match joins its neighbour only if the
 * part before it (seen in the direction of the merge) was none. */
static size_t merge_with_previous(td_match *parts, size_t n) {
    size_t n_out = 0;
    bool previous = false;
    for (size_t i = 0; i < n; i++) {
        bool match = is_match(parts[i]);
        if (match && !previous && n_out > 0) parts[n_out - 1].end = parts[i].end;
        else parts[n_out++] = (td_match){begin_of(parts[i]), parts[i].end};
        previous = match;
    }
    return n_out;
}

static size_t merge_with_next(td_match *parts, size_t n) {
    size_t out = n; /* the result grows downwards from the end */
    bool previous = false;
    for (size_t i = n; i-- > 0;) {
        bool match = is_match(parts[i]);
        uint32_t begin = begin_of(parts[i]);
        if (match && !previous && out < n) parts[out].begin = begin;
        else parts[--out] = (td_match){begin, parts[i].end};
        previous = match;
    }
    if (n > out) memmove(parts, parts + out, (n - out) * sizeof *parts);
    return n - out;
}

static size_t join_contiguous(td_match *parts, size_t n) {
    size_t n_out = 0;
    bool previous = false;
    for (size_t i = 0; i < n; i++) {
        bool match = is_match(parts[i]);
        if (match == previous && n_out > 0) parts[n_out - 1].end = parts[i].end;
        else parts[n_out++] = (td_match){begin_of(parts[i]), parts[i].end};
        previous = match;
    }
    return n_out;
}

/* Cuts one piece at work->matches, which count from its begin. */
static bool cut(td_work *work, const td_piece *piece, td_split_behavior behavior, bool invert) {
    if (!list_parts(work, piece->end - piece->begin, invert)) return false;
    td_match *parts = work->parts.items;
    size_t n = work->parts.n;
    if (behavior == TD_SPLIT_MERGED_WITH_PREVIOUS) n = merge_with_previous(parts, n);
    if (behavior == TD_SPLIT_MERGED_WITH_NEXT) n = merge_with_next(parts, n);
    if (behavior == TD_SPLIT_CONTIGUOUS) n = join_contiguous(parts, n);
    for (size_t i = 0; i < n; i++) {
        if (behavior == TD_SPLIT_REMOVED && is_match(parts[i])) continue;
        if (!push(work, piece, begin_of(parts[i]), parts[i].end)) return false;
    }
    return true;
}

void td_work_swap_pieces(td_work *work) {
    td_piece_vec done = work->spare_pieces;
    work->spare_pieces = work->pieces;
    work->pieces = done;
    work->spare_pieces.n = 0;
}

treadle_status td_split_by_regex(td_work *work, const td_regex *regex, td_split_behavior behavior, bool invert,
                                 treadle_error *err) {
    for (size_t i = 0; i < work->pieces.n; i++) {
        td_piece piece = work->pieces.items[i];
        td_str text = {work->text.p + piece.begin, piece.end - piece.begin};
        work->matches.n = 0;
        TD_TRY(td_regex_find_all(regex, &work->regex, text, &work->matches, err));
        if (!cut(work, &piece, behavior, invert)) return td_fail_memory(err, "pieces of a text", text.n);
    }
    td_work_swap_pieces(work);
    return TREADLE_OK;
}

treadle_status td_split_by_char(td_work *work, td_char_test *test, uint32_t arg, td_split_behavior behavior,
                                treadle_error *err) {
    for (size_t i = 0; i < work->pieces.n; i++) {
        td_piece piece = work->pieces.items[i];
        const char *text = work->text.p + piece.begin;
        bool ok = true;
        size_t length;
        work->matches.n = 0;
        for (uint32_t at = 0, n = piece.end - piece.begin; ok && at < n; at += (uint32_t)length)
            if (test(td_unicode_next(text + at, &length), arg))
                ok = td_vec_push(&work->matches, (td_match){at, at + (uint32_t)length});
        if (!ok || !cut(work, &piece, behavior, false))
            return td_fail_memory(err, "pieces of a text", piece.end - piece.begin);
    }
    td_work_swap_pieces(work);
    return TREADLE_OK;
}
