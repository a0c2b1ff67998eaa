/* config/messages.c - the message list of a check, and tables of words in texts. */
#include "config/messages.h"

#include "base/alloc.h"

#include <stdio.h>

void td_messages_init(td_messages *messages, td_arena *arena) { *messages = (td_messages){.arena = arena}; }

void td_messages_free(td_messages *messages) { td_vec_free(&messages->list); }

/* What a file says is shown as text, not as commands to a terminal. */
static void escape_controls(td_buf *text) {
    td_buf out = {0};
    size_t n_controls = 0;
    for (size_t i = 0; i < text->n; i++) n_controls += (uint8_t)text->p[i] < 0x20 || text->p[i] == 0x7F;
    if (!n_controls) return;
    for (size_t i = 0; i < text->n; i++) {
        uint8_t byte = (uint8_t)text->p[i];
        if (byte < 0x20 || byte == 0x7F) td_buf_printf(&out, "\\u%04x", byte);
        else td_buf_char(&out, text->p[i]);
    }
    td_buf_free(text);
    *text = out;
}

bool td_messages_full(const td_messages *messages) { return messages->list.n >= TD_MESSAGES_MAX; }

static void add(td_messages *messages, treadle_message_level level, td_place place, td_str text) {
    if (td_messages_full(messages)) {
        messages->n_errors += level == TREADLE_MESSAGE_ERROR;
        return;
    }
    if (messages->list.n == TD_MESSAGES_MAX - 1) {
        place = (td_place){0};
        text = TD_STR("there are more messages than are kept: mend these first");
    }
    td_message message = {level, place, td_arena_strndup(messages->arena, text.p ? text.p : "", text.n)};
    if (message.place.file) message.place.file = td_arena_strdup(messages->arena, place.file);
    if (message.place.pointer) message.place.pointer = td_arena_strdup(messages->arena, place.pointer);
    bool lost = (place.file && !message.place.file) || (place.pointer && !message.place.pointer);
    if (!message.text || lost || !td_vec_push(&messages->list, message)) {
        messages->failed = true;
        return;
    }
    if (level == TREADLE_MESSAGE_ERROR) messages->n_errors++;
}

void td_messages_add(td_messages *messages, treadle_message_level level, td_place place, const char *format, ...) {
    td_buf text = {0};
    va_list args;
    va_start(args, format);
    td_buf_vprintf(&text, format, args);
    va_end(args);
    escape_controls(&text);
    if (text.failed) messages->failed = true;
    else add(messages, level, place, td_buf_view(&text));
    td_buf_free(&text);
}

void td_messages_add_error(td_messages *messages, td_place place, const treadle_error *error) {
    if (error->code == TREADLE_OUT_OF_MEMORY) messages->failed = true;
    if (error->line) {
        place.line = error->line;
        place.column = error->column;
    }
    if (error->pointer[0] == '/') place.pointer = error->pointer;
    td_messages_add(messages, TREADLE_MESSAGE_ERROR, place, "%s%s%s", error->message, error->hint[0] ? ". " : "",
                    error->hint);
}

treadle_status td_messages_status(const td_messages *messages, treadle_error *err) {
    if (messages->failed) return td_fail_memory(err, "messages of a check", 0);
    for (size_t i = 0; i < messages->list.n; i++) {
        const td_message *m = &messages->list.items[i];
        if (m->level != TREADLE_MESSAGE_ERROR) continue;
        td_fail(err, TREADLE_CONFIG, "%s", m->text);
        if (m->place.file) td_error_file(err, m->place.file);
        if (m->place.pointer) td_error_pointer(err, "%s", m->place.pointer);
        td_error_place(err, m->place.line, m->place.column);
        if (messages->n_errors > 1) td_error_hint(err, "There are %zu errors: see the check", messages->n_errors);
        return TREADLE_CONFIG;
    }
    return TREADLE_OK;
}

size_t td_words_count(const char *const *words) {
    size_t n = 0;
    while (words[n]) n++;
    return n;
}

int td_words_find(const char *const *words, td_str word) {
    for (int i = 0; words[i]; i++)
        if (td_str_is(word, words[i])) return i;
    return -1;
}

const char *td_words_join(td_arena *arena, const char *const *words) {
    size_t bytes = 1;
    for (size_t i = 0; words[i]; i++) bytes += strlen(words[i]) + 2;
    char *text = td_arena_alloc(arena, bytes, 1);
    if (!text) return NULL;
    for (size_t i = 0; words[i]; i++) {
        if (i) strcat(text, ", ");
        strcat(text, words[i]);
    }
    return text;
}

const char *td_did_you_mean(td_arena *arena, td_str word, const char *const *words, size_t n_words) {
    const char *text = td_arena_strndup(arena, word.p ? word.p : "", word.n);
    const char *near = text ? td_nearest(text, words, n_words) : NULL;
    const char *out = near ? td_arena_printf(arena, ". Did you mean \"%s\"?", near) : "";
    return out ? out : "";
}
