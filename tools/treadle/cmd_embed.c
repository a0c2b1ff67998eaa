/* tools/treadle/cmd_embed.c - `treadle embed`: vectors of texts, or the scores of a reranker, one JSON
 * line a text or a .npy file. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

typedef struct embed_args {
    td_model_args model;
    td_texts prompts, ids;
    const char *file, *output;
    bool no_special;
} embed_args;

static const td_option embed_options[] = {
    {"prompt", 'p', OPTION_LIST, "TEXT", "a text; repeatable (default: the lines of standard input)",
     offsetof(embed_args, prompts)},
    {"file", 'f', OPTION_TEXT, "FILE", "the texts are the lines of this file; -: standard input",
     offsetof(embed_args, file)},
    {"ids", 0, OPTION_LIST, "1,2,3", "token ids instead of a text, as they are; repeatable", offsetof(embed_args, ids)},
    {"output", 'o', OPTION_TEXT, "FILE.npy", "write the vectors there, float32 [texts, dim], instead of printing them",
     offsetof(embed_args, output)},
    {"no-special", 0, OPTION_FLAG, NULL, "do not put the tokenizer's own tokens around a text",
     offsetof(embed_args, no_special)},
    MODEL_OPTIONS(embed_args),
};

/* The ids of all texts, then those given as ids. */
static int read_rows(const embed_args *args, treadle_model *model, td_arena *arena, treadle_ids *rows) {
    treadle_error error = {0};
    size_t n = 0;

    for (size_t i = 0; i < args->prompts.n; i++, n++) {
        int32_t *ids = NULL;
        const char *text = args->prompts.items[i];
        if (treadle_text_encode(treadle_model_text(model), text, strlen(text), !args->no_special, &ids, &rows[n].n,
                                &error) != TREADLE_OK)
            return td_report(&error);
        int32_t *copy = TD_ARENA_ARRAY(arena, int32_t, rows[n].n + 1);
        if (copy && rows[n].n) memcpy(copy, ids, rows[n].n * sizeof *copy);
        treadle_free(ids);
        if (!copy) return EXIT_RUN;
        rows[n].ids = copy;
    }
    for (size_t i = 0; i < args->ids.n; i++, n++) {
        int32_t *ids;
        if (!td_parse_ids(args->ids.items[i], arena, &ids, &rows[n].n))
            return td_usage(&td_command_embed, "--ids: expected ids as 1,2,3, found \"%s\"", args->ids.items[i]);
        rows[n].ids = ids;
    }
    return EXIT_OK;
}

/* Adds the lines of -f, or of standard input, to the texts; empty ones are none. *text owns them (td_free). */
static int read_lines(embed_args *args, char **text) {
    size_t n = 0;

    if (!args->file && (args->prompts.n || args->ids.n)) return EXIT_OK;
    int code = td_read_prompt(&td_command_embed, NULL, args->file, args->model.quiet, text, &n);
    for (char *line = *text, *end; code == EXIT_OK && line < *text + n; line = end + 1) {
        end = line + strcspn(line, "\r\n");
        if (end > line && !td_vec_push(&args->prompts, line)) code = EXIT_RUN;
        *end = 0;
    }
    if (code == EXIT_OK && !args->prompts.n && !args->ids.n) return td_usage(&td_command_embed, "there is no text");
    return code;
}

static int print_vector(const treadle_tensor *vector) {
    td_buf text = {0};
    td_json_writer w;

    td_json_writer_init(&w, &text, 0);
    td_json_begin_array(&w);
    for (int64_t i = 0; i < vector->dims[0]; i++) td_json_write_double(&w, (double)((const float *)vector->data)[i]);
    td_json_end_array(&w);
    td_buf_char(&text, '\n');
    bool ok = !text.failed && td_out(td_buf_view(&text));
    td_buf_free(&text);
    return ok ? EXIT_OK : EXIT_RUN;
}

/* All vectors have one length: it is the model's. */
static int give(const embed_args *args, treadle_generator *g, size_t n_rows, td_arena *arena) {
    treadle_error error = {0};
    treadle_tensor vector = {0};
    float *all = NULL;
    int code = EXIT_OK;

    for (size_t r = 0; r < n_rows && code == EXIT_OK; r++) {
        if (treadle_generator_embedding(g, r, &vector, &error) != TREADLE_OK) return td_report(&error);
        size_t dim = (size_t)vector.dims[0];
        if (!args->output) code = print_vector(&vector);
        else if (!all && !(all = TD_ARENA_ARRAY(arena, float, n_rows *dim))) return EXIT_RUN;
        else memcpy(all + r * dim, vector.data, dim * sizeof *all);
    }
    if (code != EXIT_OK || !args->output) return code;
    treadle_tensor out = {
        .dtype = TREADLE_DTYPE_FLOAT, .rank = 2, .dims = {(int64_t)n_rows, vector.dims[0]}, .data = all};
    if (treadle_tensor_write_npy(args->output, &out, &error) == TREADLE_OK) return EXIT_OK;
    td_report(&error);
    return EXIT_RUN;
}

static int embed(const embed_args *args, treadle_model *model, td_arena *arena) {
    treadle_error error = {0};
    treadle_generator *g = NULL;
    size_t n_rows = args->prompts.n + args->ids.n;
    treadle_ids *rows = TD_ARENA_ARRAY(arena, treadle_ids, n_rows);

    if (!rows) return EXIT_RUN;
    int code = read_rows(args, model, arena, rows);
    if (code != EXIT_OK) return code;
    treadle_status status = treadle_generator_new(model, NULL, &g, &error);
    if (status == TREADLE_OK) status = treadle_generator_append(g, rows, n_rows, &error);
    if (status == TREADLE_OK) status = treadle_generator_prefill(g, &error);
    code = status == TREADLE_OK ? give(args, g, n_rows, arena) : td_report(&error);
    treadle_generator_free(g);
    return code;
}

static int embed_run(void *given, char **positional) {
    embed_args *args = given;
    td_arena arena = {0};
    treadle_model *model = NULL;

    char *lines = NULL;
    int code = td_model_get(&args->model, positional[0], &arena, &model, NULL);
    if (code == EXIT_OK) code = read_lines(args, &lines);
    if (code == EXIT_OK) code = embed(args, model, &arena);
    treadle_model_close(model);
    td_free(lines);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_embed = {
    .name = "embed",
    .arguments = "DIR|FILE.onnx [-p TEXT ... | -f FILE | --ids 1,2,3 ...]",
    .summary = "turn texts into vectors",
    .help =
        "For models of feature extraction: hidden states are pooled and normalised as the config (pipeline.pooling) or the files of\n"
        "sentence-transformers say. A reranker gives its scores. One JSON line a text, unless -o names a file.",
    .options = embed_options,
    .n_options = TD_COUNT(embed_options),
    .args_bytes = sizeof(embed_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = embed_run,
};
