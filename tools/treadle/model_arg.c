/* tools/treadle/model_arg.c - from a path on the command line to an open model. A checkpoint is compiled into the cache
 * once (key: its content), in a folder of its own that is renamed into place, so that two processes may race. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/map.h"
#include "base/time.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- progress */
typedef struct progress {
    bool shown; /* a terminal, and not --quiet */
    int last;   /* permille last drawn, -1: none */
} progress;

static bool draw_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    progress *p = ctx;
    int permille = total ? (int)(done * 1000 / total) : 1000;

    if (td_interrupted()) return false;
    if (!p->shown || permille == p->last) return true;
    p->last = permille;
    char bar[41];
    int full = permille * 40 / 1000;
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(40 - full));
    bar[40] = 0;
    fprintf(stderr, "\r[%s] %3d%% %-24.24s", bar, permille / 10, stage);
    if (permille == 1000) fprintf(stderr, "\r%72s\r", "");
    fflush(stderr);
    return true;
}

int td_compile_with_progress(const char *source, const char *out_dir, const treadle_compile_options *given,
                             bool quiet) {
    treadle_compile_options options;
    treadle_error error = {0};
    progress p = {.shown = !quiet && isatty(STDERR_FILENO), .last = -1};

    treadle_compile_options_init(&options);
    if (given) options = *given;
    options.progress = draw_progress;
    options.progress_ctx = &p;
    td_interrupt_defer(true);
    treadle_status status = treadle_compile(source, out_dir, &options, &error);
    td_interrupt_defer(false);
    if (status == TREADLE_OK) return EXIT_OK;
    if (p.last >= 0) fprintf(stderr, "\n");
    int code = td_report(&error);
    return error.code == TREADLE_LIMIT ? EXIT_MODEL : code; /* a limit on what is read */
}

/* --- the cache */
static int out_of_memory(void) {
    fprintf(stderr, "treadle: out of memory\n");
    return EXIT_RUN;
}

/* The key of some content: its size, and a hash of all its bytes. */
typedef struct content {
    uint64_t hash, bytes;
} content;

static int add_content(const char *path, content *c) {
    treadle_error error = {0};
    td_mmap map;

    if (td_mmap_open(path, &map, &error) != TREADLE_OK) return td_report(&error);
    c->hash = td_hash(map.data, map.n, c->hash);
    c->bytes += map.n;
    td_mmap_close(&map);
    return EXIT_OK;
}

/* Of a folder: of the files in it, in order of their names, which count too. Its sub-folders hold other things. */
static int add_folder(const char *path, td_arena *arena, content *c) {
    treadle_error error = {0};
    char **names;
    size_t n;
    int code = EXIT_OK;

    if (td_list_dir(arena, path, &names, &n, &error) != TREADLE_OK) return td_report(&error);
    for (size_t i = 0; i < n && code == EXIT_OK; i++) {
        char *file = td_path_join(arena, path, names[i]);
        if (!file) return out_of_memory();
        if (!td_path_is_file(file)) continue;
        c->hash = td_hash(names[i], strlen(names[i]), c->hash);
        code = add_content(file, c);
    }
    return code;
}

static bool is_compiled(td_arena *arena, const char *folder) {
    char *config = td_path_join(arena, folder, "genai_config.json");

    return config && td_path_is_file(config);
}

/* Compiled aside, then put in place. A folder that another process made meanwhile stays: somebody may be reading it. */
static int compile_into_cache(const td_model_args *args, const char *given, td_arena *arena, const char *folder) {
    treadle_error error = {0};
    char *aside = td_arena_printf(arena, "%s.new-%ld", folder, (long)getpid());
    int code = aside ? td_compile_with_progress(given, aside, NULL, args->quiet) : out_of_memory();

    if (code != EXIT_OK || rename(aside, folder) == 0) return code;
    if (is_compiled(arena, folder)) {
        (void)td_remove_tree(aside, NULL);
        return EXIT_OK;
    }
    if (td_remove_tree(folder, &error) != TREADLE_OK) return td_report(&error); /* what is left of another one */
    if (rename(aside, folder) == 0 || is_compiled(arena, folder)) return EXIT_OK;
    fprintf(stderr, "treadle: %s: the compiled model cannot be put in place\n", folder);
    return EXIT_RUN;
}

/* The folder that a checkpoint is compiled into; made now if it is not there. */
static int compiled_folder(const td_model_args *args, const char *given, td_arena *arena, char **out) {
    treadle_error error = {0};
    content key = {0};
    const char *cache = td_cache_dir(arena);

    if (!cache) {
        fprintf(
            stderr,
            "treadle: no cache folder: set HOME, XDG_CACHE_HOME or TREADLE_CACHE, or compile with `treadle build %s -o DIR`\n",
            given);
        return EXIT_MODEL;
    }
    int code = td_path_is_dir(given) ? add_folder(given, arena, &key) : add_content(given, &key);
    if (code != EXIT_OK) return code;
    char *parent = td_arena_printf(arena, "%s/models", cache);
    *out = parent ? td_arena_printf(arena, "%s/%016llx-%llx-v%s", parent, (unsigned long long)key.hash,
                                    (unsigned long long)key.bytes, treadle_version())
                  : NULL;
    if (!*out) return out_of_memory();
    if (is_compiled(arena, *out)) return EXIT_OK;
    if (td_make_dirs(parent, &error) != TREADLE_OK) return td_report(&error);
    if (!args->quiet) fprintf(stderr, "treadle: compiling %s into %s (once)\n", given, *out);
    return compile_into_cache(args, given, arena, *out);
}

/* A checkpoint, and no folder that can be run as it is. */
static bool needs_compiling(const char *path, td_arena *arena) {
    char **names;
    size_t n;
    if (!treadle_compile_knows(path)) return false;
    if (td_path_is_file(path)) return true;
    if (td_list_dir(arena, path, &names, &n, NULL) != TREADLE_OK) return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], "genai_config.json") == 0 || td_str_ends(td_str_from(names[i]), TD_STR(".onnx")))
            return false;
    return true;
}

static int parse_setting(td_arena *arena, const char *text, treadle_setting *out) {
    const char *equals = strchr(text, '=');

    if (text[0] != '/' || !equals) {
        fprintf(stderr, "treadle: --set: expected /json/pointer=value, found \"%s\"\n", text);
        return EXIT_USAGE;
    }
    out->pointer = td_arena_strndup(arena, text, (size_t)(equals - text));
    out->value = equals + 1;
    return out->pointer ? EXIT_OK : out_of_memory();
}

static int activations_of(const char *text, treadle_activations *out) {
    if (!text || strcmp(text, "auto") == 0) *out = TREADLE_ACTIVATIONS_AUTO;
    else if (strcmp(text, "float") == 0) *out = TREADLE_ACTIVATIONS_FLOAT;
    else if (strcmp(text, "int8") == 0) *out = TREADLE_ACTIVATIONS_INT8;
    else {
        fprintf(stderr, "treadle: --activations: expected auto, float or int8, found \"%s\"\n", text);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

int td_model_args_check(const td_model_args *args) {
    treadle_activations activations;

    if (args->threads < 0 || args->threads > 1024) {
        fprintf(stderr, "treadle: --threads: expected 0..1024, found %lld\n", (long long)args->threads);
        return EXIT_USAGE;
    }
    if (args->engine && strcmp(args->engine, "light") != 0 && strcmp(args->engine, "ort") != 0) {
        fprintf(stderr, "treadle: --engine: expected light or ort, found \"%s\"\n", args->engine);
        return EXIT_USAGE;
    }
    return activations_of(args->activations, &activations);
}

int td_model_source_get(const td_model_args *args, const char *given, td_arena *arena, td_model_source *out) {
    treadle_error error = {0};

    *out = (td_model_source){0};
    treadle_model_options_init(&out->options);
    if (args->quiet) treadle_log_set(TREADLE_LOG_ERROR, NULL, NULL);
    int code = td_model_args_check(args);
    if (code != EXIT_OK) return code;
    out->options.n_threads = (int32_t)args->threads;
    out->options.strict = args->strict;
    out->options.no_passes = args->no_passes;
    out->options.engine = args->engine;
    out->options.ort_library = args->ort_lib;
    out->options.provider_libraries = args->ep_library.items;
    out->options.n_provider_libraries = args->ep_library.n;
    out->options.plugin_dirs = args->allow_plugins.items;
    out->options.n_plugin_dirs = args->allow_plugins.n;
    (void)activations_of(args->activations, &out->options.activations);
    if (args->cpu && treadle_cpu_set_mask(args->cpu, &error) != TREADLE_OK) return td_report(&error);
    out->settings = TD_ARENA_ARRAY(arena, treadle_setting, args->set.n + 1);
    if (!out->settings) return out_of_memory();
    for (size_t i = 0; i < args->set.n; i++) {
        code = parse_setting(arena, args->set.items[i], &out->settings[i]);
        if (code != EXIT_OK) return code;
    }
    out->options.settings = out->settings;
    out->options.n_settings = args->set.n;
    const char *cache = args->no_cache ? NULL : td_cache_dir(arena);
    if (cache) {
        out->options.pack_dir = td_arena_printf(arena, "%s/packed", cache);
        if (!out->options.pack_dir) return out_of_memory();
    }
    out->path = td_arena_strdup(arena, given);
    if (!out->path) return out_of_memory();
    /* Of other names the library says what it expected. */
    if (td_str_ends(td_str_from(given), TD_STR(".gguf")) && !td_path_exists(given)) {
        fprintf(stderr, "treadle: %s: there is no such file\n", given);
        return EXIT_MODEL;
    }
    td_str name = td_str_from(given);
    bool part = td_str_ends(name, TD_STR(".json")) || td_str_ends(name, TD_STR(".safetensors")); /* of a folder */
    if (part && treadle_compile_knows(given)) given = td_path_dir(arena, given);
    if (!given) return out_of_memory();
    if (needs_compiling(given, arena)) return compiled_folder(args, given, arena, &out->path);
    return EXIT_OK;
}

int td_model_get(const td_model_args *args, const char *given, td_arena *arena, treadle_model **out,
                 double *out_load_ms) {
    td_model_source source;
    treadle_error error = {0};
    int code = td_model_source_get(args, given, arena, &source);

    if (code != EXIT_OK) return code;
    uint64_t start = td_time_ns();
    if (treadle_model_open(source.path, &source.options, out, &error) != TREADLE_OK) {
        code = td_report(&error);
        return code == EXIT_USAGE ? EXIT_MODEL : code;
    }
    if (out_load_ms) *out_load_ms = (double)(td_time_ns() - start) * 1e-6;
    return EXIT_OK;
}
