/* tools/treadle/cmd_drive.c - `treadle drive`: scripted use. One JSON request a line on standard input, one JSON answer a line on
 * standard output. The model is opened at the first request that needs it; a failed request leaves the next one usable.
 *
 *   {"op": "generate", "prompts": [[ids], ...], "options": {...}, "logits_to": PREFIX, "prompt_logits_to": PREFIX}
 *       -> {"tokens": [[ids], ...], "finish": [...], "text": [...], "runs": {session: count}}
 *   {"op": "timeline", "steps": [{"append": ids} | {"generate": n} | {"rewind": length} | {"fork": true}, ...], "logits_to": PREFIX}
 *       -> {"steps": [{} | {"tokens": ids}, ...]}; {"generate": n, "cancel_after_us": t} goes on after a cancel t microseconds into it,
 *          which {"cancelled": true} says
 *   {"op": "process", "logits": FILE.npy, "sequence": ids, "prompt_length": n, "options": {...}, "to": FILE.npy} -> {"kept": n}
 *   {"op": "stream", "prompts": ..., "options": ...} -> {"pieces": ["text", ...]}
 *   {"op": "transduce", "tensors": ..., "continue": bool} -> {"tokens": [[ids]], "frames": [[...]], "runs": {...}}
 *   {"op": "embed", "prompts": ..., "to": FILE.npy} -> {}: float32 [rows, dim]
 *   {"op": "encode", "prompts": ..., "to": {OUTPUT: FILE.npy}, "continue": bool} -> {}; prompts only where ids go in
 * Each but process takes "tensors": {NAME: FILE.npy}, a timeline's appends too.
 *
 * Arrays go through .npy files: PREFIX.i.npy is row i's logits, float32 [steps, vocab]. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/time.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct drive_args {
    td_model_args model;
} drive_args;

static const td_option drive_options[] = {
    MODEL_OPTIONS(drive_args),
};

/* One request being answered. */
typedef struct drive {
    const drive_args *args;
    const char *path;
    treadle_model *model;      /* NULL: not opened yet */
    size_t n_tensor_rows;      /* dimension 0 of the latest tensor with several dimensions: rows of sound */
    treadle_generator *stream; /* of the latest transduce, which the next one may continue */
    td_arena keep;             /* of the model's options */
    td_arena arena;            /* of this request */
    td_json *request;
    td_json_writer out;
    treadle_error error;
} drive;

static treadle_status fail(drive *d, const char *format, ...) TD_PRINTF(2, 3);
static treadle_status fail(drive *d, const char *format, ...) {
    va_list args;

    d->error = (treadle_error){.code = TREADLE_INVALID_ARGUMENT};
    va_start(args, format);
    vsnprintf(d->error.message, sizeof d->error.message, format, args);
    va_end(args);
    return TREADLE_INVALID_ARGUMENT;
}

static treadle_status open_model(drive *d) {
    td_model_source source;

    if (d->model) return TREADLE_OK;
    if (td_model_source_get(&d->args->model, d->path, &d->keep, &source) != EXIT_OK)
        return fail(d, "the model cannot be opened; standard error has the reason");
    return treadle_model_open(source.path, &source.options, &d->model, &d->error);
}

/* --- reading requests */
/* A list of ids; a single one counts as a list of one. */
static treadle_status read_ids(drive *d, const td_json *list, const char *what, treadle_ids *out) {
    size_t n = 0;

    if (list && list->kind == TD_JSON_INT && list->as_int >= INT32_MIN && list->as_int <= INT32_MAX) {
        int32_t *one = TD_ARENA_NEW(&d->arena, int32_t);
        if (!one) return fail(d, "out of memory");
        *one = (int32_t)list->as_int;
        *out = (treadle_ids){one, 1};
        return TREADLE_OK;
    }
    if (!list || list->kind != TD_JSON_ARRAY) return fail(d, "%s: expected a list of ids", what);
    int32_t *ids = TD_ARENA_ARRAY(&d->arena, int32_t, list->n ? list->n : 1);
    if (!ids) return fail(d, "out of memory");
    for (const td_json *i = list->first; i; i = i->next) {
        if (i->kind != TD_JSON_INT || i->as_int < INT32_MIN || i->as_int > INT32_MAX)
            return fail(d, "%s: expected a list of ids", what);
        ids[n++] = (int32_t)i->as_int;
    }
    *out = (treadle_ids){ids, n};
    return TREADLE_OK;
}

static treadle_status read_prompts(drive *d, treadle_ids **out, size_t *out_n) {
    const td_json *prompts = td_json_get(d->request, "prompts");

    if (!prompts || prompts->kind != TD_JSON_ARRAY || prompts->n == 0)
        return fail(d, "prompts: expected a list of lists of ids");
    treadle_ids *rows = TD_ARENA_ARRAY(&d->arena, treadle_ids, prompts->n);
    if (!rows) return fail(d, "out of memory");
    size_t n = 0;
    for (const td_json *p = prompts->first; p; p = p->next) {
        treadle_status status = read_ids(d, p, "prompts", &rows[n++]);
        if (status != TREADLE_OK) return status;
    }
    *out = rows;
    *out_n = n;
    return TREADLE_OK;
}

/* NULL: not given. */
static char *file_name(drive *d, const char *key) {
    td_str name = td_json_string_or(d->request, key, "");
    return name.n ? td_arena_strndup(&d->arena, name.p, name.n) : NULL;
}

/* A text that the C API can take. */
static bool is_text(const td_json *value) {
    return value->kind == TD_JSON_STRING && !memchr(value->string.p, 0, value->string.n);
}

static treadle_status check_file_names(drive *d) {
    static const char *const keys[] = {"logits", "logits_to", "prompt_logits_to"};

    for (size_t i = 0; i < TD_COUNT(keys); i++) {
        const td_json *name = td_json_get(d->request, keys[i]);
        if (name && (!is_text(name) || !name->string.n)) return fail(d, "%s: expected a file name", keys[i]);
    }
    return TREADLE_OK;
}

/* Names of numeric options, and where they go. */
static const struct {
    const char *name;
    bool real;
    size_t offset;
} numbers[] = {
    {"max_new_tokens", false, offsetof(treadle_generate_options, max_new_tokens)},
    {"max_length", false, offsetof(treadle_generate_options, max_length)},
    {"min_length", false, offsetof(treadle_generate_options, min_length)},
    {"top_k", false, offsetof(treadle_generate_options, top_k)},
    {"no_repeat_ngram_size", false, offsetof(treadle_generate_options, no_repeat_ngram_size)},
    {"seed", false, offsetof(treadle_generate_options, seed)},
    {"max_symbols_per_step", false, offsetof(treadle_generate_options, max_symbols_per_step)},
    {"num_beams", false, offsetof(treadle_generate_options, num_beams)},
    {"num_return_sequences", false, offsetof(treadle_generate_options, num_return_sequences)},
    {"length_penalty", true, offsetof(treadle_generate_options, length_penalty)},
    {"temperature", true, offsetof(treadle_generate_options, temperature)},
    {"top_p", true, offsetof(treadle_generate_options, top_p)},
    {"min_p", true, offsetof(treadle_generate_options, min_p)},
    {"repetition_penalty", true, offsetof(treadle_generate_options, repetition_penalty)},
};

static treadle_status read_number(drive *d, const td_json *value, treadle_generate_options *o, bool *known) {
    *known = false;
    for (size_t i = 0; i < TD_COUNT(numbers); i++) {
        if (!td_str_is(value->key, numbers[i].name)) continue;
        *known = true;
        void *target = (char *)o + numbers[i].offset;
        bool fits = value->kind == TD_JSON_INT || (numbers[i].real && value->kind == TD_JSON_DOUBLE);
        if (!fits)
            return fail(d, "options.%s: expected a %s", numbers[i].name, numbers[i].real ? "number" : "whole number");
        if (numbers[i].offset == offsetof(treadle_generate_options, length_penalty)) o->has_length_penalty = true;
        if (numbers[i].real) *(double *)target = value->as_double;
        else *(int64_t *)target = value->as_int;
    }
    return TREADLE_OK;
}

static treadle_status read_stop(drive *d, const td_json *list, treadle_generate_options *o) {
    if (list->kind != TD_JSON_ARRAY) return fail(d, "options.stop: expected a list of strings");
    const char **stop = TD_ARENA_ARRAY(&d->arena, const char *, list->n + 1u);
    size_t n = 0;
    for (const td_json *s = list->first; stop && s; s = s->next) {
        if (!is_text(s)) return fail(d, "options.stop: expected a list of strings without NUL characters");
        stop[n] = td_arena_strndup(&d->arena, s->string.p, s->string.n);
        if (!stop[n++]) return fail(d, "out of memory");
    }
    if (!stop) return fail(d, "out of memory");
    o->stop = stop;
    o->n_stop = (int64_t)n;
    return TREADLE_OK;
}

static treadle_status read_options(drive *d, treadle_generate_options *o) {
    const td_json *options = td_json_get(d->request, "options");
    treadle_status status = TREADLE_OK;
    treadle_ids eos;
    bool known;

    treadle_generate_options_init(o);
    o->do_sample = 0;
    if (options && options->kind != TD_JSON_OBJECT) return fail(d, "options: expected an object");
    for (const td_json *v = options ? options->first : NULL; v && status == TREADLE_OK; v = v->next) {
        status = read_number(d, v, o, &known);
        if (known || status != TREADLE_OK) continue;
        if (td_str_is(v->key, "do_sample") && v->kind == TD_JSON_BOOL) {
            o->do_sample = v->as_bool;
        } else if (td_str_is(v->key, "eos")) {
            status = read_ids(d, v, "options.eos", &eos);
            if (status == TREADLE_OK) {
                o->eos = eos.ids;
                o->n_eos = (int64_t)eos.n;
            }
        } else if (td_str_is(v->key, "decoder_start")) {
            status = read_ids(d, v, "options.decoder_start", &eos);
            if (status == TREADLE_OK) {
                o->decoder_start = eos.ids;
                o->n_decoder_start = (int64_t)eos.n;
            }
        } else if (td_str_is(v->key, "early_stopping") && v->kind == TD_JSON_BOOL) {
            o->early_stopping = v->as_bool;
        } else if (td_str_is(v->key, "early_stopping") && v->kind == TD_JSON_STRING && td_str_is(v->string, "never")) {
            o->early_stopping = 2;
        } else if (td_str_is(v->key, "images_per_row")) {
            continue; /* read with the tensors */
        } else if (td_str_is(v->key, "stop")) {
            status = read_stop(d, v, o);
        } else {
            status = fail(d, "options.%.*s: not an option that this version knows", TD_STR_ARGS(v->key));
        }
    }
    return status;
}

/* --- answers */
static void write_ids(drive *d, treadle_ids ids) {
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < ids.n; i++) td_json_write_int(&d->out, ids.ids[i]);
    td_json_end_array(&d->out);
}

static treadle_status save_logits(drive *d, const char *prefix, size_t index, const treadle_tensor *logits) {
    char *path = td_arena_printf(&d->arena, "%s.%zu.npy", prefix, index);

    return path ? treadle_tensor_write_npy(path, logits, &d->error) : fail(d, "out of memory");
}

/* Beam search: all sequences of all rows, and their scores. */
static void write_sequences(drive *d, const treadle_generator *g, size_t n_rows) {
    double score;

    td_json_key(&d->out, "sequences");
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < n_rows; i++) {
        td_json_begin_array(&d->out);
        for (size_t k = 0; k < treadle_generator_n_sequences(g, i); k++)
            write_ids(d, treadle_generator_sequence(g, i, k, &score));
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

static void write_runs(drive *d, const treadle_generator *g) {
    treadle_model_info info = {.struct_size = sizeof info};

    treadle_model_get_info(d->model, &info);
    td_json_key(&d->out, "runs");
    td_json_begin_object(&d->out);
    for (int32_t i = 0; i < info.n_sessions; i++) {
        const char *name = "";
        int64_t runs = treadle_generator_runs(g, (size_t)i, &name);
        td_json_key(&d->out, name);
        td_json_write_int(&d->out, runs);
    }
    td_json_end_object(&d->out);
}

static void write_results(drive *d, const treadle_generator *g, size_t n_rows) {
    td_json_begin_object(&d->out);
    if (td_json_get(td_json_get(d->request, "options"), "num_beams")) write_sequences(d, g, n_rows);
    td_json_key(&d->out, "tokens");
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < n_rows; i++) write_ids(d, treadle_generator_new_ids(g, i));
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
    write_runs(d, g);
    td_json_end_object(&d->out);
}

/* --- tensors of a request */
static treadle_status give_images(drive *d, treadle_generator *g) {
    const td_json *list = td_json_get(td_json_get(d->request, "options"), "images_per_row");
    size_t n = 0;

    if (!list) return TREADLE_OK;
    if (list->kind != TD_JSON_ARRAY) return fail(d, "options.images_per_row: expected a list of whole numbers");
    int64_t *images = TD_ARENA_ARRAY(&d->arena, int64_t, list->n + 1u);
    if (!images) return fail(d, "out of memory");
    for (const td_json *i = list->first; i; i = i->next) {
        if (i->kind != TD_JSON_INT) return fail(d, "options.images_per_row: expected a list of whole numbers");
        images[n++] = i->as_int;
    }
    return treadle_generator_set_images_per_row(g, images, n, &d->error);
}

/* {NAME: FILE.npy} beside an append or in the request itself. */
static treadle_status give_tensors(drive *d, treadle_generator *g, const td_json *tensors) {
    treadle_status status = TREADLE_OK;

    if (!tensors) return TREADLE_OK;
    if (tensors->kind != TD_JSON_OBJECT) return fail(d, "tensors: expected an object of names and files");
    for (const td_json *t = tensors->first; t && status == TREADLE_OK; t = t->next) {
        treadle_value *value = NULL;
        treadle_tensor tensor;
        const char *name = td_arena_strndup(&d->arena, t->key.p, t->key.n);
        const char *file = is_text(t) ? td_arena_strndup(&d->arena, t->string.p, t->string.n) : NULL;
        if (!name || !file) return fail(d, "tensors: expected the name of a file for \"%.*s\"", TD_STR_ARGS(t->key));
        status = treadle_value_read_npy(file, &value, &d->error);
        if (status == TREADLE_OK) status = treadle_value_tensor(value, &tensor, &d->error);
        if (status == TREADLE_OK && tensor.rank > 1 && tensor.dims[0] > 0) d->n_tensor_rows = (size_t)tensor.dims[0];
        if (status == TREADLE_OK) status = treadle_generator_set_tensor(g, name, &tensor, &d->error);
        treadle_value_release(value);
    }
    return status == TREADLE_OK ? give_images(d, g) : status;
}

static treadle_status generate_with(drive *d, treadle_generator *g, const treadle_ids *rows, size_t n_rows) {
    const char *logits_to = file_name(d, "logits_to"), *prompt_to = file_name(d, "prompt_logits_to");
    treadle_status status = give_tensors(d, g, td_json_get(d->request, "tensors"));
    treadle_tensor logits;

    if (status == TREADLE_OK) status = treadle_generator_append(g, rows, n_rows, &d->error);

    if (status == TREADLE_OK && prompt_to) status = treadle_generator_prefill(g, &d->error);
    for (size_t i = 0; prompt_to && i < n_rows && status == TREADLE_OK; i++) {
        status = treadle_generator_prompt_logits(g, i, &logits, &d->error);
        if (status == TREADLE_OK) status = save_logits(d, prompt_to, i, &logits);
    }
    if (status == TREADLE_OK) status = treadle_generator_run(g, -1, NULL, NULL, &d->error);
    for (size_t i = 0; logits_to && i < n_rows && status == TREADLE_OK; i++) {
        status = treadle_generator_step_logits(g, i, &logits, &d->error);
        if (status == TREADLE_OK) status = save_logits(d, logits_to, i, &logits);
    }
    if (status == TREADLE_OK) write_results(d, g, n_rows);
    return status;
}

static treadle_status make_generator(drive *d, treadle_generator **out) {
    treadle_generate_options options;
    treadle_status status = read_options(d, &options);

    if (status == TREADLE_OK) status = open_model(d);
    options.keep_logits = td_json_get(d->request, "logits_to") != NULL;
    options.prompt_logits = td_json_get(d->request, "prompt_logits_to") != NULL;
    return status == TREADLE_OK ? treadle_generator_new(d->model, &options, out, &d->error) : status;
}

static treadle_status op_generate(drive *d) {
    treadle_generator *g = NULL;
    treadle_ids *rows;
    size_t n_rows;
    treadle_status status = read_prompts(d, &rows, &n_rows);

    if (status == TREADLE_OK) status = make_generator(d, &g);
    if (status == TREADLE_OK) status = generate_with(d, g, rows, n_rows);
    treadle_generator_free(g);
    return status;
}

/* --- timeline */
/* The timeline goes on in a copy; what becomes of the original must not matter. */
static treadle_status fork_timeline(drive *d, treadle_generator **g) {
    treadle_generator *copy = NULL;
    treadle_status status = treadle_generator_fork(*g, &copy, &d->error);

    if (status == TREADLE_OK && treadle_generator_n_rows(*g))
        status = treadle_generator_run(*g, 1, NULL, NULL, &d->error);
    treadle_generator_free(status == TREADLE_OK ? *g : copy);
    if (status == TREADLE_OK) *g = copy;
    return status;
}

typedef struct canceller {
    treadle_generator *g;
    uint64_t after_ns;
    atomic_bool ready;
    _Atomic uint64_t begin_ns; /* 0: not yet */
} canceller;

/* Busy: to sleep takes longer than a small model's whole run. */
static void *cancel_later(void *arg) {
    canceller *c = arg;
    uint64_t begin;

    atomic_store(&c->ready, true);
    while ((begin = atomic_load(&c->begin_ns)) == 0) sched_yield();
    while (td_time_ns() - begin < c->after_ns) {}
    treadle_generator_cancel(c->g);
    return NULL;
}

/* n new tokens in all. After a cancel, which may come before or after any of them, the run is taken up again. */
static treadle_status run_cancelled(drive *d, treadle_generator *g, int64_t n, int64_t after_us) {
    canceller c = {.g = g, .after_ns = (uint64_t)after_us * 1000};
    size_t before = treadle_generator_n_rows(g) ? treadle_generator_new_ids(g, 0).n : 0;
    pthread_t thread;

    if (pthread_create(&thread, NULL, cancel_later, &c) != 0) return fail(d, "could not start a thread");
    while (!atomic_load(&c.ready)) sched_yield();
    atomic_store(&c.begin_ns, td_time_ns());
    treadle_status status = treadle_generator_run(g, n, NULL, NULL, &d->error);
    pthread_join(thread, NULL);
    if (status != TREADLE_OK || treadle_generator_finish(g, 0) != TREADLE_FINISH_CANCELLED) return status;
    td_json_key(&d->out, "cancelled");
    td_json_write_bool(&d->out, true);
    return treadle_generator_run(g, n - (int64_t)(treadle_generator_new_ids(g, 0).n - before), NULL, NULL, &d->error);
}

static treadle_status timeline_step(drive *d, treadle_generator **at, const td_json *step, const char *logits_to,
                                    size_t *k) {
    treadle_generator *g = *at;
    const td_json *append = td_json_get(step, "append"), *count = td_json_get(step, "generate"),
                  *rewind = td_json_get(step, "rewind"), *fork = td_json_get(step, "fork");
    treadle_status status = TREADLE_OK;
    treadle_tensor logits;
    treadle_ids ids;

    td_json_begin_object(&d->out);
    if (append) {
        status = read_ids(d, append, "append", &ids);
        if (status == TREADLE_OK) status = give_tensors(d, g, td_json_get(step, "tensors"));
        if (status == TREADLE_OK) status = treadle_generator_append(g, &ids, 1, &d->error);
    } else if (count && count->kind == TD_JSON_INT && count->as_int >= 0) {
        size_t before = treadle_generator_n_rows(g) ? treadle_generator_new_ids(g, 0).n : 0;
        const td_json *after = td_json_get(step, "cancel_after_us");
        status = after && after->kind == TD_JSON_INT ? run_cancelled(d, g, count->as_int, after->as_int)
                                                     : treadle_generator_run(g, count->as_int, NULL, NULL, &d->error);
        if (status == TREADLE_OK && logits_to) {
            status = treadle_generator_step_logits(g, 0, &logits, &d->error);
            if (status == TREADLE_OK) status = save_logits(d, logits_to, (*k)++, &logits);
        }
        if (status == TREADLE_OK) {
            ids = treadle_generator_new_ids(g, 0);
            td_json_key(&d->out, "tokens");
            write_ids(d, (treadle_ids){ids.ids + before, ids.n - before});
        }
    } else if (rewind && rewind->kind == TD_JSON_INT && rewind->as_int >= 0) {
        status = treadle_generator_rewind(g, 0, (size_t)rewind->as_int, &d->error);
    } else if (fork) {
        status = fork_timeline(d, at);
    } else {
        status = fail(d, "steps: expected append, generate, rewind or fork");
    }
    td_json_end_object(&d->out);
    return status;
}

static treadle_status op_timeline(drive *d) {
    const td_json *steps = td_json_get(d->request, "steps");
    const char *logits_to = file_name(d, "logits_to");
    treadle_generator *g = NULL;
    size_t k = 0;

    if (!steps || steps->kind != TD_JSON_ARRAY) return fail(d, "steps: expected a list");
    treadle_status status = make_generator(d, &g);
    if (status == TREADLE_OK) status = give_tensors(d, g, td_json_get(d->request, "tensors"));
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "steps");
    td_json_begin_array(&d->out);
    for (const td_json *s = steps->first; s && status == TREADLE_OK; s = s->next)
        status = timeline_step(d, &g, s, logits_to, &k);
    td_json_end_array(&d->out);
    td_json_end_object(&d->out);
    treadle_generator_free(g);
    return status;
}

/* --- process */
static treadle_status op_process(drive *d) {
    const char *from = file_name(d, "logits"), *to = file_name(d, "to");
    treadle_generate_options options;
    treadle_value *value = NULL;
    treadle_tensor logits;
    treadle_ids sequence;
    int64_t kept = 0, count;
    size_t bytes;

    if (!from || !to) return fail(d, "logits and to: expected file names");
    treadle_status status = read_options(d, &options);
    options.do_sample = 1;
    if (status == TREADLE_OK) status = read_ids(d, td_json_get(d->request, "sequence"), "sequence", &sequence);
    if (status == TREADLE_OK) status = treadle_value_read_npy(from, &value, &d->error);
    if (status == TREADLE_OK) status = treadle_value_tensor(value, &logits, &d->error);
    if (status == TREADLE_OK) status = treadle_tensor_size(&logits, &count, &bytes, &d->error);
    if (status == TREADLE_OK &&
        (logits.dtype != TREADLE_DTYPE_FLOAT || logits.rank < 1 || count != logits.dims[logits.rank - 1]))
        status = fail(d, "logits: expected float32 of one row");
    float *probabilities = status == TREADLE_OK ? TD_ARENA_ARRAY(&d->arena, float, (size_t)count + 1) : NULL;
    if (status == TREADLE_OK && !probabilities) status = fail(d, "out of memory");
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

/* --- stream */
static bool write_piece(void *ctx, const treadle_token *token) {
    drive *d = ctx;

    if (token->piece_bytes) td_json_write_string(&d->out, (td_str){token->piece, token->piece_bytes});
    return true;
}

static treadle_status op_stream(drive *d) {
    treadle_generator *g = NULL;
    treadle_ids *rows;
    size_t n_rows;
    treadle_status status = read_prompts(d, &rows, &n_rows);

    if (status == TREADLE_OK && n_rows != 1) status = fail(d, "stream takes one prompt");
    if (status == TREADLE_OK) status = make_generator(d, &g);
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

/* --- transduce */
/* A new stream, or with {"continue": true} that of the request before: the next chunk, whose state goes on. */
static treadle_status open_stream(drive *d) {
    if (td_json_bool_or(d->request, "continue", false))
        return d->stream ? TREADLE_OK : fail(d, "continue: there is no stream to go on with");
    treadle_generator_free(d->stream);
    d->stream = NULL;
    return make_generator(d, &d->stream);
}

static treadle_status op_transduce(drive *d) {
    treadle_status status = open_stream(d);

    d->n_tensor_rows = 1;
    if (status == TREADLE_OK) status = give_tensors(d, d->stream, td_json_get(d->request, "tensors"));
    size_t n_rows = d->n_tensor_rows;
    const treadle_ids *nothing = TD_ARENA_ARRAY(&d->arena, treadle_ids, n_rows);
    if (!nothing) return fail(d, "out of memory");
    if (status == TREADLE_OK) status = treadle_generator_append(d->stream, nothing, n_rows, &d->error);
    if (status == TREADLE_OK) status = treadle_generator_run(d->stream, -1, NULL, NULL, &d->error);
    if (status != TREADLE_OK) return status;
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "tokens");
    td_json_begin_array(&d->out);
    for (size_t r = 0; r < n_rows; r++) write_ids(d, treadle_generator_new_ids(d->stream, r));
    td_json_end_array(&d->out);
    td_json_key(&d->out, "frames");
    td_json_begin_array(&d->out);
    for (size_t r = 0; r < n_rows; r++) {
        size_t n = 0;
        const int64_t *frames = treadle_generator_new_frames(d->stream, r, &n);
        td_json_begin_array(&d->out);
        for (size_t i = 0; i < n; i++) td_json_write_int(&d->out, frames[i]);
        td_json_end_array(&d->out);
    }
    td_json_end_array(&d->out);
    write_runs(d, d->stream);
    td_json_end_object(&d->out);
    return TREADLE_OK;
}

/* --- embed, encode */
/* One pass over every prompt, or over tensors alone. */
static treadle_status encode_rows(drive *d, size_t *n_rows) {
    static treadle_ids nothing;
    treadle_ids *rows = &nothing;
    treadle_status status = TREADLE_OK;

    *n_rows = 1;
    if (td_json_get(d->request, "prompts")) status = read_prompts(d, &rows, n_rows);
    if (status == TREADLE_OK) status = open_stream(d);
    if (status == TREADLE_OK) status = give_tensors(d, d->stream, td_json_get(d->request, "tensors"));
    if (status == TREADLE_OK) status = treadle_generator_append(d->stream, rows, *n_rows, &d->error);
    return status == TREADLE_OK ? treadle_generator_prefill(d->stream, &d->error) : status;
}

/* The vectors of all rows, one after the other. */
static treadle_status save_vectors(drive *d, treadle_generator *g, size_t n_rows, const char *to) {
    treadle_tensor vector = {0};
    float *all = NULL;

    for (size_t r = 0; r < n_rows; r++) {
        treadle_status status = treadle_generator_embedding(g, r, &vector, &d->error);
        if (status != TREADLE_OK) return status;
        if (!all) all = TD_ARENA_ARRAY(&d->arena, float, n_rows *(size_t)vector.dims[0]);
        if (!all) return fail(d, "out of memory");
        memcpy(all + r * (size_t)vector.dims[0], vector.data, (size_t)vector.dims[0] * sizeof *all);
    }
    treadle_tensor out = {
        .dtype = TREADLE_DTYPE_FLOAT, .rank = 2, .dims = {(int64_t)n_rows, vector.dims[0]}, .data = all};
    return treadle_tensor_write_npy(to, &out, &d->error);
}

static treadle_status op_embed(drive *d) {
    const char *to = file_name(d, "to");
    size_t n_rows = 0;

    if (!to) return fail(d, "to: expected a file name");
    treadle_status status = encode_rows(d, &n_rows);
    if (status == TREADLE_OK) status = save_vectors(d, d->stream, n_rows, to);
    if (status != TREADLE_OK) return status;
    td_json_begin_object(&d->out);
    td_json_end_object(&d->out);
    return TREADLE_OK;
}

/* Several rows are written one after the other if their outputs have one shape. */
static treadle_status save_output(drive *d, treadle_generator *g, size_t n_rows, const char *name, const char *to) {
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
            if (!all) return fail(d, "out of memory");
        } else if (more != bytes || memcmp(part.dims, out.dims, sizeof part.dims) != 0) {
            return fail(d, "%s: the rows have different shapes, so they do not fit into one file", name);
        }
        if (bytes) memcpy(all + r * bytes, part.data, bytes);
    }
    if (out.rank > 0) out.dims[0] *= (int64_t)n_rows;
    else if (n_rows > 1) return fail(d, "%s: one number a row", name);
    out.data = all;
    return treadle_tensor_write_npy(to, &out, &d->error);
}

static treadle_status op_encode(drive *d) {
    const td_json *to = td_json_get(d->request, "to");
    size_t n_rows = 0;

    if (!to || to->kind != TD_JSON_OBJECT) return fail(d, "to: expected an object of outputs and files");
    treadle_status status = encode_rows(d, &n_rows);
    for (const td_json *t = to->first; t && status == TREADLE_OK; t = t->next) {
        const char *name = td_arena_strndup(&d->arena, t->key.p, t->key.n);
        const char *file = is_text(t) ? td_arena_strndup(&d->arena, t->string.p, t->string.n) : NULL;
        if (!name || !file) status = fail(d, "to: expected the name of a file for \"%.*s\"", TD_STR_ARGS(t->key));
        else status = save_output(d, d->stream, n_rows, name, file);
    }
    if (status != TREADLE_OK) return status;
    td_json_begin_object(&d->out);
    td_json_end_object(&d->out);
    return TREADLE_OK;
}

/* --- the loop */
static const struct {
    const char *name;
    treadle_status (*run)(drive *d);
} ops[] = {{"generate", op_generate}, {"timeline", op_timeline}, {"process", op_process},    {"stream", op_stream},
           {"embed", op_embed},       {"encode", op_encode},     {"transduce", op_transduce}};

static treadle_status dispatch(drive *d, td_str line) {
    treadle_status status = td_json_parse(line, NULL, &d->arena, &d->request, &d->error);

    if (status == TREADLE_OK) status = check_file_names(d);
    if (status != TREADLE_OK) return status;
    td_str op = td_json_string_or(d->request, "op", "");
    for (size_t i = 0; i < TD_COUNT(ops); i++)
        if (td_str_is(op, ops[i].name)) return ops[i].run(d);
    return fail(d, "unknown op \"%.*s\" (generate, timeline, process, stream, embed, encode, transduce)",
                TD_STR_ARGS(op));
}

static void answer_error(drive *d, td_buf *out) {
    char text[4096];

    treadle_error_format(&d->error, text, sizeof text);
    td_buf_clear(out);
    td_json_writer_init(&d->out, out, 0);
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "error");
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "message");
    td_json_write_text(&d->out, text);
    td_json_end_object(&d->out);
    td_json_end_object(&d->out);
}

static int drive_run(void *given, char **positional, size_t n_positional) {
    drive d = {.args = given, .path = positional[0]};
    td_buf out = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int code = td_model_args_check(&d.args->model);
    (void)n_positional;

    while (code == EXIT_OK && (n = getline(&line, &capacity, stdin)) > 0) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n == 0) continue;
        td_buf_clear(&out);
        td_json_writer_init(&d.out, &out, 0);
        d.error = (treadle_error){0};
        if (dispatch(&d, (td_str){line, (size_t)n}) != TREADLE_OK) answer_error(&d, &out);
        td_buf_char(&out, '\n');
        if (out.failed || !td_out(td_buf_view(&out))) code = EXIT_RUN;
        td_arena_free(&d.arena);
    }
    free(line);
    td_buf_free(&out);
    treadle_generator_free(d.stream);
    treadle_model_close(d.model);
    td_arena_free(&d.keep);
    return code;
}

const td_command td_command_drive = {
    .name = "drive",
    .arguments = "DIR|FILE",
    .summary = "answer JSON requests, one a line, on standard input",
    .help =
        "Requests and what they answer; a failed one answers {\"error\": {\"message\": TEXT}} and the next one is read:\n"
        "  {\"op\": \"generate\", \"prompts\": [IDS, ...], \"options\": {...}, \"logits_to\": PREFIX, \"prompt_logits_to\": PREFIX}\n"
        "      gives {\"tokens\": [IDS, ...], \"finish\": [...], \"text\": [...], \"runs\": {SESSION: COUNT}}\n"
        "  {\"op\": \"timeline\", \"steps\": [{\"append\": IDS} | {\"generate\": N} | {\"rewind\": LENGTH} | {\"fork\": true}, ...], \"logits_to\": PREFIX}\n"
        "      gives {\"steps\": [{} | {\"tokens\": IDS}, ...]}\n"
        "  {\"op\": \"process\", \"logits\": FILE.npy, \"sequence\": IDS, \"prompt_length\": N, \"options\": {...}, \"to\": FILE.npy}\n"
        "      gives {\"kept\": N}\n"
        "  {\"op\": \"stream\", \"prompts\": [IDS], \"options\": {...}} gives {\"pieces\": [TEXT, ...]}\n"
        "  {\"op\": \"transduce\", \"tensors\": {...}, \"continue\": true} gives {\"tokens\": [IDS], \"frames\": [[N, ...]], \"runs\": {...}}\n"
        "  {\"op\": \"embed\", \"prompts\": [IDS, ...], \"to\": FILE.npy} gives {}; the file gets float32 [rows, dim]\n"
        "  {\"op\": \"encode\", \"prompts\": [IDS, ...], \"to\": {OUTPUT: FILE.npy}, \"continue\": true} gives {}\n"
        "      \"prompts\" only where ids go in; \"continue\" goes on with the stream and its state\n"
        "Each but process takes \"tensors\": {NAME: FILE.npy}, inputs of the graphs for this request; so does an append.\n"
        "IDS is a list of token ids. Options are run's numbers (max_new_tokens, top_k, ...), \"stop\": [TEXT, ...], \"eos\": IDS and\n"
        "\"do_sample\": true, without which generation is greedy. PREFIX.i.npy gets row i's logits, float32 [steps, vocab]. Example:\n"
        "  echo '{\"op\": \"generate\", \"prompts\": [[1, 2, 3]], \"options\": {\"max_new_tokens\": 8}}' | treadle drive DIR",
    .options = drive_options,
    .n_options = TD_COUNT(drive_options),
    .args_bytes = sizeof(drive_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = drive_run,
};
