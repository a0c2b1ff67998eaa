/* Any bytes as a model folder: a config and up to four graphs, opened, looked at and run for two tokens.
 *
 * The input is the config and then the graphs 0.onnx, 1.onnx ..., each after a line "--graph--"; so a mutation reaches
 * the config, the graphs, and what one says of the other. Tensors that the plan wants from a request are made as the
 * graphs declare them, free dimensions 2. Sizes are kept small as in fuzz_light.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "model/model.h"
#include "treadle/treadle.h"

enum { MAX_GRAPHS = 4, MAX_INPUT_ELEMENTS = 1 << 12 };
static const size_t MAX_ALLOCATION = (size_t)1 << 26;
static const char MARK[] = "\n--graph--\n";

bool td_alloc_test_fails(size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Huge sizes are to be answered by "out of memory", not by this machine's memory. */
bool td_alloc_test_fails(size_t bytes) { return bytes > MAX_ALLOCATION; }

static char folder[64];

static void remove_folder(void) {
    static const char *const names[] = {"genai_config.json", "0.onnx", "1.onnx", "2.onnx", "3.onnx"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static bool make_folder(void) {
    if (folder[0]) return true;
    snprintf(folder, sizeof folder, "/tmp/fuzz-folder-XXXXXX");
    if (!mkdtemp(folder)) return false;
    atexit(remove_folder);
    return true;
}

static bool write_part(const char *name, const uint8_t *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    if (f) fclose(f);
    return ok;
}

static const uint8_t *find_mark(const uint8_t *p, const uint8_t *end) {
    for (; (size_t)(end - p) >= sizeof MARK - 1; p++)
        if (memcmp(p, MARK, sizeof MARK - 1) == 0) return p;
    return NULL;
}

static bool write_folder(const uint8_t *data, size_t size) {
    const uint8_t *end = data + size, *p = data;
    char name[32] = "genai_config.json";
    for (int i = 0; i <= MAX_GRAPHS; i++) {
        const uint8_t *mark = find_mark(p, end);
        if (!write_part(name, p, (size_t)((mark ? mark : end) - p))) return false;
        if (!mark) break;
        p = mark + sizeof MARK - 1;
        snprintf(name, sizeof name, "%d.onnx", i);
    }
    return true;
}

static void give_tensor(treadle_generator *g, const td_plan *plan, const td_plan_request *request) {
    static const double zeros[MAX_INPUT_ELEMENTS]; /* of any type */
    treadle_tensor t = {.dtype = TREADLE_DTYPE_INT64, .rank = 2, .dims = {1, 3}, .data = zeros};
    char name[256];
    int64_t count = 1;
    if (request->session >= 0) {
        const td_light_port *port = &plan->sessions[request->session].signature->inputs[request->input];
        if (port->shape.rank < 0) return;
        t.dtype = (treadle_dtype)port->dtype;
        t.rank = port->shape.rank;
        for (int d = 0; d < t.rank; d++) t.dims[d] = port->shape.dims[d] < 0 ? 2 : port->shape.dims[d];
    }
    for (int d = 0; d < t.rank; d++)
        if (t.dims[d] > MAX_INPUT_ELEMENTS || (count *= t.dims[d]) > MAX_INPUT_ELEMENTS) return;
    snprintf(name, sizeof name, "%.*s", (int)request->name.n, request->name.p);
    treadle_generator_set_tensor(g, name, &t, NULL);
}

static void run(treadle_model *model) {
    static const int32_t ids[] = {1, 2, 3};
    treadle_generator *g = NULL, *fork = NULL;
    treadle_generate_options options;
    treadle_ids rows[2] = {{ids, 3}, {ids, 1}};
    treadle_generate_options_init(&options);
    options.max_new_tokens = 2;
    if (treadle_generator_new(model, &options, &g, NULL) != TREADLE_OK) return;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < model->plan->n_requests; i++) give_tensor(g, model->plan, &model->plan->requests[i]);
        if (treadle_generator_append(g, rows, round == 0 ? 1 : treadle_generator_n_rows(g), NULL) != TREADLE_OK)
            treadle_generator_clear_tensors(g);
        if (model->plan->pooling.present) treadle_generator_prefill(g, NULL);
        else treadle_generator_run(g, 2, NULL, NULL, NULL);
        if (!fork) treadle_generator_fork(g, &fork, NULL);
        treadle_generator_rewind(g, 0, 2, NULL);
    }
    if (fork) treadle_generator_run(fork, 1, NULL, NULL, NULL);
    treadle_generator_free(fork);
    treadle_generator_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    treadle_model_options options;
    treadle_report *report = NULL;
    treadle_model *model = NULL;
    char *text = NULL;
    if (!make_folder() || !write_folder(data, size)) return 0;
    treadle_model_options_init(&options);
    options.n_threads = 1;
    options.no_passes = size & 1;
    if (treadle_model_check(folder, &options, &report, NULL) == TREADLE_OK) treadle_report_free(report);
    if (treadle_model_explain(folder, &options, size & 2, &text, NULL) == TREADLE_OK) treadle_free(text);
    if (treadle_model_open(folder, &options, &model, NULL) == TREADLE_OK) {
        run(model);
        treadle_model_close(model);
    }
    return 0;
}
