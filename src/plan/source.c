/* plan/source.c - an encoder-decoder whose embeddings are a graph of their own: ids of the source and ids of the
 * decoder both go through it, so it is two sessions of one file, found where no flow says more.
 *
 * Evidence: the encoder takes embeddings, and gives neither logits nor caches; the decoder takes embeddings too, and
 * what the encoder made in an input that speaks of it ("encoder_hidden_states"). */
#include "plan/build.h"

static bool has_caches(const td_plan_build_ctx *b, int32_t session) {
    for (size_t i = 0; i < b->plan->sessions[session].signature->n_inputs; i++)
        if (b->ins[session][i].part != TD_PART_OTHER && b->ins[session][i].layer >= 0) return true;
    return false;
}

static bool gives_logits(const td_plan_session *s) {
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        if (td_name_has_word(s->signature->outputs[o].name, "logits")) return true;
    return false;
}

static bool takes(const td_plan_session *s, td_role role) { return td_plan_input_of_role(s, role) >= 0; }

static int32_t encoded_input(const td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        if (port->shape.rank == 3 && td_dtype_kind(port->dtype) == TD_KIND_FLOAT &&
            td_name_has_word(port->name, "encoder"))
            return (int32_t)i;
    }
    return -1;
}

/* The one output that a decoder's input may take; -1: none, or several. */
static int32_t encoded_output(const td_plan_session *s, const td_light_port *input) {
    int32_t found = -1;
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        if (!td_plan_ports_fit(&s->signature->outputs[o], input)) continue;
        if (found >= 0) return -1;
        found = (int32_t)o;
    }
    return found;
}

/* Makes embeddings of ids under the name that session `to` takes them by. */
static bool embeds_for(const td_plan_session *s, const td_plan_session *to) {
    int32_t input = td_plan_input_of_role(to, TD_ROLE_INPUTS_EMBEDS);
    return takes(s, TD_ROLE_INPUT_IDS) && !takes(s, TD_ROLE_INPUTS_EMBEDS) && input >= 0 &&
           td_plan_output_index(s, td_plan_wire_name(to, true, (size_t)input)) >= 0;
}

bool td_plan_find_source_encoder(td_plan_build_ctx *b, int32_t *out_embedding) {
    td_plan *plan = b->plan;
    int32_t n = (int32_t)plan->n_sessions, encoder = -1, embedding = -1, decoder = -1;
    b->source_encoder = b->source_embedding = -1;
    if (b->config->n_steps || b->config->n_wires || b->config->plugin.path) return false;
    for (int32_t s = 0; s < n; s++)
        if (!plan->sessions[s].signature) return false;
    for (int32_t s = 0; s < n; s++) {
        const td_plan_session *p = &plan->sessions[s];
        if (!takes(p, TD_ROLE_INPUTS_EMBEDS) || takes(p, TD_ROLE_INPUT_IDS)) continue;
        bool plain = !gives_logits(p) && !has_caches(b, s);
        if (plain && encoder >= 0) return false;
        if (plain) encoder = s;
        else if (encoded_input(p) >= 0) decoder = s;
    }
    if (encoder < 0 || decoder < 0) return false;
    const td_plan_session *d = &plan->sessions[decoder];
    if (encoded_output(&plan->sessions[encoder], &d->signature->inputs[encoded_input(d)]) < 0) return false;
    for (int32_t s = 0; s < n && embedding < 0; s++)
        if (embeds_for(&plan->sessions[s], d) && embeds_for(&plan->sessions[s], &plan->sessions[encoder]))
            embedding = s;
    if (embedding < 0) return false;
    b->source_encoder = encoder;
    b->source_embedding = n;
    *out_embedding = embedding;
    return true;
}

void td_plan_wire_source(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    if (b->source_encoder < 0 || td_plan_first_step(plan, b->source_encoder) < 0) return;
    for (size_t k = 0; k < plan->n_steps; k++) {
        int32_t session = plan->steps[k].session;
        const td_plan_session *s = &plan->sessions[session];
        int32_t input = session != b->source_encoder && takes(s, TD_ROLE_INPUTS_EMBEDS) ? encoded_input(s) : -1;
        if (input < 0 || s->feeds[input].kind != TD_FEED_NONE) continue;
        int32_t output = encoded_output(&plan->sessions[b->source_encoder], &s->signature->inputs[input]);
        if (output >= 0)
            td_plan_add_wire(b, (td_plan_end){b->source_encoder, output}, (td_plan_end){session, input}, false,
                             "what the encoder made");
    }
}
