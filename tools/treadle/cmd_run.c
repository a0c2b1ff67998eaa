/* tools/treadle/cmd_run.c - `treadle run`: one answer on standard output, and nothing else there. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run_args {
    td_model_args model;
    td_sampling_args sampling;
    td_media_args media;
    const char *prompt, *file, *system, *logits;
    td_texts ids;
    int64_t beams; /* INT64_MIN: not given */
    bool no_template, json;
} run_args;

static void run_defaults(void *args) {
    ((run_args *)args)->beams = INT64_MIN;
    td_sampling_defaults(&((run_args *)args)->sampling);
}

static const td_option run_options[] = {
    {"prompt", 'p', OPTION_TEXT, "TEXT", "the prompt (default: standard input)", offsetof(run_args, prompt)},
    {"file", 'f', OPTION_TEXT, "FILE", "the prompt is in this file; -: standard input", offsetof(run_args, file)},
    {"ids", 0, OPTION_LIST, "1,2,3", "token ids instead of a prompt, as they are; repeatable: a batch",
     offsetof(run_args, ids)},
    {"no-template", 0, OPTION_FLAG, NULL, "give the prompt to the model as it is, without chat template",
     offsetof(run_args, no_template)},
    {"system", 0, OPTION_TEXT, "TEXT", "a system message before the prompt", offsetof(run_args, system)},
    MEDIA_OPTIONS(run_args),
    SAMPLING_OPTIONS(run_args),
    {"beams", 0, OPTION_INT, "N", "beam search with N beams; 1: none (default: the model's)",
     offsetof(run_args, beams)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object with ids, text and timings", offsetof(run_args, json)},
    {"logits", 0, OPTION_TEXT, "FILE.npy", "write what each new token was chosen from: float32 [rows, steps, vocab]",
     offsetof(run_args, logits)},
    MODEL_OPTIONS(run_args),
};

/* --- the prompt's ids */
static int render(const treadle_text *text, const run_args *args, const char *prompt, size_t n, char **out,
                  size_t *out_n) {
    treadle_error error = {0};
    treadle_chat_options chat;
    td_buf messages = {0};
    td_json_writer w;

    td_json_writer_init(&w, &messages, 0);
    td_json_begin_array(&w);
    for (int i = 0; i < 2; i++) {
        if (i == 0 && !args->system) continue;
        td_json_begin_object(&w);
        td_json_key(&w, "role");
        td_json_write_text(&w, i ? "user" : "system");
        td_json_key(&w, "content");
        td_json_write_string(&w, i ? (td_str){prompt, n} : td_str_from(args->system));
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    treadle_chat_options_init(&chat);
    if (messages.failed) {
        td_buf_free(&messages);
        fprintf(stderr, "treadle: out of memory\n");
        return EXIT_RUN;
    }
    treadle_status status = treadle_text_render_chat(text, messages.p, &chat, out, out_n, &error);
    td_buf_free(&messages);
    if (status == TREADLE_OK) return EXIT_OK;
    int code = td_report(&error);
    return code == EXIT_USAGE ? EXIT_MODEL : code; /* a template that refuses, too */
}

static int encode_prompt(treadle_model *model, const run_args *args, int32_t **out, size_t *out_n) {
    const treadle_text *text = treadle_model_text(model);
    treadle_model_info info = {.struct_size = sizeof info};
    treadle_error error = {0};
    char *prompt, *rendered = NULL;
    size_t n, rendered_n = 0;

    treadle_model_get_info(model, &info);
    int code = td_read_prompt(&td_command_run, args->prompt, args->file, args->model.quiet, &prompt, &n);
    if (code != EXIT_OK) return code;
    bool templated = info.has_chat_template && !args->no_template;
    if (args->system && !templated) {
        td_free(prompt);
        return td_usage(&td_command_run, "--system needs a chat template%s",
                        info.has_chat_template ? ", and --no-template leaves it out" : "; this model has none");
    }
    if (templated) code = render(text, args, prompt, n, &rendered, &rendered_n);
    if (code == EXIT_OK && treadle_text_encode(text, templated ? rendered : prompt, templated ? rendered_n : n,
                                               !templated, out, out_n, &error) != TREADLE_OK)
        code = td_report(&error);
    if (code == EXIT_OK && *out_n == 0) {
        treadle_free(*out);
        *out = NULL;
        code = td_usage(&td_command_run, "the prompt is empty");
    }
    treadle_free(rendered);
    td_free(prompt);
    return code;
}

/* --- output */
static bool print_piece(void *ctx, const treadle_token *token) {
    (void)ctx;
    if (token->piece_bytes && !td_out((td_str){token->piece, token->piece_bytes})) return false;
    return !td_interrupted();
}

static void write_ids(td_json_writer *w, const char *key, const int32_t *ids, size_t n) {
    td_json_key(w, key);
    td_json_begin_array(w);
    for (size_t i = 0; i < n; i++) td_json_write_int(w, ids[i]);
    td_json_end_array(w);
}

static double rate(double n, double ms) { return ms > 0 ? n * 1e3 / ms : 0; }

static int print_json(const treadle_generator *g, const treadle_stats *stats, double load_ms) {
    td_buf out = {0};
    td_json_writer w;

    td_json_writer_init(&w, &out, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "results");
    td_json_begin_array(&w);
    for (size_t row = 0; row < treadle_generator_n_rows(g); row++) {
        treadle_ids all = treadle_generator_ids(g, row), fresh = treadle_generator_new_ids(g, row);
        treadle_string text = treadle_generator_text(g, row);
        td_json_begin_object(&w);
        write_ids(&w, "prompt_ids", all.ids, all.n - fresh.n);
        write_ids(&w, "token_ids", fresh.ids, fresh.n);
        td_json_key(&w, "text");
        if (text.p) td_json_write_string(&w, (td_str){text.p, text.n});
        else td_json_write_null(&w);
        td_json_key(&w, "finish_reason");
        td_json_write_text(&w, treadle_finish_text(treadle_generator_finish(g, row)));
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    td_json_key(&w, "timings");
    td_json_begin_object(&w);
    td_json_key(&w, "load_ms");
    td_json_write_double(&w, load_ms);
    td_json_key(&w, "first_token_ms");
    td_json_write_double(&w, stats->first_token_ms);
    td_json_key(&w, "prefill_tokens_per_s");
    td_json_write_double(&w, rate((double)stats->prompt_tokens, stats->prefill_ms));
    td_json_key(&w, "decode_tokens_per_s");
    td_json_write_double(&w, rate((double)stats->decode_steps * (double)treadle_generator_n_rows(g), stats->decode_ms));
    td_json_end_object(&w);
    td_json_key(&w, "peak_rss_mb");
    td_json_write_double(&w, (double)td_peak_rss_bytes() / 1048576.0);
    td_json_end_object(&w);
    td_buf_char(&out, '\n');
    int code = out.failed || !td_out(td_buf_view(&out)) ? EXIT_RUN : EXIT_OK;
    td_buf_free(&out);
    return code;
}

/* [rows, steps, vocab]; rows that ended early are filled with NaN. */
static int write_logits(const treadle_generator *g, const char *path) {
    treadle_error error = {0};
    size_t rows = treadle_generator_n_rows(g), steps = 0;
    treadle_tensor row = {0};

    for (size_t i = 0; i < rows; i++) {
        if (treadle_generator_step_logits(g, i, &row, &error) != TREADLE_OK) return td_report(&error);
        steps = TD_MAX(steps, (size_t)row.dims[0]);
    }
    size_t vocab = (size_t)row.dims[1], count = rows * steps * vocab;
    float *all = td_alloc_array(count ? count : 1, sizeof *all);
    if (!all) {
        fprintf(stderr, "treadle: out of memory\n");
        return EXIT_RUN;
    }
    for (size_t i = 0; i < rows; i++) {
        if (treadle_generator_step_logits(g, i, &row, &error) != TREADLE_OK) {
            td_free(all);
            return td_report(&error);
        }
        size_t have = (size_t)row.dims[0] * vocab;
        memcpy(all + i * steps * vocab, row.data, have * sizeof *all);
        for (size_t k = have; k < steps * vocab; k++) all[i * steps * vocab + k] = __builtin_nanf("");
    }
    treadle_tensor whole = {
        .dtype = TREADLE_DTYPE_FLOAT, .rank = 3, .dims = {(int64_t)rows, (int64_t)steps, (int64_t)vocab}, .data = all};
    treadle_status status = treadle_tensor_write_npy(path, &whole, &error);
    td_free(all);
    if (status == TREADLE_OK) return EXIT_OK;
    td_report(&error);
    return EXIT_RUN;
}

static void print_timings(const treadle_generator *g, const treadle_stats *s, double load_ms) {
    fprintf(
        stderr,
        "load %.1f ms, first token %.1f ms, prefill %lld tokens at %.1f tokens/s, decode %lld tokens at %.1f tokens/s, peak memory %.1f MB\n",
        load_ms, s->first_token_ms, (long long)s->prompt_tokens, rate((double)s->prompt_tokens, s->prefill_ms),
        (long long)s->new_tokens, rate((double)s->decode_steps * (double)treadle_generator_n_rows(g), s->decode_ms),
        (double)td_peak_rss_bytes() / 1048576.0);
}

/* A row's answer and a line feed; of one that was streamed, what is still to come. Without a tokenizer: ids. */
static void print_answer(const treadle_generator *g, size_t row, bool streamed) {
    treadle_string text = treadle_generator_text(g, row);
    treadle_ids ids = treadle_generator_new_ids(g, row);

    if (text.p && !streamed) td_out((td_str){text.p, text.n});
    for (size_t i = 0; i < ids.n && !text.p; i++) printf("%s%d", i ? "," : "", (int)ids.ids[i]);
    printf("\n");
}

static int check_beams(const run_args *args) {
    if (args->beams == INT64_MIN || args->beams >= 1) return EXIT_OK;
    return td_usage(&td_command_run, "--beams: expected a whole number from 1 on, found %lld", (long long)args->beams);
}

static int generate(treadle_model *model, const run_args *args, const treadle_ids *rows, size_t n_rows,
                    double load_ms) {
    treadle_generate_options options;
    treadle_error error = {0};
    treadle_generator *g = NULL;
    treadle_stats stats = {.struct_size = sizeof stats};

    treadle_generate_options_init(&options);
    int code = td_sampling_apply(&td_command_run, &args->sampling, &options);
    if (code != EXIT_OK) return code;
    code = check_beams(args);
    if (code != EXIT_OK) return code;
    if (args->beams != INT64_MIN) options.num_beams = args->beams;
    options.keep_logits = args->logits != NULL;
    if (treadle_generator_new(model, &options, &g, &error) != TREADLE_OK) return td_report(&error);
    code = td_give_media(&td_command_run, &args->media, g);
    if (code != EXIT_OK) {
        treadle_generator_free(g);
        return code;
    }
    td_interrupt_watch(g);
    bool streams = !args->json && n_rows == 1;
    treadle_status status = treadle_generator_append(g, rows, n_rows, &error);
    if (status == TREADLE_OK) status = treadle_generator_run(g, -1, streams ? print_piece : NULL, NULL, &error);
    td_interrupt_watch(NULL);
    treadle_generator_get_stats(g, &stats);
    if (status != TREADLE_OK) {
        code = td_report(&error);
    } else if (args->json) {
        code = print_json(g, &stats, load_ms);
    } else {
        for (size_t i = 0; i < n_rows; i++) print_answer(g, i, streams);
    }
    fflush(stdout); /* before what goes to standard error */
    if (code == EXIT_OK && args->logits) code = write_logits(g, args->logits);
    if (args->model.verbose) print_timings(g, &stats, load_ms);
    if (code == EXIT_OK && td_interrupted()) code = EXIT_INTERRUPTED;
    treadle_generator_free(g);
    return code;
}

/* What gives tensors or vectors has no use for a prompt. */
static int check_gives_tokens(const treadle_model *model) {
    treadle_model_info info = {.struct_size = sizeof info};

    treadle_model_get_info(model, &info);
    if (info.has_logits || info.transduces) return EXIT_OK;
    fprintf(stderr,
            "treadle: this model gives no tokens (explain says why): see infer for tensors, embed for vectors\n");
    return EXIT_MODEL;
}

/* Sound alone, and a model that writes down what is spoken: its prompt is its own affair. */
static bool transcribes(const treadle_model *model, const run_args *args) {
    treadle_model_info info = {.struct_size = sizeof info};

    treadle_model_get_info(model, &info);
    return info.transcribes && args->media.audio && !args->prompt && !args->file && !args->ids.n;
}

static int transcribe(treadle_model *model, const run_args *args) {
    const char *other = td_sampling_given(&args->sampling);
    treadle_generate_options options;

    if (args->media.input.n) other = "--input";
    if (args->system) other = "--system";
    if (args->logits) other = "--logits";
    if (other) return td_usage(&td_command_run, "%s needs a prompt: sound alone is written down (--audio)", other);
    treadle_generate_options_init(&options);
    int code = td_sampling_apply(&td_command_run, &args->sampling, &options);
    if (code == EXIT_OK) code = check_beams(args);
    if (code != EXIT_OK) return code;
    int64_t beams = args->beams == INT64_MIN ? -1 : args->beams;
    return td_transcribe_file(model, args->media.audio, beams, options.max_new_tokens, args->json);
}

static int run_run(void *given, char **positional) {
    run_args *args = given;
    treadle_model *model = NULL;
    td_arena arena = {0};
    double load_ms = 0;
    int32_t *prompt = NULL;

    if (args->ids.n && (args->prompt || args->file))
        return td_usage(&td_command_run, "--ids and a prompt exclude each other");
    if (args->ids.n && args->system)
        return td_usage(&td_command_run, "--ids are taken as they are: --system needs a prompt");
    treadle_ids *rows = TD_ARENA_ARRAY(&arena, treadle_ids, args->ids.n + 1);
    if (!rows) return EXIT_RUN;
    int code = EXIT_OK;
    for (size_t i = 0; i < args->ids.n && code == EXIT_OK; i++) {
        int32_t *ids;
        if (!td_parse_ids(args->ids.items[i], &arena, &ids, &rows[i].n))
            code = td_usage(&td_command_run, "--ids: expected ids as 1,2,3, found \"%s\"", args->ids.items[i]);
        else rows[i].ids = ids;
    }
    if (code == EXIT_OK) code = td_model_get(&args->model, positional[0], &arena, &model, &load_ms);
    if (code == EXIT_OK) code = check_gives_tokens(model);
    bool written_down = code == EXIT_OK && transcribes(model, args);
    if (written_down) {
        code = transcribe(model, args);
    } else if (code == EXIT_OK && !args->ids.n) {
        code = encode_prompt(model, args, &prompt, &rows[0].n);
        rows[0].ids = prompt;
    }
    if (code == EXIT_OK && !written_down) code = generate(model, args, rows, args->ids.n ? args->ids.n : 1, load_ms);
    treadle_free(prompt);
    treadle_model_close(model);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_run = {
    .name = "run",
    .arguments = "DIR|FILE.gguf|FILE.onnx [-p TEXT | -f FILE | --ids 1,2,3]",
    .summary = "give one answer to a prompt",
    .help =
        "The model is a folder, a single .onnx file, or a checkpoint (a GGUF file or a Hugging Face folder), which is compiled into\n"
        "the cache first. A model with a chat template gets the prompt as a user's message. The answer is streamed to standard\n"
        "output; nothing else is printed there. A speech recogniser with --audio and no prompt writes down what is spoken, as\n"
        "transcribe does. What no option says is as the model's config has it, else greedy; it ends at an end token or at the\n"
        "model's max_length.",
    .options = run_options,
    .n_options = TD_COUNT(run_options),
    .args_bytes = sizeof(run_args),
    .defaults = run_defaults,
    .min_positional = 1,
    .max_positional = 1,
    .run = run_run,
};
