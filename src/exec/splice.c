/* exec/splice.c - embeddings of a prompt in which those of placeholders are replaced by features, in their order.
 *
 * A run that has features has the whole prompt of one row (exec.c), and as many placeholders as features (run.c). */
#include "base/alloc.h"
#include "exec/run.h"
#include "tensor/half.h"

/* All but the last dimension. */
static int64_t rows_of(const td_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i + 1 < t->shape.rank; i++) n *= t->shape.dims[i];
    return n;
}

static int64_t width_of(const td_tensor *t) { return t->shape.rank > 0 ? t->shape.dims[t->shape.rank - 1] : 0; }

static treadle_status check(const td_exec *e, const td_plan_splice *s, const td_tensor *features,
                            const td_tensor *embeddings, treadle_error *err) {
    const td_plan_session *from = &e->plan->sessions[s->from_session];
    td_str name = from->signature->outputs[s->from_output].name;
    if (e->plan->placeholders[s->modality] < 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "\"%.*s\" of session \"%.*s\" take the places of %s placeholders in the prompt: expected "
                       "tokens.%s_token in the config, the placeholder's id, found none",
                       TD_STR_ARGS(name), TD_STR_ARGS(from->name), td_modality_words[s->modality],
                       td_modality_words[s->modality]);
    if (width_of(features) == width_of(embeddings)) return TREADLE_OK;
    return td_fail(
        err, TREADLE_RUN,
        "\"%.*s\" of session \"%.*s\": expected features as wide as the embeddings they replace, %lld, found %lld",
        TD_STR_ARGS(name), TD_STR_ARGS(from->name), (long long)width_of(embeddings), (long long)width_of(features));
}

static void put(const td_exec *e, const td_exec_run *run, int32_t token, const td_tensor *features, td_tensor *out) {
    const td_exec_row *row = &run->rows[run->first_row];
    const int32_t *ids = run->source ? row->source : row->ids;
    int64_t n_ids = run->source ? row->n_source : row->n_ids;
    int64_t first = run->source ? 0 : td_exec_length(e, run->first_row), width = width_of(out), n = rows_of(features),
            next = 0;
    size_t bytes = (size_t)td_dtype_bits(out->dtype) / 8 * (size_t)width;
    for (int64_t i = 0; i < rows_of(out) - run->pad_before && first + i < n_ids && next < n; i++) {
        if (ids[first + i] != token) continue;
        int64_t at = run->pad_before + i;
        if (features->dtype == out->dtype)
            memcpy((char *)out->data + (size_t)at * bytes, (const char *)features->data + (size_t)next * bytes, bytes);
        else
            for (int64_t c = 0; c < width; c++)
                td_store_f64(out->dtype, out->data, at * width + c,
                             td_load_f64(features->dtype, features->data, next * width + c));
        next++;
    }
}

treadle_status td_exec_splice(td_exec *e, const td_exec_run *run, int32_t session, size_t input, const td_value **value,
                              treadle_error *err) {
    td_value *mine = &e->spliced[session];
    bool copied = false;
    for (size_t k = 0; k < e->plan->n_splices; k++) {
        const td_plan_splice *s = &e->plan->splices[k];
        if (s->session != session || s->input != (int32_t)input || !*value) continue;
        const td_value *features = td_exec_output(e, s->from_session, s->from_output);
        if (!features || features->kind != TD_VALUE_TENSOR || (*value)->kind != TD_VALUE_TENSOR) continue;
        TD_TRY(check(e, s, &features->tensor, &(*value)->tensor, err));
        if (!copied) {
            td_value_release(mine);
            *mine = (td_value){0};
            if (!td_value_copy(mine, *value)) return td_fail_memory(err, "embeddings of a prompt", 0);
            *value = mine;
            copied = true;
        }
        put(e, run, e->plan->placeholders[s->modality], &features->tensor, &mine->tensor);
    }
    return TREADLE_OK;
}
