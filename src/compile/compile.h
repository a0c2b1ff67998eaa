/* compile/compile.h - the pipeline compiler: a checkpoint in, a folder that treadle and other ONNX runtimes run out.
 *
 * Reads GGUF files and Hugging Face folders of the architectures in arch.c. Writes
 *
 *     model.onnx, model.onnx.data     a decoder: opset 21 with com.microsoft operators; weights as external data
 *     encoder.onnx, decoder.onnx ...  a speech recogniser: opset 23 (parts_speech.c)
 *     genai_config.json               version 2
 *     generation_config.json          of a Hugging Face folder; a speech recogniser's is completed from its other files
 *     preprocessor_config.json        of a speech recogniser
 *     tokenizer.json                  copied, or built from a GGUF file's vocabulary (left out if not understood)
 *     tokenizer_config.json ...       special tokens, chat template
 *
 * Quantised weights are carried over, never requantised. A value is scale * (code - zero) or scale * code + minimum,
 * with scales and minima per block; the codes become, by what their format needs:
 *
 *     MatMulNBits            2, 4, 8 bits, codes moved to the default zero point; minima as float zero points
 *                            -minimum/scale (a block whose scale is 0 gets scale = minimum, zero point -1, codes 0)
 *     GatherBlockQuantized   embedding tables of 4 and 8 bits without minima
 *     treadle functions      what those two do not hold
 *
 * The model-local functions, domain "treadle", version 1; other runtimes run their bodies (functions.c). With
 * W[n, block * size + i] = scales[n, block] * float(code i of the block) + minima[n, block], product rounded, then sum:
 *
 *     BlockAffineMatMul(A, codes, scales, minima) -> Y       attribute bits (1, 2, 4, 8)
 *         A float32 [..., K]; codes uint8 [N, blocks, size * bits / 8], within a byte low bits first; scales, minima
 *         float32 [N, blocks]; K = blocks * size. Y float32 [..., N] = A . W^T
 *     BlockAffineGather(codes, indices, scales, minima) -> output    attribute bits
 *         output float32 [indices..., K]: row indices[...] of W; indices int64, -N <= index < N
 *
 * A tied head and its embedding table are initializers over the same bytes of the data file. float16 and bfloat16
 * matrices stay as they are; the graph casts them, so computing is float32. Vectors, convolutions and tables of
 * positions, which are small, are float32. Memory use is bounded whatever the model's size: the source is mapped, the
 * data file is written in pieces. */
#ifndef TD_COMPILE_COMPILE_H
#define TD_COMPILE_COMPILE_H

#include "base/error.h"

#include <stdbool.h>

/* Told now and then; `total` is constant until the last call, whose `done` and `total` are equal. false: stop,
 * td_compile returns TREADLE_CANCELLED. */
typedef bool td_compile_progress_fn(void *ctx, uint64_t done, uint64_t total, const char *what);
/* A remark for the user, e.g. that the pre-tokenizer is not known. */
typedef void td_compile_note_fn(void *ctx, const char *text);

typedef struct td_compile_options {
    const char *source;   /* a GGUF file, or a folder with config.json and safetensors (checkpoint.h) */
    const char *out_dir;  /* made, or replaced if treadle made it; refused if it holds anything else */
    int accuracy_level;   /* of MatMulNBits: 0 or 4 (int8 activations allowed) */
    const char *quantize; /* NULL: blocks are carried over; "none": they are decoded, all weights become float32 */
    bool single_file;     /* weights and text files inside model.onnx (single.h) */
    bool keep_existing;   /* refuse a folder that is not empty even if treadle made it */
    td_compile_progress_fn *progress; /* may be NULL */
    td_compile_note_fn *note;         /* NULL: td_log, level warning */
    void *ctx;                        /* of both */
} td_compile_options;

/* Builds aside, in "out_dir.tmp-PID", and renames: out_dir holds all or nothing. On failure nothing is left behind. */
treadle_status td_compile(const td_compile_options *options, treadle_error *err);

#endif
