/* tools/treadle/drive.h - one session of `treadle drive`: what its requests share. cmd_drive.c
 * says what requests look like. */
#ifndef TREADLE_DRIVE_H
#define TREADLE_DRIVE_H

#include "command.h"

#include "base/arena.h"

typedef struct td_drive_args {
    td_model_args model;
} td_drive_args;

/* One request being answered, and what outlives it. */
typedef struct td_drive {
    const td_drive_args *args;
    const char *path;
    treadle_model *model;         /* NULL: not opened yet */
    treadle_generator *continued; /* of the latest transduce, embed or encode: "continue" goes on with it */
    size_t n_tensor_rows;         /* dimension 0 of the latest tensor with several dimensions: rows of sound */
    td_arena keep;                /* of the model's options */
    td_arena arena;               /* of this request */
    td_json *request;
    td_json_writer out;
    treadle_error error;
} td_drive;

/* Everything below returns TREADLE_OK, or another status with the reason in d->error. */

/* TREADLE_INVALID_ARGUMENT with a message. */
treadle_status td_drive_fail(td_drive *d, const char *format, ...) TD_PRINTF(2, 3);
treadle_status td_drive_open_model(td_drive *d); /* once */
/* A generator with the request's options; the caller frees it. */
treadle_status td_drive_generator(td_drive *d, treadle_generator **out);
/* d->continued: a new generator, or with {"continue": true} that of the request before, whose state goes on. */
treadle_status td_drive_continue(td_drive *d);

/* --- drive_request.c: parts of a request, in its arena */
/* A list of ids; a single one counts as a list of one. `what`: its name in messages. */
treadle_status td_drive_ids(td_drive *d, const td_json *list, const char *what, treadle_ids *out);
treadle_status td_drive_prompts(td_drive *d, treadle_ids **out, size_t *out_n);
treadle_status td_drive_options(td_drive *d, treadle_generate_options *out);
char *td_drive_file_name(td_drive *d, const char *key); /* NULL: not given */
treadle_status td_drive_check_file_names(td_drive *d);
bool td_drive_is_text(const td_json *value); /* a string that the C API can take: no NUL in it */
/* {NAME: FILE.npy}, or NULL, and options.images_per_row, for the next append. */
treadle_status td_drive_set_tensors(td_drive *d, treadle_generator *g, const td_json *tensors);

/* --- drive_answer.c: parts of an answer */
void td_drive_write_ids(td_drive *d, treadle_ids ids);
void td_drive_write_runs(td_drive *d, const treadle_generator *g); /* "runs": {session: count}, "state_bytes" */
/* "state_bytes": memory of caches and other state now. */
void td_drive_write_state(td_drive *d, const treadle_generator *g);
/* To PREFIX.index.npy. */
treadle_status td_drive_save_logits(td_drive *d, const char *prefix, size_t index, const treadle_tensor *logits);

/* --- the requests: each writes its whole answer to d->out */
treadle_status td_drive_generate(td_drive *d); /* drive_generate.c */
treadle_status td_drive_stream(td_drive *d);
treadle_status td_drive_transduce(td_drive *d);
treadle_status td_drive_timeline(td_drive *d); /* drive_timeline.c */
treadle_status td_drive_process(td_drive *d);  /* drive_tensors.c */
treadle_status td_drive_embed(td_drive *d);
treadle_status td_drive_encode(td_drive *d);

#endif
