/* tools/treadle/cmd_bench.c - `treadle bench`: prefill, decode, start, memory. The protocol is that of the peers'
 * drivers: one cold prompt pass, three warm ones, then single greedy steps; medians. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>

enum { WARM_PASSES = 3 };

typedef struct bench_args {
    td_model_args model;
    int64_t prompt_tokens, new_tokens;
    bool json, by_op;
} bench_args;

static void bench_defaults(void *args) {
    bench_args *a = args;
    a->prompt_tokens = 512;
    a->new_tokens = 128;
}

static const td_option bench_options[] = {
    {"prompt-tokens", 0, OPTION_INT, "N", "tokens of the prompt (default: 512)", offsetof(bench_args, prompt_tokens)},
    {"new-tokens", 0, OPTION_INT, "N", "single steps after it (default: 128)", offsetof(bench_args, new_tokens)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON line", offsetof(bench_args, json)},
    {"profile", 0, OPTION_FLAG, NULL, "also print the time by op of the last step, on standard error",
     offsetof(bench_args, by_op)},
    MODEL_OPTIONS(bench_args),
};

static double now_ms(void) { return (double)td_time_ns() * 1e-6; }

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    if (!n) return 0;
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

typedef struct bench_result {
    double load_ms, first_token_ms, prefill_tokens_per_s, decode_tokens_per_s;
} bench_result;

static treadle_status one_step(treadle_generator *g, treadle_error *error) {
    return treadle_generator_run(g, 1, NULL, NULL, error);
}

/* A prompt pass that ends with the choice of a token. */
static treadle_status prompt_pass(treadle_generator *g, const treadle_ids *prompt, double *out_ms,
                                  treadle_error *error) {
    double start = now_ms();
    treadle_status status = treadle_generator_append(g, prompt, 1, error);

    if (status == TREADLE_OK) status = one_step(g, error);
    *out_ms = now_ms() - start;
    return status;
}

static treadle_status measure(treadle_model *model, const bench_args *args, const treadle_ids *prompt, double *steps,
                              bench_result *out, treadle_error *error) {
    treadle_generate_options options;
    treadle_generator *g = NULL;
    double passes[WARM_PASSES];

    treadle_generate_options_init(&options);
    options.do_sample = 0;
    options.n_eos = 0;
    options.n_stop = 0;
    treadle_status status = treadle_generator_new(model, &options, &g, error);
    if (status != TREADLE_OK) return status;
    status = prompt_pass(g, prompt, &out->first_token_ms, error);
    for (int i = 0; i < WARM_PASSES && status == TREADLE_OK; i++) {
        status = treadle_generator_rewind(g, 0, 0, error);
        if (status == TREADLE_OK) status = prompt_pass(g, prompt, &passes[i], error);
    }
    for (int64_t i = 0; i < args->new_tokens && status == TREADLE_OK; i++) {
        double start = now_ms();
        status = one_step(g, error);
        steps[i] = now_ms() - start;
    }
    if (status == TREADLE_OK) {
        double step = median(steps, (size_t)args->new_tokens);
        out->prefill_tokens_per_s = 1e3 * (double)args->prompt_tokens / median(passes, WARM_PASSES);
        out->decode_tokens_per_s = step > 0 ? 1e3 / step : 0;
        if (args->by_op) {
            char *profile = NULL;
            if (treadle_generator_profile(g, true, &profile, error) == TREADLE_OK) fprintf(stderr, "%s", profile);
            treadle_free(profile);
        }
    }
    treadle_generator_free(g);
    return status;
}

static int bench_print(const bench_args *args, const bench_result *r) {
    double rss = (double)td_peak_rss_bytes() / 1048576.0;

    if (args->json)
        printf(
            "{\"prefill_tokens_per_s\": %.2f, \"decode_tokens_per_s\": %.2f, \"load_ms\": %.1f, \"first_token_ms\": %.2f, \"peak_rss_mb\": %.1f}\n",
            r->prefill_tokens_per_s, r->decode_tokens_per_s, r->load_ms, r->first_token_ms, rss);
    else
        printf(
            "prefill %lld tokens   %10.1f tokens/s\ndecode              %10.1f tokens/s\nload                %10.1f ms\n"
            "first token, cold   %10.1f ms\npeak memory         %10.1f MB\n",
            (long long)args->prompt_tokens, r->prefill_tokens_per_s, r->decode_tokens_per_s, r->load_ms,
            r->first_token_ms, rss);
    return EXIT_OK;
}

static int bench_run(void *given, char **positional) {
    const char *spawned = getenv("BENCH_T0"); /* monotonic ns at which a benchmark started this process */
    double start = spawned ? atof(spawned) * 1e-6 : now_ms();
    bench_args *args = given;
    treadle_model *model = NULL;
    treadle_model_info info = {.struct_size = sizeof info};
    treadle_error error = {0};
    td_model_source source;
    bench_result result = {0};
    td_arena arena = {0};

    if (args->prompt_tokens < 1 || args->prompt_tokens > 1 << 20 || args->new_tokens < 0 || args->new_tokens > 1 << 20)
        return td_usage(&td_command_bench, "expected --prompt-tokens from 1 and --new-tokens from 0, both up to %d",
                        1 << 20);
    int code = td_model_source_get(&args->model, positional[0], &arena, &source);
    source.options.profile = args->by_op;
    if (code == EXIT_OK && treadle_model_open(source.path, &source.options, &model, &error) != TREADLE_OK)
        code = td_report(&error);
    result.load_ms = now_ms() - start;
    int32_t *ids = TD_ARENA_ARRAY(&arena, int32_t, (size_t)args->prompt_tokens);
    double *steps = TD_ARENA_ARRAY(&arena, double, (size_t)args->new_tokens + 1);
    if (code == EXIT_OK && (!ids || !steps)) code = EXIT_RUN;
    if (code == EXIT_OK) {
        treadle_model_get_info(model, &info);
        int64_t vocab = info.vocab_size > 0 ? info.vocab_size : 1;
        for (int64_t i = 0; i < args->prompt_tokens; i++) /* the peers' prompt where the vocabulary is large enough */
            ids[i] = (int32_t)(vocab > 4000 ? 1000 + i * 7919 % (vocab - 2000) : i * 7919 % vocab);
        treadle_ids prompt = {ids, (size_t)args->prompt_tokens};
        code = measure(model, args, &prompt, steps, &result, &error) == TREADLE_OK ? bench_print(args, &result)
                                                                                   : td_report(&error);
    }
    treadle_model_close(model);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_bench = {
    .name = "bench",
    .arguments = "DIR|FILE.gguf [--prompt-tokens N] [--new-tokens N] [--json]",
    .summary = "time prefill, decode and start of a model",
    .help =
        "Greedy, without end tokens. Figures are medians: of three warm prompt passes, and of the single steps after the last one.",
    .options = bench_options,
    .n_options = TD_COUNT(bench_options),
    .args_bytes = sizeof(bench_args),
    .defaults = bench_defaults,
    .min_positional = 1,
    .max_positional = 1,
    .run = bench_run,
};
