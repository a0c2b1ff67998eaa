/* text/sink.c - see sink.h. Held text is at most one byte shorter than the longest stop string. */
#include "text/sink.h"

#include "base/alloc.h"
#include "base/utf8.h"

struct td_stopper {
    td_str *stops; /* text in one block with the array */
    size_t n_stops;
    int match; /* -1: none yet */
    td_buf held;
};

treadle_status td_stopper_open(const td_str *stops, size_t n_stops, td_stopper **out, treadle_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < n_stops; i++) {
        if (stops[i].n == 0) return td_fail(err, TREADLE_INVALID_ARGUMENT, "stop string %zu is empty", i);
        if (!td_utf8_valid(stops[i])) return td_fail(err, TREADLE_INVALID_ARGUMENT, "stop string %zu is not UTF-8", i);
        if (TD_ADD_OVERFLOWS(bytes, stops[i].n + sizeof *stops, &bytes))
            return td_fail(err, TREADLE_LIMIT, "the stop strings are too long");
    }
    td_stopper *stopper = td_alloc_zero(1, sizeof *stopper);
    if (stopper) stopper->stops = td_alloc(bytes);
    if (!stopper || !stopper->stops) {
        td_free(stopper);
        return td_fail_memory(err, "stop strings", bytes);
    }
    char *text = (char *)(stopper->stops + n_stops);
    for (size_t i = 0; i < n_stops; i++) {
        memcpy(text, stops[i].p, stops[i].n);
        stopper->stops[i] = (td_str){text, stops[i].n};
        text += stops[i].n;
    }
    stopper->n_stops = n_stops;
    stopper->match = -1;
    *out = stopper;
    return TREADLE_OK;
}

void td_stopper_free(td_stopper *stopper) {
    if (!stopper) return;
    td_buf_free(&stopper->held);
    td_free(stopper->stops);
    td_free(stopper);
}

static void reset_stopper(td_stopper *stopper) {
    stopper->match = -1;
    td_buf_clear(&stopper->held);
}

int td_stopper_match(const td_stopper *stopper) { return stopper->match; }

/* Index of the longest stop string at the start of text, or -1; *open: text is too short to tell for one of them. */
static int match_at(const td_stopper *stopper, td_str text, bool *open) {
    int best = -1;
    *open = false;
    for (size_t i = 0; i < stopper->n_stops; i++) {
        td_str stop = stopper->stops[i];
        size_t n = TD_MIN(stop.n, text.n);
        if (stop.p[0] != text.p[0] || memcmp(stop.p, text.p, n) != 0) continue;
        if (n < stop.n) *open = true;
        else if (best < 0 || stop.n > stopper->stops[best].n) best = (int)i;
    }
    return best;
}

treadle_status td_stopper_push(td_stopper *stopper, td_str text, td_buf *out, bool *stopped, treadle_error *err) {
    *stopped = stopper->match >= 0;
    if (*stopped) return TREADLE_OK;
    if (stopper->n_stops == 0) {
        td_buf_str(out, text);
        return out->failed ? td_fail_memory(err, "a text", text.n) : TREADLE_OK;
    }
    td_buf *held = &stopper->held;
    td_buf_str(held, text);
    size_t certain = held->n; /* where the first stop string that is still open begins */
    for (size_t i = 0; i < held->n; i++) {
        bool open;
        stopper->match = match_at(stopper, (td_str){held->p + i, held->n - i}, &open);
        if (stopper->match >= 0) {
            certain = i;
            break;
        }
        if (open && certain == held->n) certain = i;
    }
    *stopped = stopper->match >= 0;
    td_buf_append(out, held->p, certain);
    if (held->failed || out->failed) return td_fail_memory(err, "a text", text.n);
    if (*stopped) {
        td_buf_clear(held);
    } else if (certain > 0) {
        memmove(held->p, held->p + certain, held->n - certain);
        held->n -= certain;
    }
    return TREADLE_OK;
}

treadle_status td_stopper_flush(td_stopper *stopper, td_buf *out, treadle_error *err) {
    td_buf_str(out, td_buf_view(&stopper->held));
    td_buf_clear(&stopper->held);
    return out->failed ? td_fail_memory(err, "a text", out->n) : TREADLE_OK;
}

treadle_status td_text_sink_open(td_text_sink *sink, const td_tokenizer *tokenizer, bool skip_special,
                                 const td_str *stops, size_t n_stops, treadle_error *err) {
    *sink = (td_text_sink){0};
    TD_TRY(td_stopper_open(stops, n_stops, &sink->stopper, err));
    treadle_status status = td_detok_open(tokenizer, skip_special, &sink->detok, err);
    if (status != TREADLE_OK) td_text_sink_close(sink);
    return status;
}

void td_text_sink_close(td_text_sink *sink) {
    td_detok_free(sink->detok);
    td_stopper_free(sink->stopper);
    td_buf_free(&sink->piece);
    *sink = (td_text_sink){0};
}

void td_text_sink_reset(td_text_sink *sink) {
    td_detok_reset(sink->detok);
    reset_stopper(sink->stopper);
}

treadle_status td_text_sink_push(td_text_sink *sink, int32_t id, td_buf *out, bool *stopped, treadle_error *err) {
    td_buf_clear(&sink->piece);
    TD_TRY(td_detok_push(sink->detok, id, &sink->piece, err));
    return td_stopper_push(sink->stopper, td_buf_view(&sink->piece), out, stopped, err);
}

treadle_status td_text_sink_flush(td_text_sink *sink, td_buf *out, bool *stopped, treadle_error *err) {
    td_buf_clear(&sink->piece);
    TD_TRY(td_detok_flush(sink->detok, &sink->piece, err));
    TD_TRY(td_stopper_push(sink->stopper, td_buf_view(&sink->piece), out, stopped, err));
    return *stopped ? TREADLE_OK : td_stopper_flush(sink->stopper, out, err);
}
