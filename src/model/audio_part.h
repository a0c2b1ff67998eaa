/* model/audio_part.h - the audio side of a model folder: what its config says about turning sound into tensors. */
#ifndef TD_MODEL_AUDIO_PART_H
#define TD_MODEL_AUDIO_PART_H

#include "config/config.h"
#include "media/audio.h"
#include "plan/plan.h"

/* The recipe of preprocessing.audio; without such an entry, of a file of a usual name in the folder. Errors: as
 * td_recipe_parse; NOT_FOUND, UNSUPPORTED (a graph as preprocessor). */
treadle_status td_audio_part_recipe(const td_config *config, td_str overrides, td_recipe **out, treadle_error *err);

/* The same for a path: a model folder, or an audio config alone. Graphs are not looked at. */
treadle_status td_audio_part_open(const char *path, td_str overrides, td_recipe **out, treadle_error *err);

/* What is wrong with preprocessing.audio, before anything is run: a config that cannot be read, outputs other
 * than expected_outputs says, tensors that the graphs' inputs of the same name cannot take. A front end that
 * this build does not know, and all of a version 1 config, is only a warning: tensors may still be given by
 * name. false: out of memory. */
bool td_audio_part_check(const td_config *config, const td_plan *plan, td_messages *messages);

#endif
