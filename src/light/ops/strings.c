/* light/ops/strings.c - StringConcat, StringSplit, StringNormalizer. Sources: ONNX op texts.
 * A string is a td_str; bytes that are new lie in memory that lasts until the next run of the context.
 * Case is changed for ASCII letters and those of Latin-1, Greek and Cyrillic that have a fixed distance;
 * other letters stay as they are. */
#include "base/utf8.h"
#include "light/op.h"

#include <string.h>

/* --- StringConcat */

static treadle_status concat_infer(td_infer *in) { return td_infer_broadcast(in, 0, TD_STRING, 2); }

/* Element of t that meets element i of a dense tensor of that shape. */
static td_str string_at(const td_tensor *t, const td_shape *shape, int64_t i) {
    int64_t at = 0;
    for (int d = shape->rank - 1, k = t->shape.rank - 1; d >= 0; d--, k--) {
        if (k >= 0 && t->shape.dims[k] != 1) at += i % shape->dims[d] * t->strides[k];
        i /= shape->dims[d];
    }
    return ((const td_str *)t->data)[at];
}

static treadle_status concat_run(td_run *r) {
    td_tensor *y = r->out[0];
    int64_t count = td_tensor_count(y);
    size_t bytes = 0;

    for (int64_t i = 0; i < count; i++)
        for (size_t k = 0; k < 2; k++)
            if (TD_ADD_OVERFLOWS(bytes, string_at(r->in[k], &y->shape, i).n, &bytes))
                return td_run_fail(r, "sizes overflow");
    char *to = td_run_keep(r, bytes);
    if (!to) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        td_str out = {to, 0};
        for (size_t k = 0; k < 2; k++) {
            td_str part = string_at(r->in[k], &y->shape, i);
            if (part.n) memcpy(to + out.n, part.p, part.n);
            out.n += part.n;
        }
        ((td_str *)y->data)[i] = out;
        to += out.n;
    }
    return TREADLE_OK;
}

const td_op_impl td_op_string_concat = {.infer = concat_infer, .run = concat_run, .strided_inputs = 3};

/* --- StringSplit */

typedef struct split_state {
    td_str delimiter; /* empty: runs of white space */
    int64_t most;     /* splits; -1: any number */
} split_state;

static treadle_status split_prepare(td_prepare *p) {
    split_state *s = p->state;
    s->delimiter = td_attr_string(p, "delimiter");
    s->most = td_attr_has(p, "maxsplit") ? td_attr_int(p, "maxsplit") : -1;
    return TREADLE_OK;
}

static treadle_status split_infer(td_infer *in) {
    const td_shape *x = &in->inputs[0]->tensor.shape;
    td_shape out = *x;
    TD_TRY(td_infer_set(in, 1, TD_INT64, x));
    if (x->rank < 0) return td_infer_unknown(in, 0, TD_STRING, -1);
    if (x->rank == TD_MAX_RANK) return td_infer_fail(in, "an input of too many dimensions");
    out.dims[out.rank++] = TD_DIM_UNKNOWN;
    return td_infer_set(in, 0, TD_STRING, &out);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Takes the next part of *rest. false: there is none. *started: a part has been taken before. */
static bool next_part(const split_state *s, td_str *rest, bool *started, int64_t *splits, td_str *part) {
    if (s->delimiter.n == 0) {
        while (rest->n && is_space(*rest->p)) *rest = (td_str){rest->p + 1, rest->n - 1};
        if (rest->n == 0) return false;
    } else if (*started && !rest->p) {
        return false;
    }
    *started = true;
    size_t n = 0, step = 0;
    bool may_split = s->most < 0 || *splits < s->most;
    for (; may_split && n < rest->n; n++) {
        if (s->delimiter.n == 0
                ? is_space(rest->p[n])
                : rest->n - n >= s->delimiter.n && memcmp(rest->p + n, s->delimiter.p, s->delimiter.n) == 0) {
            step = s->delimiter.n == 0 ? 1 : s->delimiter.n;
            break;
        }
    }
    if (!may_split) {
        n = rest->n;
        while (s->delimiter.n == 0 && n && is_space(rest->p[n - 1])) n--;
        *part = (td_str){rest->p, n};
        *rest = (td_str){NULL, 0};
        return true;
    }
    *part = (td_str){rest->p, n};
    *rest = step ? (td_str){rest->p + n + step, rest->n - n - step} : (td_str){NULL, 0};
    *splits += step > 0;
    return true;
}

static int64_t split_one(const split_state *s, td_str text, td_str *out) {
    td_str part;
    bool started = false;
    int64_t n = 0, splits = 0;
    if (!text.p) text = TD_STR("");
    if (text.n == 0) return 0;
    while (next_part(s, &text, &started, &splits, &part)) {
        if (out) out[n] = part;
        n++;
    }
    return n;
}

static treadle_status split_run(td_run *r) {
    const split_state *s = r->state;
    const td_tensor *x = r->in[0];
    const td_str *texts = x->data;
    int64_t count = td_tensor_count(x), most = 0;

    for (int64_t i = 0; i < count; i++) {
        int64_t n = split_one(s, texts[i], NULL);
        if (r->n_outputs > 1 && r->out[1]) ((int64_t *)r->out[1]->data)[i] = n;
        most = TD_MAX(most, n);
    }
    if (!r->out[0]) return TREADLE_OK;
    td_shape shape = x->shape;
    shape.dims[shape.rank++] = most;
    TD_TRY(td_run_alloc(r, 0, TD_STRING, &shape));
    td_str *to = r->out[0]->data;
    for (int64_t i = 0; i < count; i++, to += most) {
        int64_t n = split_one(s, texts[i], to);
        for (; n < most; n++) to[n] = TD_STR("");
    }
    return TREADLE_OK;
}

const td_op_impl td_op_string_split = {
    .state_bytes = sizeof(split_state), .prepare = split_prepare, .infer = split_infer, .run = split_run};

/* --- StringNormalizer */

typedef enum letter_case { KEEP, LOWER, UPPER } letter_case;

typedef struct normalizer_state {
    const td_str *stop;
    size_t n_stop;
    bool exact; /* stop words are compared as they are */
    letter_case action;
} normalizer_state;

static treadle_status normalizer_prepare(td_prepare *p) {
    normalizer_state *s = p->state;
    td_str action = td_attr_string(p, "case_change_action");
    s->stop = td_attr_strings(p, "stopwords", &s->n_stop);
    s->exact = td_attr_int(p, "is_case_sensitive") != 0;
    s->action = td_str_is(action, "LOWER") ? LOWER : td_str_is(action, "UPPER") ? UPPER : KEEP;
    if (s->action == KEEP && !td_str_is(action, "NONE"))
        return td_bad_node(p, "case_change_action \"%.*s\", expected LOWER, UPPER or NONE", TD_STR_ARGS(action));
    return TREADLE_OK;
}

static treadle_status normalizer_infer(td_infer *in) {
    td_shape out = in->inputs[0]->tensor.shape;
    if (out.rank < 0) return td_infer_unknown(in, 0, TD_STRING, -1);
    if (out.rank != 1 && !(out.rank == 2 && (out.dims[0] == 1 || out.dims[0] < 0)))
        return td_infer_fail(in, "expected input to be [C] or [1, C]");
    out.dims[out.rank - 1] = TD_DIM_UNKNOWN;
    return td_infer_set(in, 0, TD_STRING, &out);
}

static uint32_t change_case(uint32_t c, letter_case to) {
    return to == LOWER ? td_utf8_lower(c) : to == UPPER ? td_utf8_upper(c) : c;
}

/* Returns what was written to `out`, which has room for 2 * text.n bytes: no letter grows more than that. */
static size_t with_case(td_str text, letter_case to, char *out) {
    size_t written = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t c;
        int bad;
        bool incomplete;
        char letter[4];
        int n = td_utf8_decode(text.p + i, text.n - i, &c, &bad, &incomplete);
        if (n <= 0) {
            out[written++] = text.p[i++];
            continue;
        }
        i += (size_t)n;
        n = td_utf8_encode(change_case(c, to), letter);
        memcpy(out + written, letter, (size_t)n);
        written += (size_t)n;
    }
    return written;
}

static bool same_letters(td_str a, td_str b) {
    while (a.n && b.n) {
        uint32_t x, y;
        int bad;
        bool incomplete;
        int n = td_utf8_decode(a.p, a.n, &x, &bad, &incomplete), m = td_utf8_decode(b.p, b.n, &y, &bad, &incomplete);
        if (n <= 0 || m <= 0) return td_str_equal(a, b);
        if (change_case(x, LOWER) != change_case(y, LOWER)) return false;
        a = (td_str){a.p + n, a.n - (size_t)n};
        b = (td_str){b.p + m, b.n - (size_t)m};
    }
    return a.n == b.n;
}

static bool is_stopped(const normalizer_state *s, td_str text) {
    for (size_t i = 0; i < s->n_stop; i++)
        if (s->exact ? td_str_equal(text, s->stop[i]) : same_letters(text, s->stop[i])) return true;
    return false;
}

static treadle_status normalizer_run(td_run *r) {
    const normalizer_state *s = r->state;
    const td_tensor *x = r->in[0];
    const td_str *texts = x->data;
    int64_t count = td_tensor_count(x), n = 0;
    size_t bytes = 0;

    if (x->shape.rank == 2 && x->shape.dims[0] != 1) return td_run_fail(r, "expected input to be [C] or [1, C]");
    for (int64_t i = 0; i < count; i++) {
        if (is_stopped(s, texts[i])) continue;
        n++;
        bytes += texts[i].n;
    }
    td_shape shape = x->shape;
    shape.dims[shape.rank - 1] = TD_MAX(1, n);
    TD_TRY(td_run_alloc(r, 0, TD_STRING, &shape));
    td_str *to = r->out[0]->data;
    if (TD_MUL_OVERFLOWS(bytes, (size_t)2, &bytes)) return td_run_fail(r, "the strings are too long");
    char *room = td_run_keep(r, bytes);
    if (!room) return TREADLE_OUT_OF_MEMORY;
    if (n == 0) *to = TD_STR("");
    for (int64_t i = 0; i < count; i++) {
        if (is_stopped(s, texts[i])) continue;
        *to = (td_str){room, with_case(texts[i], s->action, room)};
        room += to++->n;
    }
    return TREADLE_OK;
}

const td_op_impl td_op_string_normalizer = {.state_bytes = sizeof(normalizer_state),
                                            .prepare = normalizer_prepare,
                                            .infer = normalizer_infer,
                                            .run = normalizer_run};
