/* tools/treadle/drive_answer.c - parts of answers of `treadle drive` that several requests share. */
#include "drive.h"

void td_drive_write_ids(td_drive *d, treadle_ids ids) {
    td_json_begin_array(&d->out);
    for (size_t i = 0; i < ids.n; i++) td_json_write_int(&d->out, ids.ids[i]);
    td_json_end_array(&d->out);
}

treadle_status td_drive_save_logits(td_drive *d, const char *prefix, size_t index, const treadle_tensor *logits) {
    char *path = td_arena_printf(&d->arena, "%s.%zu.npy", prefix, index);

    return path ? treadle_tensor_write_npy(path, logits, &d->error) : td_drive_fail(d, "out of memory");
}

void td_drive_write_state(td_drive *d, const treadle_generator *g) {
    treadle_stats stats = {.struct_size = sizeof stats};

    treadle_generator_get_stats(g, &stats);
    td_json_key(&d->out, "state_bytes");
    td_json_write_int(&d->out, stats.state_bytes);
}

void td_drive_write_runs(td_drive *d, const treadle_generator *g) {
    treadle_model_info info = {.struct_size = sizeof info};

    treadle_model_get_info(d->model, &info);
    td_json_key(&d->out, "runs");
    td_json_begin_object(&d->out);
    for (int32_t i = 0; i < info.n_sessions; i++) {
        const char *name = "";
        int64_t runs = treadle_generator_runs(g, (size_t)i, &name);
        td_json_key(&d->out, name);
        td_json_write_int(&d->out, runs);
    }
    td_json_end_object(&d->out);
    td_drive_write_state(d, g);
}
