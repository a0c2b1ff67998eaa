/* compile/single.h - one file instead of a folder of files: the graph carries its weights and,
 * as metadata, the text files. */
#ifndef TD_COMPILE_SINGLE_H
#define TD_COMPILE_SINGLE_H

#include "compile/folder.h"

/* Packs what the folder aside holds into its model.onnx; the other files go. Weights that would make the file larger
 * than protobuf allows (2 GiB) stay in model.onnx.data. A tied weight stands in the file as often as it is used.
 * Errors: TREADLE_UNSUPPORTED (more than one graph), and those of reading and writing. */
treadle_status td_single_file(const td_folder *folder, treadle_error *err);

#endif
