/* config/v1_types.c - what version 1 hangs on model.type, as data: type to fields. The only place of this
 * module that knows names of models; anything not here is found from the graphs. Source: every place where ONNX
 * Runtime GenAI asks for the type. */
#include "config/v1.h"

static const td_v1_prompt padded_grid = {"<|image_pad|>", "<|image_pad|>", "grid/merge^2", NULL, NULL};
static const td_v1_prompt rows_of_patches = {"[IMG]", "[IMG]", "grid/merge^2", "[IMG_BREAK]", "[IMG_END]"};
static const td_v1_prompt soft_tokens = {"<start_of_image>", "<image_soft_token>", "num_image_tokens", NULL, NULL};
static const td_v1_prompt numbered_image = {"<|image_{n}|>", NULL, "num_image_tokens", NULL, NULL};
static const td_v1_prompt reserved_image = {"<|image_{n}|>", "<|endoftext10|>", "num_image_tokens", NULL, NULL};
static const td_v1_prompt reserved_audio = {"<|audio_{n}|>", "<|endoftext11|>", "audio_sizes", NULL, NULL};
static const td_v1_prompt barred_image = {"<|image|>", "<|image|>", "num_image_tokens", NULL, NULL};
static const td_v1_prompt barred_audio = {"<|audio|>", "<|audio|>", "num_audio_tokens", NULL, NULL};

static const td_v1_type types[] = {
    /* images by grid rows, three-dimensional positions */
    {.name = "fara", .loop = TD_V1_LOOP_GRID, .image = &padded_grid},
    {.name = "qwen2_vl", .loop = TD_V1_LOOP_GRID, .image = &padded_grid},
    {.name = "qwen2_5_vl", .loop = TD_V1_LOOP_GRID, .image = &padded_grid},
    {.name = "qwen3_vl", .loop = TD_V1_LOOP_GRID, .image = &padded_grid},
    {.name = "qwen3_5", .loop = TD_V1_LOOP_GRID, .image = &padded_grid},
    {.name = "qwen3_5_moe", .loop = TD_V1_LOOP_GRID, .image = &padded_grid},
    /* images cropped out of a zero-padded batch */
    {.name = "mistral3", .loop = TD_V1_LOOP_CROP, .image = &rows_of_patches},
    {.name = "pixtral", .loop = TD_V1_LOOP_CROP, .image = &rows_of_patches},
    {.name = "gemma3", .loop = TD_V1_LOOP_IMAGES, .image = &soft_tokens},
    {.name = "gemma4", .loop = TD_V1_LOOP_BATCHED, .image = &barred_image, .audio = &barred_audio},
    {.name = "phi3v", .loop = TD_V1_LOOP_BATCHED, .image = &numbered_image},
    {.name = "phi4mm", .loop = TD_V1_LOOP_BATCHED, .image = &reserved_image, .audio = &reserved_audio},
    {.name = "videochat_flash_qwen", .loop = TD_V1_LOOP_BATCHED, .image = &padded_grid},
    /* markers of tool calls and reasoning, where the file has none */
    {.name = "qwen2", .tool_call_start = 151657, .tool_call_end = 151658},
    {.name = "qwen3",
     .tool_call_start = 151657,
     .tool_call_end = 151658,
     .reasoning_start = 151667,
     .reasoning_end = 151668},
    /* the rotation of positions changes at a length, and everything before it has to be run again */
    {.name = "phi3", .tool_call_start = 200025, .tool_call_end = 200026, .reprefill_at = 4097},
    {.name = "phimoe", .reprefill_at = 4097},
    {.name = "phi3small", .reprefill_at = 8193},
    /* what the decoder of an encoder-decoder starts from, which no file of version 1 says */
    {.name = "bart", .decoder_start = "eos_token_id"},
    {.name = "led", .decoder_start = "eos_token_id"},
    {.name = "m2m_100", .decoder_start = "eos_token_id"},
    {.name = "marian", .decoder_start = "pad_token_id"},
    {.name = "pegasus", .decoder_start = "pad_token_id"},
    {.name = "t5", .decoder_start = "pad_token_id"},
    {.name = "mt5", .decoder_start = "pad_token_id"},
    {.name = "umt5", .decoder_start = "pad_token_id"},
    {.name = "longt5", .decoder_start = "pad_token_id"},
    {.name = "whisper", .transcribes_from = 51865},
    /* encoders of text: the section that is called decoder holds no decoder */
    {.name = "albert", .encodes = true},
    {.name = "bert", .encodes = true},
    {.name = "deberta", .encodes = true},
    {.name = "deberta-v2", .encodes = true},
    {.name = "distilbert", .encodes = true},
    {.name = "electra", .encodes = true},
    {.name = "modernbert", .encodes = true},
    {.name = "mpnet", .encodes = true},
    {.name = "nomic_bert", .encodes = true},
    {.name = "roberta", .encodes = true},
    {.name = "xlm-roberta", .encodes = true},
};

const td_v1_type *td_v1_find_type(td_str name) {
    for (size_t i = 0; i < TD_COUNT(types); i++)
        if (td_str_is(name, types[i].name)) return &types[i];
    return NULL;
}
