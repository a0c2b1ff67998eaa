/* tools/treadle/infer_folder.c - `treadle infer DIR`: one pass of a pipeline that gives tensors and no tokens. */
#include "command.h"

#include "base/arena.h"

#include <string.h>

typedef struct output {
    treadle_string session, name;
    treadle_tensor tensor;
} output;

/* "name" or "session.name" of what NAME=FILE begins with; names may hold '=' themselves. */
static const char *file_of(const char *text, const output *o) {
    const char *rest = text;

    if (strncmp(rest, o->session.p, o->session.n) == 0 && rest[o->session.n] == '.' &&
        strncmp(rest + o->session.n + 1, o->name.p, o->name.n) == 0 && rest[o->session.n + 1 + o->name.n] == '=')
        return rest + o->session.n + 1 + o->name.n + 1;
    return strncmp(rest, o->name.p, o->name.n) == 0 && rest[o->name.n] == '=' ? rest + o->name.n + 1 : NULL;
}

static int unknown_output(const char *text, const output *outputs, size_t n) {
    td_buf names = {0};

    for (size_t i = 0; i < n; i++)
        td_buf_printf(&names, "%s%.*s.%.*s", i ? ", " : "", (int)outputs[i].session.n, outputs[i].session.p,
                      (int)outputs[i].name.n, outputs[i].name.p);
    int code = td_usage(&td_command_infer, "--output: expected NAME=FILE with one of the names %s; found \"%s\"",
                        names.p, text);
    td_buf_free(&names);
    return code;
}

static int write_outputs(const td_texts *wanted, const output *outputs, size_t n) {
    treadle_error error = {0};

    for (size_t k = 0; k < wanted->n; k++) {
        const char *file = NULL;
        size_t i = 0;
        while (i < n && !(file = file_of(wanted->items[k], &outputs[i]))) i++;
        if (!file) return unknown_output(wanted->items[k], outputs, n);
        if (treadle_tensor_write_npy(file, &outputs[i].tensor, &error) == TREADLE_OK) continue;
        td_report(&error);
        return EXIT_RUN;
    }
    return EXIT_OK;
}

static int print_json(const output *outputs, size_t n) {
    td_json_writer w;
    td_buf out = {0};

    td_json_writer_init(&w, &out, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "outputs");
    td_json_begin_array(&w);
    for (size_t i = 0; i < n; i++) {
        td_json_begin_object(&w);
        td_json_key(&w, "session");
        td_json_write_string(&w, (td_str){outputs[i].session.p, outputs[i].session.n});
        td_json_key(&w, "name");
        td_json_write_string(&w, (td_str){outputs[i].name.p, outputs[i].name.n});
        td_tensor_json(&w, &outputs[i].tensor);
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    td_json_end_object(&w);
    td_buf_char(&out, '\n');
    int code = !out.failed && td_out(td_buf_view(&out)) ? EXIT_OK : EXIT_RUN;
    td_buf_free(&out);
    return code;
}

static int print_text(const output *outputs, size_t n, bool one_session) {
    for (size_t i = 0; i < n; i++) {
        if (!one_session) printf("%.*s.", (int)outputs[i].session.n, outputs[i].session.p);
        printf("%.*s: ", (int)outputs[i].name.n, outputs[i].name.p);
        td_tensor_print(&outputs[i].tensor);
        printf("\n");
    }
    return EXIT_OK;
}

static int show(const treadle_generator *g, const td_infer_args *args, bool one_session, td_arena *arena) {
    treadle_error error = {0};
    size_t n = treadle_generator_n_outputs(g, 0);
    output *outputs = TD_ARENA_ARRAY(arena, output, n + 1);

    if (!outputs) return EXIT_RUN;
    for (size_t i = 0; i < n; i++)
        if (treadle_generator_output_at(g, 0, i, &outputs[i].session, &outputs[i].name, &outputs[i].tensor, &error) !=
            TREADLE_OK)
            return td_report(&error);
    int code = write_outputs(&args->outputs, outputs, n);
    if (code != EXIT_OK) return code;
    return args->json ? print_json(outputs, n) : print_text(outputs, n, one_session);
}

static int pass(treadle_model *model, const td_infer_args *args, td_arena *arena) {
    td_media_args media = {.input = args->inputs, .audio = args->audio};
    treadle_model_info info = {.struct_size = sizeof info};
    treadle_generator *g = NULL;
    treadle_error error = {0};
    treadle_ids row = {0};
    int32_t *ids = NULL;

    treadle_model_get_info(model, &info);
    if (info.has_logits || info.transduces) {
        fprintf(stderr, "treadle: this model gives tokens, not tensors alone: see run%s\n",
                info.transcribes ? " and transcribe" : "");
        return EXIT_MODEL;
    }
    if (args->ids && !td_parse_ids(args->ids, arena, &ids, &row.n))
        return td_usage(&td_command_infer, "--ids: expected ids as 1,2,3, found \"%s\"", args->ids);
    row.ids = ids;
    if (treadle_generator_new(model, NULL, &g, &error) != TREADLE_OK) return td_report(&error);
    int code = td_give_media(&td_command_infer, &media, g);
    if (code == EXIT_OK && (treadle_generator_append(g, &row, 1, &error) != TREADLE_OK ||
                            treadle_generator_prefill(g, &error) != TREADLE_OK))
        code = td_report(&error);
    if (code == EXIT_OK) code = show(g, args, info.n_sessions == 1, arena);
    treadle_generator_free(g);
    return code;
}

int td_infer_folder(const td_model_source *source, const td_infer_args *args, td_arena *arena) {
    treadle_model *model = NULL;
    treadle_error error = {0};

    if (treadle_model_open(source->path, &source->options, &model, &error) != TREADLE_OK)
        return td_report_model(&error);
    int code = pass(model, args, arena);
    treadle_model_close(model);
    return code;
}
