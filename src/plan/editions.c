/* plan/editions.c - sessions that are left out before anything is planned, where no flow says which ones run.
 *
 * A folder may hold one graph several times: in other number formats, file names going on after the first one's
 * (decoder.onnx, decoder_q4.onnx), with the same inputs and outputs; and split in two beside the whole, the graph with
 * use_cache_branch. The shortest name and the whole stay. What is left out is said in a note. */
#include "plan/build.h"

#include "base/file.h"

/* The name of its file without the ending. */
static td_str stem_of(const td_plan_session *s) {
    td_str name = td_str_from(td_path_base(s->config->path));
    if (td_str_ends(name, TD_STR(".onnx"))) name.n -= 5;
    return name;
}

/* Whether `name` is `base`, a sign, and more. */
static bool goes_on(td_str base, td_str name) {
    return name.n > base.n + 1 && td_str_starts(name, base) && strchr("_-.", name.p[base.n]) != NULL;
}

static const td_light_port *find_port(const td_light_port *ports, size_t n, td_str name) {
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(ports[i].name, name)) return &ports[i];
    return NULL;
}

static bool same_dims(const td_light_port *a, const td_light_port *b) {
    if (a->shape.rank != b->shape.rank) return false;
    for (int i = 0; i < a->shape.rank; i++)
        if (TD_MAX(a->shape.dims[i], -1) != TD_MAX(b->shape.dims[i], -1)) return false;
    return true;
}

/* Every port of a has its like among b's; sizes count only if asked. */
static bool are_among(const td_light_port *a, size_t n_a, const td_light_port *b, size_t n_b, bool sizes) {
    for (size_t i = 0; i < n_a; i++) {
        const td_light_port *like = find_port(b, n_b, a[i].name);
        if (!like || (sizes && !same_dims(&a[i], like))) return false;
    }
    return true;
}

static bool is_edition(const td_plan_session *s, const td_plan_session *of) {
    const td_signature *a = s->signature, *b = of->signature;
    td_str name = stem_of(s), base = stem_of(of);
    if (!goes_on(base, name) || td_plan_says_decode((td_str){name.p + base.n, name.n - base.n})) return false;
    return a->n_inputs == b->n_inputs && a->n_outputs == b->n_outputs &&
           are_among(a->inputs, a->n_inputs, b->inputs, b->n_inputs, true) &&
           are_among(a->outputs, a->n_outputs, b->outputs, b->n_outputs, false);
}

/* The whole takes and gives all that the part does, and chooses between prompt and later tokens by itself. */
static bool is_part(const td_plan_session *s, const td_plan_session *whole) {
    const td_signature *a = s->signature, *b = whole->signature;
    return td_plan_input_of_role(whole, TD_ROLE_USE_CACHE_BRANCH) >= 0 &&
           td_plan_input_of_role(s, TD_ROLE_USE_CACHE_BRANCH) < 0 && td_plan_token_input(s) >= 0 &&
           are_among(a->inputs, a->n_inputs, b->inputs, b->n_inputs, false) &&
           are_among(a->outputs, a->n_outputs, b->outputs, b->n_outputs, false);
}

typedef bool (*relation)(const td_plan_session *s, const td_plan_session *other);

/* Drops the sessions for which there is another one that `stands` for them. */
static void drop(td_plan_build_ctx *b, relation stands, const char *why) {
    td_plan *plan = b->plan;
    size_t n = plan->n_sessions, kept = 0;
    int32_t *by = TD_ARENA_ARRAY(b->scratch, int32_t, n);
    if (!by) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        by[i] = -1;
        for (size_t k = 0; k < n && by[i] < 0; k++)
            if (k != i && stands(&plan->sessions[i], &plan->sessions[k])) by[i] = (int32_t)k;
    }
    for (size_t i = 0; i < n; i++)
        if (by[i] >= 0)
            td_plan_note(b, by[i], "\"%.*s\" is left out: %s \"%.*s\"; sessions named in a config run instead",
                         TD_STR_ARGS(plan->sessions[i].name), why, TD_STR_ARGS(plan->sessions[by[i]].name));
    for (size_t i = 0; i < n; i++) {
        if (by[i] >= 0) {
            td_signature_close(plan->sessions[i].signature);
            continue;
        }
        plan->sessions[kept] = plan->sessions[i];
        b->uses[kept] = b->uses[i];
        b->ins[kept] = b->ins[i];
        b->outs[kept++] = b->outs[i];
    }
    plan->n_sessions = kept;
}

void td_plan_drop_editions(td_plan_build_ctx *b) {
    if (b->config->n_steps || b->config->n_wires || b->config->plugin.path || b->plan->n_sessions < 2) return;
    for (size_t i = 0; i < b->plan->n_sessions; i++)
        if (!b->plan->sessions[i].signature) return;
    drop(b, is_edition, "it takes and gives the same as");
    if (!b->out_of_memory) drop(b, is_part, "all that it does is in");
}
