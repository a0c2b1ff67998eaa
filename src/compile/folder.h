/* compile/folder.h - the output folder: made aside, put in place whole.
 *
 * A folder is replaced only if treadle made it: its graphs say so, and it holds no file that the compiler does not
 * write. Nothing outside the folder and its neighbours "DIR.tmp-PID-N" is touched. */
#ifndef TD_COMPILE_FOLDER_H
#define TD_COMPILE_FOLDER_H

#include "base/arena.h"
#include "base/error.h"

#define TD_PRODUCER "treadle"

/* Files of the text side, copied as they are where a checkpoint has them; NULL-terminated. */
extern const char *const td_tokenizer_files[];

typedef struct td_folder {
    td_arena *arena;
    char *final_path, *temp_path, *old_path;
} td_folder;

/* Checks that the folder may be written and makes the one aside. */
treadle_status td_folder_begin(td_arena *arena, const char *path, bool keep_existing, td_folder *out,
                               treadle_error *err);
char *td_folder_file(const td_folder *f, const char *name); /* a path in the folder aside; NULL: out of memory */
treadle_status td_folder_commit(td_folder *f, treadle_error *err);
void td_folder_abandon(td_folder *f); /* removes the folder aside */

#endif
