/* tools/treadle/cmd_conformance.c - `treadle conformance`: ONNX backend test folders (model.onnx,
 * test_data_set_N/input_i.pb, output_i.pb), with the official runner's tolerance: rtol 1e-3, atol 1e-7, element type
 * and shape equal, strings exact. Of cases with random operators only types and shapes are compared: nothing says which
 * generator made the values on file. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RTOL 1e-3
#define ATOL 1e-7

typedef struct conformance_args {
    td_model_args model;
    const char *passes, *filter;
    bool json;
} conformance_args;

static const td_option conformance_options[] = {
    {"passes", 0, OPTION_TEXT, "all|none", "with or without rewrites of the graph (default: all)",
     offsetof(conformance_args, passes)},
    {"filter", 0, OPTION_TEXT, "GLOB", "only folders whose name fits", offsetof(conformance_args, filter)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object", offsetof(conformance_args, json)},
    MODEL_OPTIONS(conformance_args),
};

typedef enum verdict { PASSED, FAILED, SKIPPED } verdict;

typedef struct result {
    const char *name, *op;
    verdict verdict;
    const char *why; /* of failures and skips */
} result;

typedef struct conformance {
    const conformance_args *args;
    treadle_session_options options;
    td_arena arena;
    TD_VEC(result) results;
    bool random; /* the case at hand */
} conformance;

/* --- comparing */
static bool near(double got, double want) {
    if (isnan(want)) return isnan(got);
    if (isinf(want) || isinf(got)) return got == want;
    return fabs(got - want) <= ATOL + RTOL * fabs(want);
}

static const char *compare_tensors(conformance *c, const treadle_tensor *got, const treadle_tensor *want) {
    int64_t count;
    size_t bytes;

    if (got->dtype != want->dtype)
        return td_arena_printf(&c->arena, "is %s, expected %s", treadle_dtype_name(got->dtype),
                               treadle_dtype_name(want->dtype));
    bool same = got->rank == want->rank;
    for (int i = 0; same && i < got->rank; i++) same = got->dims[i] == want->dims[i];
    if (!same) return "has another shape";
    if (treadle_tensor_size(want, &count, &bytes, NULL) != TREADLE_OK) return "has no size";
    if (c->random) return NULL;
    for (int64_t i = 0; i < count; i++) {
        if (want->dtype == TREADLE_DTYPE_STRING) {
            const treadle_string *a = (const treadle_string *)got->data + i,
                                 *b = (const treadle_string *)want->data + i;
            if (a->n != b->n || (a->n && memcmp(a->p, b->p, a->n) != 0))
                return td_arena_printf(&c->arena, "element %lld is another string", (long long)i);
        } else if (want->dtype == TREADLE_DTYPE_INT64 || want->dtype == TREADLE_DTYPE_UINT64) { /* exact beyond 2^53 */
            int64_t a = ((const int64_t *)got->data)[i], b = ((const int64_t *)want->data)[i];
            if (a != b && !near((double)a, (double)b))
                return td_arena_printf(&c->arena, "element %lld is %lld, expected %lld", (long long)i, (long long)a,
                                       (long long)b);
        } else {
            double a = treadle_tensor_get(got, i), b = treadle_tensor_get(want, i);
            if (!near(a, b))
                return td_arena_printf(&c->arena, "element %lld is %.9g, expected %.9g", (long long)i, a, b);
        }
    }
    return NULL;
}

/* NULL: equal. */
static const char *compare_values(conformance *c, const treadle_value *got, const treadle_value *want) {
    treadle_tensor a, b;

    if (treadle_value_get_kind(got) != treadle_value_get_kind(want)) return "is of another kind";
    switch (treadle_value_get_kind(want)) {
    case TREADLE_VALUE_NONE: return NULL;
    case TREADLE_VALUE_TENSOR:
        if (treadle_value_tensor(got, &a, NULL) != TREADLE_OK || treadle_value_tensor(want, &b, NULL) != TREADLE_OK)
            return "is no tensor";
        return compare_tensors(c, &a, &b);
    case TREADLE_VALUE_SEQUENCE: break;
    }
    if (treadle_value_count(got) != treadle_value_count(want)) return "has another length";
    for (size_t i = 0; i < treadle_value_count(want); i++) {
        treadle_value *x = NULL, *y = NULL;
        const char *why = "cannot be read";
        if (treadle_value_item(got, i, &x, NULL) == TREADLE_OK && treadle_value_item(want, i, &y, NULL) == TREADLE_OK)
            why = compare_values(c, x, y);
        treadle_value_release(x);
        treadle_value_release(y);
        if (why) return why;
    }
    return NULL;
}

/* --- one folder */
static const char *keep_error(conformance *c, const treadle_error *error) {
    const char *text = td_arena_printf(&c->arena, "%s", error->message);
    return text ? text : "out of memory";
}

/* Reads KIND_0.pb ... of a data set into values[n]; a missing file leaves NULL. */
static const char *read_values(conformance *c, const treadle_session *session, const char *set, bool inputs,
                               treadle_value **values, size_t n, verdict *out) {
    for (size_t i = 0; i < n; i++) {
        treadle_error error = {0};
        char *path = td_arena_printf(&c->arena, "%s/%s_%zu.pb", set, inputs ? "input" : "output", i);
        if (!path) return "out of memory";
        if (!td_path_is_file(path)) continue;
        treadle_status status = treadle_session_read_pb(session, inputs, i, path, &values[i], &error);
        if (status == TREADLE_UNSUPPORTED) *out = SKIPPED;
        if (status != TREADLE_OK) return keep_error(c, &error);
    }
    return NULL;
}

static const char *run_set(conformance *c, treadle_session *session, const char *set, verdict *out) {
    size_t n_in = treadle_session_n_inputs(session), n_out = treadle_session_n_outputs(session);
    treadle_value **in = TD_ARENA_ARRAY(&c->arena, treadle_value *, n_in + 1);
    treadle_value **want = TD_ARENA_ARRAY(&c->arena, treadle_value *, n_out + 1);
    treadle_value **got = TD_ARENA_ARRAY(&c->arena, treadle_value *, n_out + 1);
    treadle_error error = {0};
    const char *why = "out of memory";

    *out = FAILED;
    if (in && want && got) why = read_values(c, session, set, true, in, n_in, out);
    if (!why) why = read_values(c, session, set, false, want, n_out, out);
    if (!why && treadle_session_run(session, (const treadle_value *const *)in, got, &error) != TREADLE_OK)
        why = keep_error(c, &error);
    for (size_t i = 0; !why && i < n_out; i++) {
        if (!want[i]) {
            why = td_arena_printf(&c->arena, "output_%zu.pb is missing", i);
            break;
        }
        why = compare_values(c, got[i], want[i]);
        if (why) why = td_arena_printf(&c->arena, "output %zu %s", i, why);
    }
    for (size_t i = 0; in && i < n_in; i++) treadle_value_release(in[i]);
    for (size_t i = 0; want && got && i < n_out; i++) {
        treadle_value_release(want[i]);
        treadle_value_release(got[i]);
    }
    if (!why) *out = PASSED;
    return why;
}

static bool is_random(td_str op) {
    static const char *const names[] = {"Bernoulli",        "Multinomial",   "RandomNormal",
                                        "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
    for (size_t i = 0; i < TD_COUNT(names); i++)
        if (td_str_is(op, names[i])) return true;
    return false;
}

/* The op that a case is about: the only op of its graph, else "graph". Sets c->random. */
static const char *op_of(conformance *c, const char *model) {
    char *json = NULL;
    td_json *root;
    const char *name = "graph";

    c->random = false;
    if (treadle_file_inspect(model, &json, NULL) != TREADLE_OK) return "unreadable";
    if (td_json_parse(td_str_from(json), NULL, &c->arena, &root, NULL) == TREADLE_OK) {
        const td_json *ops = td_json_get(root, "ops");
        for (const td_json *op = ops ? ops->first : NULL; op; op = op->next)
            c->random = c->random || is_random(td_json_string_or(op, "op", ""));
        if (ops && ops->n == 1) {
            td_str op = td_json_string_or(ops->first, "op", "");
            name = td_arena_strndup(&c->arena, op.p, op.n);
        }
    }
    treadle_free(json);
    return name ? name : "graph";
}

static void run_folder(conformance *c, const char *folder) {
    treadle_error error = {0};
    treadle_session *session = NULL;
    char *model = td_path_join(&c->arena, folder, "model.onnx");
    result r = {.name = td_path_base(folder), .verdict = FAILED};
    int n_sets = 0;

    if (!model) return;
    r.op = op_of(c, model);
    treadle_status status = treadle_session_open(model, &c->options, &session, &error);
    if (status != TREADLE_OK) {
        r.verdict = status == TREADLE_UNSUPPORTED ? SKIPPED : FAILED;
        r.why = keep_error(c, &error);
    }
    for (; status == TREADLE_OK; n_sets++) {
        char *set = td_arena_printf(&c->arena, "%s/test_data_set_%d", folder, n_sets);
        if (!set || !td_path_is_dir(set)) break;
        r.why = run_set(c, session, set, &r.verdict);
        if (r.why) break;
    }
    if (status == TREADLE_OK && n_sets == 0 && !r.why) {
        r.verdict = SKIPPED;
        r.why = "there is no test_data_set_0";
    }
    treadle_session_close(session);
    if (!td_vec_push(&c->results, r)) fprintf(stderr, "treadle: out of memory\n");
}

/* A case, or a folder of cases at any depth. */
static void walk(conformance *c, const char *folder, int depth) {
    treadle_error error = {0};
    char **names, *model = td_path_join(&c->arena, folder, "model.onnx");
    size_t n;

    if (td_interrupted() || !model) return;
    if (td_path_is_file(model)) {
        if (!c->args->filter || td_glob(c->args->filter, td_path_base(folder))) run_folder(c, folder);
        return;
    }
    if (depth > 8) return;
    if (td_list_dir(&c->arena, folder, &names, &n, &error) != TREADLE_OK) {
        td_report(&error);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char *below = td_path_join(&c->arena, folder, names[i]);
        if (below && td_path_is_dir(below)) walk(c, below, depth + 1);
    }
}

/* --- printing */
static int by_op(const void *a, const void *b) {
    const result *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    return order ? order : strcmp(x->name, y->name);
}

static void count(const result *results, size_t n, size_t counts[3]) {
    counts[PASSED] = counts[FAILED] = counts[SKIPPED] = 0;
    for (size_t i = 0; i < n; i++) counts[results[i].verdict]++;
}

static void print_table(const conformance *c) {
    const result *r = c->results.items;
    size_t n = c->results.n, counts[3];

    for (size_t i = 0; i < n; i++) {
        if (r[i].verdict == FAILED) printf("FAIL %s: %s\n", r[i].name, r[i].why);
        if (r[i].verdict == SKIPPED && c->args->model.verbose) printf("skip %s: %s\n", r[i].name, r[i].why);
    }
    printf("%-32s %7s %7s %7s\n", "op", "passed", "failed", "skipped");
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(r[end].op, r[i].op) == 0;) end++;
        count(r + i, end - i, counts);
        printf("%-32s %7zu %7zu %7zu\n", r[i].op, counts[PASSED], counts[FAILED], counts[SKIPPED]);
    }
    count(r, n, counts);
    printf("%zu passed, %zu failed, %zu skipped\n", counts[PASSED], counts[FAILED], counts[SKIPPED]);
}

static void print_json(const conformance *c) {
    static const char *const words[] = {"passed", "failed", "skipped"};
    td_json_writer w;
    td_buf out = {0};
    size_t counts[3];

    td_json_writer_init(&w, &out, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "cases");
    td_json_begin_array(&w);
    for (size_t i = 0; i < c->results.n; i++) {
        const result *r = &c->results.items[i];
        td_json_begin_object(&w);
        td_json_key(&w, "name");
        td_json_write_text(&w, r->name);
        td_json_key(&w, "op");
        td_json_write_text(&w, r->op);
        td_json_key(&w, "result");
        td_json_write_text(&w, words[r->verdict]);
        if (r->why) {
            td_json_key(&w, "why");
            td_json_write_text(&w, r->why);
        }
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    count(c->results.items, c->results.n, counts);
    for (int i = 0; i < 3; i++) {
        td_json_key(&w, words[i]);
        td_json_write_int(&w, (int64_t)counts[i]);
    }
    td_json_end_object(&w);
    if (!out.failed) printf("%s\n", out.p);
    td_buf_free(&out);
}

static int conformance_run(void *given, char **positional) {
    conformance c = {.args = given};
    td_model_source source;
    size_t counts[3];
    int code = EXIT_OK;

    if (c.args->passes && strcmp(c.args->passes, "all") != 0 && strcmp(c.args->passes, "none") != 0)
        return td_usage(&td_command_conformance, "--passes: expected all or none, found \"%s\"", c.args->passes);
    treadle_session_options_init(&c.options);
    for (size_t i = 0; positional[i] && code == EXIT_OK; i++) {
        if (!td_path_is_dir(positional[i])) {
            fprintf(stderr, "treadle: %s: no such folder\n", positional[i]);
            code = EXIT_USAGE;
            break;
        }
        code = td_model_source_get(&c.args->model, positional[i], &c.arena, &source);
        if (code != EXIT_OK) break;
        c.options.n_threads = source.options.n_threads;
        c.options.activations = source.options.activations;
        c.options.engine = source.options.engine;
        c.options.ort_library = source.options.ort_library;
        c.options.provider_libraries = source.options.provider_libraries;
        c.options.n_provider_libraries = source.options.n_provider_libraries;
        c.options.no_passes = source.options.no_passes || (c.args->passes && strcmp(c.args->passes, "none") == 0);
        walk(&c, positional[i], 0);
    }
    if (code == EXIT_OK) {
        if (c.results.n) qsort(c.results.items, c.results.n, sizeof *c.results.items, by_op);
        if (c.args->json) print_json(&c);
        else print_table(&c);
        count(c.results.items, c.results.n, counts);
        if (c.results.n == 0)
            fprintf(stderr, "treadle: no case found%s%s\n", c.args->filter ? " that fits " : "",
                    c.args->filter ? c.args->filter : "");
        if (counts[FAILED] || c.results.n == 0) code = EXIT_RUN;
    }
    td_vec_free(&c.results);
    td_arena_free(&c.arena);
    return code;
}

const td_command td_command_conformance = {
    .name = "conformance",
    .arguments = "DIR... [--passes all|none] [--filter GLOB] [--json]",
    .summary = "run ONNX backend test folders",
    .help =
        "A folder is a case (model.onnx and test_data_set_N/*.pb) or holds cases. Cases with ops that are missing are skipped; -v says\n"
        "why. Exit code 1 if any case failed or none was found.",
    .options = conformance_options,
    .n_options = TD_COUNT(conformance_options),
    .args_bytes = sizeof(conformance_args),
    .min_positional = 1,
    .max_positional = 4096,
    .run = conformance_run,
};
