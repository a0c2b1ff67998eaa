/* tools/treadle/cmd_infer.c - `treadle infer`: named tensors in and out as .npy files. One ONNX file is here, folders
 * are in infer_folder.c. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

typedef struct infer_args {
    td_model_args model;
    td_infer_args tensors;
    const char *provider, *provider_options, *session_options, *run_options;
} infer_args;

static const td_option infer_options[] = {
    {"input", 'i', OPTION_LIST, "NAME=FILE", "a tensor for an input: .npy, or .pb as in ONNX test data; repeatable",
     offsetof(infer_args, tensors.inputs)},
    {"output", 'o', OPTION_LIST, "NAME=FILE.npy", "write an output to a file; repeatable",
     offsetof(infer_args, tensors.outputs)},
    {"ids", 0, OPTION_TEXT, "1,2,3", "token ids, for a folder that takes them", offsetof(infer_args, tensors.ids)},
    {"audio", 0, OPTION_TEXT, "FILE", "a sound file, through the preprocessing of a folder; -: standard input",
     offsetof(infer_args, tensors.audio)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object", offsetof(infer_args, tensors.json)},
    {"provider", 0, OPTION_TEXT, "NAME", "execution provider of ONNX Runtime; implies --engine ort",
     offsetof(infer_args, provider)},
    {"provider-options", 0, OPTION_TEXT, "JSON", "an object of options for the provider",
     offsetof(infer_args, provider_options)},
    {"session-options", 0, OPTION_TEXT, "JSON", "an object of session options for ONNX Runtime",
     offsetof(infer_args, session_options)},
    {"run-options", 0, OPTION_TEXT, "JSON", "an object of run options for ONNX Runtime",
     offsetof(infer_args, run_options)},
    MODEL_OPTIONS(infer_args),
};

typedef struct infer {
    const infer_args *args;
    treadle_session *session;
    treadle_value **in, **out;
    size_t n_in, n_out;
    td_arena arena;
} infer;

/* --- names */
static void port_at(const infer *f, bool input, size_t i, treadle_port *port) {
    if (input) treadle_session_input(f->session, i, port);
    else treadle_session_output(f->session, i, port);
}

/* Splits NAME=FILE and finds the port; names may hold '=' themselves. */
static int find_port(infer *f, bool input, const char *text, size_t *index, const char **file) {
    const char *const flag = input ? "--input" : "--output";
    size_t n = input ? f->n_in : f->n_out;
    treadle_port port;

    for (size_t i = 0; i < n; i++) {
        port_at(f, input, i, &port);
        size_t length = strlen(port.name);
        if (strncmp(text, port.name, length) != 0 || text[length] != '=') continue;
        *index = i;
        *file = text + length + 1;
        return EXIT_OK;
    }
    td_buf names = {0};
    for (size_t i = 0; i < n; i++) {
        port_at(f, input, i, &port);
        td_buf_printf(&names, "%s%s", i ? ", " : "", port.name);
    }
    int code = td_usage(&td_command_infer, "%s: expected NAME=FILE with one of the names %s; found \"%s\"", flag,
                        names.p ? names.p : "(there are none)", text);
    td_buf_free(&names);
    return code;
}

/* --- values in */
static int read_inputs(infer *f) {
    for (size_t k = 0; k < f->args->tensors.inputs.n; k++) {
        treadle_error error = {0};
        const char *file;
        size_t i;
        int code = find_port(f, true, f->args->tensors.inputs.items[k], &i, &file);
        if (code != EXIT_OK) return code;
        treadle_value_release(f->in[i]);
        f->in[i] = NULL;
        treadle_status status = td_str_ends(td_str_from(file), TD_STR(".pb"))
                                    ? treadle_session_read_pb(f->session, true, i, file, &f->in[i], &error)
                                    : treadle_value_read_npy(file, &f->in[i], &error);
        if (status != TREADLE_OK) {
            td_report(&error);
            return EXIT_RUN;
        }
    }
    for (size_t i = 0; i < f->n_in; i++) {
        treadle_port port;
        treadle_session_input(f->session, i, &port);
        if (!f->in[i] && !port.optional)
            return td_usage(&td_command_infer, "input \"%s\" is not given: --input %s=FILE.npy", port.name, port.name);
    }
    for (size_t k = 0; k < f->args->tensors.outputs.n; k++) { /* before the work, not after it */
        const char *file;
        size_t i;
        int code = find_port(f, false, f->args->tensors.outputs.items[k], &i, &file);
        if (code != EXIT_OK) return code;
    }
    return EXIT_OK;
}

/* --- values out */
static int write_outputs(infer *f) {
    for (size_t k = 0; k < f->args->tensors.outputs.n; k++) {
        treadle_error error = {0};
        treadle_tensor tensor;
        const char *file;
        size_t i;
        int code = find_port(f, false, f->args->tensors.outputs.items[k], &i, &file);
        if (code != EXIT_OK) return code;
        if (treadle_value_tensor(f->out[i], &tensor, &error) == TREADLE_OK &&
            treadle_tensor_write_npy(file, &tensor, &error) == TREADLE_OK)
            continue;
        td_report(&error);
        return EXIT_RUN;
    }
    return EXIT_OK;
}

static void write_output(const infer *f, size_t i, td_json_writer *w) {
    treadle_port port;
    treadle_tensor t;
    treadle_session_output(f->session, i, &port);
    td_json_begin_object(w);
    td_json_key(w, "name");
    td_json_write_text(w, port.name);
    switch (treadle_value_get_kind(f->out[i])) {
    case TREADLE_VALUE_TENSOR:
        if (treadle_value_tensor(f->out[i], &t, NULL) == TREADLE_OK) td_tensor_json(w, &t);
        break;
    case TREADLE_VALUE_SEQUENCE:
        td_json_key(w, "items");
        td_json_write_int(w, (int64_t)treadle_value_count(f->out[i]));
        break;
    case TREADLE_VALUE_NONE: break;
    }
    td_json_end_object(w);
}

static void print_output(const infer *f, size_t i) {
    treadle_port port;
    treadle_tensor t;
    treadle_session_output(f->session, i, &port);
    printf("%s: ", port.name);
    if (treadle_value_get_kind(f->out[i]) == TREADLE_VALUE_SEQUENCE)
        printf("a sequence of %zu", treadle_value_count(f->out[i]));
    else if (treadle_value_tensor(f->out[i], &t, NULL) != TREADLE_OK) printf("nothing");
    else td_tensor_print(&t);
    printf("\n");
}

static int print_outputs(const infer *f) {
    td_json_writer w;
    td_buf out = {0};

    if (!f->args->tensors.json) {
        for (size_t i = 0; i < f->n_out; i++) print_output(f, i);
        return EXIT_OK;
    }
    td_json_writer_init(&w, &out, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "outputs");
    td_json_begin_array(&w);
    for (size_t i = 0; i < f->n_out; i++) write_output(f, i, &w);
    td_json_end_array(&w);
    td_json_end_object(&w);
    td_buf_char(&out, '\n');
    int code = !out.failed && td_out(td_buf_view(&out)) ? EXIT_OK : EXIT_RUN;
    td_buf_free(&out);
    return code;
}

/* --- the command */
static int open_session(infer *f, const td_model_source *source) {
    treadle_session_options options;
    treadle_error error = {0};

    treadle_session_options_init(&options);
    options.n_threads = source->options.n_threads;
    options.activations = source->options.activations;
    options.no_passes = source->options.no_passes;
    options.pack_dir = source->options.pack_dir;
    options.engine = source->options.engine;
    options.ort_library = source->options.ort_library;
    options.provider_libraries = source->options.provider_libraries;
    options.n_provider_libraries = source->options.n_provider_libraries;
    options.provider = f->args->provider;
    options.provider_options = f->args->provider_options;
    options.session_options = f->args->session_options;
    options.run_options = f->args->run_options;
    if (treadle_session_open(source->path, &options, &f->session, &error) != TREADLE_OK) return td_report(&error);
    f->n_in = treadle_session_n_inputs(f->session);
    f->n_out = treadle_session_n_outputs(f->session);
    f->in = TD_ARENA_ARRAY(&f->arena, treadle_value *, f->n_in + 1);
    f->out = TD_ARENA_ARRAY(&f->arena, treadle_value *, f->n_out + 1);
    return f->in && f->out ? EXIT_OK : EXIT_RUN;
}

static int infer_file(infer *f, const td_model_source *source) {
    treadle_error error = {0};

    if (f->args->tensors.ids || f->args->tensors.audio)
        return td_usage(&td_command_infer, "%s needs a model folder: %s is one graph, which takes tensors (--input)",
                        f->args->tensors.ids ? "--ids" : "--audio", source->path);
    int code = open_session(f, source);
    if (code == EXIT_OK) code = read_inputs(f);
    if (code == EXIT_OK &&
        treadle_session_run(f->session, (const treadle_value *const *)f->in, f->out, &error) != TREADLE_OK) {
        td_report(&error);
        code = EXIT_RUN;
    }
    if (code == EXIT_OK) code = write_outputs(f);
    if (code == EXIT_OK) code = print_outputs(f);
    for (size_t i = 0; f->in && i < f->n_in; i++) treadle_value_release(f->in[i]);
    for (size_t i = 0; f->out && i < f->n_out; i++) treadle_value_release(f->out[i]);
    treadle_session_close(f->session);
    return code;
}

/* What only ONNX Runtime takes, of one graph: a folder's config says it for each session. */
static const char *provider_option(const infer_args *args) {
    if (args->provider) return "--provider";
    if (args->provider_options) return "--provider-options";
    if (args->session_options) return "--session-options";
    return args->run_options ? "--run-options" : NULL;
}

static int infer_run(void *given, char **positional) {
    infer f = {.args = given};
    td_model_source source;
    int code = td_model_source_get(&f.args->model, positional[0], &f.arena, &source);

    if (code == EXIT_OK && !td_path_is_dir(source.path)) code = infer_file(&f, &source);
    else if (code == EXIT_OK && provider_option(f.args))
        code = td_usage(&td_command_infer, "%s is for one graph; a folder's config says it for each session (--set)",
                        provider_option(f.args));
    else if (code == EXIT_OK) code = td_infer_folder(&source, &f.args->tensors, &f.arena);
    td_arena_free(&f.arena);
    return code;
}

const td_command td_command_infer = {
    .name = "infer",
    .arguments = "FILE.onnx|DIR [-i NAME=FILE.npy ...] [-o NAME=FILE.npy ...] [--json]",
    .summary = "run one ONNX graph, or a folder's pipeline, on named tensors",
    .help =
        "Prints type, shape and range of every output. Of a file, the graph is run by itself: no config and no state. A folder is\n"
        "run once as its config says, if it gives tensors and no tokens: speech synthesis, encoders, classifiers. Of several\n"
        "sessions an output is called SESSION.NAME, or NAME alone.",
    .options = infer_options,
    .n_options = TD_COUNT(infer_options),
    .args_bytes = sizeof(infer_args),
    .min_positional = 1,
    .max_positional = 1,
    .run = infer_run,
};
