/* compile/api.c - the public face of the compiler (treadle/compile.h) over td_compile. */
#include "treadle/compile.h"

#include "compile/checkpoint.h"
#include "compile/compile.h"

#include <string.h>

void treadle_compile_options_init(treadle_compile_options *options) {
    *options = (treadle_compile_options){.struct_size = sizeof *options, .accuracy_level = 4, .overwrite = true};
}

static bool forward_progress(void *ctx, uint64_t done, uint64_t total, const char *what) {
    const treadle_compile_options *options = ctx;
    return options->progress(options->progress_ctx, what, done, total);
}

treadle_status treadle_compile(const char *source, const char *out_dir, const treadle_compile_options *options,
                               treadle_error *error) {
    treadle_compile_options own;

    treadle_compile_options_init(&own);
    if (!source || !out_dir) return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected source and out_dir, found NULL");
    if (options && (options->struct_size < sizeof(size_t) || options->struct_size > sizeof own))
        return td_fail(error, TREADLE_INVALID_ARGUMENT,
                       "the options' struct_size is %zu: call treadle_compile_options_init first",
                       options->struct_size);
    if (options) memcpy(&own, options, options->struct_size);
    const td_compile_options inner = {
        .source = source,
        .out_dir = out_dir,
        .accuracy_level = own.accuracy_level,
        .quantize = own.dequantize ? "none" : NULL,
        .single_file = own.single_file,
        .keep_existing = !own.overwrite,
        .progress = own.progress ? forward_progress : NULL,
        .ctx = &own,
    };
    return td_compile(&inner, error);
}

bool treadle_compile_knows(const char *path) { return path && td_checkpoint_knows(path); }
