/* tools/treadle/cmd_chat.c - `treadle chat`: a conversation in the terminal. Ctrl-C stops the answer and keeps the
 * chat; at the prompt, twice in a row quits.
 *
 * The messages so far are rendered with the chat template before each answer; the generator is rewound to where the new
 * ids part from those it has run, so that only what is new is computed. */
#include "command.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/time.h"

#include <editline/readline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat_args {
    td_model_args model;
    td_sampling_args sampling;
    const char *system;
} chat_args;

static void chat_defaults(void *args) { td_sampling_defaults(&((chat_args *)args)->sampling); }

static const td_option chat_options[] = {
    {"system", 0, OPTION_TEXT, "TEXT", "a system message", offsetof(chat_args, system)},
    SAMPLING_OPTIONS(chat_args),
    MODEL_OPTIONS(chat_args),
};

typedef struct turn {
    const char *role;
    char *text;
} turn;

typedef struct chat {
    const chat_args *args;
    treadle_model *model;
    treadle_generator *generator;
    TD_VEC(turn) turns;
    bool colour;
} chat;

static bool add_turn(chat *c, const char *role, const char *text, size_t n) {
    turn t = {role, td_strndup(text, n)};

    if (t.text && td_vec_push(&c->turns, t)) return true;
    td_free(t.text);
    fprintf(stderr, "treadle: out of memory\n");
    return false;
}

static void drop_turns(chat *c, size_t keep) {
    while (c->turns.n > keep) td_free(c->turns.items[--c->turns.n].text);
}

/* All turns through the template, as ids. */
static treadle_status conversation_ids(chat *c, int32_t **out, size_t *out_n, treadle_error *error) {
    const treadle_text *text = treadle_model_text(c->model);
    treadle_chat_options options;
    td_buf messages = {0};
    td_json_writer w;
    char *rendered = NULL;
    size_t n;

    td_json_writer_init(&w, &messages, 0);
    td_json_begin_array(&w);
    for (size_t i = 0; i < c->turns.n; i++) {
        td_json_begin_object(&w);
        td_json_key(&w, "role");
        td_json_write_text(&w, c->turns.items[i].role);
        td_json_key(&w, "content");
        td_json_write_text(&w, c->turns.items[i].text);
        td_json_end_object(&w);
    }
    td_json_end_array(&w);
    treadle_chat_options_init(&options);
    treadle_status status =
        treadle_text_render_chat(text, messages.failed ? "[]" : messages.p, &options, &rendered, &n, error);
    td_buf_free(&messages);
    if (status == TREADLE_OK) status = treadle_text_encode(text, rendered, n, false, out, out_n, error);
    treadle_free(rendered);
    return status;
}

/* Brings the generator's timeline to these ids: keeps the common beginning, appends the rest. */
static treadle_status bring_to(chat *c, const int32_t *ids, size_t n, treadle_error *error) {
    size_t same = 0;

    if (treadle_generator_n_rows(c->generator)) {
        treadle_ids have = treadle_generator_ids(c->generator, 0);
        while (same < have.n && same + 1 < n && have.ids[same] == ids[same]) same++;
        if (same < have.n) {
            treadle_status status = treadle_generator_rewind(c->generator, 0, same, error);
            if (status != TREADLE_OK) return status;
        }
    }
    treadle_ids rest = {ids + same, n - same};
    return treadle_generator_append(c->generator, &rest, 1, error);
}

static bool print_piece(void *ctx, const treadle_token *token) {
    (void)ctx;
    if (token->piece_bytes) td_out((td_str){token->piece, token->piece_bytes});
    return !td_interrupted();
}

static void print_timings(const chat *c, uint64_t start) {
    treadle_ids fresh = treadle_generator_new_ids(c->generator, 0);
    double ms = (double)(td_time_ns() - start) * 1e-6;

    fprintf(stderr, "[%zu tokens, %.1f tokens/s, %zu in the context]\n", fresh.n,
            ms > 0 ? (double)fresh.n * 1e3 / ms : 0, treadle_generator_ids(c->generator, 0).n);
}

/* Answers the last turn, which is the user's. false: it failed, and the turn is taken back. */
static bool answer(chat *c) {
    treadle_error error = {0};
    int32_t *ids = NULL;
    size_t n;
    uint64_t start = td_time_ns();

    td_interrupt_clear();
    treadle_status status = conversation_ids(c, &ids, &n, &error);
    if (status == TREADLE_OK) status = bring_to(c, ids, n, &error);
    treadle_free(ids);
    if (status == TREADLE_OK) {
        td_interrupt_watch(c->generator);
        status = treadle_generator_run(c->generator, -1, print_piece, NULL, &error);
        td_interrupt_watch(NULL);
        td_interrupt_clear();
        printf("\n");
    }
    if (status != TREADLE_OK) {
        if (error.code == TREADLE_LIMIT) snprintf(error.hint, sizeof error.hint, "/new starts a new conversation");
        td_report(&error);
        drop_turns(c, c->turns.n - 1);
        return false;
    }
    if (c->args->model.verbose) print_timings(c, start);
    treadle_string text = treadle_generator_text(c->generator, 0);
    return add_turn(c, "assistant", text.p ? text.p : "", text.n);
}

/* --- slash commands */
static void slash_help(void) {
    printf("/new            forget the conversation\n"
           "/system TEXT    set the system message and forget the conversation\n"
           "/retry          answer the last message again\n"
           "/history        print the conversation\n"
           "/quit           leave (Ctrl-D too)\n"
           "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.\n");
}

static void start_over(chat *c, const char *system) {
    drop_turns(c, 0);
    if (system && system[0]) add_turn(c, "system", system, strlen(system));
}

/* false: leave the chat. */
static bool slash(chat *c, const char *line) {
    const char *system = c->turns.n && strcmp(c->turns.items[0].role, "system") == 0 ? c->turns.items[0].text : NULL;

    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) return false;
    if (strcmp(line, "/new") == 0 || strcmp(line, "/clear") == 0) {
        char *kept = system ? td_strdup(system) : NULL;
        start_over(c, kept);
        td_free(kept);
    } else if (strncmp(line, "/system", 7) == 0 && (line[7] == ' ' || !line[7])) {
        start_over(c, line[7] ? line + 8 : NULL);
    } else if (strcmp(line, "/retry") == 0) {
        size_t n = c->turns.n;
        while (n && strcmp(c->turns.items[n - 1].role, "user") != 0) n--;
        if (!n) {
            printf("There is nothing to answer yet.\n");
        } else {
            drop_turns(c, n);
            answer(c);
        }
    } else if (strcmp(line, "/history") == 0) {
        for (size_t i = 0; i < c->turns.n; i++) printf("%s: %s\n", c->turns.items[i].role, c->turns.items[i].text);
    } else {
        if (strcmp(line, "/help") != 0) printf("Unknown command %s.\n", line);
        slash_help();
    }
    return true;
}

/* --- the loop */
/* One message; lines that end in a backslash are joined. NULL: end of input. Heap memory (td_free). */
static char *read_message(const chat *c) {
    td_buf message = {0};
    bool terminal = isatty(STDIN_FILENO);
    /* libedit draws an escape sequence with the character after it, so the last one must not end the prompt. */
    const char *prompt = c->colour ? "\1\033[1m\1>\1\033[0m\1 " : "> ";

    for (bool more = true; more;) {
        char *line = NULL;
        size_t n;
        if (terminal) {
            line = readline(message.n ? "... " : prompt);
        } else {
            size_t capacity = 0;
            if (getline(&line, &capacity, stdin) < 0) {
                free(line);
                line = NULL;
            } else {
                line[strcspn(line, "\r\n")] = 0;
            }
        }
        if (!line) {
            if (message.n) break;
            td_buf_free(&message);
            return NULL;
        }
        n = strlen(line);
        more = n && line[n - 1] == '\\';
        if (terminal && n) add_history(line);
        td_buf_append(&message, line, more ? n - 1 : n);
        if (more) td_buf_char(&message, '\n');
        free(line);
    }
    td_buf_char(&message, 0);
    return message.p;
}

/* Until the end of input, /quit, or two interrupts in a row (one, where no terminal can ask again). */
static int chat_loop(chat *c) {
    bool terminal = isatty(STDIN_FILENO), warned = false;

    for (;;) {
        td_interrupt_defer(true);
        char *message = read_message(c);
        bool stopped = td_interrupted();
        td_interrupt_clear();
        td_interrupt_defer(false);
        if (!message) {
            if (!stopped) return EXIT_OK;
            if (!terminal || warned) return EXIT_INTERRUPTED;
            warned = true;
            printf("\n(Ctrl-C again, Ctrl-D or /quit leaves)\n");
            continue;
        }
        warned = false;
        bool go_on = true;
        if (message[0] == '/') go_on = slash(c, message);
        else if (message[0] && add_turn(c, "user", message, strlen(message))) answer(c);
        td_free(message);
        if (!go_on) return EXIT_OK;
    }
}

static int chat_run(void *given, char **positional) {
    const char *plain = getenv("NO_COLOR");
    chat c = {.args = given, .colour = isatty(STDOUT_FILENO) && (!plain || !plain[0])};
    treadle_model_info info = {.struct_size = sizeof info};
    treadle_generate_options options;
    treadle_error error = {0};
    td_arena arena = {0};

    int code = td_model_get(&c.args->model, positional[0], &arena, &c.model, NULL);
    if (code == EXIT_OK) {
        treadle_model_get_info(c.model, &info);
        if (!info.has_chat_template) {
            fprintf(stderr, "treadle: %s: this model has no chat template; `treadle run` continues a text\n",
                    positional[0]);
            code = EXIT_MODEL;
        }
    }
    treadle_generate_options_init(&options);
    if (code == EXIT_OK) code = td_sampling_apply(&td_command_chat, &c.args->sampling, &options);
    if (code == EXIT_OK && treadle_generator_new(c.model, &options, &c.generator, &error) != TREADLE_OK)
        code = td_report(&error);
    if (code == EXIT_OK) {
        if (isatty(STDIN_FILENO) && !c.args->model.quiet) printf("Type a message; /help lists commands.\n");
        start_over(&c, c.args->system);
        code = chat_loop(&c);
    }
    drop_turns(&c, 0);
    td_vec_free(&c.turns);
    treadle_generator_free(c.generator);
    treadle_model_close(c.model);
    td_arena_free(&arena);
    return code;
}

const td_command td_command_chat = {
    .name = "chat",
    .arguments = "DIR|FILE.gguf [--system TEXT]",
    .summary = "talk with a model in the terminal",
    .help = "Reads messages from the terminal, or a line each from standard input. /help lists the commands inside.",
    .options = chat_options,
    .n_options = TD_COUNT(chat_options),
    .args_bytes = sizeof(chat_args),
    .defaults = chat_defaults,
    .min_positional = 1,
    .max_positional = 1,
    .run = chat_run,
};
