/* tools/treadle/cmd_verify.c - `treadle verify`: one model on two engines, token by token and logit by logit.
 *
 * Both generate greedily. Up to the first token that differs their logits have the same past and are compared; then the
 * second engine is set on the first one's track (rewound, and given its token) and the comparison goes on, so that
 * every step is compared with the same past on both sides. A differing token between logits that are equal within the
 * tolerance is a near tie, no disagreement. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct verify_args {
    td_model_args model;
    td_media_args media;
    const char *against;
    td_texts prompts, ids;
    int64_t max_new_tokens;
    double tolerance;
    bool json;
} verify_args;

static void verify_defaults(void *given) {
    verify_args *args = given;
    args->against = "ort";
    args->max_new_tokens = 32;
    args->tolerance = 1e-3;
}

static const td_option verify_options[] = {
    {"against", 0, OPTION_TEXT, "ENGINE", "the engine to compare with: light or ort (default: ort)",
     offsetof(verify_args, against)},
    {"prompt", 'p', OPTION_LIST, "TEXT", "a prompt, taken as it is; repeatable (default: three built-in ones)",
     offsetof(verify_args, prompts)},
    {"ids", 0, OPTION_LIST, "1,2,3", "token ids as a prompt; repeatable", offsetof(verify_args, ids)},
    {"max-new-tokens", 'n', OPTION_INT, "N", "compare N new tokens a prompt (default: 32)",
     offsetof(verify_args, max_new_tokens)},
    {"tolerance", 0, OPTION_DOUBLE, "T",
     "largest difference of two logits, relative where they exceed 1 (default: 0.001)",
     offsetof(verify_args, tolerance)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object", offsetof(verify_args, json)},
    MEDIA_OPTIONS(verify_args),
    MODEL_OPTIONS(verify_args),
};

static const char *const built_in[] = {
    "The quick brown fox jumps over the lazy dog.",
    "1, 1, 2, 3, 5, 8, 13,",
    "Once upon a time, in a small village by the sea, there lived",
};

enum { BUILT_IN_MOST = 16 }; /* tokens of a built-in prompt: some graphs take few */

typedef struct comparison { /* of one prompt, or of all */
    int64_t n_steps, n_same_best;
    double worst;       /* largest difference, relative where logits exceed 1 */
    double worst_plain; /* largest difference as it is */
    int64_t first_step; /* of the first differing token; -1: none */
    int32_t first[2];   /* those tokens */
    int64_t n_forced;   /* how often the second engine was set on the first one's track */
    bool disagrees;
} comparison;

typedef struct verify {
    const verify_args *args;
    const char *names[2];
    treadle_model *models[2];
    td_arena arena;
    treadle_ids *prompts;
    size_t n_prompts;
    bool has_logits; /* else a pass is compared, one step a prompt */
    comparison *each, all;
} verify;

/* --- comparing logits */
static size_t best_of(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (size_t)best;
}

static void compare_number(double a, double b, comparison *c) {
    if (a == b || (isnan(a) && isnan(b))) return; /* equal infinities, too */
    double diff = fabs(a - b);
    if (!isfinite(diff)) diff = INFINITY;
    c->worst_plain = fmax(c->worst_plain, diff);
    c->worst = fmax(c->worst, diff / fmax(1, fabs(a)));
}

static void compare_step(const float *a, const float *b, int64_t n, double tolerance, comparison *c) {
    for (int64_t i = 0; i < n; i++) compare_number((double)a[i], (double)b[i], c);
    c->n_same_best += best_of(a, n) == best_of(b, n);
    c->n_steps++;
    c->disagrees |= !(c->worst <= tolerance);
}

/* --- one prompt */
static int new_generator(const verify *v, int side, treadle_ids prompt, treadle_generator **out) {
    treadle_generate_options options;
    treadle_error error = {0};

    treadle_generate_options_init(&options);
    options.max_new_tokens = v->args->max_new_tokens;
    options.do_sample = 0;
    options.num_beams = 1;
    options.repetition_penalty = 1; /* the engines' logits, not the processors' choice */
    options.no_repeat_ngram_size = 0;
    options.min_length = 0;
    options.ignore_eos = true;
    options.n_stop = 0;
    options.keep_logits = true;
    if (treadle_generator_new(v->models[side], &options, out, &error) != TREADLE_OK) return td_report(&error);
    int code = td_give_media(&td_command_verify, &v->args->media, *out);
    if (code == EXIT_OK && treadle_generator_append(*out, &prompt, 1, &error) != TREADLE_OK) code = td_report(&error);
    if (code != EXIT_OK) {
        treadle_generator_free(*out);
        *out = NULL;
    }
    return code;
}

static int generate(treadle_generator *g, int64_t n, treadle_error *error) {
    td_interrupt_watch(g);
    treadle_status status = treadle_generator_run(g, n, NULL, NULL, error);
    td_interrupt_watch(NULL);
    if (status != TREADLE_OK) return td_report(error);
    return td_interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

/* Compares steps `from` on of the first engine with the steps of the second one's latest run, up to
 * the first token that differs. */
static int compare_run(const verify *v, treadle_ids a, const treadle_tensor *logits_a, treadle_generator *second,
                       int64_t from, int64_t *next, comparison *c) {
    treadle_error error = {0};
    treadle_tensor logits_b;
    treadle_ids b = treadle_generator_new_ids(second, 0);

    if (treadle_generator_step_logits(second, 0, &logits_b, &error) != TREADLE_OK) return td_report(&error);
    int64_t vocab = logits_a->dims[1];
    if (logits_b.dims[1] != vocab) {
        fprintf(stderr, "treadle: %s gives %lld logits, %s %lld\n", v->names[0], (long long)vocab, v->names[1],
                (long long)logits_b.dims[1]);
        return EXIT_RUN;
    }
    int64_t step = from;
    for (; step < (int64_t)a.n && step - from < (int64_t)b.n && step - from < logits_b.dims[0]; step++) {
        const float *x = (const float *)logits_a->data + step * vocab;
        const float *y = (const float *)logits_b.data + (step - from) * vocab;
        compare_step(x, y, vocab, v->args->tolerance, c);
        int32_t got = b.ids[step - from];
        if (got == a.ids[step]) continue;
        if (c->first_step < 0) {
            c->first_step = step;
            c->first[0] = a.ids[step];
            c->first[1] = got;
        }
        step++;
        break;
    }
    *next = step;
    return EXIT_OK;
}

static void compare_tensors(const treadle_tensor *a, const treadle_tensor *b, comparison *c) {
    int64_t n = 0;
    bool same = a->dtype == b->dtype && a->rank == b->rank &&
                memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0 &&
                treadle_tensor_size(a, &n, NULL, NULL) == TREADLE_OK;

    if (!same) c->worst = c->worst_plain = INFINITY;
    if (!same || a->dtype == TREADLE_DTYPE_STRING) return;
    for (int64_t i = 0; i < n; i++) compare_number(treadle_tensor_get(a, i), treadle_tensor_get(b, i), c);
}

/* All that a pass gives: what of it is the answer only the caller knows. */
static int compare_outputs(treadle_generator *const g[2], comparison *c) {
    size_t n = treadle_generator_n_outputs(g[0], 0);
    treadle_error error = {0};
    treadle_tensor t[2];

    if (treadle_generator_n_outputs(g[1], 0) != n) c->worst = c->worst_plain = INFINITY;
    for (size_t i = 0; i < n && c->worst < (double)INFINITY; i++) {
        for (int side = 0; side < 2; side++)
            if (treadle_generator_output_at(g[side], 0, i, NULL, NULL, &t[side], &error) != TREADLE_OK)
                return td_report(&error);
        compare_tensors(&t[0], &t[1], c);
    }
    return EXIT_OK;
}

/* A model without logits: one pass, the vectors that it gives, else all its tensors. */
static int compare_pass(const verify *v, treadle_ids prompt, comparison *c) {
    treadle_generator *g[2] = {NULL, NULL};
    treadle_error error = {0};
    treadle_tensor vectors[2] = {{0}, {0}};
    int code = EXIT_OK;

    c->first_step = -1;
    for (int side = 0; side < 2 && code == EXIT_OK; side++) {
        code = new_generator(v, side, prompt, &g[side]);
        if (code == EXIT_OK && treadle_generator_prefill(g[side], &error) != TREADLE_OK) code = td_report(&error);
    }
    if (code == EXIT_OK) {
        treadle_status status = treadle_generator_embedding(g[0], 0, &vectors[0], &error);
        if (status == TREADLE_OK) status = treadle_generator_embedding(g[1], 0, &vectors[1], &error);
        if (status == TREADLE_OK) compare_tensors(&vectors[0], &vectors[1], c);
        else if (status == TREADLE_UNSUPPORTED) code = compare_outputs(g, c);
        else code = td_report(&error);
    }
    c->n_steps = 1;
    c->disagrees = !(c->worst <= v->args->tolerance);
    c->n_same_best = !c->disagrees;
    treadle_generator_free(g[0]);
    treadle_generator_free(g[1]);
    return code;
}

static int compare_prompt(const verify *v, treadle_ids prompt, comparison *c) {
    treadle_generator *g[2] = {NULL, NULL};
    treadle_error error = {0};
    treadle_tensor logits;
    int64_t at = 0;

    c->first_step = -1;
    int code = new_generator(v, 0, prompt, &g[0]);
    if (code == EXIT_OK) code = new_generator(v, 1, prompt, &g[1]);
    if (code == EXIT_OK) code = generate(g[0], v->args->max_new_tokens, &error);
    if (code == EXIT_OK) code = generate(g[1], v->args->max_new_tokens, &error);
    if (code == EXIT_OK && treadle_generator_step_logits(g[0], 0, &logits, &error) != TREADLE_OK)
        code = td_report(&error);
    treadle_ids ids = {NULL, 0};
    size_t before = 0;
    if (code == EXIT_OK) {
        ids = treadle_generator_new_ids(g[0], 0);
        before = treadle_generator_ids(g[0], 0).n - ids.n;
        code = compare_run(v, ids, &logits, g[1], 0, &at, c);
    }
    while (code == EXIT_OK && at < (int64_t)ids.n) {
        treadle_ids token = {ids.ids + at - 1, 1};
        if (treadle_generator_rewind(g[1], 0, before + (size_t)at - 1, &error) != TREADLE_OK ||
            treadle_generator_append(g[1], &token, 1, &error) != TREADLE_OK) {
            code = td_report(&error);
            break;
        }
        int64_t was = at;
        c->n_forced++;
        code = generate(g[1], (int64_t)ids.n - at, &error);
        if (code == EXIT_OK) code = compare_run(v, ids, &logits, g[1], at, &at, c);
        if (at == was) break; /* its timeline is full */
    }
    treadle_generator_free(g[0]);
    treadle_generator_free(g[1]);
    return code;
}

/* --- prompts */
static int add_text(verify *v, const char *text, size_t most) {
    treadle_error error = {0};
    int32_t *ids = NULL;
    size_t n = 0;

    if (treadle_text_encode(treadle_model_text(v->models[0]), text, strlen(text), true, &ids, &n, &error) != TREADLE_OK)
        return td_report(&error);
    n = TD_MIN(n, most);
    int32_t *own = TD_ARENA_ARRAY(&v->arena, int32_t, n + 1);
    if (own && n) memcpy(own, ids, n * sizeof *own);
    treadle_free(ids);
    if (!own) return EXIT_RUN;
    if (n == 0) return td_usage(&td_command_verify, "the prompt \"%s\" is empty", text);
    v->prompts[v->n_prompts++] = (treadle_ids){own, n};
    return EXIT_OK;
}

/* A tokenizer that is missing or not understood is no hindrance: the built-in prompts are then ids. */
static bool can_encode(const verify *v) {
    int32_t *ids = NULL;
    size_t n = 0;
    treadle_status status = treadle_text_encode(treadle_model_text(v->models[0]), "a", 1, false, &ids, &n, NULL);
    treadle_free(ids);
    return status == TREADLE_OK;
}

/* Ids that any vocabulary has, for models without a tokenizer. */
static int add_plain_ids(verify *v, int64_t vocab) {
    for (int k = 0; k < 3; k++) {
        int32_t *own = TD_ARENA_ARRAY(&v->arena, int32_t, 8);
        if (!own) return EXIT_RUN;
        for (int i = 0; i < 8; i++) own[i] = (int32_t)((3 + 7 * k + i * (k + 1)) % (vocab > 0 ? vocab : 32));
        v->prompts[v->n_prompts++] = (treadle_ids){own, k == 0 ? 1 : 8};
    }
    return EXIT_OK;
}

static int read_prompts(verify *v) {
    const verify_args *args = v->args;
    treadle_model_info info = {.struct_size = sizeof info};
    int code = EXIT_OK;

    treadle_model_get_info(v->models[0], &info);
    v->has_logits = info.has_logits;
    v->prompts = TD_ARENA_ARRAY(&v->arena, treadle_ids, args->prompts.n + args->ids.n + 3);
    if (!v->prompts) return EXIT_RUN;
    for (size_t i = 0; code == EXIT_OK && i < args->ids.n; i++) {
        treadle_ids *prompt = &v->prompts[v->n_prompts];
        int32_t *ids;
        if (!td_parse_ids(args->ids.items[i], &v->arena, &ids, &prompt->n))
            return td_usage(&td_command_verify, "--ids: expected ids as 1,2,3, found \"%s\"", args->ids.items[i]);
        prompt->ids = ids;
        v->n_prompts++;
    }
    for (size_t i = 0; code == EXIT_OK && i < args->prompts.n; i++)
        code = add_text(v, args->prompts.items[i], SIZE_MAX);
    if (v->n_prompts || code != EXIT_OK) return code;
    if (args->media.input.n || args->media.audio) { /* they are the prompt */
        v->prompts[v->n_prompts++] = (treadle_ids){NULL, 0};
        return EXIT_OK;
    }
    if (!can_encode(v)) return add_plain_ids(v, info.vocab_size);
    for (size_t i = 0; code == EXIT_OK && i < TD_COUNT(built_in); i++) code = add_text(v, built_in[i], BUILT_IN_MOST);
    return code;
}

/* --- output */
static void add_up(verify *v) {
    v->all.first_step = -1;
    for (size_t i = 0; i < v->n_prompts; i++) {
        const comparison *c = &v->each[i];
        v->all.n_steps += c->n_steps;
        v->all.n_same_best += c->n_same_best;
        v->all.worst = fmax(v->all.worst, c->worst);
        v->all.worst_plain = fmax(v->all.worst_plain, c->worst_plain);
        v->all.disagrees |= c->disagrees;
    }
}

/* "4 steps, same best token in 4, ": there are none without logits. */
static void print_steps(const verify *v, const comparison *c) {
    if (v->has_logits)
        printf("%lld steps, same best token in %lld, ", (long long)c->n_steps, (long long)c->n_same_best);
}

static void print_text(const verify *v) {
    for (size_t i = 0; i < v->n_prompts; i++) {
        const comparison *c = &v->each[i];
        printf("prompt %zu: %zu tokens, ", i + 1, v->prompts[i].n);
        print_steps(v, c);
        printf("largest difference %.3g (relative %.3g)\n", c->worst_plain, c->worst);
        if (c->first_step >= 0)
            printf("  first differing token: step %lld, %s %d, %s %d\n", (long long)c->first_step, v->names[0],
                   (int)c->first[0], v->names[1], (int)c->first[1]);
    }
    printf("%s and %s %s: ", v->names[0], v->names[1], v->all.disagrees ? "disagree" : "agree");
    print_steps(v, &v->all);
    printf("largest difference %.3g (relative %.3g, tolerance %g)\n", v->all.worst_plain, v->all.worst,
           v->args->tolerance);
    if (v->all.disagrees && v->all.n_same_best * 4 >= v->all.n_steps * 3 && v->all.worst < 1)
        printf("note: some tenths are usual where an engine quantises activations to 8 bits, as 4-bit weights let it\n"
               "(accuracy_level 4 of MatMulNBits); --tolerance says what counts, --activations what light does\n");
}

static void write_comparison(const comparison *c, td_json_writer *w) {
    td_json_key(w, "steps");
    td_json_write_int(w, c->n_steps);
    td_json_key(w, "same_best");
    td_json_write_int(w, c->n_same_best);
    td_json_key(w, "max_abs_diff"); /* null: not finite on one side */
    td_json_write_double(w, c->worst_plain);
    td_json_key(w, "max_rel_diff");
    td_json_write_double(w, c->worst);
    td_json_key(w, "agree");
    td_json_write_bool(w, !c->disagrees);
}

static int print_json(const verify *v) {
    td_json_writer w;
    td_buf out = {0};

    td_json_writer_init(&w, &out, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "engines");
    td_json_begin_array(&w);
    for (int i = 0; i < 2; i++) td_json_write_text(&w, v->names[i]);
    td_json_end_array(&w);
    td_json_key(&w, "prompts");
    td_json_begin_array(&w);
    for (size_t i = 0; i < v->n_prompts; i++) {
        const comparison *c = &v->each[i];
        td_json_begin_object(&w);
        td_json_key(&w, "prompt_tokens");
        td_json_write_int(&w, (int64_t)v->prompts[i].n);
        write_comparison(c, &w);
        td_json_key(&w, "forced"); /* how often the second engine was given the first one's token */
        td_json_write_int(&w, c->n_forced);
        td_json_key(&w, "first_difference");
        if (c->first_step < 0) {
            td_json_write_null(&w);
        } else {
            td_json_begin_object(&w);
            td_json_key(&w, "step");
            td_json_write_int(&w, c->first_step);
            td_json_key(&w, "tokens");
            td_json_begin_array(&w);
            for (int k = 0; k < 2; k++) td_json_write_int(&w, c->first[k]);
            td_json_end_array(&w);
            td_json_end_object(&w);
        }
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    write_comparison(&v->all, &w);
    td_json_key(&w, "tolerance");
    td_json_write_double(&w, v->args->tolerance);
    td_json_end_object(&w);
    td_buf_char(&out, '\n');
    int code = !out.failed && td_out(td_buf_view(&out)) ? EXIT_OK : EXIT_RUN;
    td_buf_free(&out);
    return code;
}

/* --- the command */
static int check_args(const verify_args *args) {
    if (strcmp(args->against, "light") != 0 && strcmp(args->against, "ort") != 0)
        return td_usage(&td_command_verify, "--against: expected light or ort, found \"%s\"", args->against);
    if (args->max_new_tokens < 1)
        return td_usage(&td_command_verify, "--max-new-tokens: expected at least 1, found %lld",
                        (long long)args->max_new_tokens);
    if (!(args->tolerance >= 0)) return td_usage(&td_command_verify, "--tolerance: expected a number of at least 0");
    return EXIT_OK;
}

static int open_models(verify *v, const char *path) {
    for (int side = 0; side < 2; side++) {
        td_model_args args = v->args->model;
        args.engine = v->names[side];
        int code = td_model_get(&args, path, &v->arena, &v->models[side], NULL);
        if (code != EXIT_OK) return code;
    }
    return EXIT_OK;
}

static int verify_run(void *given, char **positional) {
    verify v = {.args = given};

    int code = check_args(v.args);
    v.names[0] = v.args->model.engine ? v.args->model.engine : "light";
    v.names[1] = v.args->against;
    if (code == EXIT_OK) code = open_models(&v, positional[0]);
    if (code == EXIT_OK) code = read_prompts(&v);
    if (code == EXIT_OK) {
        v.each = TD_ARENA_ARRAY(&v.arena, comparison, v.n_prompts);
        if (!v.each) code = EXIT_RUN;
    }
    for (size_t i = 0; code == EXIT_OK && i < v.n_prompts; i++)
        code = v.has_logits ? compare_prompt(&v, v.prompts[i], &v.each[i]) : compare_pass(&v, v.prompts[i], &v.each[i]);
    if (code == EXIT_OK) add_up(&v);
    if (code == EXIT_OK && v.all.n_steps == 0) {
        fprintf(stderr, "treadle: there was nothing to compare: no step gave logits\n");
        code = EXIT_RUN;
    }
    if (code == EXIT_OK) {
        if (v.args->json) code = print_json(&v);
        else print_text(&v);
        if (code == EXIT_OK && v.all.disagrees) code = EXIT_RUN;
    }
    for (int side = 0; side < 2; side++) treadle_model_close(v.models[side]);
    td_arena_free(&v.arena);
    return code;
}

const td_command td_command_verify = {
    .name = "verify",
    .arguments = "DIR|FILE [--against ort] [-p TEXT ...] [-n N] [--tolerance T] [--json]",
    .summary = "compare two engines on a model, token by token and logit by logit",
    .help =
        "Generates greedily on both engines (the first: --engine, or light) and compares the logits of every step with the same past\n"
        "on both sides; models without logits: their vectors, else all their tensors. Exit code 1 if they differ by more than the\n"
        "tolerance.",
    .options = verify_options,
    .n_options = TD_COUNT(verify_options),
    .args_bytes = sizeof(verify_args),
    .defaults = verify_defaults,
    .min_positional = 1,
    .max_positional = 1,
    .run = verify_run,
};
