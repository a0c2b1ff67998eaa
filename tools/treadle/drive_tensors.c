/* tools/treadle/drive_tensors.c - requests of `treadle drive` that answer with files of
 * numbers: process, embed, encode. */
#include "drive.h"

#include <string.h>

treadle_status td_drive_process(td_drive *d) {
    const char *from = td_drive_file_name(d, "logits"), *to = td_drive_file_name(d, "to");
    treadle_generate_options options;
    treadle_value *value = NULL;
    treadle_tensor logits;
    treadle_ids sequence;
    int64_t kept = 0, count;
    size_t bytes;

    if (!from || !to) return td_drive_fail(d, "logits and to: expected file names");
    treadle_status status = td_drive_options(d, &options);
    options.do_sample = 1;
    if (status == TREADLE_OK) status = td_drive_ids(d, td_json_get(d->request, "sequence"), "sequence", &sequence);
    if (status == TREADLE_OK) status = treadle_value_read_npy(from, &value, &d->error);
    if (status == TREADLE_OK) status = treadle_value_tensor(value, &logits, &d->error);
    if (status == TREADLE_OK) status = treadle_tensor_size(&logits, &count, &bytes, &d->error);
    if (status == TREADLE_OK &&
        (logits.dtype != TREADLE_DTYPE_FLOAT || logits.rank < 1 || count != logits.dims[logits.rank - 1]))
        status = td_drive_fail(d, "logits: expected float32 of one row");
    float *probabilities = status == TREADLE_OK ? TD_ARENA_ARRAY(&d->arena, float, (size_t)count + 1) : NULL;
    if (status == TREADLE_OK && !probabilities) status = td_drive_fail(d, "out of memory");
    if (status == TREADLE_OK)
        status = treadle_process_logits(&options, logits.data, (size_t)count, sequence.ids, sequence.n,
                                        (size_t)td_json_int_or(d->request, "prompt_length", 0), probabilities, &kept,
                                        &d->error);
    if (status == TREADLE_OK) {
        treadle_tensor out = {.dtype = TREADLE_DTYPE_FLOAT, .rank = 1, .dims = {count}, .data = probabilities};
        status = treadle_tensor_write_npy(to, &out, &d->error);
    }
    treadle_value_release(value);
    if (status != TREADLE_OK) return status;
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "kept");
    td_json_write_int(&d->out, kept);
    td_json_end_object(&d->out);
    return TREADLE_OK;
}

/* --- embed, encode */
/* One pass over every prompt, or over tensors alone. */
static treadle_status encode_rows(td_drive *d, size_t *n_rows) {
    static treadle_ids nothing;
    treadle_ids *rows = &nothing;
    treadle_status status = TREADLE_OK;

    *n_rows = 1;
    if (td_json_get(d->request, "prompts")) status = td_drive_prompts(d, &rows, n_rows);
    if (status == TREADLE_OK) status = td_drive_continue(d);
    if (status == TREADLE_OK) status = td_drive_set_tensors(d, d->continued, td_json_get(d->request, "tensors"));
    if (status == TREADLE_OK) status = treadle_generator_append(d->continued, rows, *n_rows, &d->error);
    return status == TREADLE_OK ? treadle_generator_prefill(d->continued, &d->error) : status;
}

/* The vectors of all rows, one after the other. */
static treadle_status save_vectors(td_drive *d, treadle_generator *g, size_t n_rows, const char *to) {
    treadle_tensor vector = {0};
    float *all = NULL;

    for (size_t r = 0; r < n_rows; r++) {
        treadle_status status = treadle_generator_embedding(g, r, &vector, &d->error);
        if (status != TREADLE_OK) return status;
        if (!all) all = TD_ARENA_ARRAY(&d->arena, float, n_rows *(size_t)vector.dims[0]);
        if (!all) return td_drive_fail(d, "out of memory");
        memcpy(all + r * (size_t)vector.dims[0], vector.data, (size_t)vector.dims[0] * sizeof *all);
    }
    treadle_tensor out = {
        .dtype = TREADLE_DTYPE_FLOAT, .rank = 2, .dims = {(int64_t)n_rows, vector.dims[0]}, .data = all};
    return treadle_tensor_write_npy(to, &out, &d->error);
}

treadle_status td_drive_embed(td_drive *d) {
    const char *to = td_drive_file_name(d, "to");
    size_t n_rows = 0;

    if (!to) return td_drive_fail(d, "to: expected a file name");
    treadle_status status = encode_rows(d, &n_rows);
    if (status == TREADLE_OK) status = save_vectors(d, d->continued, n_rows, to);
    if (status != TREADLE_OK) return status;
    td_json_begin_object(&d->out);
    td_json_end_object(&d->out);
    return TREADLE_OK;
}

/* Several rows are written one after the other if their outputs have one shape. */
static treadle_status save_output(td_drive *d, treadle_generator *g, size_t n_rows, const char *name, const char *to) {
    treadle_tensor part = {0}, out = {0};
    size_t bytes = 0, more;
    char *all = NULL;

    for (size_t r = 0; r < n_rows; r++) {
        treadle_status status = treadle_generator_output(g, r, name, &part, &d->error);
        if (status == TREADLE_OK) status = treadle_tensor_size(&part, NULL, &more, &d->error);
        if (status != TREADLE_OK) return status;
        if (r == 0) {
            out = part;
            bytes = more;
            all = td_arena_alloc(&d->arena, n_rows * bytes + 1, 16);
            if (!all) return td_drive_fail(d, "out of memory");
        } else if (more != bytes || memcmp(part.dims, out.dims, sizeof part.dims) != 0) {
            return td_drive_fail(d, "%s: the rows have different shapes, so they do not fit into one file", name);
        }
        if (bytes) memcpy(all + r * bytes, part.data, bytes);
    }
    if (out.rank > 0) out.dims[0] *= (int64_t)n_rows;
    else if (n_rows > 1) return td_drive_fail(d, "%s: one number a row", name);
    out.data = all;
    return treadle_tensor_write_npy(to, &out, &d->error);
}

treadle_status td_drive_encode(td_drive *d) {
    const td_json *to = td_json_get(d->request, "to");
    size_t n_rows = 0;

    if (!to || to->kind != TD_JSON_OBJECT) return td_drive_fail(d, "to: expected an object of outputs and files");
    treadle_status status = encode_rows(d, &n_rows);
    for (const td_json *t = to->first; t && status == TREADLE_OK; t = t->next) {
        const char *name = td_arena_strndup(&d->arena, t->key.p, t->key.n);
        const char *file = td_drive_is_text(t) ? td_arena_strndup(&d->arena, t->string.p, t->string.n) : NULL;
        if (!name || !file)
            status = td_drive_fail(d, "to: expected the name of a file for \"%.*s\"", TD_STR_ARGS(t->key));
        else status = save_output(d, d->continued, n_rows, name, file);
    }
    if (status != TREADLE_OK) return status;
    td_json_begin_object(&d->out);
    td_json_end_object(&d->out);
    return TREADLE_OK;
}
