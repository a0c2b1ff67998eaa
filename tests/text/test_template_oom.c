/* Each allocation of parsing and rendering fails in turn: the answer is TREADLE_OUT_OF_MEMORY, or the right text where
 * the failure did not matter, and nothing leaks (the sanitizers look). */
#include "support/allocations.h"
#include "support/test.h"

#include "text/template.h"

static const char source[] =
    "{% macro f(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}"
    "{% set ns = namespace(x='') %}{% for m in messages if m.role %}{{ loop.index }}{{ loop.length }}{{ m | tojson(indent=2, sort_keys=true) }}"
    "{% set ns.x = ns.x ~ m.content ~ '\\u00e9' %}{% endfor %}{% call f(1, 2, 3, z=4) %}in{% endcall %}"
    "{% set t %}{{ 'a b' | upper | replace('A', 'x') }}{% endset %}{{ t.split() }}{{ '%5.2f' % 2.5 }}{{ '{:>5}'.format('a') }}"
    "{{ 2 ** 100 }}{{ [3, 1, 2] | sort | join(', ') }}{{ messages | map(attribute='role') | list }}{{ {'a': 1, 'b': [2]} }}"
    "{% filter indent(2) %}x\ny{% endfilter %}{% generation %}g{% endgeneration %}{{ (undef is defined) if false }}"
    "{{ messages | groupby('role') }}{{ dict(a=1).items() | list }}{{ 'q' | e }}{{ s[::-1] }}{{ '<b>x' | striptags }}{{ '{:x}|{:c}|{!r}'.format(255, 65, s) }}{{ '%05d%r' % (4, 'a') }}{{ '12345678901234567890' | int }}{{ ' 1 2 '.split() }}{{ 'a\nb'.splitlines() }}{{ [1, 2, 3] | batch(2) | list }}{{ strftime_now('%Y') | length }}";

static const char context_text[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi \\u00e9\"}, {\"role\": \"assistant\", \"content\": \"\"}], \"s\": \"h\\u00e9llo\"}";

static td_buf whole; /* what comes out when nothing fails */

static bool work(const td_json *context) {
    td_template *t = NULL;
    treadle_error err = {0};
    td_buf out = {0};
    td_template_spans spans = {0};
    treadle_status status = td_template_parse((td_str){source, sizeof source - 1}, &t, &err);
    if (status == TREADLE_OK) status = td_template_render_spans(t, NULL, context, &out, &spans, &err);
    if (status == TREADLE_OK && whole.p) CHECK_EQ_STR(out.p, whole.p);
    else if (status == TREADLE_OK) td_buf_str(&whole, td_buf_view(&out));
    else if (status != TREADLE_OUT_OF_MEMORY) FAIL("failure at %d: %s", td_test_fail_at, err.message);
    if (status != TREADLE_OK) CHECK(out.n == 0 && spans.n == 0);
    td_template_free(t);
    td_buf_free(&out);
    td_vec_free(&spans);
    return status == TREADLE_OK;
}

TEST(every_allocation_fails) {
    td_arena arena = {0};
    td_json *context;
    CHECK_OK(td_json_parse(TD_STR(context_text), NULL, &arena, &context, NULL), NULL);
    td_test_allocations = 0;
    REQUIRE(work(context));
    int n = td_test_allocations;
    CHECK(n > 20);
    for (int all = 0; all < 2; all++) {
        td_test_fail_after = all != 0;
        for (td_test_fail_at = 1; td_test_fail_at <= n; td_test_fail_at++) {
            td_test_allocations = 0;
            work(context);
        }
        td_test_fail_at = INT_MAX;
    }
    td_buf_free(&whole);
    td_arena_free(&arena);
}
