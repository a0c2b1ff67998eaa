/* tools/treadle/tensor_out.c - what is said of a tensor: its type, shape and range. */
#include "command.h"

#include <math.h>

typedef struct summary {
    int64_t n, n_not_finite;
    double low, high, mean;
} summary;

static summary summarise(const treadle_tensor *t) {
    summary s = {.low = INFINITY, .high = -INFINITY};
    if (treadle_tensor_size(t, &s.n, NULL, NULL) != TREADLE_OK || t->dtype == TREADLE_DTYPE_STRING) return s;
    for (int64_t i = 0; i < s.n; i++) {
        double v = treadle_tensor_get(t, i);
        if (!isfinite(v)) {
            s.n_not_finite++;
            continue;
        }
        s.low = fmin(s.low, v);
        s.high = fmax(s.high, v);
        s.mean += v / (double)s.n;
    }
    return s;
}

void td_tensor_json(td_json_writer *w, const treadle_tensor *t) {
    summary s = summarise(t);
    td_json_key(w, "dtype");
    td_json_write_text(w, treadle_dtype_name(t->dtype));
    td_json_key(w, "shape");
    td_json_begin_array(w);
    for (int i = 0; i < t->rank; i++) td_json_write_int(w, t->dims[i]);
    td_json_end_array(w);
    if (t->dtype == TREADLE_DTYPE_STRING || s.n == s.n_not_finite) return;
    td_json_key(w, "min");
    td_json_write_double(w, s.low);
    td_json_key(w, "max");
    td_json_write_double(w, s.high);
    td_json_key(w, "mean");
    td_json_write_double(w, s.mean);
    td_json_key(w, "not_finite");
    td_json_write_int(w, s.n_not_finite);
}

void td_tensor_print(const treadle_tensor *t) {
    summary s = summarise(t);

    printf("%s [", treadle_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++) printf("%s%lld", d ? ", " : "", (long long)t->dims[d]);
    printf("]");
    if (t->dtype != TREADLE_DTYPE_STRING && s.n > s.n_not_finite)
        printf(", %.6g to %.6g, mean %.6g", s.low, s.high, s.mean);
    if (s.n_not_finite) printf(", %lld not finite", (long long)s.n_not_finite);
}
