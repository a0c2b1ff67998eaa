/* light/ops/kv_codes.c - see kv_codes.h. Source: onnxruntime docs/ContribOperators.md, release
 * 1.31 (GroupQueryAttention). */
#include "light/ops/kv_codes.h"

#include "tensor/half.h"

#include <math.h>

treadle_status td_kv_codes_prepare(td_prepare *p, const char *type, size_t scale_input, td_dtype cache,
                                   td_kv_codes *out) {
    td_str name = td_attr_string(p, type);
    int64_t bits = td_attr_int(p, "kv_cache_bit_width");

    *out = (td_kv_codes){0};
    if (td_str_is(name, "NONE")) {
        if (td_has_input(p, scale_input)) return td_bad_node(p, "a scale of the cache, but %s is NONE", type);
        if (cache != TD_UNDEFINED && cache != TD_FLOAT && cache != TD_FLOAT16 && cache != TD_BFLOAT16)
            return td_bad_node(p, "a cache of %s, but %s is NONE", td_dtype_name(cache), type);
        return TREADLE_OK;
    }
    out->on = true;
    out->per_channel = td_str_is(name, "PER_CHANNEL");
    out->bits = bits == 4 ? 4 : 8;
    out->dtype = cache != TD_UNDEFINED ? cache : out->bits == 4 ? TD_UINT8 : TD_INT8;
    if (!out->per_channel && !td_str_is(name, "PER_TENSOR"))
        return td_bad_node(p, "%s is \"%.*s\"; expected NONE, PER_TENSOR or PER_CHANNEL", type, TD_STR_ARGS(name));
    if (bits != 0 && bits != 4 && bits != 8) return td_bad_node(p, "kv_cache_bit_width is %lld", (long long)bits);
    if (!td_has_input(p, scale_input)) return td_bad_node(p, "%s needs a scale", type);
    if (out->bits == 4 ? out->dtype != TD_UINT8 : out->dtype != TD_INT8 && out->dtype != TD_FLOAT8E4M3FN)
        return td_unsupported(p, "a cache of %s with codes of %d bits", td_dtype_name(out->dtype), out->bits);
    return TREADLE_OK;
}

static float scale_at(const td_kv_codes *c, const float *scales, int64_t i) { return scales[c->per_channel ? i : 0]; }

static int code_of(float x, float scale, int low, int high) {
    float code = nearbyintf(x / scale);
    return !(code > (float)low) ? low : code > (float)high ? high : (int)code;
}

void td_kv_codes_store(const td_kv_codes *c, const float *x, const float *scales, int64_t size, void *to) {
    uint8_t *bytes = to;
    if (c->bits == 4) {
        for (int64_t i = 0; i < size; i += 2) {
            int low = code_of(x[i], scale_at(c, scales, i), -8, 7) + 8;
            int high = i + 1 < size ? code_of(x[i + 1], scale_at(c, scales, i + 1), -8, 7) + 8 : 8;
            bytes[i / 2] = (uint8_t)(low | high << 4);
        }
    } else if (c->dtype == TD_INT8) {
        for (int64_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)code_of(x[i], scale_at(c, scales, i), INT8_MIN, INT8_MAX);
    } else {
        for (int64_t i = 0; i < size; i++) {
            float value = x[i] / scale_at(c, scales, i);
            td_from_f32(c->dtype, &value, 1, bytes + i);
        }
    }
}

void td_kv_codes_load(const td_kv_codes *c, const void *from, const float *scales, int64_t size, float *y) {
    const uint8_t *bytes = from;
    if (c->bits == 4)
        for (int64_t i = 0; i < size; i++) y[i] = (float)((bytes[i / 2] >> 4 * (i & 1) & 15) - 8);
    else td_to_f32(c->dtype, from, size, y);
    for (int64_t i = 0; i < size; i++) y[i] *= scale_at(c, scales, i);
}
