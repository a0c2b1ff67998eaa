/* tools/treadle/cmd_look.c - looking without running: `treadle check`, `inspect`, `explain`,
 * `ops`. No weights are read. */
#include "command.h"

#include "base/arena.h"

#include <stdio.h>

typedef struct look_args {
    td_model_args model;
    int64_t context_length;
    bool json;
} look_args;

static const td_option look_options[] = {
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object", offsetof(look_args, json)},
    MODEL_OPTIONS(look_args),
};
static const td_option inspect_options[] = {
    {"context-length", 'c', OPTION_INT, "N", "memory for a timeline of N tokens (default: the model's length)",
     offsetof(look_args, context_length)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object", offsetof(look_args, json)},
    MODEL_OPTIONS(look_args),
};

/* --- check */
static int check_run(void *given, char **positional) {
    look_args *args = given;
    treadle_error error = {0};
    treadle_report *report = NULL;
    td_model_source source;
    td_arena arena = {0};
    char *json = NULL;

    int code = td_model_source_get(&args->model, positional[0], &arena, &source);
    if (code == EXIT_OK && treadle_model_check(source.path, &source.options, &report, &error) != TREADLE_OK)
        code = td_report_model(&error);
    if (code == EXIT_OK && args->json) {
        code = treadle_report_json(report, &json, &error) == TREADLE_OK ? td_out_and_free(json) : td_report(&error);
    } else if (code == EXIT_OK) {
        for (size_t i = 0; i < treadle_report_count(report); i++) {
            treadle_message m;
            treadle_report_get(report, i, &m);
            td_print_message(stdout, &m);
        }
        if (treadle_report_count(report) == 0) printf("%s: no problems found\n", positional[0]);
    }
    if (code == EXIT_OK && treadle_report_errors(report)) code = EXIT_MODEL;
    treadle_report_free(report);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_check = {
    .name = "check",
    .arguments = "DIR|FILE [--json]",
    .summary = "check a model folder's config against its graphs",
    .help = "Prints every message with file, line, column and JSON pointer. Exit code 3 if there is an error.",
    .options = look_options,
    .n_options = TD_COUNT(look_options),
    .args_bytes = sizeof(look_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = check_run,
};

/* --- explain, inspect */
static int look_run(look_args *args, const char *given, bool inspect) {
    treadle_error error = {0};
    td_model_source source;
    td_arena arena = {0};
    char *text = NULL;

    if (args->context_length < 0) return td_usage(&td_command_inspect, "--context-length: expected a positive number");
    int code = td_model_source_get(&args->model, given, &arena, &source);
    if (code == EXIT_OK) {
        treadle_status status =
            inspect
                ? treadle_model_inspect(source.path, &source.options, args->context_length, args->json, &text, &error)
                : treadle_model_explain(source.path, &source.options, args->json, &text, &error);
        code = status == TREADLE_OK ? td_out_and_free(text) : td_report_model(&error);
    }
    td_arena_free(&arena);
    return code;
}

static int explain_run(void *given, char **positional) { return look_run(given, positional[0], false); }

const td_command td_command_explain = {
    .name = "explain",
    .arguments = "DIR|FILE [--json]",
    .summary = "show the expanded config and the plan made from it",
    .help =
        "Where each value of the config comes from, what feeds each graph input, which sessions run when, what state was found.",
    .options = look_options,
    .n_options = TD_COUNT(look_options),
    .args_bytes = sizeof(look_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = explain_run,
};

static int inspect_run(void *given, char **positional) { return look_run(given, positional[0], true); }

const td_command td_command_inspect = {
    .name = "inspect",
    .arguments = "DIR|FILE [--context-length N] [--json]",
    .summary = "show a model's graphs, state, ops, weights and memory needs",
    .help = "Lists inputs and outputs, the state found, ops by count with those that are missing, the size of the\n"
            "weights (--json: by type).",
    .options = inspect_options,
    .n_options = TD_COUNT(inspect_options),
    .args_bytes = sizeof(look_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = inspect_run,
};

/* --- ops */
typedef struct ops_args {
    bool json;
} ops_args;
static const td_option ops_options[] = {
    {"json", 0, OPTION_FLAG, NULL, "print a JSON list", offsetof(ops_args, json)},
};

static int ops_run(void *given, char **positional) {
    const ops_args *args = given;
    treadle_error error = {0};
    td_arena arena = {0};
    td_json *list;
    char *json = NULL;
    (void)positional;

    if (treadle_ops_list(&json, &error) != TREADLE_OK) return td_report(&error);
    if (args->json) return td_out_and_free(json);
    int code = EXIT_OK;
    if (td_json_parse(td_str_from(json), NULL, &arena, &list, &error) != TREADLE_OK) {
        code = td_report(&error);
    } else {
        for (const td_json *op = list->first; op; op = op->next) {
            td_str domain = td_json_string_or(op, "domain", ""), name = td_json_string_or(op, "op", "");
            if (domain.n == 0) domain = TD_STR("ai.onnx");
            printf("%.*s %.*s-%lld\n", TD_STR_ARGS(domain), TD_STR_ARGS(name),
                   (long long)td_json_int_or(op, "since_version", 0));
        }
    }
    treadle_free(json);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_ops = {
    .name = "ops",
    .arguments = "[--json]",
    .summary = "list the ops that the native engine has",
    .help = "One line an op: domain, name, and the opset version from which on the implementation holds.",
    .options = ops_options,
    .n_options = TD_COUNT(ops_options),
    .args_bytes = sizeof(ops_args),
    .run = ops_run,
};
