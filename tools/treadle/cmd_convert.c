/* tools/treadle/cmd_convert.c - `treadle convert-config`: a folder's config as a version 2 file. */
#include "command.h"

#include "base/arena.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

typedef struct convert_args {
    td_model_args model;
    const char *out;
} convert_args;

static const td_option convert_options[] = {
    {"output", 'o', OPTION_TEXT, "FILE", "where to write it (default: standard output)", offsetof(convert_args, out)},
    MODEL_OPTIONS(convert_args),
};

/* On standard error: standard output may be the config. */
static void print_messages(const treadle_report *report) {
    for (size_t i = 0; i < treadle_report_count(report); i++) {
        treadle_message m;
        treadle_report_get(report, i, &m);
        if (m.level != TREADLE_MESSAGE_NOTE) td_print_message(stderr, &m);
    }
}

static int convert_run(void *given, char **positional) {
    convert_args *args = given;
    treadle_error error = {0};
    treadle_report *report = NULL;
    td_model_source source;
    td_arena arena = {0};
    char *text = NULL;

    int code = td_model_source_get(&args->model, positional[0], &arena, &source);
    if (code == EXIT_OK &&
        treadle_model_convert_config(source.path, &source.options, &text, &report, &error) != TREADLE_OK)
        code = td_report_model(&error);
    if (code == EXIT_OK) {
        print_messages(report);
        if (args->out) {
            if (td_file_write(args->out, text, strlen(text), &error) != TREADLE_OK) code = td_report(&error);
        } else if (!td_out(td_str_from(text))) {
            code = EXIT_RUN;
        }
    }
    treadle_free(text);
    treadle_report_free(report);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_convert_config = {
    .name = "convert-config",
    .arguments = "DIR [-o FILE]",
    .summary = "write a folder's config as a version 2 file",
    .help =
        "Version 1 files are translated; the result plans the same. What the graphs do not have is left out and said on standard\n"
        "error, as are the messages of a check. A folder without a config gets the one that it is treated by.",
    .options = convert_options,
    .n_options = TD_COUNT(convert_options),
    .args_bytes = sizeof(convert_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = convert_run,
};
