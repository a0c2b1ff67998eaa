/* treadle/treadle.h - everything, and what belongs to the process rather than to a model: version, memory, log, CPU.
 *
 *   treadle_model_open      a folder becomes an immutable model               model.h
 *   treadle_generator_new   one mutable timeline of tokens over it            generate.h
 *   treadle_text_...        tokenizer, detokenizer, chat template             text.h
 *   treadle_audio_features  a sound file becomes named tensors                media.h
 *   treadle_transcribe      a recording of any length becomes text            transcribe.h
 *   treadle_session_open    one ONNX file, run on named tensors               session.h
 *   treadle_compile         a checkpoint becomes a model folder               compile.h (library treadle-compile)
 *   treadle_plugin          a pipeline in native code, for its author         plugin.h
 *
 * This file includes all of them but compile.h and plugin.h.
 *
 * Rules that hold everywhere
 * - Functions return a treadle_status and take an optional, caller-owned treadle_error as last parameter (status.h).
 *   An output parameter is written on success only, and is then the caller's, unless said otherwise.
 * - Options structs start with struct_size and have an _init function that sets every default: call it, change what you
 *   need. A NULL options pointer means all defaults. Structs only ever grow at their end: a smaller struct_size, of a
 *   program built with an older header, leaves the newer fields at their defaults; a larger one is
 *   TREADLE_INVALID_ARGUMENT.
 * - NULL where an argument is needed, and an enum value that is none: TREADLE_INVALID_ARGUMENT. Calls without a status
 *   give nothing, an empty text or a struct of zeros then, and for an index out of range. Any call that makes something
 *   may return TREADLE_OUT_OF_MEMORY.
 * - Strings are UTF-8. Text with a length may hold NULs; `const char *` alone ends at its NUL.
 * - Threads: models, texts, sessions, audio, extractors, features, transcripts, reports and
 * values are immutable and may be used
 *   from any number of threads at once; a generator or detokenizer from one thread at a time, with the one exception of
 *   treadle_generator_cancel. Each object is closed or freed by one thread, when no other uses it.
 *   Generators and what treadle_model_text gives belong to their model: they go before it does.
 */
#ifndef TREADLE_TREADLE_H
#define TREADLE_TREADLE_H

#include "treadle/generate.h"
#include "treadle/media.h"
#include "treadle/model.h"
#include "treadle/session.h"
#include "treadle/status.h"
#include "treadle/tensor.h"
#include "treadle/text.h"
#include "treadle/transcribe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0". Static string. */
TREADLE_API const char *treadle_version(void);

typedef enum treadle_log_level {
    TREADLE_LOG_ERROR,
    TREADLE_LOG_WARNING, /* the default */
    TREADLE_LOG_INFO,
    TREADLE_LOG_DEBUG
} treadle_log_level;

/* Receives one message without line end. May be called from any thread. */
typedef void treadle_log_fn(void *ctx, treadle_log_level level, const char *text);

/* Messages above max_level are dropped. fn NULL: standard error. Set it before other threads use the library. */
TREADLE_API void treadle_log_set(treadle_log_level max_level, treadle_log_fn *fn, void *ctx);

/* Restricts the instruction sets that kernels may use: "avx2" (up to it), "avx512", "none", "all", or a list
 * "avx2,avxvnni"; the environment variable TREADLE_CPU does the same before the first call. Set it before anything is
 * opened. TREADLE_INVALID_ARGUMENT names the known words. */
TREADLE_API treadle_status treadle_cpu_set_mask(const char *mask, treadle_error *error);

/* The CPU's name (static string), and the instruction sets in use ("avx2,avx512"; "" = plain C; valid
 * until this thread asks again). */
TREADLE_API const char *treadle_cpu_name(void);
TREADLE_API const char *treadle_cpu_features(void);

/* CPUs that this process may use (affinity and cgroup): what n_threads 0 means. */
TREADLE_API int32_t treadle_cpu_count(void);

#ifdef __cplusplus
}
#endif
#endif
