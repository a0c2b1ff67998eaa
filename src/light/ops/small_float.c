/* light/ops/small_float.c - see small_float.h. Source: the tables in the ONNX op text of Cast. */
#include "light/ops/small_float.h"

#include "tensor/half.h"

#include <math.h>

/* What lies beyond the largest value of a small float: from `over` on (or above it, if not `inclusive`: the tie rounds
 * to the even largest code) a value is out of range and becomes `code` with its sign. */
typedef struct float_limit {
    td_dtype dtype;
    double over;
    bool inclusive;
    uint8_t code, sign;
} float_limit;
static const float_limit limits[] = {
    {TD_FLOAT8E4M3FN, 464, false, 0x7f, 0x80},
    {TD_FLOAT8E4M3FNUZ, 248, true, 0x80, 0},
    {TD_FLOAT8E5M2, 61440, true, 0x7c, 0x80},
    {TD_FLOAT8E5M2FNUZ, 61440, true, 0x80, 0},
};

static bool store_unsaturated(td_dtype to, void *out, int64_t i, double value) {
    for (size_t k = 0; k < TD_COUNT(limits); k++) {
        const float_limit *l = &limits[k];
        if (l->dtype != to) continue;
        double magnitude = fabs(value);
        if (!(magnitude > l->over || (l->inclusive && magnitude == l->over))) return false;
        ((uint8_t *)out)[i] = (uint8_t)(l->code | (signbit(value) ? l->sign : 0));
        return true;
    }
    return false;
}

void td_small_float_store(td_dtype to, void *out, int64_t i, double value, bool saturate) {
    if (saturate || !store_unsaturated(to, out, i, value)) td_store_f64(to, out, i, value);
}
