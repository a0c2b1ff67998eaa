/* tools/treadle/sampling.c - sampling options of run and chat. What is not given stays as the model has it. */
#include "command.h"

void td_sampling_defaults(td_sampling_args *args)
{
    args->max_new_tokens = args->max_length = args->min_length = -1;
    args->top_k = args->seed = args->no_repeat_ngram_size = -1;
    args->temperature = args->top_p = args->min_p = args->repetition_penalty = -1;
}

void td_sampling_apply(const td_sampling_args *args, treadle_generate_options *out)
{
    out->max_new_tokens = args->max_new_tokens;
    out->max_length = args->max_length;
    out->min_length = args->min_length;
    out->temperature = args->temperature;
    out->top_k = args->top_k;
    out->top_p = args->top_p;
    out->min_p = args->min_p;
    out->repetition_penalty = args->repetition_penalty;
    out->no_repeat_ngram_size = args->no_repeat_ngram_size;
    out->seed = args->seed;
    out->ignore_eos = args->ignore_eos;
    /* Asking for a temperature, top-k, top-p, min-p or a seed asks for sampling. */
    bool asks = args->temperature > 0 || args->top_k > 1 || args->top_p >= 0 || args->min_p >= 0 || args->seed >= 0;
    if (args->greedy)
        out->do_sample = 0;
    else if (args->sample || asks)
        out->do_sample = 1;
    if (args->stop.n) {
        out->stop = args->stop.items;
        out->n_stop = (int64_t)args->stop.n;
    }
}
