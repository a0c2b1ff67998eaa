#include "support/pipelines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

const char *const td_test_folders[] = {"concat", "nomask", "gqa", "last", "combined", "concat-f16", NULL};

const char *td_test_folder(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/data/pipelines/%s", name);
    return td_test_source(path);
}

static size_t read_ids(char **at, int32_t *out) {
    size_t n = 0;
    char *end;
    for (long v; n < TD_TEST_IDS && (v = strtol(*at, &end, 10), end != *at); *at = end) out[n++] = (int32_t)v;
    return n;
}

void td_test_read_golden(const char *name, td_test_golden *out) {
    char path[512];
    snprintf(path, sizeof path, "%s/golden.txt", td_test_folder(name));
    char *text = td_test_read(path, NULL), *at = text;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < TD_TEST_PROMPTS; i++) {
        char *line = strchr(at, '\n');
        REQUIRE(line != NULL);
        *line = 0;
        out->n_prompt[i] = read_ids(&at, out->prompt[i]);
        at = strchr(at, ':') + 1;
        out->n_new[i] = read_ids(&at, out->fresh[i]);
        at = line + 1;
    }
    free(text);
}

treadle_model *td_test_open(const char *name, int threads) {
    treadle_model *model = NULL;
    treadle_model_options options;
    treadle_error err = {0};
    treadle_model_options_init(&options);
    options.n_threads = threads;
    CHECK_OK(treadle_model_open(td_test_folder(name), &options, &model, &err), &err);
    return model;
}
