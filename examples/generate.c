/* generate.c - the shortest useful program: open a folder, render a chat, stream the answer.
 *
 *   generate DIR "What is a treadle?"      build: cc generate.c -ltreadle
 *
 * Without a chat template the prompt is continued as it is. */
#include <stdio.h>
#include <string.h>

#include <treadle/treadle.h>

static bool print_piece(void *ctx, const treadle_token *token) {
    (void)ctx;
    if (token->piece) fwrite(token->piece, 1, token->piece_bytes, stdout);
    fflush(stdout);
    return true;
}

/* {"role": "user", "content": prompt} as JSON. */
static void write_messages(const char *prompt, char *out, size_t room) {
    size_t at = (size_t)snprintf(out, room, "[{\"role\": \"user\", \"content\": \"");
    for (; *prompt && at + 16 < room; prompt++) {
        unsigned char c = (unsigned char)*prompt;
        if (c == '"' || c == '\\') out[at++] = '\\';
        if (c < 32) at += (size_t)snprintf(out + at, room - at, "\\u%04x", c);
        else out[at++] = (char)c;
    }
    snprintf(out + at, room - at, "\"}]");
}

int main(int argc, char **argv) {
    treadle_model *model = NULL;
    treadle_generator *generator = NULL;
    treadle_error error = {0};
    treadle_generate_options options;
    char messages[8192], *rendered = NULL, text[4096];
    const char *prompt = argc > 2 ? argv[2] : "Hello";
    size_t n = strlen(prompt), n_ids = 0;
    int32_t *ids = NULL;
    bool chat;

    if (argc < 2) {
        fprintf(stderr, "usage: generate DIR [PROMPT]\n");
        return 2;
    }
    if (treadle_model_open(argv[1], NULL, &model, &error)) goto failed;
    write_messages(prompt, messages, sizeof messages);
    chat = treadle_text_render_chat(treadle_model_text(model), messages, NULL, &rendered, &n, NULL) == TREADLE_OK;
    if (chat) prompt = rendered;
    if (treadle_text_encode(treadle_model_text(model), prompt, n, !chat, &ids, &n_ids, &error)) goto failed;

    treadle_generate_options_init(&options);
    options.max_new_tokens = 128;
    treadle_ids row = {ids, n_ids};
    if (treadle_generator_new(model, &options, &generator, &error)) goto failed;
    if (treadle_generator_append(generator, &row, 1, &error)) goto failed;
    if (treadle_generator_run(generator, -1, print_piece, NULL, &error)) goto failed;
    printf("\n");
    error.code = TREADLE_OK;

failed:
    if (error.code) {
        treadle_error_format(&error, text, sizeof text);
        fprintf(stderr, "%s\n", text);
    }
    treadle_generator_free(generator);
    treadle_free(ids);
    treadle_free(rendered);
    treadle_model_close(model);
    return error.code ? 1 : 0;
}
