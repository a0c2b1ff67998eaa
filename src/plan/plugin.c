/* plan/plugin.c - the plan of a model that native code runs: sessions and lengths, and every input by
 * name for the request's tensors. */
#include "plan/build.h"

void td_plan_for_plugin(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    plan->plugin = &b->config->plugin;
    for (size_t i = 0; i < plan->n_sessions && !b->out_of_memory; i++) {
        const td_signature *sig = plan->sessions[i].signature;
        for (size_t k = 0; sig && k < sig->n_inputs && !b->out_of_memory; k++) {
            int32_t at = td_plan_request_of(b, sig->inputs[k].name, true);
            if (at < 0 || plan->requests[at].session >= 0) continue;
            plan->requests[at].session = (int32_t)i;
            plan->requests[at].input = (int32_t)k;
        }
    }
    if (!b->out_of_memory) td_plan_find_lengths(b);
    if (b->messages->n_errors) plan->cannot_run = "the config has errors";
}
