/* support/pipelines.h - the tiny model folders of tests/data/pipelines and their golden tokens. */
#ifndef TD_TESTS_SUPPORT_PIPELINES_H
#define TD_TESTS_SUPPORT_PIPELINES_H

#include "treadle/treadle.h"

enum { TD_TEST_PROMPTS = 4, TD_TEST_IDS = 32 };

typedef struct td_test_golden {
    int32_t prompt[TD_TEST_PROMPTS][TD_TEST_IDS], fresh[TD_TEST_PROMPTS][TD_TEST_IDS];
    size_t n_prompt[TD_TEST_PROMPTS], n_new[TD_TEST_PROMPTS];
} td_test_golden;

extern const char *const td_test_folders[]; /* ends with NULL */

const char *td_test_folder(const char *name);
void td_test_read_golden(const char *name, td_test_golden *out); /* fails and leaves the test if it cannot */
/* Opens a folder or leaves the test. threads 0: all. */
treadle_model *td_test_open(const char *name, int threads);

#endif
