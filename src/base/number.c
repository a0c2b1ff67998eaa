/* base/number.c - locale-independent number text.
 *
 * Short decimal numbers are exact by Clinger's fast path ("How to read floating point numbers accurately", 1990): a
 * mantissa below 2^53 times or over a power of ten up to 10^22, both exact in a double. All others are rewritten as
 * digits and exponent, without a point and so without a locale, for strtod. */
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* No double lies between two decimal numbers that agree in 768 digits, but one may lie exactly on those digits: whether
 * anything but zeros follows must be kept (it becomes one more digit). */
enum { MAX_DIGITS = 800, MAX_EXPONENT = 1000000 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool td_parse_int(td_str text, int64_t *out) {
    bool negative = text.n && text.p[0] == '-';
    size_t i = negative || (text.n && text.p[0] == '+');
    if (i == text.n) return false;
    int64_t value = 0; /* kept negative: that side reaches one further */
    for (; i < text.n; i++) {
        if (!is_digit(text.p[i]) || TD_MUL_OVERFLOWS(value, 10, &value) ||
            TD_ADD_OVERFLOWS(value, '0' - text.p[i], &value)) {
            return false;
        }
    }
    if (!negative && value == INT64_MIN) return false;
    *out = negative ? value : -value;
    return true;
}

/* A decimal number taken apart: mantissa (its first 18 significant digits) times 10^exponent, if digits <= 18. */
typedef struct decimal {
    td_str figures; /* digits and point, from the first significant digit */
    uint64_t mantissa;
    int64_t exponent; /* of the last digit written */
    size_t digits;    /* significant ones written */
    bool negative;
} decimal;

static bool take_apart(td_str text, decimal *out) {
    const char *p = text.p, *end = text.p + text.n;
    decimal d = {.negative = p < end && *p == '-'};
    if (p < end && (*p == '-' || *p == '+')) p++;

    bool any = false, point = false;
    for (; p < end && (is_digit(*p) || (*p == '.' && !point)); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        any = true;
        if (d.digits || *p != '0') {
            if (d.digits++ == 0) d.figures.p = p;
            if (d.digits <= 18) d.mantissa = d.mantissa * 10 + (uint64_t)(*p - '0');
        }
        d.exponent -= point;
    }
    if (!any) return false;
    if (d.digits) d.figures.n = (size_t)(p - d.figures.p);

    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        bool down = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p == end) return false;
        int64_t given = 0;
        for (; p < end && is_digit(*p); p++) given = given > MAX_EXPONENT * 10000ll ? given : given * 10 + (*p - '0');
        d.exponent += down ? -given : given;
    }
    *out = d;
    return p == end;
}

static double parse_slow(const decimal *d) {
    char copy[MAX_DIGITS + 32];
    size_t n = 0, seen = 0;
    bool more = false;
    for (size_t i = 0; i < d->figures.n; i++) {
        char c = d->figures.p[i];
        if (c == '.') continue;
        if (seen++ < MAX_DIGITS) copy[n++] = c;
        else more |= c != '0';
    }
    int64_t exponent = d->exponent + (int64_t)(d->digits - n);
    if (more) {
        copy[n++] = '1';
        exponent--;
    }
    exponent = TD_MIN(TD_MAX(exponent, -MAX_EXPONENT), MAX_EXPONENT);
    snprintf(copy + n, sizeof copy - n, "e%d", (int)exponent);
    return strtod(copy, NULL);
}

bool td_parse_double(td_str text, double *out) {
    if (text.n == 0) return false;
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    decimal d;
    if (!take_apart(text, &d)) return false;
    double value = (double)d.mantissa;
    if (d.digits > 18 || d.mantissa >> 53 || d.exponent < -22 || d.exponent > 22) {
        if (d.digits) value = parse_slow(&d);
        if (!isfinite(value)) return false;
    } else if (d.exponent < 0) {
        value /= powers[-d.exponent];
    } else {
        value *= powers[d.exponent];
    }
    *out = d.negative ? -value : value;
    return true;
}

int td_format_double(double value, char out[TD_DOUBLE_TEXT_BYTES]) {
    if (!isfinite(value)) {
        return snprintf(out, TD_DOUBLE_TEXT_BYTES, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    }
    int n = 0;
    for (int precision = 15; precision <= 17; precision++) {
        n = snprintf(out, TD_DOUBLE_TEXT_BYTES, "%.*g", precision, value);
        if (strtod(out, NULL) == value) break; /* both in the host's locale */
    }
    /* What is neither digit, sign nor exponent is that locale's decimal point, which may be several bytes. */
    size_t before = strspn(out, "+-0123456789e");
    size_t after = before + strcspn(out + before, "+-0123456789e");
    if (after > before) {
        out[before] = '.';
        memmove(out + before + 1, out + after, (size_t)n - after + 1);
        n -= (int)(after - before - 1);
    }
    return n;
}

int32_t td_parse_hex4(const char *p, const char *end) {
    int32_t value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}
