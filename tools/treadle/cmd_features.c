/* tools/treadle/cmd_features.c - `treadle features`: a sound file to the tensors that a model takes, or to its
 * samples. */
#include "command.h"

#include <stdio.h>
#include <string.h>

typedef struct features_args {
    const char *config, *output, *tensor, *fields;
    int64_t rate, offset, length;
    bool whole, json;
} features_args;

static const td_option features_options[] = {
    {"config", 'c', OPTION_TEXT, "DIR|FILE",
     "a model folder, or its preprocessor_config.json or the like (default: samples only)",
     offsetof(features_args, config)},
    {"output", 'o', OPTION_TEXT, "FILE.npy", "write the tensor there", offsetof(features_args, output)},
    {"tensor", 0, OPTION_TEXT, "NAME", "which tensor to write (default: the first)", offsetof(features_args, tensor)},
    {"fields", 0, OPTION_TEXT, "JSON", "an object whose members replace those of the config",
     offsetof(features_args, fields)},
    {"whole", 0, OPTION_FLAG, NULL, "neither cut nor pad to the config's clip", offsetof(features_args, whole)},
    {"offset", 0, OPTION_INT, "N", "start at sample N, at the config's rate", offsetof(features_args, offset)},
    {"length", 0, OPTION_INT, "N", "use N samples from there (default: all)", offsetof(features_args, length)},
    {"rate", 0, OPTION_INT, "HZ", "without --config: mean of the channels, resampled to HZ",
     offsetof(features_args, rate)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object", offsetof(features_args, json)},
};

/* What is printed and chosen from: names and tensors. */
typedef struct named_tensors {
    size_t n;
    const char *names[16];
    treadle_tensor tensors[16];
} named_tensors;

static int print_tensors(const named_tensors *t, int32_t rate, bool json) {
    td_json_writer w;
    td_buf out = {0};
    td_json_writer_init(&w, &out, 0);
    if (json) {
        td_json_begin_object(&w);
        td_json_key(&w, "sample_rate");
        td_json_write_int(&w, rate);
        td_json_key(&w, "tensors");
        td_json_begin_array(&w);
    }
    for (size_t i = 0; i < t->n; i++) {
        const treadle_tensor *tensor = &t->tensors[i];
        if (!json) {
            td_buf_printf(&out, "%s %s [", t->names[i], treadle_dtype_name(tensor->dtype));
            for (int32_t d = 0; d < tensor->rank; d++)
                td_buf_printf(&out, "%s%lld", d ? ", " : "", (long long)tensor->dims[d]);
            td_buf_text(&out, "]\n");
            continue;
        }
        td_json_begin_object(&w);
        td_json_key(&w, "name");
        td_json_write_text(&w, t->names[i]);
        td_json_key(&w, "dtype");
        td_json_write_text(&w, treadle_dtype_name(tensor->dtype));
        td_json_key(&w, "shape");
        td_json_begin_array(&w);
        for (int32_t d = 0; d < tensor->rank; d++) td_json_write_int(&w, tensor->dims[d]);
        td_json_end_array(&w);
        td_json_end_object(&w);
    }
    if (json) {
        td_json_end_array(&w);
        td_json_end_object(&w);
        td_buf_char(&out, '\n');
    }
    bool good = !out.failed && td_out(td_buf_view(&out));
    td_buf_free(&out);
    return good ? EXIT_OK : EXIT_RUN;
}

static int write_and_print(const features_args *args, const named_tensors *t, int32_t rate) {
    treadle_error error = {0};
    size_t chosen = 0;
    while (args->tensor && chosen < t->n && strcmp(t->names[chosen], args->tensor) != 0) chosen++;
    if (chosen == t->n) {
        td_buf names = {0};
        for (size_t i = 0; i < t->n; i++) td_buf_printf(&names, "%s%s", i ? ", " : "", t->names[i]);
        int code = td_usage(&td_command_features, "expected --tensor of %s; found \"%s\"", names.p ? names.p : "",
                            args->tensor);
        td_buf_free(&names);
        return code;
    }
    if (args->output && treadle_tensor_write_npy(args->output, &t->tensors[chosen], &error) != TREADLE_OK)
        return td_report(&error);
    return print_tensors(t, rate, args->json);
}

/* The samples themselves, [frames, channels]. */
static int show_samples(const features_args *args, const treadle_audio *audio) {
    treadle_error error = {0};
    treadle_audio_info info = {.struct_size = sizeof info};
    treadle_audio *mono = NULL;
    if (args->rate && treadle_audio_to_mono(audio, (int32_t)TD_MIN(args->rate, INT32_MAX), &mono, &error) != TREADLE_OK)
        return td_report(&error);
    treadle_audio_get_info(mono ? mono : audio, &info);
    named_tensors t = {.n = 1, .names = {"samples"}};
    t.tensors[0] = (treadle_tensor){
        .dtype = TREADLE_DTYPE_FLOAT, .rank = 2, .dims = {info.n_frames, info.n_channels}, .data = info.samples};
    int code = write_and_print(args, &t, info.sample_rate);
    treadle_audio_free(mono);
    return code;
}

static int show_features(const features_args *args, const treadle_audio *audio) {
    treadle_error error = {0};
    treadle_audio_extractor *extractor = NULL;
    treadle_audio_features_options options;
    treadle_features *features = NULL;
    named_tensors t = {0};
    int code = EXIT_OK;
    if (treadle_audio_extractor_open(args->config, args->fields, &extractor, &error) != TREADLE_OK)
        return td_report_model(&error);
    treadle_audio_features_options_init(&options);
    options.offset = args->offset;
    options.length = args->length;
    options.whole = args->whole;
    if (treadle_audio_features(extractor, audio, &options, &features, &error) != TREADLE_OK) code = td_report(&error);
    for (size_t i = 0; i < treadle_features_count(features) && i < TD_COUNT(t.names); i++, t.n++) {
        t.names[i] = treadle_features_name(features, i);
        treadle_features_tensor(features, i, &t.tensors[i]);
    }
    if (code == EXIT_OK) code = write_and_print(args, &t, treadle_audio_extractor_rate(extractor));
    treadle_features_free(features);
    treadle_audio_extractor_free(extractor);
    return code;
}

static int features_run(void *given, char **positional) {
    const features_args *args = given;
    treadle_error error = {0};
    treadle_audio *audio = NULL;

    if (args->config && args->rate) return td_usage(&td_command_features, "--rate and --config exclude each other");
    if (!args->config && (args->fields || args->whole || args->offset || args->length))
        return td_usage(&td_command_features, "--fields, --whole, --offset and --length need --config");
    if (args->rate < 0 || args->offset < 0 || args->length < 0)
        return td_usage(&td_command_features, "expected numbers of at least 0");
    if (td_open_audio(positional[0], &audio, &error) != TREADLE_OK) {
        td_report(&error);
        return EXIT_RUN;
    }
    int code = args->config ? show_features(args, audio) : show_samples(args, audio);
    treadle_audio_free(audio);
    return code;
}

const td_command td_command_features = {
    .name = "features",
    .arguments = "AUDIO [--config DIR|FILE.json] [-o FILE.npy] [--json]",
    .summary = "turn a sound file into the tensors that a model takes",
    .help =
        "Reads WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF, CAF and W64; a file called - is standard input. Prints the name, type and\n"
        "shape of each tensor that the config's audio preprocessing makes. Without --config: the samples, [frames, channels].",
    .options = features_options,
    .n_options = TD_COUNT(features_options),
    .args_bytes = sizeof(features_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = features_run,
};
