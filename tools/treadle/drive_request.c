/* tools/treadle/drive_request.c - what a request of `treadle drive` holds: prompts, options, tensors, file names. */
#include "drive.h"

#include <stdlib.h>
#include <string.h>

/* A list of ids; a single one counts as a list of one. */
treadle_status td_drive_ids(td_drive *d, const td_json *list, const char *what, treadle_ids *out) {
    size_t n = 0;

    if (list && list->kind == TD_JSON_INT && list->as_int >= INT32_MIN && list->as_int <= INT32_MAX) {
        int32_t *one = TD_ARENA_NEW(&d->arena, int32_t);
        if (!one) return td_drive_fail(d, "out of memory");
        *one = (int32_t)list->as_int;
        *out = (treadle_ids){one, 1};
        return TREADLE_OK;
    }
    if (!list || list->kind != TD_JSON_ARRAY) return td_drive_fail(d, "%s: expected a list of ids", what);
    int32_t *ids = TD_ARENA_ARRAY(&d->arena, int32_t, list->n ? list->n : 1);
    if (!ids) return td_drive_fail(d, "out of memory");
    for (const td_json *i = list->first; i; i = i->next) {
        if (i->kind != TD_JSON_INT || i->as_int < INT32_MIN || i->as_int > INT32_MAX)
            return td_drive_fail(d, "%s: expected a list of ids", what);
        ids[n++] = (int32_t)i->as_int;
    }
    *out = (treadle_ids){ids, n};
    return TREADLE_OK;
}

treadle_status td_drive_prompts(td_drive *d, treadle_ids **out, size_t *out_n) {
    const td_json *prompts = td_json_get(d->request, "prompts");

    if (!prompts || prompts->kind != TD_JSON_ARRAY || prompts->n == 0)
        return td_drive_fail(d, "prompts: expected a list of lists of ids");
    treadle_ids *rows = TD_ARENA_ARRAY(&d->arena, treadle_ids, prompts->n);
    if (!rows) return td_drive_fail(d, "out of memory");
    size_t n = 0;
    for (const td_json *p = prompts->first; p; p = p->next) {
        treadle_status status = td_drive_ids(d, p, "prompts", &rows[n++]);
        if (status != TREADLE_OK) return status;
    }
    *out = rows;
    *out_n = n;
    return TREADLE_OK;
}

/* NULL: not given. */
char *td_drive_file_name(td_drive *d, const char *key) {
    td_str name = td_json_string_or(d->request, key, "");
    return name.n ? td_arena_strndup(&d->arena, name.p, name.n) : NULL;
}

/* A text that the C API can take. */
bool td_drive_is_text(const td_json *value) {
    return value->kind == TD_JSON_STRING && !memchr(value->string.p, 0, value->string.n);
}

treadle_status td_drive_check_file_names(td_drive *d) {
    static const char *const keys[] = {"logits", "logits_to", "prompt_logits_to"};

    for (size_t i = 0; i < TD_COUNT(keys); i++) {
        const td_json *name = td_json_get(d->request, keys[i]);
        if (name && (!td_drive_is_text(name) || !name->string.n))
            return td_drive_fail(d, "%s: expected a file name", keys[i]);
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

static treadle_status read_number(td_drive *d, const td_json *value, treadle_generate_options *o, bool *known) {
    *known = false;
    for (size_t i = 0; i < TD_COUNT(numbers); i++) {
        if (!td_str_is(value->key, numbers[i].name)) continue;
        *known = true;
        void *target = (char *)o + numbers[i].offset;
        bool fits = value->kind == TD_JSON_INT || (numbers[i].real && value->kind == TD_JSON_DOUBLE);
        if (!fits)
            return td_drive_fail(d, "options.%s: expected a %s", numbers[i].name,
                                 numbers[i].real ? "number" : "whole number");
        if (numbers[i].offset == offsetof(treadle_generate_options, length_penalty)) o->has_length_penalty = true;
        if (numbers[i].real) *(double *)target = value->as_double;
        else *(int64_t *)target = value->as_int;
    }
    return TREADLE_OK;
}

static treadle_status read_stop(td_drive *d, const td_json *list, treadle_generate_options *o) {
    if (list->kind != TD_JSON_ARRAY) return td_drive_fail(d, "options.stop: expected a list of strings");
    const char **stop = TD_ARENA_ARRAY(&d->arena, const char *, list->n + 1u);
    size_t n = 0;
    for (const td_json *s = list->first; stop && s; s = s->next) {
        if (!td_drive_is_text(s))
            return td_drive_fail(d, "options.stop: expected a list of strings without NUL characters");
        stop[n] = td_arena_strndup(&d->arena, s->string.p, s->string.n);
        if (!stop[n++]) return td_drive_fail(d, "out of memory");
    }
    if (!stop) return td_drive_fail(d, "out of memory");
    o->stop = stop;
    o->n_stop = (int64_t)n;
    return TREADLE_OK;
}

treadle_status td_drive_options(td_drive *d, treadle_generate_options *o) {
    const td_json *options = td_json_get(d->request, "options");
    treadle_status status = TREADLE_OK;
    treadle_ids eos;
    bool known;

    treadle_generate_options_init(o);
    o->do_sample = 0;
    if (options && options->kind != TD_JSON_OBJECT) return td_drive_fail(d, "options: expected an object");
    for (const td_json *v = options ? options->first : NULL; v && status == TREADLE_OK; v = v->next) {
        status = read_number(d, v, o, &known);
        if (known || status != TREADLE_OK) continue;
        if (td_str_is(v->key, "do_sample") && v->kind == TD_JSON_BOOL) {
            o->do_sample = v->as_bool;
        } else if (td_str_is(v->key, "eos")) {
            status = td_drive_ids(d, v, "options.eos", &eos);
            if (status == TREADLE_OK) {
                o->eos = eos.ids;
                o->n_eos = (int64_t)eos.n;
            }
        } else if (td_str_is(v->key, "decoder_start")) {
            status = td_drive_ids(d, v, "options.decoder_start", &eos);
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
            status = td_drive_fail(d, "options.%.*s: not an option that this version knows", TD_STR_ARGS(v->key));
        }
    }
    return status;
}

/* --- tensors */

static treadle_status set_images(td_drive *d, treadle_generator *g) {
    const td_json *list = td_json_get(td_json_get(d->request, "options"), "images_per_row");
    size_t n = 0;

    if (!list) return TREADLE_OK;
    if (list->kind != TD_JSON_ARRAY)
        return td_drive_fail(d, "options.images_per_row: expected a list of whole numbers");
    int64_t *images = TD_ARENA_ARRAY(&d->arena, int64_t, list->n + 1u);
    if (!images) return td_drive_fail(d, "out of memory");
    for (const td_json *i = list->first; i; i = i->next) {
        if (i->kind != TD_JSON_INT) return td_drive_fail(d, "options.images_per_row: expected a list of whole numbers");
        images[n++] = i->as_int;
    }
    return treadle_generator_set_images_per_row(g, images, n, &d->error);
}

/* {NAME: FILE.npy} beside an append or in the request itself. */
treadle_status td_drive_set_tensors(td_drive *d, treadle_generator *g, const td_json *tensors) {
    treadle_status status = TREADLE_OK;

    if (!tensors) return TREADLE_OK;
    if (tensors->kind != TD_JSON_OBJECT) return td_drive_fail(d, "tensors: expected an object of names and files");
    for (const td_json *t = tensors->first; t && status == TREADLE_OK; t = t->next) {
        treadle_value *value = NULL;
        treadle_tensor tensor;
        const char *name = td_arena_strndup(&d->arena, t->key.p, t->key.n);
        const char *file = td_drive_is_text(t) ? td_arena_strndup(&d->arena, t->string.p, t->string.n) : NULL;
        if (!name || !file)
            return td_drive_fail(d, "tensors: expected the name of a file for \"%.*s\"", TD_STR_ARGS(t->key));
        status = treadle_value_read_npy(file, &value, &d->error);
        if (status == TREADLE_OK) status = treadle_value_tensor(value, &tensor, &d->error);
        if (status == TREADLE_OK && tensor.rank > 1 && tensor.dims[0] > 0) d->n_tensor_rows = (size_t)tensor.dims[0];
        if (status == TREADLE_OK) status = treadle_generator_set_tensor(g, name, &tensor, &d->error);
        treadle_value_release(value);
    }
    return status == TREADLE_OK ? set_images(d, g) : status;
}
