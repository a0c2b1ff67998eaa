/* compile/public.c - include/treadle/compile.h over td_compile: checks, defaults, progress. */
#include "treadle/compile.h"

#include "compile/compile.h"

#include <stdio.h>
#include <string.h>

void treadle_compile_options_init(treadle_compile_options *options)
{
    *options = (treadle_compile_options){.struct_size = sizeof *options, .accuracy_level = 4};
}

static bool forward_progress(void *ctx, uint64_t done, uint64_t total, const char *what)
{
    const treadle_compile_options *options = ctx;
    return options->progress ? options->progress(options->progress_ctx, what, done, total) : true;
}

treadle_status treadle_compile(const char *source, const char *out_dir, const treadle_compile_options *options,
                               treadle_error *error)
{
    treadle_compile_options all;

    treadle_compile_options_init(&all);
    if (!source || !out_dir) return td_fail(error, TREADLE_INVALID_ARGUMENT, "source and out_dir must be given");
    if (options) {
        size_t n = options->struct_size;
        if (n < sizeof n || n > sizeof all)
            return td_fail(error, TREADLE_INVALID_ARGUMENT, "struct_size is %zu, expected at most %zu; use treadle_compile_options_init", n, sizeof all);
        memcpy(&all, options, n);
    }
    td_compile_options inner = {.source = source,
                                .out_dir = out_dir,
                                .accuracy_level = all.accuracy_level,
                                .quantize = "none",
                                .progress = forward_progress,
                                .ctx = &all};
    return td_compile(&inner, error);
}

bool treadle_compile_knows(const char *path)
{
    char magic[4];
    FILE *f = fopen(path, "rb");

    if (!f) return false;
    bool knows = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
    fclose(f);
    return knows;
}
