/* Fuzzes the chat-template interpreter: the input is a template, rendered over a fixed chat under small limits. A
 * template renders the same twice, and a failure leaves the output as it was and says why. */
#include "base/utf8.h"
#include "text/template.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static const char chat[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"You weave. \"},{\"role\":\"user\",\"content\":\"h\xC3\xA9llo\\nthere\"},"
    "{\"role\":\"assistant\",\"content\":\" Fine. \",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\","
    "\"l\":[3,1,2],\"d\":{\"a\":1,\"b\":[null,true]},\"s\":\"a b c\",\"i\":7,\"f\":-2.5}";

static treadle_status render(const td_template *t, const td_json *context, td_buf *out, treadle_error *err) {
    static const td_template_time now = {2026, 3, 7, 8, 9, 5, 123456};
    static const td_template_limits limits = {
        .max_steps = 20000, .max_depth = 300, .max_output_bytes = 1 << 16, .max_memory_bytes = 1 << 22, .now = &now};
    td_template_spans spans = {0};
    treadle_status status = td_template_render_spans(t, &limits, context, out, &spans, err);
    for (size_t i = 0; i < spans.n; i++)
        check(spans.items[i].begin <= spans.items[i].end && spans.items[i].end <= out->n);
    td_vec_free(&spans);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    td_template *t = NULL;
    treadle_error err = {0};
    if (td_template_parse((td_str){(const char *)data, size}, &t, &err) != TREADLE_OK) {
        check(err.message[0] && !t);
        return 0;
    }
    td_arena arena = {0};
    td_json *context;
    check(td_json_parse(td_str_from(chat), NULL, &arena, &context, NULL) == TREADLE_OK);
    td_buf first = {0}, second = {0};
    treadle_status status = render(t, context, &first, &err);
    check(render(t, context, &second, NULL) == status && td_str_equal(td_buf_view(&first), td_buf_view(&second)));
    if (status != TREADLE_OK) check(first.n == 0 && err.code == status && err.message[0] && status != TREADLE_INTERNAL);
    else check(td_utf8_valid(td_buf_view(&first)));
    td_buf_free(&first);
    td_buf_free(&second);
    td_arena_free(&arena);
    td_template_free(t);
    return 0;
}
