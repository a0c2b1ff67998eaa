/* tools/treadle/media_args.c - what a prompt comes with: tensors by name, a sound file. */
#include "command.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

static int give_tensor(const td_command *command, treadle_generator *g, const char *given) {
    treadle_error error = {0};
    treadle_value *value = NULL;
    treadle_tensor tensor;
    const char *equals = strchr(given, '=');
    if (!equals || equals == given) return td_usage(command, "--input: expected NAME=FILE.npy, found \"%s\"", given);
    char *name = td_strndup(given, (size_t)(equals - given));
    if (!name) return EXIT_RUN;
    int code = EXIT_OK;
    treadle_status status = treadle_value_read_npy(equals + 1, &value, &error);
    if (status != TREADLE_OK) {
        td_report(&error);
        code = EXIT_RUN; /* nothing is wrong with the model */
    }
    if (code == EXIT_OK && (treadle_value_tensor(value, &tensor, &error) != TREADLE_OK ||
                            treadle_generator_set_tensor(g, name, &tensor, &error) != TREADLE_OK))
        code = td_report(&error);
    treadle_value_release(value);
    td_free(name);
    return code;
}

treadle_status td_open_audio(const char *path, treadle_audio **out, treadle_error *error) {
    td_buf bytes = {0};
    char part[65536];
    size_t n;

    if (strcmp(path, "-") != 0) return treadle_audio_open_file(path, out, error);
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) td_buf_append(&bytes, part, n);
    treadle_status status = bytes.failed ? td_fail_memory(error, "sound", 0)
                                         : treadle_audio_open_memory(bytes.p ? bytes.p : "", bytes.n, out, error);
    td_buf_free(&bytes);
    return status;
}

static int give_audio(treadle_generator *g, const char *path) {
    treadle_error error = {0};
    treadle_audio *audio = NULL;
    treadle_status status = td_open_audio(path, &audio, &error);
    if (status != TREADLE_OK) {
        td_report(&error);
        return EXIT_RUN;
    }
    status = treadle_generator_set_audio(g, audio, &error);
    treadle_audio_free(audio);
    return status == TREADLE_OK ? EXIT_OK : td_report(&error);
}

int td_give_media(const td_command *command, const td_media_args *args, treadle_generator *g) {
    int code = EXIT_OK;
    if (args->image.n)
        return td_usage(command,
                        "--image: raw images are not decoded yet; give what the model takes as --input NAME=FILE.npy");
    if (args->audio) code = give_audio(g, args->audio);
    for (size_t i = 0; i < args->input.n && code == EXIT_OK; i++) code = give_tensor(command, g, args->input.items[i]);
    return code;
}
