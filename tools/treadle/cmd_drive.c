/* tools/treadle/cmd_drive.c - `treadle drive`: scripted use. One JSON request a line on standard input, one JSON answer
 * a line on standard output. The model is opened at the first request that needs it; a failed request leaves the next
 * one usable. * The help at the end says what requests and answers look like. */
#include "drive.h"

#include <stdio.h>
#include <stdlib.h>

static const td_option drive_options[] = {
    MODEL_OPTIONS(td_drive_args),
};

treadle_status td_drive_fail(td_drive *d, const char *format, ...) {
    va_list args;

    d->error = (treadle_error){.code = TREADLE_INVALID_ARGUMENT};
    va_start(args, format);
    vsnprintf(d->error.message, sizeof d->error.message, format, args);
    va_end(args);
    return TREADLE_INVALID_ARGUMENT;
}

treadle_status td_drive_open_model(td_drive *d) {
    td_model_source source;

    if (d->model) return TREADLE_OK;
    if (td_model_source_get(&d->args->model, d->path, &d->keep, &source) != EXIT_OK)
        return td_drive_fail(d, "the model cannot be opened; standard error has the reason");
    return treadle_model_open(source.path, &source.options, &d->model, &d->error);
}

treadle_status td_drive_generator(td_drive *d, treadle_generator **out) {
    treadle_generate_options options;
    treadle_status status = td_drive_options(d, &options);

    if (status == TREADLE_OK) status = td_drive_open_model(d);
    options.keep_logits = td_json_get(d->request, "logits_to") != NULL;
    options.prompt_logits = td_json_get(d->request, "prompt_logits_to") != NULL;
    return status == TREADLE_OK ? treadle_generator_new(d->model, &options, out, &d->error) : status;
}

treadle_status td_drive_continue(td_drive *d) {
    if (td_json_bool_or(d->request, "continue", false))
        return d->continued ? TREADLE_OK : td_drive_fail(d, "continue: no earlier request to go on from");
    treadle_generator_free(d->continued);
    d->continued = NULL;
    return td_drive_generator(d, &d->continued);
}

/* --- the loop */
static const struct {
    const char *name;
    treadle_status (*run)(td_drive *d);
} ops[] = {{"generate", td_drive_generate},  {"timeline", td_drive_timeline}, {"process", td_drive_process},
           {"stream", td_drive_stream},      {"embed", td_drive_embed},       {"encode", td_drive_encode},
           {"transduce", td_drive_transduce}};

static treadle_status dispatch(td_drive *d, td_str line) {
    treadle_status status = td_json_parse(line, NULL, &d->arena, &d->request, &d->error);

    if (status == TREADLE_OK) status = td_drive_check_file_names(d);
    if (status != TREADLE_OK) return status;
    td_str op = td_json_string_or(d->request, "op", "");
    for (size_t i = 0; i < TD_COUNT(ops); i++)
        if (td_str_is(op, ops[i].name)) return ops[i].run(d);
    return td_drive_fail(d, "unknown op \"%.*s\" (generate, timeline, process, stream, embed, encode, transduce)",
                         TD_STR_ARGS(op));
}

static void answer_error(td_drive *d, td_buf *out) {
    char text[4096];

    treadle_error_format(&d->error, text, sizeof text);
    td_buf_clear(out);
    td_json_writer_init(&d->out, out, 0);
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "error");
    td_json_begin_object(&d->out);
    td_json_key(&d->out, "message");
    td_json_write_text(&d->out, text);
    td_json_end_object(&d->out);
    td_json_end_object(&d->out);
}

static int drive_run(void *given, char **positional) {
    td_drive d = {.args = given, .path = positional[0]};
    td_buf out = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int code = td_model_args_check(&d.args->model);

    while (code == EXIT_OK && (n = getline(&line, &capacity, stdin)) > 0) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n == 0) continue;
        td_buf_clear(&out);
        td_json_writer_init(&d.out, &out, 0);
        d.error = (treadle_error){0};
        if (dispatch(&d, (td_str){line, (size_t)n}) != TREADLE_OK) answer_error(&d, &out);
        td_buf_char(&out, '\n');
        if (out.failed || !td_out(td_buf_view(&out))) code = EXIT_RUN;
        td_arena_free(&d.arena);
    }
    free(line);
    td_buf_free(&out);
    treadle_generator_free(d.continued);
    treadle_model_close(d.model);
    td_arena_free(&d.keep);
    return code;
}

const td_command td_command_drive = {
    .name = "drive",
    .arguments = "DIR|FILE",
    .summary = "answer JSON requests, one a line, on standard input",
    .help =
        "Requests and what they answer; a failed one answers {\"error\": {\"message\": TEXT}} and the next one is read:\n"
        "  {\"op\": \"generate\", \"prompts\": [IDS, ...], \"options\": {...}, \"logits_to\": PREFIX, \"prompt_logits_to\": PREFIX}\n"
        "      gives {\"tokens\": [IDS, ...], \"finish\": [...], \"text\": [...], \"runs\": {SESSION: COUNT}, \"state_bytes\": N}\n"
        "  {\"op\": \"timeline\", \"steps\": [{\"append\": IDS} | {\"generate\": N} | {\"rewind\": LENGTH} | {\"fork\": true}, ...], \"logits_to\": PREFIX}\n"
        "      gives {\"steps\": [{} | {\"tokens\": IDS, \"state_bytes\": N}, ...]}\n"
        "  {\"op\": \"process\", \"logits\": FILE.npy, \"sequence\": IDS, \"prompt_length\": N, \"options\": {...}, \"to\": FILE.npy}\n"
        "      gives {\"kept\": N}\n"
        "  {\"op\": \"stream\", \"prompts\": [IDS], \"options\": {...}} gives {\"pieces\": [TEXT, ...]}\n"
        "  {\"op\": \"transduce\", \"tensors\": {...}, \"continue\": true} gives {\"tokens\": [IDS], \"frames\": [[N, ...]], \"runs\": {...}}\n"
        "  {\"op\": \"embed\", \"prompts\": [IDS, ...], \"to\": FILE.npy} gives {}; the file gets float32 [rows, dim]\n"
        "  {\"op\": \"encode\", \"prompts\": [IDS, ...], \"to\": {OUTPUT: FILE.npy}, \"continue\": true} gives {}\n"
        "      \"prompts\" only where ids go in; \"continue\" goes on with the stream and its state\n"
        "Each but process takes \"tensors\": {NAME: FILE.npy}, inputs of the graphs for this request; so does an append.\n"
        "IDS is a list of token ids. Options are run's numbers (max_new_tokens, top_k, ...), \"stop\": [TEXT, ...], \"eos\": IDS and\n"
        "\"do_sample\": true, without which generation is greedy. PREFIX.i.npy gets row i's logits, float32 [steps, vocab]. Example:\n"
        "  echo '{\"op\": \"generate\", \"prompts\": [[1, 2, 3]], \"options\": {\"max_new_tokens\": 8}}' | treadle drive DIR",
    .options = drive_options,
    .n_options = TD_COUNT(drive_options),
    .args_bytes = sizeof(td_drive_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = drive_run,
};
