/* request/words.c - when each word of a window was spoken.
 *
 * The decoder runs once more over the window's tokens, with its cross attention; tokens are aligned to frames and
 * joined to words: a word begins with a space, or with every character where a language writes none; marks stay with
 * the word they belong to. Source: Radford et al. 2022, the authors' timing by cross attention. */
#include "request/transcribe.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "tensor/half.h"

/* Outputs of the decoder with cross attention [1, heads, tokens, frames]: their last number is the layer. */
static int32_t attention_output(const td_plan_session *s, int32_t layer) {
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        td_str name = s->signature->outputs[o].name;
        if (s->out_state[o] >= 0 || s->signature->outputs[o].shape.rank != 4) continue;
        if (td_str_find(name, TD_STR("cross")) < 0 ||
            (td_str_find(name, TD_STR("qk")) < 0 && td_str_find(name, TD_STR("attention")) < 0))
            continue;
        size_t end = name.n;
        while (end > 0 && (name.p[end - 1] < '0' || name.p[end - 1] > '9')) end--;
        size_t begin = end;
        int32_t number = 0;
        while (begin > 0 && name.p[begin - 1] >= '0' && name.p[begin - 1] <= '9') begin--;
        for (size_t i = begin; i < end; i++) number = number * 10 + (name.p[i] - '0');
        if (end > begin && number == layer) return (int32_t)o;
    }
    return -1;
}

typedef struct heads {
    float *weights; /* [n_heads, n, n_frames] */
    size_t n_heads, n, n_frames;
} heads;

/* Copies one head of a layer's attention; the last n tokens of the run, the first n_frames frames. */
static treadle_status copy_head(const td_tensor *t, int32_t head, heads *h, size_t at, treadle_error *err) {
    if (t->shape.rank != 4 || head >= t->shape.dims[1] || t->shape.dims[2] < (int64_t)h->n ||
        t->shape.dims[3] < (int64_t)h->n_frames) {
        char text[128];
        return td_fail(err, TREADLE_RUN,
                       "expected cross attention of head %d for %zu tokens and %zu frames, the graph gave %s", head,
                       h->n, h->n_frames, td_shape_text(&t->shape, text));
    }
    int64_t skip = t->shape.dims[2] - (int64_t)h->n;
    for (size_t i = 0; i < h->n; i++)
        for (size_t f = 0; f < h->n_frames; f++) {
            int64_t from = head * t->strides[1] + (skip + (int64_t)i) * t->strides[2] + (int64_t)f * t->strides[3];
            h->weights[(at * h->n + i) * h->n_frames + f] = (float)td_load_f64(t->dtype, t->data, from);
        }
    return TREADLE_OK;
}

/* One pass over the window's ids again, this time with attention. The row's timeline holds them; its prompt stays
 * run. */
static treadle_status run_again(td_transcriber *t, size_t n, int32_t decoder, treadle_error *err) {
    td_generation *g = t->generation;
    td_timeline *line = &g->timelines[0];
    const td_plan_session *s = &t->model->plan->sessions[decoder];
    int64_t first = line->first_new;
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        if (s->out_state[o] < 0) g->exec->skip[decoder][o] = false;
    td_exec_truncate(g->exec, 0, first);
    td_generation_fill_row(g, 0);
    g->rows[0].n_ids = first + (int64_t)n;
    g->rows[0].live = true;
    g->rows[0].prompt = false;
    treadle_status status = td_exec_forward(g->exec, g->rows, err);
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        if (s->out_state[o] < 0 && s->logits != (int32_t)o) g->exec->skip[decoder][o] = true;
    g->rows[0].logits = NULL;
    return status;
}

static treadle_status align(td_transcriber *t, size_t n, double clip_s, int64_t *frames, double *frame_s,
                            treadle_error *err) {
    const td_config_transcription *c = t->config;
    int32_t decoder = t->model->plan->decoder;
    const td_plan_session *s = &t->model->plan->sessions[decoder];
    heads h = {.n_heads = c->n_alignment_heads, .n = n};
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < h.n_heads; i++)
        if (attention_output(s, c->alignment_heads[i].layer) < 0)
            return td_fail(err, TREADLE_UNSUPPORTED,
                           "word times need the cross attention of layer %d, which the decoder does not give",
                           c->alignment_heads[i].layer);
    if (!h.n_heads)
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "word times need heads that follow the sound (alignment_heads), the config names none");
    TD_TRY(run_again(t, n, decoder, err));
    const td_value *first =
        td_exec_output(t->generation->exec, decoder, attention_output(s, c->alignment_heads[0].layer));
    if (!first || first->kind != TD_VALUE_TENSOR || first->tensor.shape.rank != 4)
        return td_fail(err, TREADLE_RUN, "the decoder gave no cross attention");
    int64_t all_frames = first->tensor.shape.dims[3];
    *frame_s = t->clip_s / (double)TD_MAX(all_frames, (int64_t)1);
    h.n_frames = (size_t)TD_MAX(TD_MIN((int64_t)(clip_s / *frame_s), all_frames), (int64_t)1);
    h.weights = td_alloc_array(h.n_heads * n * h.n_frames, sizeof *h.weights);
    if (!h.weights) return td_fail_memory(err, "cross attention", 0);
    for (size_t i = 0; status == TREADLE_OK && i < h.n_heads; i++) {
        const td_value *v =
            td_exec_output(t->generation->exec, decoder, attention_output(s, c->alignment_heads[i].layer));
        status = v && v->kind == TD_VALUE_TENSOR ? copy_head(&v->tensor, c->alignment_heads[i].head, &h, i, err)
                                                 : td_fail(err, TREADLE_RUN, "the decoder gave no cross attention");
    }
    if (status == TREADLE_OK) status = td_align_tokens(h.weights, h.n_heads, n, h.n_frames, frames, err);
    td_free(h.weights);
    return status;
}

/* --- words */

static bool is_one_of(td_str text, const char *marks) {
    td_str all = td_str_from(marks);
    return text.n > 0 && td_str_find(all, text) >= 0;
}

static td_str trim(td_str s) {
    while (s.n && s.p[0] == ' ') s.p++, s.n--;
    while (s.n && s.p[s.n - 1] == ' ') s.n--;
    return s;
}

/* Marks that open a word stay with what follows, those that close one with what stands before. */
static const char opening[] = "\"'\xe2\x80\x9c\xc2\xbf([{-",
                  closing[] =
                      "\"'.\xe3\x80\x82,\xef\xbc\x8c!\xef\xbc\x81?\xef\xbc\x9f:\xef\xbc\x9a\xe2\x80\x9d)]}\xe3\x80\x81";

static bool begins_word(const td_transcriber *t, td_str piece, td_str word) {
    bool spaced = strcmp(t->out->language, "zh") && strcmp(t->out->language, "ja") && strcmp(t->out->language, "th") &&
                  strcmp(t->out->language, "lo") && strcmp(t->out->language, "my") && strcmp(t->out->language, "yue");
    if (!word.n) return true;
    if (is_one_of(trim(word), opening) && word.p[0] == ' ') return false;
    if (is_one_of(trim(piece), closing) && !(piece.n && piece.p[0] == ' ')) return false;
    return (piece.n && piece.p[0] == ' ') || !spaced;
}

/* Appends to a word's text, which may hold NULs. */
static bool extend_word(td_arena *arena, treadle_word *word, td_str more) {
    size_t n = word->text.n + more.n;
    char *joined = TD_ARENA_ARRAY(arena, char, n + 1);
    if (!joined) return false;
    if (word->text.n) memcpy(joined, word->text.p, word->text.n);
    if (more.n) memcpy(joined + word->text.n, more.p, more.n);
    word->text = (treadle_string){joined, n};
    return true;
}

/* Joins the tokens of one segment to words. times: of the window's tokens, in the recording. */
static treadle_status join(td_transcriber *t, const int32_t *ids, const double *times, const td_segment *s,
                           td_transcript_segment *out, treadle_error *err) {
    td_arena *arena = &t->out->arena;
    td_buf piece = {0};
    out->words = TD_ARENA_ARRAY(arena, treadle_word, s->n + 1);
    if (!out->words) return td_fail_memory(err, "words", 0);
    treadle_status status = TREADLE_OK;
    size_t from = s->first;
    for (size_t i = s->first; status == TREADLE_OK && i < s->first + s->n; i++) {
        if (ids[i] >= t->config->timestamp_begin && t->config->timestamp_begin >= 0) {
            from = i + 1;
            continue;
        }
        td_buf_clear(&piece);
        status = td_tokenizer_decode(t->tokenizer, ids + from, i + 1 - from, true, &piece, err);
        td_str text = td_buf_view(&piece);
        /* bytes of a character whose rest is in the next token */
        if (status != TREADLE_OK || (text.n >= 3 && memcmp(text.p + text.n - 3, "\xef\xbf\xbd", 3) == 0)) continue;
        treadle_word *last = out->n_words ? &out->words[out->n_words - 1] : NULL;
        td_str word = last ? (td_str){last->text.p, last->text.n} : (td_str){0};
        double at = times[from];
        if (begins_word(t, text, word)) {
            if (last) last->end_s = at;
            out->words[out->n_words++] = (treadle_word){.start_s = at, .end_s = out->end_s};
            last = &out->words[out->n_words - 1];
        }
        if (!extend_word(arena, last, text)) status = td_fail_memory(err, "words", 0);
        from = i + 1;
    }
    td_buf_free(&piece);
    return status;
}

treadle_status td_transcribe_words(td_transcriber *t, const td_decoded_window *w, treadle_error *err) {
    double frame_s = 0;
    if (!w->n) return TREADLE_OK;
    int64_t *frames = td_alloc_zero(w->n, sizeof *frames);
    double *times = td_alloc_zero(w->n, sizeof *times);
    treadle_status status =
        frames && times ? align(t, w->n, w->clip_s, frames, &frame_s, err) : td_fail_memory(err, "times of tokens", 0);
    for (size_t i = 0; status == TREADLE_OK && i < w->n; i++) times[i] = w->offset_s + (double)frames[i] * frame_s;
    size_t at = w->first_segment;
    for (size_t i = 0; status == TREADLE_OK && i < w->n_segments && at < t->out->segments.n; i++) {
        td_transcript_segment *s = &t->out->segments.items[at];
        if (s->n_ids != w->segments[i].n || s->start_s != w->offset_s + w->segments[i].start_s)
            continue; /* it had no text */
        status = join(t, w->ids, times, &w->segments[i], s, err);
        at++;
    }
    td_free(frames);
    td_free(times);
    return status;
}
