/* tools/treadle/sampling.c - sampling options of run and chat. What is not given stays as the model has it. */
#include "command.h"

#include <math.h>

/* Values that no command line can give. */
#define NO_INT INT64_MIN
#define NO_DOUBLE NAN

void td_sampling_defaults(td_sampling_args *args) {
    args->max_new_tokens = args->max_length = args->min_length = NO_INT;
    args->top_k = args->seed = args->no_repeat_ngram_size = NO_INT;
    args->temperature = args->top_p = args->min_p = args->repetition_penalty = NO_DOUBLE;
}

/* To the library a negative number means "as the model has it", so one that somebody wrote must be refused here. */
static int take_int(const td_command *command, const char *name, int64_t value, int64_t *out) {
    if (value == NO_INT) return EXIT_OK;
    if (value < 0)
        return td_usage(command, "--%s: expected a whole number from 0 on, found %lld", name, (long long)value);
    *out = value;
    return EXIT_OK;
}

static int take_double(const td_command *command, const char *name, double value, double most, double *out) {
    if (isnan(value)) return EXIT_OK;
    if (value < 0 || value > most) {
        if (isinf(most)) return td_usage(command, "--%s: expected a number from 0 on, found %g", name, value);
        return td_usage(command, "--%s: expected a number from 0 to %g, found %g", name, most, value);
    }
    *out = value;
    return EXIT_OK;
}

const char *td_sampling_given(const td_sampling_args *a) {
    const struct {
        const char *name;
        bool given;
    } options[] = {
        {"--max-length", a->max_length != NO_INT},
        {"--min-length", a->min_length != NO_INT},
        {"--temperature", !isnan(a->temperature)},
        {"--top-k", a->top_k != NO_INT},
        {"--top-p", !isnan(a->top_p)},
        {"--min-p", !isnan(a->min_p)},
        {"--repetition-penalty", !isnan(a->repetition_penalty)},
        {"--no-repeat-ngram-size", a->no_repeat_ngram_size != NO_INT},
        {"--seed", a->seed != NO_INT},
        {"--sample", a->sample},
        {"--ignore-eos", a->ignore_eos},
        {"--stop", a->stop.n > 0},
    };

    for (size_t i = 0; i < TD_COUNT(options); i++)
        if (options[i].given) return options[i].name;
    return NULL;
}

int td_sampling_apply(const td_command *command, const td_sampling_args *args, treadle_generate_options *out) {
    const struct {
        const char *name;
        int64_t value, *out;
    } ints[] = {
        {"max-new-tokens", args->max_new_tokens, &out->max_new_tokens},
        {"max-length", args->max_length, &out->max_length},
        {"min-length", args->min_length, &out->min_length},
        {"top-k", args->top_k, &out->top_k},
        {"seed", args->seed, &out->seed},
        {"no-repeat-ngram-size", args->no_repeat_ngram_size, &out->no_repeat_ngram_size},
    };
    const struct {
        const char *name;
        double value, most, *out;
    } doubles[] = {
        {"temperature", args->temperature, INFINITY, &out->temperature},
        {"top-p", args->top_p, 1, &out->top_p},
        {"min-p", args->min_p, 1, &out->min_p},
        {"repetition-penalty", args->repetition_penalty, INFINITY, &out->repetition_penalty},
    };
    int code = EXIT_OK;

    for (size_t i = 0; i < TD_COUNT(ints) && code == EXIT_OK; i++)
        code = take_int(command, ints[i].name, ints[i].value, ints[i].out);
    for (size_t i = 0; i < TD_COUNT(doubles) && code == EXIT_OK; i++)
        code = take_double(command, doubles[i].name, doubles[i].value, doubles[i].most, doubles[i].out);
    if (code != EXIT_OK) return code;

    out->ignore_eos = args->ignore_eos;
    /* Asking for a temperature, top-k, top-p, min-p or a seed asks for sampling. */
    bool asks = args->temperature > 0 || args->top_k > 1 || args->top_p >= 0 || args->min_p >= 0 || args->seed >= 0;
    if (args->greedy) out->do_sample = 0;
    else if (args->sample || asks) out->do_sample = 1;
    if (args->stop.n) {
        out->stop = args->stop.items;
        out->n_stop = (int64_t)args->stop.n;
    }
    return EXIT_OK;
}
