/* Calls without what they need: an error that names it, or nothing. Never a crash. */
#include <string.h>

#include "support/pipelines.h"
#include "support/test.h"

TEST(accessors_of_nothing_give_nothing) {
    treadle_message message = {.message = "kept"};
    treadle_port port = {.name = "kept"};
    treadle_segment segment = {.n_words = 3};
    treadle_tensor tensor = {.rank = 3};
    treadle_report_get(NULL, 0, NULL);
    treadle_report_get(NULL, 0, &message);
    CHECK_EQ_STR(message.message, "");
    treadle_session_input(NULL, 0, NULL);
    treadle_session_output(NULL, 0, NULL);
    treadle_session_output(NULL, 0, &port);
    CHECK_EQ_STR(port.name, "");
    CHECK_EQ_STR(treadle_features_name(NULL, 0), "");
    treadle_features_tensor(NULL, 0, NULL);
    treadle_features_tensor(NULL, 0, &tensor);
    CHECK_EQ_INT(tensor.rank, 0);
    CHECK_EQ_STR(treadle_transcript_language(NULL), "");
    CHECK(treadle_transcript_language_probability(NULL) == 1);
    CHECK_EQ_UINT(treadle_transcript_text(NULL).n, 0);
    CHECK_EQ_UINT(treadle_transcript_ids(NULL).n, 0);
    treadle_transcript_segment(NULL, 0, NULL);
    treadle_transcript_segment(NULL, 0, &segment);
    CHECK_EQ_UINT(segment.n_words, 0);
    treadle_error error = {.message = "why"};
    char text[8];
    CHECK_EQ_INT(treadle_error_format(NULL, text, sizeof text), 2);
    CHECK_EQ_STR(text, "ok");
    CHECK_EQ_INT(treadle_error_format(&error, NULL, 5), 3);
}

TEST(tensors_without_data_are_named) {
    const treadle_string strings[] = {{"a", 1}, {NULL, 2}};
    treadle_tensor floats = {.dtype = TREADLE_DTYPE_FLOAT, .rank = 1, .dims = {3}};
    treadle_tensor words = {.dtype = TREADLE_DTYPE_STRING, .rank = 1, .dims = {2}, .data = strings};
    treadle_value *value = NULL;
    treadle_error err = {0};
    CHECK_STATUS(treadle_tensor_write_npy("no.npy", &floats, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "data is NULL");
    CHECK_STATUS(treadle_value_new(&floats, &value, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_STATUS(treadle_value_new(&words, &value, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "string 1 of the tensor is NULL, but 2 bytes long");
}

TEST(lists_without_entries_are_named) {
    const char *path = td_test_folder("concat"), *missing[] = {"/tmp", NULL};
    treadle_model_options options;
    treadle_session_options of_session;
    treadle_model *model = NULL;
    treadle_session *session = NULL;
    treadle_error err = {0};
    treadle_model_options_init(&options);
    options.n_plugin_dirs = 2;
    CHECK_STATUS(treadle_model_open(path, &options, &model, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "plugin_dirs: entry 0 is NULL");
    options.plugin_dirs = missing;
    CHECK_STATUS(treadle_model_open(path, &options, &model, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "plugin_dirs: entry 1 is NULL");
    treadle_model_options_init(&options);
    options.n_provider_libraries = 1;
    CHECK_STATUS(treadle_model_open(path, &options, &model, &err), TREADLE_INVALID_ARGUMENT, &err);
    treadle_session_options_init(&of_session);
    of_session.n_provider_libraries = 1;
    CHECK_STATUS(treadle_session_open(path, &of_session, &session, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "provider_libraries: entry 0 is NULL");
}

TEST(the_status_of_a_wrong_chat_is_also_the_errors) {
    treadle_model *model = td_test_open("concat", 1);
    treadle_chat_options options;
    treadle_error err = {0};
    char *text = NULL;
    treadle_chat_options_init(&options);
    options.template_text = "x";
    options.tools_json = "{";
    treadle_status status = treadle_text_render_chat(treadle_model_text(model), "[]", &options, &text, NULL, &err);
    CHECK_EQ_INT(status, TREADLE_INVALID_ARGUMENT);
    CHECK_EQ_INT(err.code, status);
    treadle_model_close(model);
}

/* Beams make room for tokens as they come, not for all that a row may hold. */
TEST(beams_of_a_model_without_a_limit) {
    static const treadle_setting settings[] = {{"/generation/max_length", "2147483647"},
                                               {"/generation/context_length", "2147483647"},
                                               {"/tokens/eos",
                                                "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, "
                                                "17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29]"}};
    static const int32_t ids[] = {1, 2, 3};
    treadle_model_options options;
    treadle_generate_options how;
    treadle_model *model = NULL;
    treadle_generator *g = NULL;
    treadle_ids row = {ids, 3};
    treadle_error err = {0};
    treadle_model_options_init(&options);
    options.settings = settings;
    options.n_settings = 3;
    CHECK_OK(treadle_model_open(td_test_folder("concat"), &options, &model, &err), &err);
    treadle_generate_options_init(&how);
    how.num_beams = 2;
    CHECK_OK(treadle_generator_new(model, &how, &g, &err), &err);
    CHECK_OK(treadle_generator_append(g, &row, 1, &err), &err);
    CHECK_OK(treadle_generator_run(g, -1, NULL, NULL, &err), &err);
    CHECK_EQ_INT(treadle_generator_finish(g, 0), TREADLE_FINISH_EOS);
    treadle_stats stats = {.struct_size = sizeof stats};
    treadle_generator_get_stats(g, &stats);
    CHECK(stats.state_bytes < 1 << 20);
    treadle_generator_free(g);
    treadle_model_close(model);
}
