/* light/ops/regex_full_match.c - RegexFullMatch. Source: ONNX op text. */
#include "light/op.h"
#include "light/ops/regex.h"

typedef struct match_state {
    td_pattern *pattern;
} match_state;

static treadle_status match_prepare(td_prepare *p) {
    match_state *s = p->state;
    td_str text = td_attr_string(p, "pattern");
    const char *problem = NULL;
    size_t at = 0;

    if (td_pattern_compile(p->arena, text, &s->pattern, &problem, &at)) return TREADLE_OK;
    if (!problem) return td_fail_memory(p->err, "a pattern", text.n);
    return td_bad_node(p, "pattern \"%.*s\", at byte %zu: %s", (int)TD_MIN(text.n, (size_t)120), text.p ? text.p : "",
                       at, problem);
}

static treadle_status match_infer(td_infer *in) { return td_infer_set(in, 0, TD_BOOL, &in->inputs[0]->tensor.shape); }

static treadle_status match_run(td_run *r) {
    const match_state *s = r->state;
    const td_str *texts = r->in[0]->data;
    int64_t n = td_tensor_count(r->in[0]);
    void *scratch = td_run_scratch(r, td_pattern_scratch(s->pattern));

    if (!scratch) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n; i++) ((bool *)r->out[0]->data)[i] = td_pattern_matches(s->pattern, texts[i], scratch);
    return TREADLE_OK;
}

const td_op_impl td_op_regex_full_match = {
    .state_bytes = sizeof(match_state), .prepare = match_prepare, .infer = match_infer, .run = match_run};
