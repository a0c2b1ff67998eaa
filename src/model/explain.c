/* model/explain.c - the expanded config with origins, the plan, and the notes. */
#include "model/model.h"

static void write_notes(const treadle_model *m, td_json_writer *w) {
    td_json_key(w, "notes");
    td_json_begin_array(w);
    for (size_t i = 0; i < m->messages.list.n; i++)
        if (m->messages.list.items[i].level == TREADLE_MESSAGE_NOTE)
            td_json_write_text(w, m->messages.list.items[i].text);
    td_json_end_array(w);
}

void td_model_explain(const treadle_model *m, bool json, td_buf *out) {
    td_json_writer w;
    td_json_writer_init(&w, out, json ? 1 : 2);
    if (json) {
        td_json_begin_object(&w);
        td_json_key(&w, "config");
        td_json_write_value(&w, m->config->root);
        td_json_key(&w, "origins");
        td_json_begin_object(&w);
        td_tree_write_origins(m->config->root, &w);
        td_json_end_object(&w);
        td_json_key(&w, "plan");
        td_plan_write_json(m->plan, &w);
        write_notes(m, &w);
        td_json_end_object(&w);
        return;
    }
    td_buf_text(out, "config, expanded\n");
    td_json_write_value(&w, m->config->root);
    td_buf_text(out, "\n\nwhere it comes from\n");
    td_json_writer_init(&w, out, 2);
    td_json_begin_object(&w);
    td_tree_write_origins(m->config->root, &w);
    td_json_end_object(&w);
    td_buf_text(out, "\n\nplan\n");
    td_plan_write_text(m->plan, out);
    for (size_t i = 0; i < m->messages.list.n; i++)
        if (m->messages.list.items[i].level == TREADLE_MESSAGE_NOTE)
            td_buf_printf(out, "note: %s\n", m->messages.list.items[i].text);
}
