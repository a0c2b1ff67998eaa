/* tensor/half.c - small float types and element access for every numeric type.
 *
 * Every float format narrower than float32 is a row {exponent bits, mantissa bits, bias, infinities, NaNs}; one decoder
 * and one encoder serve all. Sources: IEEE 754-2019 (binary16), OCP OFP8 and MX v1.0 (e4m3fn, e5m2, e2m1, e8m0),
 * arXiv 2206.02915 (the FNUZ forms). */
#include "tensor/half.h"

#include "base/cpu.h"
#include "tensor/half_isa.h"

#include <math.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float td_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return of_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000u : 0)); /* quiet */
    if (exponent) return of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    return of_bits(sign | bits_of((float)mantissa * 0x1p-24f));
}

uint16_t td_f32_to_f16(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* from 65520 on it rounds to infinity */
    if (rest < 0x38800000) {                                  /* subnormal: the float adder rounds at 2^-24 */
        float shifted = of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - bits_of(0.5f)));
    }
    rest += 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | ((rest - (112u << 23)) >> 13));
}

float td_bf16_to_f32(uint16_t bits) { return of_bits((uint32_t)bits << 16); }

uint16_t td_f32_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* --- the 8- and 4-bit floats */
typedef struct small_float {
    int exponent_bits, mantissa_bits, bias;
    bool has_inf; /* all ones in the exponent are infinity and NaN, as in IEEE */
    uint8_t nan;  /* the NaN code (without sign where the format has two) */
    bool has_nan;
    bool nan_unsigned; /* FNUZ: the code of minus zero is the only NaN, zero has no sign */
} small_float;

static const small_float e4m3fn = {4, 3, 7, false, 0x7f, true, false};
static const small_float e4m3fnuz = {4, 3, 8, false, 0x80, true, true};
static const small_float e5m2 = {5, 2, 15, true, 0x7f, true, false};
static const small_float e5m2fnuz = {5, 2, 16, false, 0x80, true, true};
static const small_float e2m1 = {2, 1, 1, false, 0, false, false};

static const small_float *small_float_of(td_dtype dtype) {
    switch (dtype) {
    case TD_FLOAT8E4M3FN: return &e4m3fn;
    case TD_FLOAT8E4M3FNUZ: return &e4m3fnuz;
    case TD_FLOAT8E5M2: return &e5m2;
    case TD_FLOAT8E5M2FNUZ: return &e5m2fnuz;
    case TD_FLOAT4E2M1: return &e2m1;
    default: return NULL;
    }
}

static double decode_small(const small_float *f, uint8_t code) {
    int sign_shift = f->exponent_bits + f->mantissa_bits;
    int exponent_mask = (1 << f->exponent_bits) - 1;
    int mantissa = code & ((1 << f->mantissa_bits) - 1), exponent = code >> f->mantissa_bits & exponent_mask;
    double sign = code >> sign_shift & 1 ? -1.0 : 1.0;
    if (f->nan_unsigned && code == f->nan) return (double)NAN;
    if (f->has_inf && exponent == exponent_mask) return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (f->has_nan && !f->nan_unsigned && (code & 0x7f) == f->nan) return (double)NAN;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    return sign * ldexp((1 << f->mantissa_bits) + mantissa, exponent - f->bias - f->mantissa_bits);
}

/* The code of the largest finite value. */
static int largest_code(const small_float *f) {
    int all = (1 << (f->exponent_bits + f->mantissa_bits)) - 1;
    if (f->has_inf) return (((1 << f->exponent_bits) - 1) << f->mantissa_bits) - 1;
    return f->has_nan && !f->nan_unsigned ? all - 1 : all;
}

/* Saturates: what is too large becomes the largest finite value, infinities included (ONNX's default for Cast). */
static uint8_t encode_small(const small_float *f, double value) {
    int sign = signbit(value) ? 1 << (f->exponent_bits + f->mantissa_bits) : 0;
    if (isnan(value)) return f->has_nan ? (uint8_t)(f->nan | (f->nan_unsigned ? 0 : sign)) : (uint8_t)largest_code(f);
    double magnitude = fabs(value);
    if (magnitude == 0) return f->nan_unsigned ? 0 : (uint8_t)sign;
    int largest = largest_code(f), exponent = 0;
    if (magnitude >= decode_small(f, (uint8_t)largest)) return (uint8_t)(sign | largest);
    if (magnitude > 0) (void)frexp(magnitude, &exponent); /* magnitude = m * 2^exponent, m in [0.5, 1) */
    int lowest = 1 - f->bias;                             /* exponent of subnormals */
    int scale = TD_MAX(exponent - 1, lowest) - f->mantissa_bits;
    double quotient = ldexp(magnitude, -scale); /* exact; nearest even by hand, whatever the rounding mode */
    int units = (int)quotient;
    double rest = quotient - units;
    if (rest > 0.5 || (rest == 0.5 && units & 1)) units++;
    /* A normal value holds 2^mantissa_bits + mantissa units; a carry moves into the exponent by itself. */
    int code = units + ((scale + f->mantissa_bits + f->bias - 1) << f->mantissa_bits);
    if (code == 0 && f->nan_unsigned) sign = 0;
    return (uint8_t)(sign | TD_MIN(code, largest));
}

/* e8m0: a power of two, no sign, no zero; 0xff is NaN. Rounds to nearest, ties up. */
static double decode_e8m0(uint8_t code) { return code == 0xff ? (double)NAN : ldexp(1.0, code - 127); }

static uint8_t encode_e8m0(double value) {
    int exponent;
    if (isnan(value)) return 0xff;
    value = fabs(value);
    if (isinf(value)) return 0xfe;
    if (value < 0x1p-127) return 0;
    double mantissa = frexp(value, &exponent); /* [0.5, 1) */
    int code = exponent - 1 + 127 + (mantissa >= 0.75);
    return (uint8_t)TD_MIN(code, 0xfe);
}

/* --- packed integers */
static unsigned load_packed(const void *data, int64_t index, int bits) {
    int per_byte = 8 / bits;
    uint8_t byte = ((const uint8_t *)data)[index / per_byte];
    return (unsigned)(byte >> (index % per_byte * bits)) & ((1u << bits) - 1);
}

static void store_packed(void *data, int64_t index, int bits, unsigned value) {
    int per_byte = 8 / bits, shift = (int)(index % per_byte) * bits;
    unsigned mask = ((1u << bits) - 1) << shift;
    uint8_t *byte = (uint8_t *)data + index / per_byte;
    *byte = (uint8_t)((*byte & ~mask) | (value << shift & mask));
}

static int sign_extend(unsigned value, int bits) { return (int)(value ^ 1u << (bits - 1)) - (1 << (bits - 1)); }

/* X(dtype, C type) of the plain integers */
#define PLAIN_INTS(X)                                                                                                  \
    X(UINT8, uint8_t)                                                                                                  \
    X(INT8, int8_t)                                                                                                    \
    X(UINT16, uint16_t) X(INT16, int16_t) X(INT32, int32_t) X(UINT32, uint32_t) X(INT64, int64_t) X(UINT64, uint64_t)

int64_t td_load_i64(td_dtype dtype, const void *data, int64_t index) {
    switch (dtype) {
#define LOAD(name, type)                                                                                               \
    case TD_##name: return (int64_t)((const type *)data)[index];
        PLAIN_INTS(LOAD)
#undef LOAD
    case TD_BOOL: return ((const uint8_t *)data)[index] != 0;
    case TD_UINT4: return (int64_t)load_packed(data, index, 4);
    case TD_INT4: return sign_extend(load_packed(data, index, 4), 4);
    case TD_UINT2: return (int64_t)load_packed(data, index, 2);
    case TD_INT2: return sign_extend(load_packed(data, index, 2), 2);
    default: {
        double value = td_load_f64(dtype, data, index);
        if (isnan(value)) return 0;
        if (value >= 0x1p63) return INT64_MAX;
        return value < -0x1p63 ? INT64_MIN : (int64_t)value;
    }
    }
}

void td_store_i64(td_dtype dtype, void *data, int64_t index, int64_t value) {
    switch (dtype) {
#define STORE(name, type)                                                                                              \
    case TD_##name: ((type *)data)[index] = (type)value; return;
        PLAIN_INTS(STORE)
#undef STORE
    case TD_BOOL: ((uint8_t *)data)[index] = value != 0; return;
    case TD_UINT4:
    case TD_INT4: store_packed(data, index, 4, (unsigned)value & 15); return;
    case TD_UINT2:
    case TD_INT2: store_packed(data, index, 2, (unsigned)value & 3); return;
    default: td_store_f64(dtype, data, index, (double)value); return;
    }
}

double td_load_f64(td_dtype dtype, const void *data, int64_t index) {
    switch (dtype) {
    case TD_FLOAT: return (double)((const float *)data)[index];
    case TD_DOUBLE: return ((const double *)data)[index];
    case TD_FLOAT16: return (double)td_f16_to_f32(((const uint16_t *)data)[index]);
    case TD_BFLOAT16: return (double)td_bf16_to_f32(((const uint16_t *)data)[index]);
    case TD_FLOAT8E4M3FN:
    case TD_FLOAT8E4M3FNUZ:
    case TD_FLOAT8E5M2:
    case TD_FLOAT8E5M2FNUZ: return decode_small(small_float_of(dtype), ((const uint8_t *)data)[index]);
    case TD_FLOAT4E2M1: return decode_small(&e2m1, (uint8_t)load_packed(data, index, 4));
    case TD_FLOAT8E8M0: return decode_e8m0(((const uint8_t *)data)[index]);
    case TD_UINT64: return (double)((const uint64_t *)data)[index];
    case TD_UNDEFINED:
    case TD_STRING:
    case TD_COMPLEX64:
    case TD_COMPLEX128:
    case TD_DTYPE_END: return 0;
    default: return (double)td_load_i64(dtype, data, index);
    }
}

/* double to float16 or bfloat16 in one rounding: float32 is first made odd in its last bit if the double did not
 * fit. */
static float to_odd(double value) {
    float near = (float)value;
    if ((double)near == value || isnan(value) || isinf(near))
        return isinf(near) && !isinf(value) ? copysignf(0x1.fffffep127f, near) : near;
    uint32_t bits = bits_of(near);
    if (fabs((double)near) > fabs(value)) bits--; /* towards zero */
    return of_bits(bits | 1);
}

/* C's conversion for values in range, saturation outside, NaN gives 0. */
static int64_t saturate(double value, int64_t low, int64_t high) {
    if (isnan(value)) return 0;
    if (value <= (double)low) return low;
    return value >= (double)high ? high : (int64_t)value;
}

void td_store_f64(td_dtype dtype, void *data, int64_t index, double value) {
    uint8_t *bytes = data;
    switch (dtype) {
    case TD_FLOAT: ((float *)data)[index] = (float)value; return;
    case TD_DOUBLE: ((double *)data)[index] = value; return;
    case TD_FLOAT16: ((uint16_t *)data)[index] = td_f32_to_f16(to_odd(value)); return;
    case TD_BFLOAT16: ((uint16_t *)data)[index] = td_f32_to_bf16(to_odd(value)); return;
    case TD_FLOAT8E4M3FN:
    case TD_FLOAT8E4M3FNUZ:
    case TD_FLOAT8E5M2:
    case TD_FLOAT8E5M2FNUZ: bytes[index] = encode_small(small_float_of(dtype), value); return;
    case TD_FLOAT4E2M1: store_packed(data, index, 4, encode_small(&e2m1, value)); return;
    case TD_FLOAT8E8M0: bytes[index] = encode_e8m0(value); return;
    case TD_BOOL: bytes[index] = value != 0; return;
    case TD_UINT64:
        if (!(value > 0)) ((uint64_t *)data)[index] = 0;
        else ((uint64_t *)data)[index] = value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
        return;
    case TD_INT64: td_store_i64(dtype, data, index, saturate(value, INT64_MIN, INT64_MAX)); return;
    case TD_UNDEFINED:
    case TD_STRING:
    case TD_COMPLEX64:
    case TD_COMPLEX128:
    case TD_DTYPE_END: return;
    default: {
        int bits = td_dtype_bits(dtype);
        bool is_signed = td_dtype_kind(dtype) == TD_KIND_INT;
        int64_t high = ((int64_t)1 << (is_signed ? bits - 1 : bits)) - 1, low = is_signed ? -high - 1 : 0;
        td_store_i64(dtype, data, index, saturate(value, low, high));
        return;
    }
    }
}

/* --- runs */
void td_to_f32(td_dtype from, const void *data, int64_t n, float *out) {
    const uint16_t *half = data;
    switch (from) {
    case TD_FLOAT:
        if (n > 0) memcpy(out, data, (size_t)n * sizeof *out);
        return;
    case TD_BFLOAT16:
        for (int64_t i = 0; i < n; i++) out[i] = td_bf16_to_f32(half[i]);
        return;
    case TD_FLOAT16: {
        int64_t i = TD_X86_64 && td_cpu_flags() & TD_CPU_AVX2 ? td_f16_to_f32_avx2(half, n, out) : 0;
        for (; i < n; i++) out[i] = td_f16_to_f32(half[i]);
        return;
    }
    default:
        for (int64_t i = 0; i < n; i++) out[i] = (float)td_load_f64(from, data, i);
    }
}

void td_from_f32(td_dtype to, const float *data, int64_t n, void *out) {
    uint16_t *half = out;
    switch (to) {
    case TD_FLOAT:
        if (n > 0) memcpy(out, data, (size_t)n * sizeof *data);
        return;
    case TD_BFLOAT16:
        for (int64_t i = 0; i < n; i++) half[i] = td_f32_to_bf16(data[i]);
        return;
    case TD_FLOAT16: {
        int64_t i = TD_X86_64 && td_cpu_flags() & TD_CPU_AVX2 ? td_f32_to_f16_avx2(data, n, half) : 0;
        for (; i < n; i++) half[i] = td_f32_to_f16(data[i]);
        return;
    }
    default:
        for (int64_t i = 0; i < n; i++) td_store_f64(to, out, i, (double)data[i]);
    }
}
