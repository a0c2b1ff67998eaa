/* media/features.c - running a recipe: samples to named tensors.
 *
 * One frame is taken through all frame steps before the next, so that what lies between samples and log-mel values is
 * one frame's worth, whatever the recording's length. */
#include "base/alloc.h"
#include "media/steps.h"
#include "tensor/half.h"

static bool is_skipped(const td_step *step, const td_feature_options *options) {
    return options && options->whole && step->row->flags & TD_STEP_CLIPS;
}

static treadle_status run_wave_steps(const td_recipe *recipe, const td_feature_options *options, td_wave *wave,
                                     treadle_error *err) {
    for (size_t i = 0; i < recipe->n_steps; i++) {
        const td_step *step = &recipe->steps[i];
        if (step->row->wave && !is_skipped(step, options)) TD_TRY(step->row->wave(step->params, wave, err));
    }
    return TREADLE_OK;
}

static void run_frame_steps(const td_recipe *recipe, td_frame *frame) {
    for (size_t i = 0; i < recipe->n_steps; i++) {
        const td_step *step = &recipe->steps[i];
        if (step->row->frame) step->row->frame(step->params, frame);
    }
}

static treadle_status run_matrix_steps(const td_recipe *recipe, const td_feature_options *options, td_frames *frames,
                                       treadle_error *err) {
    for (size_t i = 0; i < recipe->n_steps; i++) {
        const td_step *step = &recipe->steps[i];
        if (step->row->matrix && !is_skipped(step, options)) TD_TRY(step->row->matrix(step->params, frames, err));
    }
    return TREADLE_OK;
}

/* Cuts the waveform into frames and runs the frame steps. frames->x is allocated. */
static treadle_status make_frames(const td_recipe *recipe, const td_wave *wave, td_frames *frames, treadle_error *err) {
    const td_framing *framing = recipe->framing;
    int64_t n = td_framing_count(framing, wave->n), width = recipe->raw_width;
    if (n < framing->minimum)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "the audio is too short for a frame: expected at least %d samples at %d Hz, found %lld",
                       framing->span, recipe->rate_hz, (long long)wave->n);
    if (n > TD_FRAMES_MAX_VALUES / TD_MAX(width, 1))
        return td_fail(err, TREADLE_LIMIT, "the features have %lld frames of %lld values (at most %d values in all)",
                       (long long)n, (long long)width, TD_FRAMES_MAX_VALUES);
    size_t room = recipe->frame_room + recipe->spare_room;
    double *scratch = td_alloc_aligned(room * sizeof *scratch);
    frames->x = td_alloc_array((size_t)n * (size_t)width, sizeof(float));
    if (!scratch || !frames->x) {
        td_free_aligned(scratch);
        return td_fail_memory(err, "features", (size_t)n * (size_t)width * sizeof(float));
    }
    for (int64_t t = 0; t < n; t++) {
        td_frame frame = {.x = scratch, .spare = scratch + recipe->frame_room, .n = framing->length};
        float *out = frames->x + t * width;
        td_framing_cut(framing, wave, t, frame.x);
        run_frame_steps(recipe, &frame);
        for (int i = 0; i < frame.n; i++) out[i] = (float)frame.x[i];
    }
    td_free_aligned(scratch);
    frames->n = n;
    frames->n_valid = td_framing_valid(framing, wave, n);
    frames->width = (int)width;
    return TREADLE_OK;
}

/* --- tensors */
static treadle_status new_tensor(const td_feature_spec *spec, const td_shape *shape, td_tensor *out,
                                 treadle_error *err) {
    size_t bytes = 0;
    int64_t count = 0;
    if (!td_shape_count(shape, &count) || !td_dtype_bytes(spec->dtype, count, &bytes))
        return td_fail(err, TREADLE_LIMIT, "the features are too large");
    td_buffer *buffer = td_buffer_new(bytes);
    if (!buffer) return td_fail_memory(err, "features", bytes);
    td_tensor_view(out, spec->dtype, shape, buffer->data);
    out->buffer = buffer;
    return TREADLE_OK;
}

static void fill_values(const td_output *output, const td_frames *frames, float *out) {
    if (output->layout == TD_LAYOUT_FRAMES_FIRST || frames->width == 1) {
        memcpy(out, frames->x, (size_t)frames->n * (size_t)frames->width * sizeof *out);
        return;
    }
    enum { BLOCK = 16 }; /* frames at a time: whole cache lines on the writing side */
    for (int64_t t0 = 0; t0 < frames->n; t0 += BLOCK) {
        int64_t end = TD_MIN(t0 + BLOCK, frames->n);
        for (int i = 0; i < frames->width; i++)
            for (int64_t t = t0; t < end; t++) out[i * frames->n + t] = frames->x[t * frames->width + i];
    }
}

static treadle_status make_tensor(const td_recipe *recipe, size_t index, const td_frames *frames, td_tensor *out,
                                  treadle_error *err) {
    const td_feature_spec *spec = &recipe->specs[index];
    const td_output *output = &recipe->outputs[index];
    td_shape shape = spec->shape;
    if (spec->kind == TD_FEATURE_COUNT) {
        int64_t count = frames->n_valid;
        for (int i = 0; i < 2; i++) count = (count + output->divide[i] - 1) / output->divide[i];
        TD_TRY(new_tensor(spec, &shape, out, err));
        *(int64_t *)out->data = count;
        return TREADLE_OK;
    }
    bool bins_first = output->layout == TD_LAYOUT_BINS_FIRST;
    shape.dims[spec->kind == TD_FEATURE_VALUES && recipe->framing && bins_first ? 2 : 1] = frames->n;
    TD_TRY(new_tensor(spec, &shape, out, err));
    if (spec->kind == TD_FEATURE_VALUES) fill_values(output, frames, out->data);
    else
        for (int64_t t = 0; t < frames->n; t++) td_store_i64(spec->dtype, out->data, t, t < frames->n_valid);
    return TREADLE_OK;
}

static treadle_status make_tensors(const td_recipe *recipe, const td_frames *frames, td_features *out,
                                   treadle_error *err) {
    out->specs = recipe->specs;
    out->tensors = td_alloc_zero(recipe->n_outputs, sizeof *out->tensors);
    if (!out->tensors) return td_fail_memory(err, "features", 0);
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < recipe->n_outputs && status == TREADLE_OK; i++) {
        status = make_tensor(recipe, i, frames, &out->tensors[i], err);
        if (status == TREADLE_OK) out->n++;
    }
    if (status != TREADLE_OK) td_features_free(out);
    return status;
}

void td_features_free(td_features *features) {
    for (size_t i = 0; i < features->n; i++) td_buffer_release(features->tensors[i].buffer);
    td_free(features->tensors);
    *features = (td_features){0};
}

treadle_status td_recipe_run(const td_recipe *recipe, const float *samples, int64_t n,
                             const td_feature_options *options, td_features *out, treadle_error *err) {
    if (n <= 0) return td_fail(err, TREADLE_INVALID_ARGUMENT, "the audio has no samples");
    if (n > TD_AUDIO_MAX_SAMPLES)
        return td_fail(err, TREADLE_LIMIT, "expected at most %d samples, found %lld", TD_AUDIO_MAX_SAMPLES,
                       (long long)n);
    td_features features = {0};
    td_frames frames = {0};
    td_wave wave = {td_alloc_array((size_t)n, sizeof(float)), n, n, 0};
    if (!wave.x) return td_fail_memory(err, "samples", (size_t)n * sizeof(float));
    memcpy(wave.x, samples, (size_t)n * sizeof(float));
    treadle_status status = run_wave_steps(recipe, options, &wave, err);
    if (status == TREADLE_OK) {
        if (recipe->framing) status = make_frames(recipe, &wave, &frames, err);
        else {
            frames = (td_frames){wave.x, wave.n, wave.n_valid, 1};
            wave.x = NULL;
        }
    }
    td_free(wave.x);
    if (status == TREADLE_OK) status = run_matrix_steps(recipe, options, &frames, err);
    if (status == TREADLE_OK) status = make_tensors(recipe, &frames, &features, err);
    td_free(frames.x);
    if (status == TREADLE_OK) *out = features;
    return status;
}
