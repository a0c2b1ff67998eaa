/* One model of each kind under eight threads, each with a generator of its own, on kernels that share the pool: images
 * and sound beside a decoder, an encoder-decoder, transcription. The tokens are those that a generator alone gives, by
 * somebody else's word (examples/pipelines, golden.json; a tiny checkpoint's own). */
/* labels: threads */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "support/test.h"
#include "treadle/compile.h"
#include "treadle/treadle.h"

enum { N_THREADS = 8, N_ROUNDS = 3, MAX_IDS = 64, MAX_VALUES = 512 };

static void open_model(const char *path, treadle_model **out) {
    treadle_model_options options;
    treadle_error err = {0};
    treadle_model_options_init(&options);
    options.n_threads = 2;
    CHECK_OK(treadle_model_open(path, &options, out, &err), &err);
}

static size_t read_ids(const td_json *list, int32_t *out) {
    size_t n = 0;
    for (const td_json *v = list ? list->first : NULL; v && n < MAX_IDS; v = v->next) out[n++] = (int32_t)v->as_int;
    return n;
}

static bool is_these(treadle_ids got, const td_json *list) {
    int32_t want[MAX_IDS];
    size_t n = read_ids(list, want);
    return got.n == n && n > 0 && memcmp(got.ids, want, n * sizeof *want) == 0;
}

/* --- generators */

typedef struct folder {
    treadle_model *model;
    td_arena arena;
    char *text;
    td_json *cases; /* [{"prompt", "tokens", "tensors": {name: {"dtype", "shape", "data"}}}] */
} folder;

static void open_folder(const char *name, folder *f) {
    char path[256];
    size_t n;
    treadle_error err = {0};
    snprintf(path, sizeof path, "examples/pipelines/%s", name);
    open_model(td_test_source(path), &f->model);
    snprintf(path, sizeof path, "examples/pipelines/%s/golden.json", name);
    td_arena_init(&f->arena);
    f->text = td_test_read(td_test_source(path), &n);
    CHECK_OK(td_json_parse((td_str){f->text, n}, NULL, &f->arena, &f->cases, &err), &err);
}

static void close_folder(folder *f) {
    treadle_model_close(f->model);
    td_arena_free(&f->arena);
    free(f->text);
}

static bool set_tensor(treadle_generator *g, const td_json *tensor) {
    float floats[MAX_VALUES];
    int64_t ints[MAX_VALUES];
    bool is_int = td_str_is(td_json_string_or(tensor, "dtype", ""), "int64");
    treadle_tensor t = {.dtype = is_int ? TREADLE_DTYPE_INT64 : TREADLE_DTYPE_FLOAT,
                        .data = is_int ? (void *)ints : floats};
    char name[64];
    size_t n = 0;
    snprintf(name, sizeof name, "%.*s", TD_STR_ARGS(tensor->key));
    for (const td_json *v = td_json_get(tensor, "shape")->first; v; v = v->next) t.dims[t.rank++] = v->as_int;
    for (const td_json *v = td_json_get(tensor, "data")->first; v && n < MAX_VALUES; v = v->next, n++) {
        floats[n] = (float)v->as_double;
        ints[n] = v->as_int;
    }
    return treadle_generator_set_tensor(g, name, &t, NULL) == TREADLE_OK;
}

static bool generate(const folder *f, const td_json *request) {
    int32_t ids[MAX_IDS];
    treadle_ids prompt = {ids, read_ids(td_json_get(request, "prompt"), ids)};
    const td_json *tensors = td_json_get(request, "tensors"), *want = td_json_get(request, "tokens");
    treadle_generator *g = NULL;
    bool ok = treadle_generator_new(f->model, NULL, &g, NULL) == TREADLE_OK;
    for (const td_json *t = tensors ? tensors->first : NULL; ok && t; t = t->next) ok = set_tensor(g, t);
    ok = ok && treadle_generator_append(g, &prompt, 1, NULL) == TREADLE_OK &&
         treadle_generator_run(g, want->n, NULL, NULL, NULL) == TREADLE_OK &&
         is_these(treadle_generator_new_ids(g, 0), want);
    treadle_generator_free(g);
    return ok;
}

/* --- transcription */

typedef struct recording {
    treadle_model *model;
    treadle_audio *audio;
    const td_json *want;
} recording;

static bool transcribe(const recording *r) {
    treadle_transcribe_options options;
    treadle_transcript *transcript = NULL;
    treadle_transcribe_options_init(&options);
    options.language = "en";
    options.timestamps = 0;
    options.max_new_tokens = r->want->n;
    bool ok = treadle_transcribe(r->model, r->audio, &options, &transcript, NULL) == TREADLE_OK &&
              is_these(treadle_transcript_ids(transcript), r->want);
    treadle_transcript_free(transcript);
    return ok;
}

/* --- threads */

typedef struct task {
    const folder *folder;
    const recording *recording;
    size_t index;
    int n_wrong;
} task;

static void *work(void *given) {
    task *t = given;
    for (size_t i = 0; i < N_ROUNDS; i++)
        t->n_wrong += t->folder
                          ? !generate(t->folder, td_json_at(t->folder->cases, (t->index + i) % t->folder->cases->n))
                          : !transcribe(t->recording);
    return NULL;
}

static void run_threads(const folder *f, const recording *r) {
    pthread_t threads[N_THREADS];
    task tasks[N_THREADS];
    for (size_t i = 0; i < N_THREADS; i++) {
        tasks[i] = (task){f, r, i, 0};
        REQUIRE(pthread_create(&threads[i], NULL, work, &tasks[i]) == 0);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_INT(tasks[i].n_wrong, 0);
    }
}

static void check_folder(const char *name) {
    folder f;
    open_folder(name, &f);
    run_threads(&f, NULL);
    close_folder(&f);
}

TEST(images_beside_a_decoder) { check_folder("2-vision-language"); }
TEST(cross_caches) { check_folder("3-encoder-decoder"); }
TEST(images_and_sound) { check_folder("4-multimodal"); }

TEST(transcripts) {
    char path[4400];
    size_t n;
    treadle_error err = {0};
    td_arena arena;
    td_json *golden;
    recording r;
    const char *base = td_test_unpacked("tiny-checkpoints");
    td_arena_init(&arena);
    snprintf(path, sizeof path, "%s/whisper", base);
    CHECK_OK(treadle_compile(path, td_test_temp("speech"), NULL, &err), &err);
    snprintf(path, sizeof path, "%s/whisper/audio0.wav", base);
    CHECK_OK(treadle_audio_open_file(path, &r.audio, &err), &err);
    snprintf(path, sizeof path, "%s/whisper/golden.json", base);
    char *text = td_test_read(path, &n);
    CHECK_OK(td_json_parse((td_str){text, n}, NULL, &arena, &golden, &err), &err);
    r.want =
        td_json_get(td_json_at(td_json_get(golden, "shipped_generation"), 0), "ids"); /* en, transcribe, no times */
    open_model(td_test_temp("speech"), &r.model);
    run_threads(NULL, &r);
    treadle_model_close(r.model);
    treadle_audio_free(r.audio);
    td_arena_free(&arena);
    free(text);
}
