/* template/number.c - arithmetic, number text and rounding as Python has them.
 *
 * Integers overflow into bigint.c; // and % round down; a float prints as the shortest text that reads back. */
#include "base/number.h"
#include "text/template/lexer.h"
#include "text/template/unicode.h"
#include "text/template/value.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

bool td_num_double(td_tpl *r, td_val v, double *out) {
    *out = v.kind == TD_V_FLOAT ? v.u.f : v.kind == TD_V_BIG ? td_big_double(v) : (double)td_v_small(v);
    if (v.kind != TD_V_BIG || isfinite(*out)) return true;
    td_tpl_raise(r, "OverflowError", "int too large to convert to float");
    return false;
}

static int order_int_double(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

int td_num_order(td_val a, td_val b) {
    if (a.kind == TD_V_FLOAT && b.kind == TD_V_FLOAT) {
        if (isnan(a.u.f) || isnan(b.u.f)) return 2;
        return a.u.f < b.u.f ? -1 : a.u.f > b.u.f;
    }
    if (b.kind == TD_V_FLOAT && a.kind != TD_V_BIG) return order_int_double(td_v_small(a), b.u.f);
    if (a.kind == TD_V_FLOAT && b.kind != TD_V_BIG) {
        int order = order_int_double(td_v_small(b), a.u.f);
        return order == 2 ? 2 : -order;
    }
    if (a.kind == TD_V_FLOAT || b.kind == TD_V_FLOAT) {
        double x = a.kind == TD_V_FLOAT ? a.u.f : td_big_double(a), y = b.kind == TD_V_FLOAT ? b.u.f : td_big_double(b);
        if (isnan(x) || isnan(y)) return 2;
        return x < y ? -1 : x > y;
    }
    if (a.kind == TD_V_BIG || b.kind == TD_V_BIG) return td_big_compare(a, b);
    int64_t x = td_v_small(a), y = td_v_small(b);
    return x < y ? -1 : x > y;
}

/* --- arithmetic --- */

static td_val float_divide_down(td_tpl *r, int op, double a, double b) {
    if (b == 0)
        return td_tpl_raise(r, "ZeroDivisionError", op == TD_T_MOD ? "float modulo" : "float floor division by zero");
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            quotient -= 1;
        }
    } else {
        rest = copysign(0, b);
    }
    if (op == TD_T_MOD) return td_v_float(rest);
    if (quotient == 0) return td_v_float(copysign(0, a / b));
    double whole = floor(quotient);
    return td_v_float(quotient - whole > 0.5 ? whole + 1 : whole);
}

static td_val float_power(td_tpl *r, double a, double b) {
    if (a == 0 && b < 0) return td_tpl_raise(r, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) {
        return td_tpl_raise(r, "TypeError", "the power is a complex number, which templates cannot use");
    }
    double f = pow(a, b);
    if (isinf(f) && isfinite(a) && isfinite(b))
        return td_tpl_raise(r, "OverflowError", "(34, 'Numerical result out of range')");
    return td_v_float(f);
}

static td_val float_binary(td_tpl *r, int op, double a, double b) {
    switch (op) {
    case TD_T_ADD: return td_v_float(a + b);
    case TD_T_SUB: return td_v_float(a - b);
    case TD_T_MUL: return td_v_float(a * b);
    case TD_T_DIV:
        if (b == 0) return td_tpl_raise(r, "ZeroDivisionError", "float division by zero");
        return td_v_float(a / b);
    case TD_T_POW: return float_power(r, a, b);
    default: return float_divide_down(r, op, a, b);
    }
}

static td_val int_divide(td_tpl *r, td_val a, td_val b) {
    double x, y;
    if (b.kind != TD_V_BIG && td_v_small(b) == 0) return td_tpl_raise(r, "ZeroDivisionError", "division by zero");
    if (a.kind != TD_V_BIG && b.kind != TD_V_BIG) {
        return td_v_float((double)((long double)td_v_small(a) / (long double)td_v_small(b)));
    }
    if (!td_num_double(r, a, &x) || !td_num_double(r, b, &y)) return td_v_error();
    return td_v_float(x / y);
}

static td_val int_power(td_tpl *r, td_val a, td_val b) {
    bool down = b.kind == TD_V_BIG ? td_big_sign(b.u.big) < 0 : td_v_small(b) < 0;
    if (down) {
        double x, y;
        if (!td_num_double(r, a, &x) || !td_num_double(r, b, &y)) return td_v_error();
        return float_power(r, x, y);
    }
    return td_big_binary(r, TD_T_POW, a, b);
}

static td_val small_binary(td_tpl *r, int op, int64_t a, int64_t b) {
    int64_t out;
    switch (op) {
    case TD_T_ADD:
        if (!TD_ADD_OVERFLOWS(a, b, &out)) return td_v_int(out);
        break;
    case TD_T_SUB:
        if (!__builtin_sub_overflow(a, b, &out)) return td_v_int(out);
        break;
    case TD_T_MUL:
        if (!TD_MUL_OVERFLOWS(a, b, &out)) return td_v_int(out);
        break;
    default:
        if (b == 0) {
            return td_tpl_raise(r, "ZeroDivisionError",
                                op == TD_T_MOD ? "integer modulo by zero" : "integer division or modulo by zero");
        }
        if (b == -1) {
            if (op == TD_T_MOD) return td_v_int(0);
            if (a == INT64_MIN) break;
        }
        int64_t quotient = a / b, rest = a % b;
        bool fix = rest != 0 && (rest < 0) != (b < 0);
        return td_v_int(op == TD_T_MOD ? rest + (fix ? b : 0) : quotient - fix);
    }
    return td_big_binary(r, op, td_v_int(a), td_v_int(b));
}

td_val td_num_binary(td_tpl *r, int op, td_val a, td_val b) {
    if (!td_v_is_number(a) || !td_v_is_number(b)) return td_v_missing();
    if (a.kind == TD_V_FLOAT || b.kind == TD_V_FLOAT) {
        double x, y;
        if (!td_num_double(r, a, &x) || !td_num_double(r, b, &y)) return td_v_error();
        return float_binary(r, op, x, y);
    }
    if (op == TD_T_DIV) return int_divide(r, a, b);
    if (op == TD_T_POW) return int_power(r, a, b);
    if (a.kind == TD_V_BIG || b.kind == TD_V_BIG) return td_big_binary(r, op, a, b);
    return small_binary(r, op, td_v_small(a), td_v_small(b));
}

td_val td_num_negate(td_tpl *r, td_val v) {
    if (v.kind == TD_V_FLOAT) return td_v_float(-v.u.f);
    if (v.kind == TD_V_BIG || td_v_small(v) == INT64_MIN) return td_big_negate(r, v);
    return td_v_int(-td_v_small(v));
}

bool td_num_index(td_tpl *r, td_val v, const char *what, int64_t *out) {
    if (v.kind == TD_V_BIG) {
        *out = td_big_sign(v.u.big) < 0 ? INT64_MIN / 2 : INT64_MAX / 2;
        return true;
    }
    if (!td_v_is_int(v)) {
        td_tpl_raise(r, "TypeError", "%s: '%s' object cannot be interpreted as an integer", what, td_v_type(v));
        return false;
    }
    *out = TD_MAX(TD_MIN(td_v_small(v), INT64_MAX / 2), INT64_MIN / 2);
    return true;
}

/* --- text to number --- */

static int digit_value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'z' ? c - 'a' + 10
           : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                  : 99;
}

/* The digits of text, which may be joined by underscores, as a negative number. */
static td_val long_integer(td_tpl *r, td_str text, int base) {
    td_buf digits = {0};
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] != '_') td_buf_char(&digits, text.p[i]);
    }
    td_val out = td_tpl_buf_ok(r, &digits) ? td_big_literal(r, td_buf_view(&digits), base, true) : td_v_error();
    td_buf_free(&digits);
    return out;
}

td_val td_num_parse_int(td_tpl *r, td_str text, int base) {
    if (base != 0 && (base < 2 || base > 36)) return td_v_missing();
    text = td_tpl_uni_strip_space(text, true, true);
    bool negative = text.n && text.p[0] == '-';
    if (text.n && (text.p[0] == '-' || text.p[0] == '+')) text.p++, text.n--;
    if (text.n > 1 && text.p[0] == '0') {
        char kind = (char)(text.p[1] | 0x20);
        int of_prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (of_prefix && (base == 0 || base == of_prefix)) {
            base = of_prefix;
            text.p += 2, text.n -= 2;
            if (text.n && text.p[0] == '_') text.p++, text.n--;
        } else if (base == 0) { /* 00 is zero, 07 is nothing */
            for (size_t i = 0; i < text.n; i++) {
                if (text.p[i] != '0' && text.p[i] != '_') return td_v_missing();
            }
        }
    }
    if (base == 0) base = 10;
    if (!text.n) return td_v_missing();
    if (!td_tpl_steps(r, text.n / 16)) return td_v_error();
    int64_t value = 0; /* gathered on the negative side, which reaches one further */
    bool small = true;
    for (size_t i = 0; i < text.n; i++) {
        bool joins = text.p[i] == '_' && i > 0 && i + 1 < text.n && text.p[i - 1] != '_';
        int digit = digit_value(text.p[i]);
        if (joins) continue;
        if (digit >= base) return td_v_missing();
        if (TD_MUL_OVERFLOWS(value, (int64_t)base, &value) || TD_ADD_OVERFLOWS(value, (int64_t)-digit, &value))
            small = false;
    }
    td_val out = small ? td_v_int(value) : long_integer(r, text, base);
    return TD_V_FAILED(out) || negative ? out : td_num_negate(r, out);
}

/* A number of this shape that td_parse_double refuses is too large for a double. */
static bool has_number_shape(td_str s) {
    size_t i = 0, figures = 0, points = 0;
    for (; i < s.n && (isdigit((uint8_t)s.p[i]) || s.p[i] == '.'); i++)
        points += s.p[i] == '.', figures += s.p[i] != '.';
    if (!figures || points > 1) return false;
    if (i == s.n) return true;
    if ((s.p[i++] | 0x20) != 'e') return false;
    if (i < s.n && s.p[i] == '+') i++;
    size_t begin = i;
    while (i < s.n && isdigit((uint8_t)s.p[i])) i++;
    return i == s.n && i > begin;
}

td_val td_num_parse_float(td_str text) {
    text = td_tpl_uni_strip_space(text, true, true);
    char copy[512];
    if (text.n && memchr(text.p, '_', text.n)) { /* between digits only; a number this long has none */
        size_t n = 0;
        if (text.n > sizeof copy) return td_v_missing();
        for (size_t i = 0; i < text.n; i++) {
            if (text.p[i] != '_') copy[n++] = text.p[i];
            else if (i == 0 || i + 1 == text.n || !isdigit((uint8_t)text.p[i - 1]) || !isdigit((uint8_t)text.p[i + 1]))
                return td_v_missing();
        }
        text = (td_str){copy, n};
    }
    double f;
    if (td_parse_double(text, &f)) return td_v_float(f);
    bool sign = text.n && (text.p[0] == '-' || text.p[0] == '+');
    td_str bare = {text.p + sign, text.n - sign};
    double endless = sign && text.p[0] == '-' ? -INFINITY : INFINITY;
    if (has_number_shape(bare)) return td_v_float(endless);
    char word[16] = "";
    if (bare.n >= sizeof word) return td_v_missing();
    for (size_t i = 0; i < bare.n; i++) word[i] = (char)tolower((uint8_t)bare.p[i]);
    if (strcmp(word, "inf") == 0 || strcmp(word, "infinity") == 0) return td_v_float(endless);
    return strcmp(word, "nan") == 0 ? td_v_float((double)NAN) : td_v_missing();
}

td_val td_num_from_double(td_tpl *r, double f) {
    if (isnan(f)) return td_tpl_raise(r, "ValueError", "cannot convert float NaN to integer");
    if (isinf(f)) return td_tpl_raise(r, "OverflowError", "cannot convert float infinity to integer");
    if (f >= -0x1p63 && f < 0x1p63) return td_v_int((int64_t)f);
    return td_big_from_double(r, f);
}

/* --- number to text --- */

void td_num_repr(double f, td_buf *out) {
    if (!isfinite(f)) {
        td_buf_text(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char text[64], digits[32];
    for (int precision = 0; precision < 17; precision++) { /* both directions in the host's locale */
        snprintf(text, sizeof text, "%.*e", precision, f);
        if (strtod(text, NULL) == f) break;
    }
    int n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    }
    int exponent = atoi(p + 1);
    while (n > 1 && digits[n - 1] == '0') n--;
    if (signbit(f)) td_buf_char(out, '-');
    if (exponent < -4 || exponent >= 16) {
        td_buf_char(out, digits[0]);
        if (n > 1) td_buf_char(out, '.');
        td_buf_append(out, digits + 1, (size_t)n - 1);
        td_buf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        td_buf_text(out, "0.");
        for (int i = -1; i > exponent; i--) td_buf_char(out, '0');
        td_buf_append(out, digits, (size_t)n);
    } else {
        for (int i = 0; i <= TD_MAX(exponent, n - 1); i++) {
            if (i == exponent + 1) td_buf_char(out, '.');
            td_buf_char(out, i < n ? digits[i] : '0');
        }
        if (n <= exponent + 1) td_buf_text(out, ".0");
    }
}

static td_val round_int(td_tpl *r, td_val v, int64_t digits) {
    if (digits >= 0 || v.kind == TD_V_BOOL) return v.kind == TD_V_BOOL ? td_v_int(v.u.b && digits >= 0) : v;
    if (digits < -5000) return td_v_int(0);
    td_val unit = td_big_binary(r, TD_T_POW, td_v_int(10), td_v_int(-digits));
    if (TD_V_FAILED(unit)) return unit;
    td_val rest = td_num_binary(r, TD_T_MOD, v, unit);
    TD_V_CHECK(rest);
    td_val down = td_num_binary(r, TD_T_SUB, v, rest), twice = td_num_binary(r, TD_T_MUL, rest, td_v_int(2));
    if (TD_V_FAILED(down) || TD_V_FAILED(twice)) return td_v_error();
    int order = td_num_order(twice, unit);
    if (order == 0) { /* half: to the even multiple */
        td_val multiple = td_num_binary(r, TD_T_FLOORDIV, down, unit);
        TD_V_CHECK(multiple);
        td_val half = td_num_binary(r, TD_T_MOD, multiple, td_v_int(2));
        TD_V_CHECK(half);
        order = td_v_small(half) ? 1 : -1;
    }
    return order > 0 ? td_num_binary(r, TD_T_ADD, down, unit) : down;
}

td_val td_num_round(td_tpl *r, td_val v, int64_t digits) {
    if (v.kind != TD_V_FLOAT) return round_int(r, v, digits);
    double f = v.u.f;
    char text[800];
    if (!isfinite(f) || f == 0 || digits > 323) return v;
    if (digits < -308) return td_v_float(copysign(0, f));
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
    } else {
        snprintf(text, sizeof text, "%.17e", f);
        int exponent = atoi(strchr(text, 'e') + 1), precision = exponent + (int)digits;
        if (precision < -1) return td_v_float(copysign(0, f));
        if (precision == -1)
            return td_v_float(copysign(fabs(f) / pow(10, (double)-digits) > 0.5 ? pow(10, (double)-digits) : 0, f));
        snprintf(text, sizeof text, "%.*e", precision, f);
    }
    double rounded = strtod(text, NULL);
    if (isinf(rounded)) return td_tpl_raise(r, "OverflowError", "rounded value too large to represent");
    return td_v_float(rounded);
}
