/* Reading a config: places of messages, list and null forms, presets, precedence of sources, hostile input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "support/pipelines.h"
#include "support/test.h"

typedef struct read_config {
    td_arena arena;
    td_messages messages;
    td_config *config;
} read_config;

static void read_text(read_config *r, const char *text, const td_config_options *options) {
    treadle_error err = {0};
    td_arena_init(&r->arena);
    td_messages_init(&r->messages, &r->arena);
    r->config = NULL;
    CHECK_OK(
        td_config_parse(td_str_from(text), "c.json", td_test_folder("concat"), options, &r->messages, &r->config, &err),
        &err);
}

static void done(read_config *r) {
    td_config_free(r->config);
    td_messages_free(&r->messages);
    td_arena_free(&r->arena);
}

/* Exactly these messages, in any order: "line:column pointer" and a part of the text. */
static void check_message(const read_config *r, const char *place, const char *part) {
    char got[600];
    for (size_t i = 0; i < r->messages.list.n; i++) {
        const td_message *m = &r->messages.list.items[i];
        snprintf(got, sizeof got, "%u:%u %s", m->place.line, m->place.column, m->place.pointer ? m->place.pointer : "");
        if (strcmp(got, place) == 0 && strstr(m->text, part)) return;
    }
    FAIL("no message at %s with \"%s\"; the first is %s", place, part,
         r->messages.list.n ? r->messages.list.items[0].text : "none");
}

#define SESSIONS "\"sessions\": {\"decoder\": {\"file\": \"model.onnx\"}}"

TEST(all_independent_errors_come_at_once) {
    read_config r;
    read_text(
        &r,
        "{\"version\": 2,\n \"pipeline\": {" SESSIONS ", \"flow\": {\"run\": \"decoder\", \"when\": \"allways\"}},\n"
        " \"tokens\": {\"eos\": [2, \"x\"], \"pad\": -1},\n \"generation\": {\"sampling\": {\"top_p\": 2, \"temprature\": 1}}}",
        NULL);
    check_message(&r, "2:99 /pipeline/flow/when", "Did you mean \"always\"?");
    check_message(&r, "3:24 /tokens/eos/1", "expected an integer, found a string");
    check_message(&r, "3:37 /tokens/pad", "expected an integer from 0 to 2147483647, found -1");
    check_message(&r, "4:39 /generation/sampling/top_p", "expected a number from 0 to 1, found 2");
    check_message(&r, "4:42 /generation/sampling/temprature", "Did you mean \"temperature\"?");
    CHECK_EQ_UINT(r.messages.n_errors, 4);
    done(&r);
    read_text(&r, "{\"version\": 2, \"pipeline\": {" SESSIONS "}, \"tokenss\": 1}",
              &(td_config_options){.strict = true});
    CHECK_EQ_UINT(r.messages.n_errors, 1);
    done(&r);
}

TEST(scalars_are_lists_of_one_and_null_is_unset) {
    read_config r;
    read_text(&r,
              "{\"version\": 2, \"pipeline\": {\"extends\": \"autoregressive-decoder\", " SESSIONS ", \"state\": null},"
              "\"tokens\": {\"eos\": 7, \"pad\": null}, \"generation\": {\"stop\": \"x\", \"sampling\": null}}",
              NULL);
    CHECK_EQ_UINT(r.messages.list.n, 0);
    CHECK_EQ_UINT(r.config->tokens.eos.n, 1);
    CHECK_EQ_INT(r.config->tokens.eos.ids[0], 7);
    CHECK_EQ_INT(r.config->tokens.pad, -1);
    CHECK_EQ_UINT(r.config->generation.n_stop, 1);
    CHECK_EQ_UINT(r.config->n_steps, 1); /* the preset's */
    CHECK_EQ_STR(td_tree_source(r.config->steps[0].json)->label, "preset autoregressive-decoder");
    CHECK_EQ_STR(td_tree_source(td_json_get(td_json_get(r.config->root, "tokens"), "eos"))->label, "c.json");
    done(&r);
}

TEST(settings_go_over_the_file) {
    static const treadle_setting settings[] = {{"/generation/max_length", "48"},
                                               {"/generation/sampling/top_k", "5"},
                                               {"/tokens/eos", "null"},
                                               {"bad", "1"},
                                               {"/a/b", "{"}};
    read_config r;
    read_text(&r,
              "{\"version\": 2, \"pipeline\": {" SESSIONS
              "}, \"tokens\": {\"eos\": 7}, \"generation\": {\"max_length\": 9}}",
              &(td_config_options){.settings = settings, .n_settings = 5});
    CHECK_EQ_INT(r.config->generation.max_length, 48);
    CHECK_EQ_INT(r.config->generation.sampling.top_k, 5);
    CHECK_EQ_UINT(r.config->tokens.eos.n, 0);
    CHECK(td_json_get(td_json_get(r.config->root, "tokens"), "eos") == NULL);
    CHECK_EQ_UINT(r.messages.n_errors, 2);
    done(&r);
}

TEST(files_stay_inside_the_folder) {
    static const char *const bad[] = {"../concat/model.onnx", "/etc/passwd", "", "a\\u0000b",
                                      "model.onnx\\n",        "no.onnx"};
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        char text[256];
        read_config r;
        snprintf(text, sizeof text, "{\"version\": 2, \"pipeline\": {\"sessions\": {\"d\": {\"file\": \"%s\"}}}}",
                 bad[i]);
        read_text(&r, text, NULL);
        CHECK_EQ_UINT(r.messages.n_errors, 1);
        if (r.config->n_sessions) CHECK(r.config->sessions[0].path == NULL);
        done(&r);
    }
}

TEST(hostile_text_ends_in_messages) {
    static const char *const texts[] = {
        "",
        "[",
        "{",
        "null",
        "7",
        "{}",
        "{\"version\": 2}",
        "{\"version\": 1e308}",
        "{\"version\": \"2\"}",
        "{\"version\": 2, \"pipeline\": 5}",
        "{\"version\": 2, \"pipeline\": {\"sessions\": []}}",
        "{\"version\": 2, \"pipeline\": {\"sessions\": {\"\": {}}}}",
        "{\"version\": 2, \"pipeline\": {" SESSIONS ", \"flow\": [[], null, 1]}}",
        "{\"version\": 2, \"pipeline\": {" SESSIONS ", \"dataflow\": {\"from\": \".\", \"to\": \"\"}}}",
        "{\"version\": 2, \"pipeline\": {" SESSIONS "}, \"generation\": {\"max_length\": 99999999999999999999}}",
        "{\"version\": 2, \"pipeline\": {" SESSIONS "}, \"tokens\": {\"eos\": [9223372036854775807, 1e300]}}",
    };
    for (size_t i = 0; i < TD_COUNT(texts); i++) {
        read_config r;
        read_text(&r, texts[i], NULL);
        if (i != 6) CHECK(r.messages.n_errors > 0 || i == 13);
        done(&r);
    }
    /* a hundred thousand sessions, steps and levels */
    td_buf big = {0};
    read_config r;
    td_buf_text(&big, "{\"version\": 2, \"pipeline\": {\"sessions\": {");
    for (int i = 0; i < 100000; i++) td_buf_printf(&big, "%s\"s%d\": {\"file\": \"model.onnx\"}", i ? "," : "", i);
    td_buf_text(&big, "}}}");
    read_text(&r, big.p, NULL);
    CHECK_EQ_UINT(r.messages.n_errors, 1);
    done(&r);
    td_buf_free(&big);
}
