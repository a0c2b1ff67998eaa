/* model/chat.c - see chat.h. Variables are those of apply_chat_template in transformers: messages, tools, documents,
 * add_generation_prompt, the special tokens, and the caller's own. */
#include "model/chat.h"

static treadle_status parse(const char *json, const char *what, td_json_kind kind, td_arena *arena, td_json **out,
                            treadle_error *err) {
    treadle_status status = td_json_parse(td_str_from(json), NULL, arena, out, err);
    if (status != TREADLE_OK) {
        td_error_context(err, "%s", what);
        if (status == TREADLE_OUT_OF_MEMORY) return status;
        if (err) err->code = TREADLE_INVALID_ARGUMENT; /* the caller's text, not a file's */
        return TREADLE_INVALID_ARGUMENT;
    }
    if ((*out)->kind == kind) return TREADLE_OK;
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "%s: expected %s, found %s", what, td_json_kind_name(kind),
                   td_json_kind_name((*out)->kind));
}

static treadle_status check_messages(const td_json *messages, treadle_error *err) {
    size_t i = 0;
    for (const td_json *m = messages->first; m; m = m->next, i++) {
        if (m->kind != TD_JSON_OBJECT)
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "message %zu: expected an object, found %s", i,
                           td_json_kind_name(m->kind));
        const td_json *role = td_json_get(m, "role");
        if (!role || role->kind != TD_JSON_STRING)
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "message %zu: expected a member \"role\" (a string)", i);
    }
    return TREADLE_OK;
}

static bool is_token_name(td_str key) { return td_str_ends(key, TD_STR("_token")) && key.n > 6; }

static void write_special(const td_json *special, const td_json *over, td_json_writer *w) {
    for (const td_json *m = special && special->kind == TD_JSON_OBJECT ? special->first : NULL; m; m = m->next) {
        if (!is_token_name(m->key) || td_json_get_str(over, m->key)) continue;
        const td_json *content = m->kind == TD_JSON_OBJECT ? td_json_get(m, "content") : m;
        if (!content || content->kind != TD_JSON_STRING) continue;
        td_json_key_str(w, m->key);
        td_json_write_string(w, content->string);
    }
}

static void write_context(const td_json *special, const td_json *messages, const td_json *tools,
                          const td_json *variables, bool add_generation_prompt, td_json_writer *w) {
    static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
    td_json_begin_object(w);
    td_json_key(w, own[0]);
    td_json_write_value(w, messages);
    td_json_key(w, own[1]);
    if (tools) td_json_write_value(w, tools);
    else td_json_write_null(w);
    if (!td_json_get(variables, "documents")) {
        td_json_key(w, "documents");
        td_json_write_null(w);
    }
    td_json_key(w, own[2]);
    td_json_write_bool(w, add_generation_prompt);
    write_special(special, variables, w);
    for (const td_json *m = variables ? variables->first : NULL; m; m = m->next) {
        bool taken = false;
        for (size_t i = 0; i < TD_COUNT(own); i++) taken |= td_str_is(m->key, own[i]);
        if (taken) continue;
        td_json_key_str(w, m->key);
        td_json_write_value(w, m);
    }
    td_json_end_object(w);
}

treadle_status td_chat_render(const td_template *parsed, const td_json *special, const char *messages_json,
                              const treadle_chat_options *options, td_buf *out, treadle_error *err) {
    td_arena arena;
    td_buf text = {0};
    td_json *messages = NULL, *tools = NULL, *variables = NULL, *context = NULL;
    td_arena_init(&arena);
    treadle_status status;
    TD_TRY_GOTO(parse(messages_json, "messages", TD_JSON_ARRAY, &arena, &messages, err), cleanup);
    TD_TRY_GOTO(check_messages(messages, err), cleanup);
    if (options->tools_json)
        TD_TRY_GOTO(parse(options->tools_json, "tools", TD_JSON_ARRAY, &arena, &tools, err), cleanup);
    if (options->variables_json)
        TD_TRY_GOTO(parse(options->variables_json, "variables", TD_JSON_OBJECT, &arena, &variables, err), cleanup);
    td_json_writer w;
    td_json_writer_init(&w, &text, 0);
    write_context(special, messages, tools, variables, options->add_generation_prompt, &w);
    if (text.failed) {
        status = td_fail_memory(err, "a template's variables", text.n);
        goto cleanup;
    }
    td_json_options lax = {.allow_nonfinite = true};
    TD_TRY_GOTO(td_json_parse(td_buf_view(&text), &lax, &arena, &context, err), cleanup);
    status = td_template_render(parsed, NULL, context, out, err);
    if (status != TREADLE_OK) td_error_file(err, "chat template");
cleanup:
    td_buf_free(&text);
    td_arena_free(&arena);
    return status;
}
