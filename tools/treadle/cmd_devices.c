/* tools/treadle/cmd_devices.c - `treadle devices`: engines, execution providers and devices of this machine. */
#include "command.h"

#include "base/arena.h"

#include <stdio.h>

typedef struct devices_args {
    td_model_args model; /* only what says where ONNX Runtime is */
    bool json;
} devices_args;

static const td_option devices_options[] = {
    {"json", 0, OPTION_FLAG, NULL, "print a JSON list", offsetof(devices_args, json)},
    {"ort-lib", 0, OPTION_TEXT, "PATH", "ONNX Runtime's libonnxruntime.so (default: the system's)",
     offsetof(devices_args, model.ort_lib)},
    {"ep-library", 0, OPTION_LIST, "NAME=PATH", "load a plugin execution provider into ONNX Runtime; repeatable",
     offsetof(devices_args, model.ep_library)},
};

static void print_engine(const td_json *engine) {
    td_str name = td_json_string_or(engine, "engine", ""), error = td_json_string_or(engine, "error", "");
    td_str version = td_json_string_or(engine, "version", ""), library = td_json_string_or(engine, "library", "");

    printf("%.*s", TD_STR_ARGS(name));
    if (version.n) printf(" %.*s (%.*s)", TD_STR_ARGS(version), TD_STR_ARGS(library));
    printf("\n");
    if (error.n) {
        printf("  not available: %.*s\n", TD_STR_ARGS(error));
        return;
    }
    const td_json *providers = td_json_get(engine, "providers"), *devices = td_json_get(engine, "devices");
    for (const td_json *p = providers ? providers->first : NULL; p; p = p->next)
        printf("  provider %.*s\n", TD_STR_ARGS(p->string));
    for (const td_json *d = devices ? devices->first : NULL; d; d = d->next) {
        td_str provider = td_json_string_or(d, "provider", ""), type = td_json_string_or(d, "type", "");
        td_str text = td_json_string_or(d, "name", "");
        int64_t vendor = td_json_int_or(d, "vendor_id", -1), id = td_json_int_or(d, "device_id", -1);
        printf("  device %.*s of %.*s%s%.*s", TD_STR_ARGS(type), TD_STR_ARGS(provider), text.n ? ": " : "",
               TD_STR_ARGS(text));
        if (vendor >= 0) printf(" (vendor %lld, device %lld)", (long long)vendor, (long long)id);
        printf("\n");
    }
}

static int devices_run(void *given, char **positional) {
    const devices_args *args = given;
    treadle_model_options options;
    treadle_error error = {0};
    td_arena arena = {0};
    td_json *list;
    char *json = NULL;
    (void)positional;

    treadle_model_options_init(&options);
    options.ort_library = args->model.ort_lib;
    options.provider_libraries = args->model.ep_library.items;
    options.n_provider_libraries = args->model.ep_library.n;
    if (treadle_engines_list(&options, &json, &error) != TREADLE_OK) return td_report(&error);
    int code = EXIT_OK;
    if (args->json) {
        printf("%s\n", json);
    } else if (td_json_parse(td_str_from(json), NULL, &arena, &list, &error) != TREADLE_OK) {
        code = td_report(&error);
    } else {
        for (const td_json *engine = list->first; engine; engine = engine->next) print_engine(engine);
    }
    treadle_free(json);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_devices = {
    .name = "devices",
    .arguments = "[--ort-lib PATH] [--ep-library NAME=PATH] [--json]",
    .summary = "list engines, execution providers and devices",
    .help = "What runs here, by engine. A session of a config names a provider by \"execution_provider\".",
    .options = devices_options,
    .n_options = TD_COUNT(devices_options),
    .args_bytes = sizeof(devices_args),
    .run = devices_run,
};
