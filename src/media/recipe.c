/* media/recipe.c - configs of every dialect to a list of steps.
 *
 *   {"steps": [...]}                        the list itself (docs/media.md)
 *   {"feature_extraction": {"sequence"}}    operations in order, as onnxruntime-extensions reads them: recipes/audio/operations
 *   {"feature_extractor_type": "..."}       fields of a named extractor (Hugging Face, and the flat form): recipes/audio/extractors
 *   neither                                 the extractor whose telling fields are all there
 *
 * Operations and extractors are data: a file each, embedded by the build, holding steps whose values may be
 * "$field". */
#include "base/alloc.h"
#include "base/file.h"
#include "media/recipes_gen.h"
#include "media/steps.h"

#include <stdio.h>

/* Ends with a NULL name. */
#define STEP_ROW(name, kind, keys, read, member, function, bits)                                                       \
    {name, TD_STEP_##kind, keys, read, .member = function, .flags = bits},
#define X STEP_ROW
static const td_step_row rows[] = {
#include "media/steps.inc"
    {0},
};
#undef X

enum { MAX_STEPS = 64, MAX_OUTPUTS = 8 };

typedef struct builder {
    td_recipe *recipe;
    td_step_reader r;
    td_step steps[MAX_STEPS];
    td_step_kind last_kind;
    int64_t fixed_samples, fixed_frames; /* that every clip has; -1: not known */
    const td_json *outputs;              /* of the latest part that has any */
    td_step_reader outputs_reader;
} builder;

/* --- recipe files */
static const char extractors[] = "extractors/", operations[] = "operations/";

static treadle_status load_file(td_arena *arena, size_t index, td_json **out, treadle_error *err) {
    const td_recipe_file *file = &td_recipe_files[index];
    return td_json_parse((td_str){(const char *)file->bytes, file->size}, NULL, arena, out, err);
}

static bool file_is(size_t index, const char *folder, td_str name) {
    td_str path = td_str_from(td_recipe_files[index].name), prefix = td_str_from(folder);
    return td_str_starts(path, prefix) && td_str_equal((td_str){path.p + prefix.n, path.n - prefix.n}, name);
}

/* "Unknown WHAT "name". Known: a, b" at the value. */
static treadle_status unknown_name(builder *b, const char *folder, const char *what, const td_json *value) {
    const char *names[256];
    size_t n = 0;
    td_buf list = {0};
    for (size_t i = 0; i < td_n_recipe_files && n < TD_COUNT(names); i++) {
        td_str path = td_str_from(td_recipe_files[i].name);
        if (td_str_starts(path, td_str_from(folder))) names[n++] = path.p + strlen(folder);
    }
    for (size_t i = 0; i < n; i++) td_buf_printf(&list, "%s%s", i ? ", " : "", names[i]);
    treadle_status status = td_fail(b->r.err, TREADLE_UNSUPPORTED, "unknown %s \"%.*s\"; known: %s", what,
                                    (int)TD_MIN(value->string.n, (size_t)80), value->string.p, list.p ? list.p : "");
    char *copy = td_arena_strndup(&b->recipe->arena, value->string.p, value->string.n);
    const char *near = copy ? td_nearest(copy, names, n) : NULL;
    if (near) td_error_hint(b->r.err, "Did you mean \"%s\"?", near);
    td_doc_place(b->r.config_doc, value, b->r.err);
    td_buf_free(&list);
    return status;
}

/* --- steps */

/* "$field": the field is neither absent, null, false nor 0. "$field=word": it is that word. */
static bool holds(td_step_reader *r, td_str condition) {
    char name[64];
    const td_doc *doc;
    const char *equals = condition.n ? memchr(condition.p, '=', condition.n) : NULL;
    size_t n = equals ? (size_t)(equals - condition.p) : condition.n;
    if (n < 2 || n > sizeof name || condition.p[0] != '$') {
        td_step_fail(r, NULL, TREADLE_CONFIG, "expected a condition \"$field\" or \"$field=word\"");
        return false;
    }
    memcpy(name, condition.p + 1, n - 1);
    name[n - 1] = 0;
    const td_json *v = td_step_field(r, name, &doc);
    if (!v || v->kind == TD_JSON_NULL) return false;
    if (equals) return v->kind == TD_JSON_STRING && td_str_equal(v->string, (td_str){equals + 1, condition.n - n - 1});
    if (v->kind == TD_JSON_BOOL) return v->as_bool;
    return (v->kind != TD_JSON_INT && v->kind != TD_JSON_DOUBLE) || v->as_double != 0;
}

/* Whether "if" (all of them) and "unless" (none of them) of a step or an output let it be. */
static bool is_wanted(td_step_reader *r) {
    static const char *const keys[] = {"if", "unless"};
    for (int i = 0; i < 2; i++) {
        const td_json *given = td_json_get(r->step, keys[i]);
        const td_json *one = given && given->kind == TD_JSON_ARRAY ? given->first : given;
        for (; one; one = one == given ? NULL : one->next)
            if (holds(r, one->kind == TD_JSON_STRING ? one->string : TD_STR("")) == (i == 1)) return false;
    }
    return true;
}

static bool has_key(const char *keys, td_str key) {
    char padded[40];
    if (key.n + 3 > sizeof padded) return false;
    snprintf(padded, sizeof padded, " %.*s ", TD_STR_ARGS(key));
    return strstr(keys, padded) != NULL;
}

static const td_step_row *find_row(td_step_reader *r) {
    td_str name = td_json_string_or(r->step, "step", "");
    const char *names[64];
    size_t n = 0;
    for (const td_step_row *row = rows; row->name; row++) {
        if (td_str_is(name, row->name)) return row;
        if (n < TD_COUNT(names)) names[n++] = row->name;
    }
    td_buf list = {0};
    for (size_t i = 0; i < n; i++) td_buf_printf(&list, "%s%s", i ? ", " : "", names[i]);
    td_step_fail(r, td_json_get(r->step, "step") ? "step" : NULL, TREADLE_CONFIG,
                 "expected a \"step\" of %s; found \"%.*s\"", list.p ? list.p : "", (int)TD_MIN(name.n, (size_t)60),
                 name.p);
    td_buf_free(&list);
    return NULL;
}

static bool check_keys(td_step_reader *r, const td_step_row *row) {
    for (const td_json *v = r->step->first; v; v = v->next) {
        if (td_str_is(v->key, "step") || td_str_is(v->key, "if") || td_str_is(v->key, "unless") ||
            has_key(row->keys, v->key))
            continue;
        td_step_fail(r, NULL, TREADLE_CONFIG, "step %s has no key \"%.*s\" (it has:%s)", row->name,
                     (int)TD_MIN(v->key.n, (size_t)60), v->key.p, row->keys[1] ? row->keys : " none");
        return false;
    }
    return true;
}

/* What every clip's length becomes, for the shapes that are known at load. */
static void follow_lengths(builder *b, const td_step *step) {
    bool fixed = false;
    if (step->row->kind == TD_STEP_WAVE && step->row->flags & TD_STEP_CLIPS) {
        int64_t samples = td_clip_samples(step->params, &fixed);
        b->recipe->clip = samples;
        b->fixed_samples = fixed ? samples : -1;
    } else if (step->row->kind == TD_STEP_FRAMES) {
        b->recipe->framing = step->params;
        b->fixed_frames = b->fixed_samples < 0 ? -1 : td_framing_count(step->params, b->fixed_samples);
    } else if (step->row->flags & TD_STEP_MOVES) {
        b->fixed_samples = b->fixed_frames = -1;
    }
}

static void add_step(builder *b) {
    td_step_reader *r = &b->r;
    td_recipe *recipe = b->recipe;
    const td_step_row *row = find_row(r);
    if (!row || !check_keys(r, row)) return;
    bool framed = recipe->framing != NULL;
    if (row->kind < b->last_kind || (row->kind == TD_STEP_FRAMES && framed) ||
        (row->kind > TD_STEP_FRAMES && !framed)) {
        td_step_fail(
            r, NULL, TREADLE_CONFIG,
            "step %s stands in the wrong place: steps on samples come first, then one \"frames\", then steps on a frame, "
            "then steps on all frames",
            row->name);
        return;
    }
    if (recipe->n_steps == MAX_STEPS) {
        td_step_fail(r, NULL, TREADLE_CONFIG, "expected at most %d steps", MAX_STEPS);
        return;
    }
    td_step *step = &b->steps[recipe->n_steps];
    *step = (td_step){row, row->read(r)};
    if (r->status != TREADLE_OK) return;
    recipe->n_steps++;
    b->last_kind = row->kind;
    follow_lengths(b, step);
    if (row->kind <= TD_STEP_FRAME) recipe->raw_width = r->width;
    recipe->width = r->width;
    recipe->frame_room = TD_MAX(recipe->frame_room, TD_MAX((size_t)TD_MAX(r->width, r->span), (size_t)r->n_fft));
    recipe->spare_room = r->room;
}

/* One part of a recipe: sampling rate, steps, outputs. */
static treadle_status add_part(builder *b, const td_json *body, const td_doc *doc) {
    td_step_reader *r = &b->r;
    r->step = body;
    r->step_doc = doc;
    if (td_json_get(body, "sampling_rate")) {
        int64_t rate = td_step_int(r, "sampling_rate", 16000, TD_AUDIO_MIN_RATE_HZ, TD_AUDIO_MAX_RATE_HZ);
        r->rate_hz = b->recipe->rate_hz = (int)rate;
    }
    if (r->rate_hz == 0) td_step_fail(r, NULL, TREADLE_CONFIG, "expected a \"sampling_rate\" in Hz, found none");
    const td_json *steps = td_json_get(body, "steps"), *outputs = td_json_get(body, "outputs");
    if (r->status == TREADLE_OK && steps && steps->kind != TD_JSON_ARRAY)
        td_step_fail(r, "steps", TREADLE_CONFIG, "expected an array of steps, found %s",
                     td_json_kind_name(steps->kind));
    for (const td_json *step = steps ? steps->first : NULL; step && r->status == TREADLE_OK; step = step->next) {
        r->step = step;
        if (is_wanted(r)) add_step(b);
    }
    if (r->status == TREADLE_OK && outputs) {
        b->outputs = outputs;
        b->outputs_reader = *r;
    }
    return r->status;
}

/* --- outputs */
static const char *const kind_words[] = {"values", "mask", "count", NULL};
static const char *const layout_words[] = {"bins_first", "frames_first", NULL};
static const char *const mask_dtype_words[] = {"bool", "int32", "int64", "float32", NULL};
static const td_dtype mask_dtypes[] = {TD_BOOL, TD_INT32, TD_INT64, TD_FLOAT};

static void read_output(builder *b, td_step_reader *r) {
    td_recipe *recipe = b->recipe;
    td_feature_spec *spec = &recipe->specs[recipe->n_outputs];
    td_output *output = &recipe->outputs[recipe->n_outputs];
    int64_t n = recipe->framing ? b->fixed_frames : b->fixed_samples;
    const td_doc *doc;
    const td_json *name = td_step_value(r, "name", &doc);
    if (!name || name->kind != TD_JSON_STRING || name->string.n == 0 || memchr(name->string.p, 0, name->string.n)) {
        td_step_fail(r, "name", TREADLE_CONFIG, "expected a \"name\" for the output");
        return;
    }
    spec->name = td_arena_strndup(&recipe->arena, name->string.p, name->string.n);
    if (!spec->name) r->status = td_fail_memory(r->err, "an audio recipe", name->string.n);
    spec->kind = (td_feature_kind)td_step_word(r, "kind", kind_words, TD_FEATURE_VALUES);
    output->layout = td_step_word(r, "layout", layout_words, TD_LAYOUT_BINS_FIRST);
    output->divide[0] = td_step_int(r, "divide", 1, 1, 1 << 20);
    output->divide[1] = td_step_int(r, "then_divide", 1, 1, 1 << 20);
    bool bins_first = output->layout == TD_LAYOUT_BINS_FIRST;
    spec->shape = (td_shape){.rank = 2, .dims = {1, n}};
    switch (spec->kind) {
    case TD_FEATURE_MASK: spec->dtype = mask_dtypes[td_step_word(r, "dtype", mask_dtype_words, 0)]; break;
    case TD_FEATURE_COUNT:
        spec->dtype = TD_INT64;
        spec->shape = (td_shape){.rank = 1, .dims = {1}};
        break;
    case TD_FEATURE_VALUES:
        spec->dtype = TD_FLOAT;
        if (recipe->framing)
            spec->shape =
                (td_shape){.rank = 3, .dims = {1, bins_first ? recipe->width : n, bins_first ? n : recipe->width}};
        break;
    }
    if (r->status == TREADLE_OK) recipe->n_outputs++;
}

static treadle_status read_outputs(builder *b) {
    static const char standard[] =
        "[{\"name\": \"input_features\"}, {\"name\": \"attention_mask\", \"kind\": \"mask\"}]";
    td_recipe *recipe = b->recipe;
    td_step_reader r = b->outputs ? b->outputs_reader : b->r;
    td_json *fallback = NULL;
    if (!b->outputs) {
        TD_TRY(td_json_parse(TD_STR(standard), NULL, &recipe->arena, &fallback, r.err));
        b->outputs = fallback;
        r.step_doc = NULL;
    }
    recipe->specs = TD_ARENA_ARRAY(&recipe->arena, td_feature_spec, MAX_OUTPUTS);
    recipe->outputs = TD_ARENA_ARRAY(&recipe->arena, td_output, MAX_OUTPUTS);
    if (!recipe->specs || !recipe->outputs) return td_fail_memory(r.err, "an audio recipe", 0);
    r.step = b->outputs;
    if (b->outputs->kind != TD_JSON_ARRAY || b->outputs->n == 0 || b->outputs->n > MAX_OUTPUTS)
        td_step_fail(&r, NULL, TREADLE_CONFIG, "expected an array of 1 to %d outputs, found %s of %u", MAX_OUTPUTS,
                     td_json_kind_name(b->outputs->kind), b->outputs->n);
    else
        for (const td_json *output = b->outputs->first; output && r.status == TREADLE_OK; output = output->next) {
            r.step = output;
            if (is_wanted(&r)) read_output(b, &r);
        }
    return r.status;
}

/* --- dialects */

/* A recipe file applied to the fields of `config`. */
static treadle_status apply_file(builder *b, size_t index, const td_json *config) {
    td_json *file;
    TD_TRY(load_file(&b->recipe->arena, index, &file, b->r.err));
    b->r.config = config;
    b->r.defaults = td_json_get(file, "fields");
    return add_part(b, file, NULL);
}

static treadle_status apply_operation(builder *b, const td_json *item) {
    const td_json *operation = td_json_get(item, "operation"), *type = td_json_get(operation, "type");
    const td_json *attrs = td_json_get(operation, "attrs");
    if (!type || type->kind != TD_JSON_STRING || (attrs && attrs->kind != TD_JSON_OBJECT)) {
        treadle_status status = td_fail(
            b->r.err, TREADLE_CONFIG, "expected {\"operation\": {\"name\", \"type\", \"attrs\": {}}} in the sequence");
        td_doc_place(b->r.config_doc, item, b->r.err);
        return status;
    }
    for (size_t i = 0; i < td_n_recipe_files; i++) {
        if (!file_is(i, operations, type->string)) continue;
        TD_TRY(apply_file(b, i, attrs));
        for (const td_json *v = attrs ? attrs->first : NULL; v; v = v->next) {
            if (td_json_get_str(b->r.defaults, v->key) || td_str_is(v->key, "_comment")) continue;
            treadle_status status = td_fail(b->r.err, TREADLE_UNSUPPORTED, "operation %.*s has no attribute \"%.*s\"",
                                            TD_STR_ARGS(type->string), (int)TD_MIN(v->key.n, (size_t)60), v->key.p);
            td_doc_place(b->r.config_doc, v, b->r.err);
            return status;
        }
        return TREADLE_OK;
    }
    return unknown_name(b, operations, "audio operation", type);
}

static treadle_status apply_sequence(builder *b, const td_json *extraction) {
    const td_json *sequence = td_json_get(extraction, "sequence");
    if (!sequence || sequence->kind != TD_JSON_ARRAY || sequence->n == 0) {
        treadle_status status = td_fail(b->r.err, TREADLE_CONFIG, "expected an array of operations in \"sequence\"");
        td_doc_place(b->r.config_doc, sequence ? sequence : extraction, b->r.err);
        return status;
    }
    for (const td_json *item = sequence->first; item; item = item->next) TD_TRY(apply_operation(b, item));
    return TREADLE_OK;
}

/* The extractor most of whose telling fields are there, of those with all there; -1: none. */
static treadle_status recognise(builder *b, const td_json *config, ptrdiff_t *out) {
    uint32_t best = 0;
    *out = -1;
    for (size_t i = 0; i < td_n_recipe_files; i++) {
        td_json *file;
        if (!td_str_starts(td_str_from(td_recipe_files[i].name), td_str_from(extractors))) continue;
        TD_TRY(load_file(&b->recipe->arena, i, &file, b->r.err));
        const td_json *keys = td_json_get(file, "recognise");
        bool all = keys != NULL;
        for (const td_json *key = all ? keys->first : NULL; key; key = key->next)
            all = all && td_json_get_str(config, key->string);
        if (!all || keys->n <= best) continue;
        best = keys->n;
        *out = (ptrdiff_t)i;
    }
    return TREADLE_OK;
}

static treadle_status apply_fields(builder *b, const td_json *config) {
    static const char *const type_keys[] = {"feature_extractor_type", "audio_processor_type"};
    ptrdiff_t found;
    for (size_t k = 0; k < TD_COUNT(type_keys); k++) {
        const td_json *type = td_json_get(config, type_keys[k]);
        if (!type || type->kind != TD_JSON_STRING) continue;
        for (size_t i = 0; i < td_n_recipe_files; i++)
            if (file_is(i, extractors, type->string)) return apply_file(b, i, config);
        return unknown_name(b, extractors, "feature extractor", type);
    }
    TD_TRY(recognise(b, config, &found));
    if (found >= 0) return apply_file(b, (size_t)found, config);
    treadle_status status =
        td_fail(b->r.err, TREADLE_CONFIG,
                "expected an audio preprocessing config: \"feature_extractor_type\", "
                "\"audio_processor_type\", \"feature_extraction\" or \"steps\"; found none of them");
    td_doc_place(b->r.config_doc, config, b->r.err);
    return status;
}

static treadle_status translate(builder *b, const td_json *config) {
    static const char *const sequence_keys[] = {"feature_extraction", "audio_feature_extraction"};
    static const char *const nested_keys[] = {"feature_extractor", "audio_processor"};
    if (config->kind != TD_JSON_OBJECT) {
        treadle_status status =
            td_fail(b->r.err, TREADLE_CONFIG, "expected an object, found %s", td_json_kind_name(config->kind));
        td_doc_place(b->r.config_doc, config, b->r.err);
        return status;
    }
    if (td_json_get(config, "steps")) return add_part(b, config, b->r.config_doc);
    for (int i = 0; i < 2; i++) {
        const td_json *extraction = td_json_get(config, sequence_keys[i]);
        if (extraction) return apply_sequence(b, extraction);
    }
    for (int i = 0; i < 2; i++) {
        const td_json *inner = td_json_get(config, nested_keys[i]);
        if (inner && inner->kind == TD_JSON_OBJECT) return translate(b, inner);
    }
    return apply_fields(b, config);
}

static treadle_status finish(builder *b) {
    td_recipe *recipe = b->recipe;
    TD_TRY(read_outputs(b));
    td_step *steps = TD_ARENA_ARRAY(&recipe->arena, td_step, TD_MAX(recipe->n_steps, 1));
    if (!steps) return td_fail_memory(b->r.err, "an audio recipe", sizeof *steps);
    memcpy(steps, b->steps, recipe->n_steps * sizeof *steps);
    recipe->steps = steps;
    return TREADLE_OK;
}

static const td_json_options lenient = {.allow_duplicate_keys = true, .allow_nonfinite = true};

treadle_status td_recipe_from_json(const td_json *config, td_str text, const char *label, td_str overrides,
                                   td_recipe **out, treadle_error *err) {
    td_doc config_doc = {label, text}, overrides_doc = {"overrides", overrides};
    td_json *over = NULL;
    td_recipe *recipe = td_alloc_zero(1, sizeof *recipe);
    builder *b = td_alloc_zero(1, sizeof *b);
    treadle_status status = TREADLE_OK;
    if (!recipe || !b) status = td_fail_memory(err, "an audio recipe", sizeof *b);
    if (status == TREADLE_OK && overrides.n) {
        status = td_json_parse(overrides, &lenient, &recipe->arena, &over, err);
        if (status != TREADLE_OK) td_error_file(err, overrides_doc.label);
    }
    if (status == TREADLE_OK) {
        *b = (builder){.recipe = recipe, .fixed_samples = -1, .fixed_frames = -1};
        b->r = (td_step_reader){.arena = &recipe->arena,
                                .overrides = over,
                                .overrides_doc = &overrides_doc,
                                .config = config,
                                .config_doc = &config_doc,
                                .err = err};
        status = translate(b, config);
    }
    if (status == TREADLE_OK) status = finish(b);
    td_free(b);
    if (status == TREADLE_OK) *out = recipe;
    else td_recipe_free(recipe);
    return status;
}

treadle_status td_recipe_parse(td_str text, const char *label, td_str overrides, td_recipe **out, treadle_error *err) {
    td_arena arena = {0};
    td_json *config;
    treadle_status status = td_json_parse(text, &lenient, &arena, &config, err);
    if (status == TREADLE_OK) status = td_recipe_from_json(config, text, label, overrides, out, err);
    else td_error_file(err, label);
    td_arena_free(&arena);
    return status;
}

treadle_status td_recipe_open(const char *path, td_str overrides, td_recipe **out, treadle_error *err) {
    char *text;
    size_t n;
    TD_TRY(td_file_read(path, TD_AUDIO_MAX_CONFIG_BYTES, &text, &n, err));
    treadle_status status = td_recipe_parse((td_str){text, n}, path, overrides, out, err);
    td_free(text);
    return status;
}

void td_recipe_free(td_recipe *recipe) {
    if (!recipe) return;
    td_arena_free(&recipe->arena);
    td_free(recipe);
}

int td_recipe_rate_hz(const td_recipe *recipe) { return recipe->rate_hz; }
int64_t td_recipe_clip(const td_recipe *recipe) { return recipe->clip; }

const td_feature_spec *td_recipe_outputs(const td_recipe *recipe, size_t *n) {
    *n = recipe->n_outputs;
    return recipe->specs;
}
