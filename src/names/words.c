/* names/words.c - the tables of names/words.h. */
#include "names/words.h"

#include <stddef.h>

#define TD_WORD_TEXT(name, text) text,

const char *const td_when_words[] = {TD_WHEN_LIST(TD_WORD_TEXT) NULL};
const char *const td_loop_words[] = {TD_LOOP_LIST(TD_WORD_TEXT) NULL};
const char *const td_position_words[] = {TD_POSITION_LIST(TD_WORD_TEXT) NULL};
const char *const td_kv_format_words[] = {TD_KV_FORMAT_LIST(TD_WORD_TEXT) NULL};
const char *const td_present_words[] = {TD_PRESENT_LIST(TD_WORD_TEXT) NULL};
const char *const td_engine_words[] = {TD_ENGINE_LIST(TD_WORD_TEXT) NULL};
const char *const td_modality_words[] = {TD_MODALITY_LIST(TD_WORD_TEXT) NULL};
const char *const td_alignment_words[] = {TD_ALIGNMENT_LIST(TD_WORD_TEXT) NULL};
const char *const td_pooling_words[] = {TD_POOLING_LIST(TD_WORD_TEXT) NULL};
const char *const td_preprocess_format_words[] = {TD_PREPROCESS_FORMAT_LIST(TD_WORD_TEXT) NULL};
const char *const td_preset_words[] = {TD_PRESET_LIST(TD_WORD_TEXT) NULL};
const char *const td_role_words[] = {TD_ROLE_LIST(TD_WORD_TEXT) NULL};
