/* tools/treadle/cmd_text.c - `treadle tokenize`, `detokenize`, `template`: the text side of a
 * model, without its weights. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_args {
    td_model_args model;
    const char *prompt, *file, *messages, *system, *ids, *tools;
    bool json, add_special, skip_special, no_generation_prompt;
} text_args;

static int open_text(const text_args *args, const char *given, treadle_text **out) {
    treadle_error error = {0};
    td_model_source source;
    td_arena arena = {0};
    int code = td_model_source_get(&args->model, given, &arena, &source);

    if (code == EXIT_OK && treadle_text_open(source.path, out, &error) != TREADLE_OK) code = td_report(&error);
    td_arena_free(&arena);
    return code;
}

/* --- tokenize */
static const td_option tokenize_options[] = {
    {"prompt", 'p', OPTION_TEXT, "TEXT", "the text (default: standard input)", offsetof(text_args, prompt)},
    {"file", 'f', OPTION_TEXT, "FILE", "the text is in this file; -: standard input", offsetof(text_args, file)},
    {"add-special", 0, OPTION_FLAG, NULL, "with the tokens that the tokenizer puts around a text",
     offsetof(text_args, add_special)},
    {"json", 0, OPTION_FLAG, NULL, "print {\"ids\": [...], \"tokens\": [...]}", offsetof(text_args, json)},
    MODEL_OPTIONS(text_args),
};

static int print_ids(const treadle_text *text, const int32_t *ids, size_t n, bool json) {
    treadle_error error = {0};
    td_json_writer w;
    td_buf out = {0};
    char *token;

    td_json_writer_init(&w, &out, 0);
    if (!json) {
        for (size_t i = 0; i < n; i++) td_buf_printf(&out, "%s%d", i ? "," : "", (int)ids[i]);
    } else {
        td_json_begin_object(&w);
        td_json_key(&w, "ids");
        td_json_begin_array(&w);
        for (size_t i = 0; i < n; i++) td_json_write_int(&w, ids[i]);
        td_json_end_array(&w);
        td_json_key(&w, "tokens");
        td_json_begin_array(&w);
        for (size_t i = 0; i < n; i++) {
            if (treadle_text_token(text, ids[i], &token, &error) != TREADLE_OK) {
                td_json_write_null(&w);
                continue;
            }
            td_json_write_text(&w, token);
            treadle_free(token);
        }
        td_json_end_array(&w);
        td_json_end_object(&w);
    }
    td_buf_char(&out, '\n');
    bool good = !out.failed && td_out(td_buf_view(&out));
    td_buf_free(&out);
    return good ? EXIT_OK : EXIT_RUN;
}

static int tokenize_run(void *given, char **positional) {
    const text_args *args = given;
    treadle_error error = {0};
    treadle_text *text = NULL;
    int32_t *ids = NULL;
    char *prompt = NULL;
    size_t bytes, n;

    int code = td_read_prompt(&td_command_tokenize, args->prompt, args->file, args->model.quiet, &prompt, &bytes);
    if (code == EXIT_OK) code = open_text(args, positional[0], &text);
    if (code == EXIT_OK)
        code = treadle_text_encode(text, prompt, bytes, args->add_special, &ids, &n, &error) == TREADLE_OK
                   ? print_ids(text, ids, n, args->json)
                   : td_report(&error);
    treadle_free(ids);
    td_free(prompt);
    treadle_text_close(text);
    return code;
}

const td_command td_command_tokenize = {
    .name = "tokenize",
    .arguments = "DIR|FILE.gguf [-p TEXT | -f FILE] [--add-special] [--json]",
    .summary = "turn text into token ids",
    .help = "Special tokens written in the text are recognised.",
    .options = tokenize_options,
    .n_options = TD_COUNT(tokenize_options),
    .args_bytes = sizeof(text_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = tokenize_run,
};

/* --- detokenize */
static const td_option detokenize_options[] = {
    {"ids", 0, OPTION_TEXT, "1,2,3", "the ids (default: standard input)", offsetof(text_args, ids)},
    {"skip-special", 0, OPTION_FLAG, NULL, "leave special tokens out", offsetof(text_args, skip_special)},
    MODEL_OPTIONS(text_args),
};

static int detokenize_run(void *given, char **positional) {
    const text_args *args = given;
    treadle_error error = {0};
    treadle_text *text = NULL;
    td_arena arena = {0};
    int32_t *ids;
    char *list = NULL, *utf8 = NULL;
    size_t bytes, n;

    int code = td_read_prompt(&td_command_detokenize, args->ids, NULL, args->model.quiet, &list, &bytes);
    if (code == EXIT_OK && !td_parse_ids(list, &arena, &ids, &n))
        code = td_usage(&td_command_detokenize, "expected ids as 1,2,3, found \"%s\"", list);
    if (code == EXIT_OK) code = open_text(args, positional[0], &text);
    if (code == EXIT_OK) {
        if (treadle_text_decode(text, ids, n, args->skip_special, &utf8, &bytes, &error) != TREADLE_OK)
            code = td_report(&error);
        else if (!td_out((td_str){utf8, bytes}) || !td_out(TD_STR("\n"))) code = EXIT_RUN;
    }
    treadle_free(utf8);
    td_free(list);
    treadle_text_close(text);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_detokenize = {
    .name = "detokenize",
    .arguments = "DIR|FILE.gguf [--ids 1,2,3] [--skip-special]",
    .summary = "turn token ids into text",
    .help = "",
    .options = detokenize_options,
    .n_options = TD_COUNT(detokenize_options),
    .args_bytes = sizeof(text_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = detokenize_run,
};

/* --- template */
static const td_option template_options[] = {
    {"prompt", 'p', OPTION_TEXT, "TEXT", "a user's message (default: standard input)", offsetof(text_args, prompt)},
    {"file", 'f', OPTION_TEXT, "FILE", "the message is in this file; -: standard input", offsetof(text_args, file)},
    {"system", 0, OPTION_TEXT, "TEXT", "a system message before it", offsetof(text_args, system)},
    {"messages", 0, OPTION_TEXT, "FILE.json", "a JSON list of messages instead; -: standard input",
     offsetof(text_args, messages)},
    {"tools", 0, OPTION_TEXT, "FILE.json", "a JSON list of tools", offsetof(text_args, tools)},
    {"no-generation-prompt", 0, OPTION_FLAG, NULL, "without the start of the assistant's turn",
     offsetof(text_args, no_generation_prompt)},
    MODEL_OPTIONS(text_args),
};

static int messages_of(const text_args *args, char **out) {
    char *prompt;
    size_t n;
    td_json_writer w;
    td_buf buf = {0};

    if (args->messages && (args->prompt || args->file || args->system))
        return td_usage(&td_command_template, "--messages and a message exclude each other");
    if (args->messages) return td_read_prompt(&td_command_template, NULL, args->messages, args->model.quiet, out, &n);
    int code = td_read_prompt(&td_command_template, args->prompt, args->file, args->model.quiet, &prompt, &n);
    if (code != EXIT_OK) return code;
    td_json_writer_init(&w, &buf, 0);
    td_json_begin_array(&w);
    for (int i = args->system ? 0 : 1; i < 2; i++) {
        td_json_begin_object(&w);
        td_json_key(&w, "role");
        td_json_write_text(&w, i ? "user" : "system");
        td_json_key(&w, "content");
        td_json_write_string(&w, i ? (td_str){prompt, n} : td_str_from(args->system));
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    td_free(prompt);
    *out = buf.p;
    return buf.failed ? EXIT_RUN : EXIT_OK;
}

static int template_run(void *given, char **positional) {
    const text_args *args = given;
    treadle_chat_options chat;
    treadle_error error = {0};
    treadle_text *text = NULL;
    char *messages = NULL, *tools = NULL, *utf8 = NULL;
    size_t n;

    treadle_chat_options_init(&chat);
    chat.add_generation_prompt = !args->no_generation_prompt;
    int code = messages_of(args, &messages);
    if (code == EXIT_OK && args->tools)
        code = td_read_prompt(&td_command_template, NULL, args->tools, args->model.quiet, &tools, &n);
    chat.tools_json = tools;
    if (code == EXIT_OK) code = open_text(args, positional[0], &text);
    if (code == EXIT_OK) {
        if (treadle_text_render_chat(text, messages, &chat, &utf8, &n, &error) != TREADLE_OK)
            code = td_report_model(&error);
        else if (!td_out((td_str){utf8, n})) code = EXIT_RUN;
    }
    treadle_free(utf8);
    td_free(messages);
    td_free(tools);
    treadle_text_close(text);
    return code;
}

const td_command td_command_template = {
    .name = "template",
    .arguments = "DIR|FILE.gguf [-p TEXT | --messages FILE.json]",
    .summary = "render messages with the model's chat template",
    .help = "Prints exactly what the model would be given, without a line feed at its end.",
    .options = template_options,
    .n_options = TD_COUNT(template_options),
    .args_bytes = sizeof(text_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = template_run,
};
