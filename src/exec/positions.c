/* exec/positions.c - positions in time, height and width, as multimodal rotary embeddings take them.
 *
 * Text counts up in all three. An image's tokens lie on its grid, from where the text stood; a video's frames also
 * advance in time, by tokens_per_second where the frame rate is known. After either, text goes on behind the longer
 * side of the grid. Every token remembers where text would go on after it, so a row can be cut anywhere.
 * Source: transformers 5.23, get_rope_index. */
#include "exec/run.h"
#include "tensor/half.h"

enum { MAX_TIME = 1 << 24 }; /* positions of one video: as many as float32 rotary tables tell apart */

typedef struct grids {      /* of one modality, in order */
    const td_tensor *sizes; /* [n, 3]; NULL: none */
    int64_t used, frames_used;
    const char *word;
    td_str name;
} grids;

static const td_tensor *request_tensor(const td_exec_row *row, int32_t index) {
    if (index < 0 || !row->requests || !row->fresh_requests || row->requests[index].kind != TD_VALUE_TENSOR)
        return NULL;
    return &row->requests[index].tensor;
}

static int64_t grid_at(const td_tensor *t, int64_t row, int64_t column) {
    return td_load_i64(t->dtype, t->data, row * t->strides[0] + column * t->strides[1]);
}

static bool push(td_exec_line *line, int64_t t, int64_t h, int64_t w, int64_t next) {
    return td_vec_push(&line->positions, (td_exec_position){{(int32_t)t, (int32_t)h, (int32_t)w}, (int32_t)next});
}

static int64_t next_position(const td_exec_line *line) {
    return line->positions.n ? line->positions.items[line->positions.n - 1].next : 0;
}

/* Positions between two frames of video i. */
static double frame_step(const td_exec *e, const td_exec_row *row, int64_t video) {
    const td_plan_mrope *m = &e->plan->mrope;
    const td_tensor *seconds = request_tensor(row, m->second_per_grid);
    if (m->tokens_per_second <= 0) return 1;
    double per_grid = 1;
    if (seconds && seconds->shape.rank == 1 && video < seconds->shape.dims[0])
        per_grid = td_load_f64(seconds->dtype, seconds->data, video * seconds->strides[0]);
    return m->tokens_per_second * per_grid;
}

/* Lays the next image or video on its grid. `run` is how many placeholders stand here in a row: a video may come whole,
 * or frame by frame with text between. Returns how many tokens it took; 0: out of memory, -1: err is filled. */
static int64_t place_grid(td_exec *e, td_exec_line *line, const td_exec_row *row, grids *g, int64_t run, bool video,
                          treadle_error *err) {
    int64_t merge = TD_MAX(e->plan->mrope.merge_size, (int64_t)1);
    if (!g->sizes || g->used >= g->sizes->shape.dims[0]) {
        td_fail(
            err, TREADLE_INVALID_ARGUMENT,
            "the prompt has %lld placeholders left over: \"%.*s\" has grids of %lld %ss, which the ones before took",
            (long long)run, TD_STR_ARGS(g->name), (long long)(g->sizes ? g->sizes->shape.dims[0] : 0), g->word);
        return -1;
    }
    int64_t t = grid_at(g->sizes, g->used, 0), h = grid_at(g->sizes, g->used, 1), w = grid_at(g->sizes, g->used, 2);
    if (t < 1 || h < merge || w < merge || t > 65536 || h > 65536 || w > 65536) {
        td_fail(err, TREADLE_INVALID_ARGUMENT,
                "row %lld of \"%.*s\" is %lld x %lld x %lld: no grid of patches (time from 1 on, height and width from "
                "%lld on, the merge_size, each at most 65536)",
                (long long)g->used, TD_STR_ARGS(g->name), (long long)t, (long long)h, (long long)w, (long long)merge);
        return -1;
    }
    h /= merge;
    w /= merge;
    bool by_frame = t > 1 && run < t * h * w && run >= h * w;
    int64_t frames = by_frame ? 1 : t;
    if (run < frames * h * w) {
        td_fail(err, TREADLE_INVALID_ARGUMENT,
                "%s %lld has %lld tokens by \"%.*s\", but the prompt has %lld placeholders for it", g->word,
                (long long)g->used, (long long)(frames * h * w), TD_STR_ARGS(g->name), (long long)run);
        return -1;
    }
    int64_t start = next_position(line), next = start + TD_MAX(h, w);
    double step = video && !by_frame ? frame_step(e, row, g->used) : 1;
    if (!(step >= 0 && step * (double)frames <= MAX_TIME)) {
        td_fail(
            err, TREADLE_INVALID_ARGUMENT,
            "video %lld has %g positions from frame to frame (tokens_per_second times its seconds per grid): expected 0 to "
            "%d for its %lld frames",
            (long long)g->used, step, MAX_TIME, (long long)frames);
        return -1;
    }
    for (int64_t f = 0; f < frames; f++)
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++)
                if (!push(line, start + (int64_t)((double)f * step), start + y, start + x, next)) return 0;
    g->frames_used += frames;
    if (g->frames_used >= t) g->used++, g->frames_used = 0;
    return frames * h * w;
}

/* Equal tokens from i on. */
static int64_t run_length(const td_exec_row *row, int64_t i) {
    int64_t n = 1;
    while (i + n < row->n_ids && row->ids[i + n] == row->ids[i]) n++;
    return n;
}

static grids grids_of(const td_exec *e, const td_exec_row *row, int32_t index, const char *word) {
    grids g = {.sizes = request_tensor(row, index), .word = word};
    if (g.sizes && (g.sizes->shape.rank != 2 || g.sizes->shape.dims[1] != 3)) g.sizes = NULL;
    g.name = index >= 0 ? e->plan->requests[index].name : TD_STR("image_grid_thw");
    return g;
}

treadle_status td_exec_place_tokens(td_exec *e, size_t r, const td_exec_row *row, treadle_error *err) {
    const td_plan_mrope *m = &e->plan->mrope;
    td_exec_line *line = &e->lines[r];
    size_t before = line->positions.n;
    grids images = grids_of(e, row, m->image_grid, "image"), videos = grids_of(e, row, m->video_grid, "video");
    while ((int64_t)line->positions.n < row->n_ids) {
        int64_t i = (int64_t)line->positions.n, took = 1;
        bool video = m->video_token >= 0 && row->ids[i] == m->video_token && videos.sizes;
        bool image = m->image_token >= 0 && row->ids[i] == m->image_token && images.sizes;
        if (image || video) {
            took = place_grid(e, line, row, video ? &videos : &images, run_length(row, i), video, err);
        } else {
            int64_t at = next_position(line);
            if (!push(line, at, at, at, at + 1)) took = 0;
        }
        if (took > 0) continue;
        line->positions.n = before;
        return took < 0 ? TREADLE_INVALID_ARGUMENT : td_fail_memory(err, "positions", 0);
    }
    return TREADLE_OK;
}
