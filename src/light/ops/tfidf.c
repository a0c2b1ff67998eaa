/* light/ops/tfidf.c - TfIdfVectorizer: how often each n-gram of a pool occurs in a row, with up to
 * max_skip_count tokens left out between its tokens. Source: ONNX op text; of its examples, single tokens
 * count once whatever the skips. */
#include "light/op.h"
#include "tensor/half.h"

typedef struct tfidf_state {
    int64_t shortest, longest, most_skips, n_columns;
    const int64_t *starts, *columns, *numbers; /* starts[n - 1]: of the n-grams in the pool; columns: of each n-gram */
    const td_str *texts;                       /* the pool: numbers or texts */
    size_t n_starts, n_columns_given, n_pool, n_weights;
    const float *weights; /* by column; NULL: ones */
    bool once;            /* IDF: counts above 1 are 1 */
} tfidf_state;

static treadle_status check_pool(td_prepare *p, const tfidf_state *s) {
    int64_t end = 0;
    size_t grams = 0;
    for (size_t n = 0; n < s->n_starts; n++) {
        int64_t next = n + 1 < s->n_starts ? s->starts[n + 1] : (int64_t)s->n_pool;
        if (s->starts[n] < end || next < s->starts[n] || (size_t)next > s->n_pool)
            return td_bad_node(p, "expected ngram_counts that rise within the pool");
        grams += (size_t)(next - s->starts[n]) / (n + 1);
        end = s->starts[n];
    }
    if (grams > s->n_columns_given) return td_bad_node(p, "%zu n-grams, %zu ngram_indexes", grams, s->n_columns_given);
    return TREADLE_OK;
}

static treadle_status tfidf_prepare(td_prepare *p) {
    tfidf_state *s = p->state;
    td_str mode = td_attr_string(p, "mode");
    size_t n_numbers, n_texts;

    s->shortest = td_attr_int(p, "min_gram_length");
    s->longest = td_attr_int(p, "max_gram_length");
    s->most_skips = td_attr_int(p, "max_skip_count");
    s->starts = td_attr_ints(p, "ngram_counts", &s->n_starts);
    s->columns = td_attr_ints(p, "ngram_indexes", &s->n_columns_given);
    s->numbers = td_attr_ints(p, "pool_int64s", &n_numbers);
    s->texts = td_attr_strings(p, "pool_strings", &n_texts);
    s->weights = td_attr_floats(p, "weights", &s->n_weights);
    s->n_pool = n_numbers ? n_numbers : n_texts;
    if (s->shortest < 1 || s->longest < s->shortest || s->most_skips < 0)
        return td_bad_node(p, "n-grams of %lld to %lld with %lld skips", (long long)s->shortest, (long long)s->longest,
                           (long long)s->most_skips);
    if ((td_input_dtype(p, 0) == TD_STRING) != (n_texts > 0)) return td_bad_node(p, "the pool is of another type");
    for (size_t i = 0; i < s->n_columns_given; i++) {
        if (s->columns[i] < 0 || s->columns[i] >= INT32_MAX) return td_bad_node(p, "an index of ngram_indexes");
        s->n_columns = TD_MAX(s->n_columns, s->columns[i] + 1);
    }
    s->once = td_str_is(mode, "IDF");
    if (td_str_is(mode, "TF")) s->weights = NULL;
    else if (!s->once && !td_str_is(mode, "TFIDF"))
        return td_bad_node(p, "mode \"%.*s\", expected TF, IDF or TFIDF", TD_STR_ARGS(mode));
    if (s->n_weights == 0) s->weights = NULL;
    if (s->weights && s->n_weights < (size_t)s->n_columns) return td_bad_node(p, "%zu weights", s->n_weights);
    return check_pool(p, s);
}

static treadle_status tfidf_infer(td_infer *in) {
    const tfidf_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    if (x->rank < 0) return td_infer_unknown(in, 0, TD_FLOAT, -1);
    if (x->rank > 2) return td_infer_fail(in, "expected input to be [C] or [N, C]");
    td_shape out = {1, {s->n_columns}};
    if (x->rank == 2) out = (td_shape){2, {x->dims[0], s->n_columns}};
    return td_infer_set(in, 0, TD_FLOAT, &out);
}

static bool same(const tfidf_state *s, const td_tensor *x, int64_t i, int64_t pool) {
    if (x->dtype == TD_STRING) return td_str_equal(((const td_str *)x->data)[i], s->texts[pool]);
    return td_load_i64(x->dtype, x->data, i) == s->numbers[pool];
}

/* Counts the n-grams of length n in tokens first, first + step, ... */
static void count_gram(const tfidf_state *s, const td_tensor *x, int64_t first, int64_t step, int64_t n, float *row) {
    int64_t gram = 0, end;
    for (int64_t m = 1; m <= n && (size_t)m <= s->n_starts; m++) { /* n-grams are numbered through all lengths */
        int64_t begin = s->starts[m - 1];
        end = (size_t)m < s->n_starts ? s->starts[m] : (int64_t)s->n_pool;
        if (m < n) {
            gram += (end - begin) / m;
            continue;
        }
        for (int64_t at = begin; at + n <= end; at += n, gram++) {
            bool equal = true;
            for (int64_t k = 0; equal && k < n; k++) equal = same(s, x, first + k * step, at + k);
            if (equal) row[s->columns[gram]]++;
        }
    }
}

static treadle_status tfidf_run(td_run *r) {
    const tfidf_state *s = r->state;
    const td_tensor *x = r->in[0];
    int64_t rows = x->shape.rank == 2 ? x->shape.dims[0] : 1, n = rows ? td_tensor_count(x) / rows : 0;
    float *row = r->out[0]->data;

    for (int64_t i = 0; i < rows; i++, row += s->n_columns) {
        for (int64_t c = 0; c < s->n_columns; c++) row[c] = 0;
        for (int64_t skips = 0; skips <= s->most_skips && skips < TD_MAX(1, n); skips++)
            for (int64_t length = s->shortest; length <= TD_MIN(s->longest, n); length++) {
                if (length == 1 && skips > 0) continue;
                for (int64_t at = 0; at + (skips + 1) * (length - 1) < n; at++)
                    count_gram(s, x, i * n + at, skips + 1, length, row);
            }
        for (int64_t c = 0; c < s->n_columns; c++) {
            if (s->once && row[c] > 1) row[c] = 1;
            if (s->weights) row[c] *= s->weights[c];
        }
    }
    return TREADLE_OK;
}

const td_op_impl td_op_tfidf_vectorizer = {
    .state_bytes = sizeof(tfidf_state), .prepare = tfidf_prepare, .infer = tfidf_infer, .run = tfidf_run};
