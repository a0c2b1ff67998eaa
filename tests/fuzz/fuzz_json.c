/* Fuzzes the JSON reader and writer: what is accepted must be written and read back to the same text. */
#include "base/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static void write_tree(const td_json *root, int indent, td_buf *out) {
    td_json_writer w;
    td_json_writer_init(&w, out, indent);
    td_json_write_value(&w, root);
    check(!out->failed);
}

/* Every place lies inside its parent and after its elder sibling. */
static void check_places(const td_json *root, size_t size) {
    check(root->end <= size && root->offset < root->end);
    for (const td_json *v = root; v;) {
        size_t after = v->offset, n = 0;
        for (const td_json *child = v->first; child; child = child->next, n++) {
            check(child->parent == v && child->offset > after && child->end < v->end && child->offset < child->end);
            if (v->kind == TD_JSON_OBJECT) check(child->key_offset >= after && child->key_offset < child->offset);
            after = child->end;
        }
        check(n == v->n);
        if (v->first) {
            v = v->first;
            continue;
        }
        while (v && !v->next) v = v->parent;
        if (v) v = v->next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    td_json_options options = {.max_depth = data[0] & 4 ? 5 : 0, /* the first byte chooses the options */
                               .allow_duplicate_keys = data[0] & 1,
                               .allow_nonfinite = data[0] & 2};
    td_str text = {(const char *)data + 1, size - 1};
    td_arena arena = {0};
    td_json *root = NULL, *again = NULL;
    treadle_error err = {0};
    td_buf first = {0}, second = {0};

    if (td_json_parse(text, &options, &arena, &root, &err) != TREADLE_OK) {
        check(err.code != TREADLE_OK && err.message[0] && err.line > 0 && err.column > 0 && err.column <= text.n + 1);
    } else {
        check_places(root, text.n);
        write_tree(root, data[0] >> 4, &first);
        check(td_json_parse(td_buf_view(&first), &options, &arena, &again, &err) == TREADLE_OK);
        write_tree(again, data[0] >> 4, &second);
        check(td_str_equal(td_buf_view(&first), td_buf_view(&second)));
    }
    td_buf_free(&first);
    td_buf_free(&second);
    td_arena_free(&arena);
    return 0;
}
