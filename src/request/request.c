/* request/request.c - see request.h. */
#include "request/request.h"

#include "base/alloc.h"

treadle_status td_request_new(const treadle_model *model, const treadle_generate_options *options,
                              treadle_generator **out, treadle_error *err) {
    treadle_generator *g = td_alloc_zero(1, sizeof *g);
    if (!g) return td_fail_memory(err, "a generator", sizeof *g);
    td_arena_init(&g->arena);
    g->model = model;
    td_generation_options generation;
    const td_tokenizer *tokenizer;
    treadle_status status = td_request_fill(g, options, &generation, err);
    if (status == TREADLE_OK && generation.beam.num_beams > 1 &&
        (g->n_stops || generation.sample.do_sample || generation.keep_logits))
        status = td_fail(err, TREADLE_INVALID_ARGUMENT,
                         "num_beams %lld: beam search takes neither %s, and keeps no logits of steps",
                         (long long)generation.beam.num_beams,
                         g->n_stops ? "stop strings nor sampling" : "sampling nor stop strings");
    if (status == TREADLE_OK && g->n_stops) {
        status = td_text_part_tokenizer(model->text, &tokenizer, err);
        if (status != TREADLE_OK) td_error_context(err, "stop strings need the tokenizer");
    }
    if (status == TREADLE_OK) status = td_generation_new(model->runtime, &generation, &g->generation, err);
    if (status != TREADLE_OK) {
        td_request_free(g);
        return status;
    }
    *out = g;
    return TREADLE_OK;
}

/* Rows have no text before somebody asks for it, or a run makes some. */
static treadle_status open_texts(treadle_generator *g, treadle_error *err) {
    if (g->texts) return TREADLE_OK;
    g->texts = td_alloc_zero(g->generation->n_rows, sizeof *g->texts);
    if (!g->texts) return td_fail_memory(err, "rows of text", 0);
    for (size_t r = 0; r < g->generation->n_rows; r++) g->texts[r].pushed = -1;
    return TREADLE_OK;
}

treadle_status td_request_fork(const treadle_generator *from, treadle_generator **out, treadle_error *err) {
    treadle_generator *g = td_alloc_zero(1, sizeof *g);
    if (!g) return td_fail_memory(err, "a generator", sizeof *g);
    td_arena_init(&g->arena);
    g->model = from->model;
    treadle_status status = td_generation_fork(from->generation, &g->generation, err);
    if (status == TREADLE_OK) status = td_request_copy_options(g, from, err);
    if (status != TREADLE_OK) {
        td_request_free(g);
        return status;
    }
    *out = g;
    return TREADLE_OK;
}

void td_request_free(treadle_generator *g) {
    if (!g) return;
    for (size_t r = 0; g->texts && r < g->generation->n_rows; r++) {
        td_text_sink_close(&g->texts[r].sink);
        td_buf_free(&g->texts[r].text);
    }
    td_free(g->texts);
    td_generation_free(g->generation);
    td_arena_free(&g->arena);
    td_free(g);
}

treadle_status td_request_append(treadle_generator *g, const treadle_ids *rows, size_t n_rows, treadle_error *err) {
    TD_TRY(td_generation_append(g->generation, rows, n_rows, err));
    for (size_t r = 0; g->texts && r < n_rows; r++)
        if (rows[r].n) g->texts[r].pushed = -1;
    return TREADLE_OK;
}

treadle_status td_request_rewind(treadle_generator *g, size_t row, size_t length, treadle_error *err) {
    TD_TRY(td_generation_rewind(g->generation, row, length, err));
    if (g->texts) g->texts[row].pushed = -1;
    return TREADLE_OK;
}

/* --- text of a row */

/* The sink at the beginning of the new tokens. */
static treadle_status restart(treadle_generator *g, size_t r, treadle_error *err) {
    td_row_text *t = &g->texts[r];
    if (!t->open) {
        const td_tokenizer *tokenizer = NULL;
        TD_TRY(td_text_part_tokenizer(g->model->text, &tokenizer, err));
        TD_TRY(td_text_sink_open(&t->sink, tokenizer, true, g->stops, g->n_stops, err));
        t->open = true;
    }
    td_text_sink_reset(&t->sink);
    td_buf_clear(&t->text);
    t->pushed = g->generation->timelines[r].first_new;
    return TREADLE_OK;
}

/* Pushes one token; at the end of a row also lets go what was held. A closing end token is not text. */
static treadle_status push(td_row_text *t, int32_t id, treadle_finish finish, bool *stopped, treadle_error *err) {
    *stopped = false;
    t->pushed++;
    if (finish != TREADLE_FINISH_EOS) TD_TRY(td_text_sink_push(&t->sink, id, &t->text, stopped, err));
    if (finish != TREADLE_FINISH_NONE && !*stopped) TD_TRY(td_text_sink_flush(&t->sink, &t->text, stopped, err));
    return t->text.failed ? td_fail_memory(err, "text of a row", 0) : TREADLE_OK;
}

/* Brings the sink to the end of the timeline, which may have ended before (its last finish is then pushed too). */
static treadle_status catch_up(treadle_generator *g, size_t r, bool ends, treadle_error *err) {
    const td_timeline *t = &g->generation->timelines[r];
    TD_TRY(restart(g, r, err));
    for (int64_t i = t->first_new; i < t->n; i++) {
        bool stopped;
        treadle_finish finish = ends && i + 1 == t->n ? t->finish : TREADLE_FINISH_NONE;
        TD_TRY(push(&g->texts[r], t->ids[i], finish, &stopped, err));
        if (stopped) break;
    }
    g->texts[r].pushed = t->n;
    return TREADLE_OK;
}

static bool give(treadle_generator *g, size_t r, int32_t id, treadle_finish finish) {
    td_row_text *t = &g->texts[r];
    const td_timeline *line = &g->generation->timelines[r];
    if (!g->callback) return true;
    size_t given = TD_MIN(t->given, t->text.n);
    treadle_token token = {.row = r, .id = id, .index = (size_t)(line->n - line->first_new - 1), .finish = finish};
    if (t->open) {
        token.piece = t->text.p ? t->text.p + given : "";
        token.piece_bytes = t->text.n - given;
        t->given = t->text.n;
    }
    return g->callback(g->callback_ctx, &token);
}

static td_verdict sink(void *ctx, size_t r, int32_t id, treadle_finish finish, treadle_error *err) {
    treadle_generator *g = ctx;
    bool stopped = false;
    if (g->makes_text) {
        if (push(&g->texts[r], id, finish, &stopped, err) != TREADLE_OK) return TD_VERDICT_FAIL;
    } else {
        g->texts[r].pushed = -1;
    }
    if (stopped) finish = TREADLE_FINISH_STOP;
    if (!give(g, r, id, finish)) return TD_VERDICT_CANCEL;
    return stopped ? TD_VERDICT_STOP : TD_VERDICT_CONTINUE;
}

/* Text is made if somebody can see it: a callback or a stop string. Without a tokenizer a callback gets ids alone. */
static treadle_status prepare_texts(treadle_generator *g, treadle_error *err) {
    const td_tokenizer *tokenizer = NULL;
    g->makes_text = g->n_stops > 0 || g->callback;
    if (!g->makes_text) return TREADLE_OK;
    treadle_status status = td_text_part_tokenizer(g->model->text, &tokenizer, g->n_stops ? err : NULL);
    if (status == TREADLE_OUT_OF_MEMORY) return td_fail_memory(err, "a tokenizer", 0);
    if (status != TREADLE_OK && g->n_stops) return status;
    g->makes_text = status == TREADLE_OK;
    for (size_t r = 0; g->makes_text && r < g->generation->n_rows; r++) {
        treadle_finish finish = g->generation->timelines[r].finish;
        if (finish == TREADLE_FINISH_EOS || finish == TREADLE_FINISH_STOP) continue; /* ended: nothing more comes */
        TD_TRY(catch_up(g, r, false, err));
        if (g->generation->timelines[r].n == g->generation->timelines[r].first_new) g->texts[r].given = 0;
    }
    return TREADLE_OK;
}

/* After a cancel or failure: what was held back is let go. */
static void release_held(treadle_generator *g, size_t r) {
    treadle_finish finish = g->generation->timelines[r].finish;
    bool stopped;
    if (finish != TREADLE_FINISH_CANCELLED && finish != TREADLE_FINISH_ERROR) return;
    if (td_text_sink_flush(&g->texts[r].sink, &g->texts[r].text, &stopped, NULL) != TREADLE_OK) return;
    if (finish == TREADLE_FINISH_CANCELLED && g->texts[r].text.n > g->texts[r].given) give(g, r, -1, finish);
}

treadle_status td_request_run(treadle_generator *g, int64_t max_new_tokens, treadle_token_fn *fn, void *ctx,
                              treadle_error *err) {
    g->callback = fn;
    g->callback_ctx = ctx;
    if (g->generation->n_rows) {
        TD_TRY(open_texts(g, err));
        TD_TRY(prepare_texts(g, err));
    }
    treadle_status status = td_generation_run(g->generation, max_new_tokens, sink, g, err);
    for (size_t r = 0; g->makes_text && r < g->generation->n_rows; r++) release_held(g, r);
    g->callback = NULL;
    return status;
}

treadle_string td_request_text(treadle_generator *g, size_t r) {
    if (open_texts(g, NULL) != TREADLE_OK) return (treadle_string){NULL, 0};
    td_row_text *t = &g->texts[r];
    if (t->pushed != g->generation->timelines[r].n && catch_up(g, r, true, NULL) != TREADLE_OK)
        return (treadle_string){NULL, 0};
    return (treadle_string){t->text.p ? t->text.p : "", t->text.n};
}
