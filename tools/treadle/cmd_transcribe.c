/* tools/treadle/cmd_transcribe.c - `treadle transcribe`: speech to text; the transcript on standard
 * output and nothing else there. */
#include "command.h"

#include "base/arena.h"
#include "base/json.h"
#include "treadle/transcribe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct transcribe_args {
    td_model_args model;
    const char *language, *task;
    bool timestamps, words, previous_text, json;
    int64_t beams, max_new_tokens;
} transcribe_args;

static const td_option transcribe_options[] = {
    {"language", 'l', OPTION_TEXT, "NAME", "what is spoken, as en (default: as the config says, else detected)",
     offsetof(transcribe_args, language)},
    {"task", 0, OPTION_TEXT, "NAME", "transcribe (default) or translate", offsetof(transcribe_args, task)},
    {"timestamps", 0, OPTION_FLAG, NULL, "one line per segment, with its times", offsetof(transcribe_args, timestamps)},
    {"words", 0, OPTION_FLAG, NULL, "when each word was spoken; one line per word", offsetof(transcribe_args, words)},
    {"previous-text", 0, OPTION_FLAG, NULL, "let each window see the text of the one before",
     offsetof(transcribe_args, previous_text)},
    {"beams", 0, OPTION_INT, "N", "beam search with N beams (default: the model's)", offsetof(transcribe_args, beams)},
    {"max-new-tokens", 'n', OPTION_INT, "N", "at most N tokens a window", offsetof(transcribe_args, max_new_tokens)},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object a file, with segments and ids",
     offsetof(transcribe_args, json)},
    MODEL_OPTIONS(transcribe_args),
};

/* What is shown of one file. */
typedef struct shown {
    const transcribe_args *args;
    bool begun; /* some of its text is out */
} shown;

static treadle_string without_space(treadle_string text) {
    while (text.n && text.p[0] == ' ') text.p++, text.n--;
    return text;
}

static void print_time(double seconds) {
    int64_t ms = (int64_t)(seconds * 1000 + 0.5);
    printf("%02lld:%02lld:%02lld.%03lld", (long long)(ms / 3600000), (long long)(ms / 60000 % 60),
           (long long)(ms / 1000 % 60), (long long)(ms % 1000));
}

static void print_line(double start_s, double end_s, treadle_string text) {
    text = without_space(text);
    printf("[");
    print_time(start_s);
    printf(" --> ");
    print_time(end_s);
    printf("] %.*s\n", (int)text.n, text.p);
}

/* Segments appear window by window. */
static bool show(void *ctx, const treadle_segment *segment) {
    shown *to = ctx;
    const transcribe_args *args = to->args;

    if (td_interrupted()) return false;
    if (args->json) return true;
    if (args->words)
        for (size_t i = 0; i < segment->n_words; i++)
            print_line(segment->words[i].start_s, segment->words[i].end_s, segment->words[i].text);
    else if (args->timestamps) print_line(segment->start_s, segment->end_s, segment->text);
    else {
        treadle_string text = to->begun ? segment->text : without_space(segment->text);
        to->begun = to->begun || text.n;
        fwrite(text.p, 1, text.n, stdout);
    }
    fflush(stdout);
    return true;
}

static void write_ids(td_json_writer *w, treadle_ids ids) {
    td_json_key(w, "ids");
    td_json_begin_array(w);
    for (size_t i = 0; i < ids.n; i++) td_json_write_int(w, ids.ids[i]);
    td_json_end_array(w);
}

/* In whole milliseconds: the clock of the models is coarser. */
static void write_time(td_json_writer *w, const char *key, double seconds) {
    td_json_key(w, key);
    td_json_write_double(w, round(seconds * 1000) / 1000);
}

static void write_span(td_json_writer *w, double start_s, double end_s, treadle_string text) {
    write_time(w, "start", start_s);
    write_time(w, "end", end_s);
    td_json_key(w, "text");
    td_json_write_string(w, (td_str){text.p, text.n});
}

static void write_segment(td_json_writer *w, const treadle_segment *s, bool words) {
    td_json_begin_object(w);
    write_span(w, s->start_s, s->end_s, s->text);
    write_ids(w, s->ids);
    if (words) {
        td_json_key(w, "words");
        td_json_begin_array(w);
        for (size_t i = 0; i < s->n_words; i++) {
            td_json_begin_object(w);
            write_span(w, s->words[i].start_s, s->words[i].end_s, s->words[i].text);
            td_json_end_object(w);
        }
        td_json_end_array(w);
    }
    td_json_end_object(w);
}

static int print_json(const treadle_transcript *t, bool words) {
    td_buf text = {0};
    td_json_writer w;
    treadle_string all = treadle_transcript_text(t);

    td_json_writer_init(&w, &text, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "language");
    td_json_write_text(&w, treadle_transcript_language(t));
    td_json_key(&w, "language_probability");
    td_json_write_double(&w, treadle_transcript_language_probability(t));
    td_json_key(&w, "text");
    td_json_write_string(&w, (td_str){all.p, all.n});
    write_ids(&w, treadle_transcript_ids(t));
    td_json_key(&w, "segments");
    td_json_begin_array(&w);
    for (size_t i = 0; i < treadle_transcript_n_segments(t); i++) {
        treadle_segment s;
        treadle_transcript_segment(t, i, &s);
        write_segment(&w, &s, words);
    }
    td_json_end_array(&w);
    td_json_end_object(&w);
    td_buf_char(&text, '\n');
    bool ok = !text.failed && td_out(td_buf_view(&text));
    td_buf_free(&text);
    return ok ? EXIT_OK : EXIT_RUN;
}

static int transcribe(const transcribe_args *args, treadle_model *model, const char *path) {
    shown to = {.args = args};
    treadle_transcribe_options options;
    treadle_audio *audio = NULL;
    treadle_transcript *transcript = NULL;
    treadle_error error = {0};
    int code = EXIT_OK;

    treadle_transcribe_options_init(&options);
    options.language = args->language;
    options.task = args->task;
    if (args->timestamps || args->words) options.timestamps = 1;
    options.word_times = args->words;
    options.previous_text = args->previous_text;
    options.num_beams = args->beams;
    options.max_new_tokens = args->max_new_tokens;
    options.on_segment = show;
    options.ctx = &to;
    if (td_open_audio(path, &audio, &error) != TREADLE_OK) {
        td_report(&error);
        return EXIT_RUN; /* as in features: nothing is wrong with the model */
    }
    treadle_status status = treadle_transcribe(model, audio, &options, &transcript, &error);
    if (status != TREADLE_OK) code = td_report(&error);
    else if (args->json) code = print_json(transcript, args->words);
    else if (!args->timestamps && !args->words) printf("\n");
    treadle_transcript_free(transcript);
    treadle_audio_free(audio);
    return td_interrupted() ? EXIT_INTERRUPTED : code;
}

int td_transcribe_file(treadle_model *model, const char *path, int64_t beams, int64_t max_new_tokens, bool json) {
    transcribe_args args = {.beams = beams, .max_new_tokens = max_new_tokens, .json = json};

    td_interrupt_defer(true);
    return transcribe(&args, model, path);
}

static void transcribe_defaults(void *given) {
    transcribe_args *args = given;
    args->beams = args->max_new_tokens = -1;
}

static int transcribe_run(void *given, char **positional) {
    transcribe_args *args = given;
    td_arena arena = {0};
    treadle_model *model = NULL;

    if ((args->beams != -1 && args->beams < 1) || (args->max_new_tokens != -1 && args->max_new_tokens < 1))
        return td_usage(&td_command_transcribe, "--beams and --max-new-tokens: expected whole numbers from 1 on");
    td_interrupt_defer(true);
    int code = td_model_get(&args->model, positional[0], &arena, &model, NULL);
    for (size_t i = 1; positional[i] && code == EXIT_OK; i++) code = transcribe(args, model, positional[i]);
    treadle_model_close(model);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_transcribe = {
    .name = "transcribe",
    .arguments = "DIR AUDIO...",
    .summary = "write down what is spoken in sound files",
    .help =
        "Sound files of any length, rate and number of channels: WAV, FLAC, OGG, MP3 and more. Long recordings are taken window by window.\n"
        "A file called - is standard input. The model is a folder, or a Hugging Face checkpoint, which is compiled into the\n"
        "cache first. Example:\n"
        "  treadle transcribe whisper/ speech.mp3 --timestamps",
    .options = transcribe_options,
    .n_options = TD_COUNT(transcribe_options),
    .args_bytes = sizeof(transcribe_args),
    .min_positional = 2,
    .max_positional = 1024,
    .defaults = transcribe_defaults,
    .run = transcribe_run,
};
