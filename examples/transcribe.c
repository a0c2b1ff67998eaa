/* Writes down what is spoken in a sound file, with times.
 *
 *   cc examples/transcribe.c -Iinclude -Lbuild/lib -ltreadle -Wl,-rpath,$PWD/build/lib -o transcribe
 *   ./transcribe models/whisper speech.flac */
#include <stdio.h>

#include <treadle/treadle.h>

static bool show(void *ctx, const treadle_segment *segment) {
    (void)ctx;
    printf("%7.2f %7.2f %.*s\n", segment->start_s, segment->end_s, (int)segment->text.n, segment->text.p);
    return true;
}

int main(int argc, char **argv) {
    treadle_error error = {0};
    treadle_model *model = NULL;
    treadle_audio *audio = NULL;
    treadle_transcript *transcript = NULL;
    treadle_transcribe_options options;

    if (argc != 3) {
        fprintf(stderr, "usage: transcribe MODEL AUDIO\n");
        return 2;
    }
    treadle_transcribe_options_init(&options);
    options.timestamps = 1;
    options.on_segment = show;
    treadle_status status = treadle_model_open(argv[1], NULL, &model, &error);
    if (status == TREADLE_OK) status = treadle_audio_open_file(argv[2], &audio, &error);
    if (status == TREADLE_OK) status = treadle_transcribe(model, audio, &options, &transcript, &error);
    if (status != TREADLE_OK) {
        char text[2048];
        treadle_error_format(&error, text, sizeof text);
        fprintf(stderr, "%s\n", text);
    } else {
        printf("language: %s\n", treadle_transcript_language(transcript));
    }
    treadle_transcript_free(transcript);
    treadle_audio_free(audio);
    treadle_model_close(model);
    return status == TREADLE_OK ? 0 : 1;
}
