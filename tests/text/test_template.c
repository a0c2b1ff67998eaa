/* Chat templates: goldens of jinja2 (our own corpus, the shared one, a real model's), places of errors, bounds,
 * threads. timeout: 300 labels: threads */
#include "support/test.h"
#include "text/template_cases.h"

#include <pthread.h>

static void report(const char *text) { td_test_fail(__FILE__, __LINE__, "%s", text); }

static void check_file(const char *path, int at_least) {
    size_t n;
    char *text = td_test_read(path, &n);
    template_counts counts = {0};
    treadle_error err = {0};
    bool ok = run_template_cases((td_str){text, n}, &counts, report, &err);
    free(text);
    if (!ok) FAIL("%s: %s", path, err.message);
    if (counts.right + counts.wrong < at_least) FAIL("%s: only %d cases", path, counts.right + counts.wrong);
}

TEST(own_corpus) { check_file(td_test_source("tests/text/data/template_goldens.json"), 700); }

TEST(shared_corpus) {
    char path[4200];
    snprintf(path, sizeof path, "%s/templates.json", td_test_unpacked("text-and-media"));
    check_file(path, 700);
}

/* The value of a GGUF's tokenizer.chat_template: key, type (8: a string), length, bytes. */
static td_str chat_template_of(const char *bytes, size_t n) {
    static const char key[] = "tokenizer.chat_template\x08\0\0\0";
    const char *at = memmem(bytes, n, key, sizeof key - 1);
    uint64_t length;
    if (!at || (size_t)(bytes + n - at) < sizeof key - 1 + sizeof length) return (td_str){NULL, 0};
    at += sizeof key - 1;
    memcpy(&length, at, sizeof length);
    at += sizeof length;
    return length <= (uint64_t)(bytes + n - at) ? (td_str){at, length} : (td_str){NULL, 0};
}

TEST(real_model) {
    const char *goldens = td_test_shared("data/real-models/smollm2-135m.json");
    if (!goldens) SKIP("TREADLE_SHARED is not set");
    const char *model = td_test_model("cache/SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!model) SKIP("the model is not fetched");
    size_t n, n_goldens;
    char *bytes = td_test_read(model, &n), *text = td_test_read(goldens, &n_goldens);
    td_template *t = NULL;
    treadle_error err = {0};
    td_arena arena = {0};
    td_json *root;
    CHECK_OK(td_template_parse(chat_template_of(bytes, n), &t, &err), &err);
    CHECK_OK(td_json_parse((td_str){text, n_goldens}, &(td_json_options){.allow_nonfinite = true}, &arena, &root, &err),
             &err);
    const td_json *prompts = td_json_get(root, "prompts");
    REQUIRE(prompts && prompts->n);
    for (const td_json *p = prompts->first; p; p = p->next) {
        td_buf context = {0}, out = {0};
        td_json_writer w;
        td_json_writer_init(&w, &context, 0);
        td_json_begin_object(&w);
        td_json_key(&w, "add_generation_prompt");
        td_json_write_bool(&w, true);
        td_json_key(&w, "messages");
        td_json_begin_array(&w);
        td_json_begin_object(&w);
        td_json_key(&w, "role");
        td_json_write_text(&w, "user");
        td_json_key(&w, "content");
        td_json_write_string(&w, td_json_string_or(p, "user_text", ""));
        td_json_end_object(&w);
        td_json_end_array(&w);
        td_json_end_object(&w);
        td_json *value;
        CHECK_OK(td_json_parse(td_buf_view(&context), NULL, &arena, &value, &err), &err);
        CHECK_OK(td_template_render(t, NULL, value, &out, &err), &err);
        td_str wanted = td_json_string_or(p, "rendered", "");
        CHECK(wanted.n > 0);
        CHECK_EQ_STR(out.p, td_arena_strndup(&arena, wanted.p, wanted.n));
        td_buf_free(&context);
        td_buf_free(&out);
    }
    td_template_free(t);
    td_arena_free(&arena);
    free(bytes);
    free(text);
}

/* --- one template at a time --- */

typedef struct outcome {
    treadle_status status;
    treadle_error err;
    td_buf out;
} outcome;

static outcome render(const char *source, const char *context, const td_template_limits *limits) {
    outcome o = {.status = TREADLE_OK};
    td_template *t = NULL;
    td_arena arena = {0};
    td_json *value = NULL;
    if (context) CHECK_OK(td_json_parse(td_str_from(context), NULL, &arena, &value, &o.err), &o.err);
    o.status = td_template_parse(td_str_from(source), &t, &o.err);
    td_buf_text(&o.out, ">");
    if (o.status == TREADLE_OK) o.status = td_template_render(t, limits, value, &o.out, &o.err);
    td_template_free(t);
    td_arena_free(&arena);
    return o;
}

static void check_text(const char *source, const char *context, const char *wanted) {
    outcome o = render(source, context, NULL);
    if (CHECK_STATUS(o.status, TREADLE_OK, &o.err)) CHECK_EQ_STR(o.out.p + 1, wanted);
    td_buf_free(&o.out);
}

static void check_error(const char *source, const td_template_limits *limits, treadle_status status, uint32_t line,
                        uint32_t column, const char *message) {
    outcome o = render(source, "{\"l\": [1, 2], \"s\": \"text\"}", limits);
    CHECK_STATUS(o.status, status, &o.err);
    CHECK_EQ_UINT(o.err.line, line);
    CHECK_EQ_UINT(o.err.column, column);
    CHECK_HAS_STR(o.err.message, message);
    CHECK_EQ_STR(o.out.p, ">"); /* as it was */
    td_buf_free(&o.out);
}

TEST(errors_have_places) {
    check_error("a\n  {{ nope.x }}", NULL, TREADLE_RUN, 2, 10, "UndefinedError: 'nope' is undefined");
    check_error("{{ s.x.y }}", NULL, TREADLE_RUN, 1, 7, "UndefinedError: 'str object' has no attribute 'x'");
    check_error("{{ l[9].y }}", NULL, TREADLE_RUN, 1, 8, "UndefinedError: list object has no element 9");
    check_error("{{ s + 1 }}", NULL, TREADLE_RUN, 1, 6, "TypeError: can only concatenate str (not \"int\") to str");
    check_error("{{ l.append(1) }}", NULL, TREADLE_RUN, 1, 12,
                "SecurityError: access to attribute 'append' of 'list' object is unsafe.");
    check_error("{{ raise_exception('no ' ~ s) }}", NULL, TREADLE_INVALID_ARGUMENT, 1, 19, "TemplateError: no text");
    check_error("{% include 'x' %}", NULL, TREADLE_UNSUPPORTED, 1, 4,
                "TypeError: no loader for this environment specified");
    check_error("\n{% if %}", NULL, TREADLE_FORMAT, 2, 7,
                "TemplateSyntaxError: Expected an expression, got 'end of statement block'");
    check_error("{% for x in l %}\n{{ 1 | zork }}{% endfor %}", NULL, TREADLE_FORMAT, 2, 8, "No filter named 'zork'.");
    check_error("{% fro x in l %}", NULL, TREADLE_FORMAT, 1, 4, "Encountered unknown tag 'fro'.");
    check_error("a\r\nb\rc {{ ) }}", NULL, TREADLE_FORMAT, 3, 6, "unexpected ')'");
    check_error("\xFF", NULL, TREADLE_FORMAT, 0, 0, "not valid UTF-8");
}

TEST(contexts) {
    check_text("{{ a }}{{ b }}{{ range }}", "{\"a\": \"x\", \"range\": 5}", "x5");
    check_text("[{{ a }}]", NULL, "[]");
    check_text("{{ a | length }}{{ '\\ud83d' }}", "{\"a\": \"\\u0000x\"}", "2\xEF\xBF\xBD");
    check_text("{{ a.b[1].c }}{{ namespace }}", "{\"a\": {\"b\": [0, {\"c\": 1.5}]}, \"namespace\": 1}", "1.51");
    td_template *t = NULL;
    treadle_error err = {0};
    td_arena arena = {0};
    td_json *list;
    td_buf out = {0};
    CHECK_OK(td_template_parse(TD_STR("x"), &t, &err), &err);
    CHECK_OK(td_json_parse(TD_STR("[1]"), NULL, &arena, &list, &err), &err);
    CHECK_STATUS(td_template_render(t, NULL, list, &out, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "expected an object, found an array");
    CHECK_STATUS(td_template_render(t, NULL, list, &out, NULL), TREADLE_INVALID_ARGUMENT, NULL);
    td_buf_free(&out);
    td_template_free(t);
    td_template_free(NULL);
    td_arena_free(&arena);
}

/* Nothing that a template says takes long, much memory or much stack. */
TEST(bounds) {
    const char *steps = "LimitError: the template takes more than", *depth = "RecursionError";
    struct {
        const char *source, *message;
    } cases[] = {
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", steps},
        {"{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", depth},
        {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", depth},
        {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
         depth},
        {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
         depth},
        {"{% set ns = namespace(x=[], y=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
         depth},
        {"{% set ns = namespace(x=()) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}",
         depth},
        {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", depth},
        {"{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}{% set ns.g = ns.g | map('abs') %}{% endfor %}{{ ns.g | list }}",
         depth},
        {"{{ 'x' * 99999999 * 9999 }}", "LimitError"},
        {"{{ 'x' * 9999999999999999999999 }}", "LimitError"},
        {"{{ [1] * 999999999 }}", "LimitError"},
        {"{{ (('x' * 9999999) | replace('', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy')) | length }}", "LimitError"},
        {"{{ '%999999999d' % 1 }}", "LimitError"},
        {"{{ '{:999999999}'.format(1) }}", "LimitError"},
        {"{{ 'x'.center(999999999999) }}", "LimitError"},
        {"{{ [1] | tojson(indent=99999999) }}", "LimitError"},
        {"{{ 9 ** 99999 }}", "OverflowError"},
        {"{{ 2 ** (2 ** 70) }}", "OverflowError"},
        {"{{ 10 ** 5000 }}", "ValueError"},
        {"{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "LimitError: the template writes more than"},
        {"{% set x = [1] %}{% set y = [x, x, x, x, x, x, x, x, x, x] %}{% set z = [y, y, y, y, y, y, y, y, y, y] %}{% set a = [z, z, z, z, z, z, z, z, z, z] %}"
         "{% set b = [a, a, a, a, a, a, a, a, a, a] %}{% set c = [b, b, b, b, b, b, b, b, b, b] %}{% set d = [c, c, c, c, c, c, c, c, c, c] %}{% set e = [d, d, d, d, d, d, d, d, d, d] %}{{ (e | string) == 1 }}",
         steps},
        {"{% set x = 'a' * 3000000 %}{{ x.rfind('a' * 1500000 ~ 'b') }}{{ x.rfind('a' ~ 'b' * 1500000 ~ 'a') }}{{ x.rsplit('aa' * 700000 ~ 'ba') | length }}",
         steps},
    };
    td_template_limits limits = {.max_steps = 2000000, .max_output_bytes = 1 << 20};
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        outcome o = render(cases[i].source, NULL, &limits);
        CHECK(o.status == TREADLE_LIMIT || o.status == TREADLE_RUN);
        if (!strstr(o.err.message, cases[i].message)) FAIL("%s: %s", cases[i].source, o.err.message);
        CHECK(o.err.line == 1 && o.err.column > 0);
        td_buf_free(&o.out);
    }
}

TEST(accumulating_is_linear) {
    td_template_limits limits = {.max_memory_bytes = 32 << 20};
    outcome o =
        render("{% set ns = namespace(a='', b='') %}{% for i in range(90000) %}{% set ns.a = ns.a ~ 'some text' %}"
               "{% set ns.b = ns.b + 'x' %}{% endfor %}{{ ns.a | length }} {{ ns.b | length }} {{ ns.a[-9:] }}",
               NULL, &limits);
    if (CHECK_STATUS(o.status, TREADLE_OK, &o.err)) CHECK_EQ_STR(o.out.p, ">810000 90000 some text");
    td_buf_free(&o.out);
    check_text(
        "{% set a = 'x' * 100 %}{% set b = a ~ '1' %}{% set c = b ~ '2' %}{% set d = b ~ '3' %}{{ b[99:] }} {{ c[99:] }} {{ d[99:] }}",
        NULL, "x1 x12 x13");
}

/* Source that is deep or long: refused or read, never a crash. */
TEST(hostile_source) {
    static const char *const parts[][3] = {
        {"(", "1", ")"},     {"[", "1", "]"},           {"{1:", "1", "}"},  {"not ", "1", ""}, {"-", "1", ""},
        {"f(", "1", ")"},    {"", "1", "+1"},           {"", "x", ".a"},    {"", "x", "|abs"}, {"", "1", "**2"},
        {"", "x", "[0]"},    {"1 if 1 else ", "1", ""}, {"", "1", " if 1"}, {"", "1", "~1"},   {"", "1", "<1"},
        {"", "1", " and 1"}, {"", "'a'", "'a'"},        {"", "1", ",1"},
    };
    for (size_t i = 0; i < TD_COUNT(parts); i++) {
        for (int n = 100; n <= 40000; n *= 20) {
            td_buf text = {0}, out = {0};
            td_buf_text(&text, "{{ ");
            for (int k = 0; k < n; k++) td_buf_text(&text, parts[i][0]);
            td_buf_text(&text, parts[i][1]);
            for (int k = 0; k < n; k++) td_buf_text(&text, parts[i][2]);
            td_buf_text(&text, " }}");
            td_template *t = NULL;
            treadle_error err = {0};
            treadle_status status = td_template_parse(td_buf_view(&text), &t, &err);
            if (status == TREADLE_OK) td_template_render(t, NULL, NULL, &out, &err);
            else CHECK(status == TREADLE_FORMAT && err.line == 1);
            td_template_free(t);
            td_buf_free(&text);
            td_buf_free(&out);
        }
    }
    td_buf text = {0};
    for (int k = 0; k < 1000; k++) td_buf_text(&text, "{% if 1 %}");
    treadle_error err = {0};
    td_template *t = NULL;
    CHECK_STATUS(td_template_parse(td_buf_view(&text), &t, &err), TREADLE_FORMAT, &err);
    CHECK_HAS_STR(err.message, "nested more than");
    td_buf_clear(&text);
    for (int k = 0; k < 1 << 20; k++) td_buf_char(&text, ' ');
    CHECK_OK(td_template_parse(td_buf_view(&text), &t, &err), &err);
    td_template_free(t);
    td_buf_char(&text, ' ');
    CHECK_STATUS(td_template_parse(td_buf_view(&text), &t, &err), TREADLE_LIMIT, &err);
    td_buf_free(&text);
}

/* --- one template, several threads --- */

static const td_template *shared_template;

static void *render_often(void *arg) {
    td_arena arena = {0};
    td_json *context;
    char text[64];
    snprintf(text, sizeof text, "{\"n\": %d}", *(int *)arg);
    *(int *)arg = -1;
    if (td_json_parse(td_str_from(text), NULL, &arena, &context, NULL) != TREADLE_OK) return NULL;
    int right = 0;
    for (int i = 0; i < 50; i++) {
        td_buf out = {0};
        td_template_render(shared_template, NULL, context, &out, NULL);
        right += out.n > 0 && strstr(out.p, "0 1 2 3 4 5 6 7 8 9 ") != NULL;
        td_buf_free(&out);
    }
    td_arena_free(&arena);
    *(int *)arg = right;
    return NULL;
}

TEST(threads) {
    td_template *t = NULL;
    treadle_error err = {0};
    CHECK_OK(
        td_template_parse(
            TD_STR("{% macro f(x) %}{{ x }} {% endmacro %}{{ n }} {% for i in range(100) %}{{ f(i) }}{% endfor %}"), &t,
            &err),
        &err);
    shared_template = t;
    pthread_t threads[4];
    int results[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, render_often, &results[i]) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_INT(results[i], 50);
    }
    td_template_free(t);
}
