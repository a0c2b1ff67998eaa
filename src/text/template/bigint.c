/* template/bigint.c - integers beyond 64 bits.
 *
 * Python's integers have no end; templates meet large ones as ids, powers and literals. Schoolbook arithmetic on 32-bit
 * limbs (Knuth, The Art of Computer Programming, volume 2, section 4.3.1) is enough; a size limit keeps it cheap.
 * Invariant: no leading zero limbs, and never a value that fits int64 (those are TD_V_INT). */
#include "text/template/lexer.h"
#include "text/template/value.h"

enum {
    MAX_LIMBS = 1024,
    MAX_DIGITS = 4300, /* Python's own limit for decimal text */
};

struct td_tpl_big {
    bool negative;
    uint32_t n;
    uint32_t limbs[]; /* least significant first */
};

static td_tpl_big *big_new(td_tpl *r, size_t n) {
    if (n > MAX_LIMBS) {
        td_tpl_raise(r, "OverflowError", "an integer of more than %d bits", MAX_LIMBS * 32);
        return NULL;
    }
    if (!td_tpl_steps(r, n / 8)) return NULL;
    td_tpl_big *b = td_tpl_alloc(r, sizeof *b + n * sizeof b->limbs[0]);
    if (b) b->n = (uint32_t)n;
    return b;
}

static void trim(td_tpl_big *b) {
    while (b->n && !b->limbs[b->n - 1]) b->n--;
}

/* As a value: small again if it fits. */
static td_val finish(td_tpl_big *b) {
    if (!b) return td_v_error();
    trim(b);
    if (b->n <= 2) {
        uint64_t m = (b->n > 1 ? (uint64_t)b->limbs[1] << 32 : 0) | (b->n ? b->limbs[0] : 0);
        if (m <= (uint64_t)INT64_MAX) return td_v_int(b->negative ? -(int64_t)m : (int64_t)m);
        if (b->negative && m == (uint64_t)INT64_MAX + 1) return td_v_int(INT64_MIN);
    }
    return (td_val){.kind = TD_V_BIG, .u.big = b};
}

static td_tpl_big *widen(td_tpl *r, td_val v) {
    if (v.kind == TD_V_BIG) return v.u.big;
    int64_t i = td_v_small(v);
    td_tpl_big *b = big_new(r, 2);
    if (!b) return NULL;
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    b->negative = i < 0;
    b->limbs[0] = (uint32_t)m;
    b->limbs[1] = (uint32_t)(m >> 32);
    trim(b);
    return b;
}

static int compare_magnitude(const td_tpl_big *a, const td_tpl_big *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (uint32_t i = a->n; i-- > 0;) {
        if (a->limbs[i] != b->limbs[i]) return a->limbs[i] < b->limbs[i] ? -1 : 1;
    }
    return 0;
}

int td_big_sign(const td_tpl_big *b) { return b->negative ? -1 : 1; }

int td_big_compare(td_val a, td_val b) { /* at least one is big, so signs and sizes decide unless both are */
    if (a.kind != TD_V_BIG) return -td_big_sign(b.u.big);
    if (b.kind != TD_V_BIG) return td_big_sign(a.u.big);
    if (a.u.big->negative != b.u.big->negative) return td_big_sign(a.u.big);
    int order = compare_magnitude(a.u.big, b.u.big);
    return a.u.big->negative ? -order : order;
}

static td_tpl_big *add_magnitude(td_tpl *r, const td_tpl_big *a, const td_tpl_big *b) {
    uint32_t n = TD_MAX(a->n, b->n);
    td_tpl_big *out = big_new(r, (size_t)n + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; out && i < n; i++) {
        carry += (uint64_t)(i < a->n ? a->limbs[i] : 0) + (i < b->n ? b->limbs[i] : 0);
        out->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (out) out->limbs[n] = (uint32_t)carry;
    return out;
}

/* a >= b */
static td_tpl_big *subtract_magnitude(td_tpl *r, const td_tpl_big *a, const td_tpl_big *b) {
    td_tpl_big *out = big_new(r, a->n);
    uint64_t borrow = 0;
    for (uint32_t i = 0; out && i < a->n; i++) {
        uint64_t d = (uint64_t)a->limbs[i] - (i < b->n ? b->limbs[i] : 0) - borrow;
        out->limbs[i] = (uint32_t)d;
        borrow = d >> 63;
    }
    if (out) trim(out);
    return out;
}

static td_tpl_big *add(td_tpl *r, const td_tpl_big *a, const td_tpl_big *b, bool negate_b) {
    bool b_negative = b->negative != negate_b;
    td_tpl_big *out;
    if (a->negative == b_negative) {
        out = add_magnitude(r, a, b);
        if (out) out->negative = a->negative;
    } else if (compare_magnitude(a, b) >= 0) {
        out = subtract_magnitude(r, a, b);
        if (out) out->negative = a->negative;
    } else {
        out = subtract_magnitude(r, b, a);
        if (out) out->negative = b_negative;
    }
    if (out) trim(out);
    return out;
}

static td_tpl_big *multiply(td_tpl *r, const td_tpl_big *a, const td_tpl_big *b) {
    td_tpl_big *out = big_new(r, (size_t)a->n + b->n);
    if (!out || !td_tpl_steps(r, (uint64_t)a->n * b->n / 16)) return NULL;
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t k = 0; k < b->n; k++) {
            carry += (uint64_t)a->limbs[i] * b->limbs[k] + out->limbs[i + k];
            out->limbs[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        out->limbs[i + b->n] = (uint32_t)carry;
    }
    out->negative = a->negative != b->negative;
    trim(out);
    return out;
}

/* Divides in place by a small number; the remainder. */
static uint32_t divide_small(td_tpl_big *a, uint32_t by) {
    uint64_t rest = 0;
    for (uint32_t i = a->n; i-- > 0;) {
        rest = rest << 32 | a->limbs[i];
        a->limbs[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    trim(a);
    return (uint32_t)rest;
}

static td_tpl_big *copy_of(td_tpl *r, const td_tpl_big *a) {
    td_tpl_big *out = big_new(r, a->n);
    if (!out) return NULL;
    out->negative = a->negative;
    memcpy(out->limbs, a->limbs, a->n * sizeof a->limbs[0]);
    return out;
}

/* Long division of magnitudes, bit by bit of the quotient's limbs would be slow; this is Knuth's algorithm D. */
static bool divide_magnitude(td_tpl *r, const td_tpl_big *a, const td_tpl_big *b, td_tpl_big **quotient,
                             td_tpl_big **rest) {
    if (compare_magnitude(a, b) < 0) {
        *quotient = big_new(r, 0);
        *rest = copy_of(r, a);
        return *quotient && *rest;
    }
    if (b->n == 1) {
        *quotient = copy_of(r, a);
        *rest = big_new(r, 1);
        if (!*quotient || !*rest) return false;
        (*rest)->limbs[0] = divide_small(*quotient, b->limbs[0]);
        trim(*rest);
        return true;
    }
    if (!td_tpl_steps(r, (uint64_t)a->n * b->n / 16)) return false;
    int shift = __builtin_clz(b->limbs[b->n - 1]);
    td_tpl_big *u = big_new(r, (size_t)a->n + 1), *v = big_new(r, b->n), *q = big_new(r, (size_t)a->n - b->n + 1);
    if (!u || !v || !q) return false;
    for (uint32_t i = 0; i < b->n; i++) {
        v->limbs[i] = b->limbs[i] << shift | (shift && i ? b->limbs[i - 1] >> (32 - shift) : 0);
    }
    for (uint32_t i = 0; i <= a->n; i++) {
        uint32_t high = i < a->n ? a->limbs[i] << shift : 0;
        u->limbs[i] = high | (shift && i ? a->limbs[i - 1] >> (32 - shift) : 0);
    }
    uint32_t n = b->n;
    for (uint32_t j = a->n - n + 1; j-- > 0;) {
        uint64_t top = (uint64_t)u->limbs[j + n] << 32 | u->limbs[j + n - 1];
        uint64_t guess = top / v->limbs[n - 1], left = top % v->limbs[n - 1];
        while (guess >> 32 || guess * v->limbs[n - 2] > (left << 32 | u->limbs[j + n - 2])) {
            guess--;
            left += v->limbs[n - 1];
            if (left >> 32) break;
        }
        uint64_t carry = 0, borrow = 0;
        for (uint32_t i = 0; i < n; i++) {
            carry += guess * v->limbs[i];
            uint64_t d = (uint64_t)u->limbs[i + j] - (uint32_t)carry - borrow;
            u->limbs[i + j] = (uint32_t)d;
            borrow = d >> 63;
            carry >>= 32;
        }
        uint64_t d = (uint64_t)u->limbs[j + n] - carry - borrow;
        u->limbs[j + n] = (uint32_t)d;
        if (d >> 63) { /* one too many: add back */
            guess--;
            carry = 0;
            for (uint32_t i = 0; i < n; i++) {
                carry += (uint64_t)u->limbs[i + j] + v->limbs[i];
                u->limbs[i + j] = (uint32_t)carry;
                carry >>= 32;
            }
            u->limbs[j + n] += (uint32_t)carry;
        }
        q->limbs[j] = (uint32_t)guess;
    }
    for (uint32_t i = 0; i < n; i++) {
        u->limbs[i] = u->limbs[i] >> shift | (shift ? (uint32_t)((uint64_t)u->limbs[i + 1] << (32 - shift)) : 0);
    }
    u->n = n;
    trim(u);
    trim(q);
    *quotient = q;
    *rest = u;
    return true;
}

/* Python rounds quotients down, and the remainder has the divisor's sign. */
static td_val divide(td_tpl *r, const td_tpl_big *a, const td_tpl_big *b, bool want_rest) {
    td_tpl_big *q, *rest;
    if (!b->n) return td_tpl_raise(r, "ZeroDivisionError", "integer division or modulo by zero");
    if (!divide_magnitude(r, a, b, &q, &rest)) return td_v_error();
    bool down = a->negative != b->negative && rest->n;
    if (want_rest) {
        rest->negative = b->negative;
        if (down) rest = subtract_magnitude(r, b, rest);
        if (rest) rest->negative = b->negative;
        return finish(rest);
    }
    q->negative = a->negative != b->negative;
    if (down) {
        td_tpl_big *one = widen(r, td_v_int(1));
        q->negative = true;
        q = one ? add(r, q, one, true) : NULL;
    }
    return finish(q);
}

static td_val power(td_tpl *r, td_tpl_big *base, int64_t exponent) {
    td_tpl_big *out = widen(r, td_v_int(1));
    while (out && base && exponent) {
        if (exponent & 1) out = multiply(r, out, base);
        exponent >>= 1;
        if (exponent) base = multiply(r, base, base);
    }
    return base ? finish(out) : td_v_error();
}

td_val td_big_binary(td_tpl *r, int op, td_val a, td_val b) {
    td_tpl_big *x = widen(r, a), *y = widen(r, b);
    if (!x || !y) return td_v_error();
    switch (op) {
    case TD_T_ADD: return finish(add(r, x, y, false));
    case TD_T_SUB: return finish(add(r, x, y, true));
    case TD_T_MUL: return finish(multiply(r, x, y));
    case TD_T_FLOORDIV: return divide(r, x, y, false);
    case TD_T_MOD: return divide(r, x, y, true);
    default: break; /* a power, of an exponent that is not negative */
    }
    if (x->n <= 1 && (!x->n || x->limbs[0] == 1)) {
        bool odd = y->n && y->limbs[0] & 1;
        return td_v_int(!x->n ? !y->n : x->negative && odd ? -1 : 1);
    }
    if (b.kind == TD_V_BIG) return td_tpl_raise(r, "OverflowError", "an integer of more than %d bits", MAX_LIMBS * 32);
    return power(r, x, td_v_small(b));
}

td_val td_big_negate(td_tpl *r, td_val a) {
    td_tpl_big *b = widen(r, a);
    td_tpl_big *out = b ? copy_of(r, b) : NULL;
    if (out) out->negative = !b->negative;
    return finish(out);
}

td_val td_big_literal(td_tpl *r, td_str digits, int base, bool negative) {
    if (base != 2 && base != 4 && base != 8 && base != 16 && base != 32 && digits.n > MAX_DIGITS) {
        return td_tpl_raise(r, "ValueError",
                            "Exceeds the limit (%d digits) for integer string conversion: value has %zu digits",
                            MAX_DIGITS, digits.n);
    }
    size_t bits = digits.n > MAX_LIMBS * 32 ? (size_t)MAX_LIMBS * 64 : digits.n * 6;
    td_tpl_big *b = big_new(r, bits / 32 + 1);
    if (!b || !td_tpl_steps(r, digits.n * b->n / 16)) return td_v_error();
    uint32_t used = 0;
    for (size_t i = 0; i < digits.n; i++) {
        char c = digits.p[i];
        uint64_t carry = (uint64_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        for (uint32_t k = 0; k < used || carry; k++) {
            carry += (uint64_t)b->limbs[k] * (uint32_t)base;
            b->limbs[k] = (uint32_t)carry;
            carry >>= 32;
            if (k == used) used++;
        }
    }
    b->negative = negative;
    return finish(b);
}

double td_big_double(td_val a) {
    const td_tpl_big *b = a.u.big;
    uint64_t top = 0;
    uint32_t used = 0;
    for (; used < 3 && used < b->n; used++) { /* 64 bits from the highest set one on, the rest as one sticky bit */
        uint32_t limb = b->limbs[b->n - 1 - used];
        int spare = top ? __builtin_clzll(top) : 64;
        if (spare >= 32) {
            top = top << 32 | limb;
            continue;
        }
        top = spare ? top << spare | limb >> (32 - spare) : top;
        uint32_t lost = spare ? limb << spare : limb;
        bool sticky = lost != 0;
        for (uint32_t i = 0; i + used + 1 < b->n; i++) sticky |= b->limbs[i] != 0;
        double f = ldexp((double)(top | sticky), (int)((b->n - 1 - used) * 32) + 32 - spare);
        return b->negative ? -f : f;
    }
    double f = ldexp((double)top, (int)((b->n - used) * 32));
    return b->negative ? -f : f;
}

td_val td_big_from_double(td_tpl *r, double f) {
    int exponent;
    double mantissa = frexp(fabs(f), &exponent); /* fabs(f) >= 2^63, so that its lowest bit is worth at least 2^10 */
    uint64_t m = (uint64_t)ldexp(mantissa, 64);
    exponent -= 64;
    int limbs = exponent >= 0 ? exponent / 32 : 0, bits = exponent >= 0 ? exponent % 32 : 0;
    if (exponent < 0) m >>= -exponent;
    td_tpl_big *b = big_new(r, (size_t)limbs + 3);
    if (!b) return td_v_error();
    b->limbs[limbs] = (uint32_t)(m << bits);
    b->limbs[limbs + 1] = (uint32_t)(m >> (32 - bits));
    b->limbs[limbs + 2] = bits ? (uint32_t)(m >> 32 >> (32 - bits)) : 0;
    b->negative = f < 0;
    return finish(b);
}

bool td_big_text(td_tpl *r, const td_tpl_big *b, int base, td_buf *out) {
    td_tpl_big *rest = copy_of(r, b);
    if (!rest || !td_tpl_steps(r, (uint64_t)b->n * b->n / 8)) return false;
    uint32_t chunk = base == 10 ? 1000000000u : base == 16 ? 1u << 28 : base == 8 ? 1u << 30 : 1u << 30;
    int width = base == 10 ? 9 : base == 16 ? 7 : base == 8 ? 10 : 30;
    size_t begin = out->n;
    while (rest->n) {
        uint32_t part = divide_small(rest, chunk);
        for (int i = 0; i < width && (rest->n || part); i++, part /= (uint32_t)base) {
            td_buf_char(out, "0123456789abcdef"[part % (uint32_t)base]);
        }
    }
    if (base == 10 && out->n - begin > MAX_DIGITS) {
        td_tpl_raise(r, "ValueError", "Exceeds the limit (%d digits) for integer string conversion", MAX_DIGITS);
        return false;
    }
    if (b->negative) td_buf_char(out, '-');
    if (out->failed) return td_tpl_buf_ok(r, out);
    for (size_t i = begin, k = out->n; i + 1 < k; i++) {
        char swap = out->p[i];
        out->p[i] = out->p[--k];
        out->p[k] = swap;
    }
    return true;
}
