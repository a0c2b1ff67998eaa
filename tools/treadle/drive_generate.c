/* tools/treadle/drive_generate.c - requests of `treadle drive` that generate tokens: generate, stream, transduce. */
#include "drive.h"

/* Beam search: all sequences of all rows, and their scores. */
static void write_sequences(td_drive *d, const treadle_generator *g, size_t n_rows) {
    double score;

    td_json_key(&d->out, "sequences");
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < n_rows; i++) {
        td_json_begin_array(&d->out);
        for (size_t k = 0; k < treadle_generator_n_sequences(g, i); k++)
            td_drive_write_ids(d, treadle_generator_sequence(g, i, k, &score));
        td_json_end_array(&d->out);
    }
    td_json_end_array(&d->out);
    td_json_key(&d->out, "scores");
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < n_rows; i++) {
        td_json_begin_array(&d->out);
        for (size_t k = 0; k < treadle_generator_n_sequences(g, i); k++) {
            treadle_generator_sequence(g, i, k, &score);
            td_json_write_double(&d->out, score);
        }
        td_json_end_array(&d->out);
    }
    td_json_end_array(&d->out);
}

static void write_results(td_drive *d, const treadle_generator *g, size_t n_rows) {
    td_json_begin_object(&d->out);
    bool beams = td_json_get(td_json_get(d->request, "options"), "num_beams") != NULL;
    if (beams || treadle_generator_n_sequences(g, 0) > 1) write_sequences(d, g, n_rows);
    td_json_key(&d->out, "tokens");
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < n_rows; i++) td_drive_write_ids(d, treadle_generator_new_ids(g, i));
    td_json_end_array(&d->out);
    td_json_key(&d->out, "finish");
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < n_rows; i++)
        td_json_write_text(&d->out, treadle_finish_text(treadle_generator_finish(g, i)));
    td_json_end_array(&d->out);
    td_json_key(&d->out, "text");
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < n_rows; i++) {
        treadle_string text = treadle_generator_text(g, i);
        if (text.p) td_json_write_string(&d->out, (td_str){text.p, text.n});
        else td_json_write_null(&d->out);
    }
    td_json_end_array(&d->out);
    td_drive_write_runs(d, g);
    td_json_end_object(&d->out);
}

static treadle_status generate_with(td_drive *d, treadle_generator *g, const treadle_ids *rows, size_t n_rows) {
    const char *logits_to = td_drive_file_name(d, "logits_to"), *prompt_to = td_drive_file_name(d, "prompt_logits_to");
    treadle_status status = td_drive_set_tensors(d, g, td_json_get(d->request, "tensors"));
    treadle_tensor logits;

    if (status == TREADLE_OK) status = treadle_generator_append(g, rows, n_rows, &d->error);
    if (status == TREADLE_OK && prompt_to) status = treadle_generator_prefill(g, &d->error);
    for (size_t i = 0; prompt_to && i < n_rows && status == TREADLE_OK; i++) {
        status = treadle_generator_prompt_logits(g, i, &logits, &d->error);
        if (status == TREADLE_OK) status = td_drive_save_logits(d, prompt_to, i, &logits);
    }
    if (status == TREADLE_OK) status = treadle_generator_run(g, -1, NULL, NULL, &d->error);
    for (size_t i = 0; logits_to && i < n_rows && status == TREADLE_OK; i++) {
        status = treadle_generator_step_logits(g, i, &logits, &d->error);
        if (status == TREADLE_OK) status = td_drive_save_logits(d, logits_to, i, &logits);
    }
    if (status == TREADLE_OK) write_results(d, g, n_rows);
    return status;
}

treadle_status td_drive_generate(td_drive *d) {
    treadle_generator *g = NULL;
    treadle_ids *rows;
    size_t n_rows;
    treadle_status status = td_drive_prompts(d, &rows, &n_rows);

    if (status == TREADLE_OK) status = td_drive_generator(d, &g);
    if (status == TREADLE_OK) status = generate_with(d, g, rows, n_rows);
    treadle_generator_free(g);
    return status;
}

static bool write_piece(void *ctx, const treadle_token *token) {
    td_drive *d = ctx;

    if (token->piece_bytes) td_json_write_string(&d->out, (td_str){token->piece, token->piece_bytes});
    return true;
}

treadle_status td_drive_stream(td_drive *d) {
    treadle_generator *g = NULL;
    treadle_ids *rows;
    size_t n_rows;
    treadle_status status = td_drive_prompts(d, &rows, &n_rows);

    if (status == TREADLE_OK && n_rows != 1) status = td_drive_fail(d, "prompts: expected one, found %zu", n_rows);
    if (status == TREADLE_OK) status = td_drive_generator(d, &g);
    if (status == TREADLE_OK) status = td_drive_set_tensors(d, g, td_json_get(d->request, "tensors"));
    if (status == TREADLE_OK) status = treadle_generator_append(g, rows, 1, &d->error);
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "pieces");
    td_json_begin_array(&d->out);
    if (status == TREADLE_OK) status = treadle_generator_run(g, -1, write_piece, d, &d->error);
    td_json_end_array(&d->out);
    td_json_end_object(&d->out);
    treadle_generator_free(g);
    return status;
}

treadle_status td_drive_transduce(td_drive *d) {
    treadle_model_info info = {.struct_size = sizeof info};

    treadle_status status = td_drive_continue(d); /* opens the model */
    if (status == TREADLE_OK) treadle_model_get_info(d->model, &info);
    if (status == TREADLE_OK && !info.transduces)
        return td_drive_fail(d, "transduce: expected a transducer (encoder, predictor, joiner), this model is none");

    d->n_tensor_rows = 1;
    if (status == TREADLE_OK) status = td_drive_set_tensors(d, d->continued, td_json_get(d->request, "tensors"));
    size_t n_rows = d->n_tensor_rows;
    const treadle_ids *nothing = TD_ARENA_ARRAY(&d->arena, treadle_ids, n_rows);
    if (!nothing) return td_drive_fail(d, "out of memory");
    if (status == TREADLE_OK) status = treadle_generator_append(d->continued, nothing, n_rows, &d->error);
    if (status == TREADLE_OK) status = treadle_generator_run(d->continued, -1, NULL, NULL, &d->error);
    if (status != TREADLE_OK) return status;
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "tokens");
    td_json_begin_array(&d->out);
    for (size_t r = 0; r < n_rows; r++) td_drive_write_ids(d, treadle_generator_new_ids(d->continued, r));
    td_json_end_array(&d->out);
    td_json_key(&d->out, "frames");
    td_json_begin_array(&d->out);
    for (size_t r = 0; r < n_rows; r++) {
        size_t n = 0;
        const int64_t *frames = treadle_generator_new_frames(d->continued, r, &n);
        td_json_begin_array(&d->out);
        for (size_t i = 0; i < n; i++) td_json_write_int(&d->out, frames[i]);
        td_json_end_array(&d->out);
    }
    td_json_end_array(&d->out);
    td_drive_write_runs(d, d->continued);
    td_json_end_object(&d->out);
    return TREADLE_OK;
}
