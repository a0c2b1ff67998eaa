/* schema/genai_config.v2.schema.json says what the table of fields says. It is written from the table:
 * `TREADLE_UPDATE=1 test_config_schema` after a change. */
#include <stdlib.h>

#include "base/file.h"
#include "config/fields.h"
#include "support/test.h"

static void write_field(const td_field *field, td_json_writer *w);

static void write_type(const td_field *field, td_json_writer *w) {
    static const char *const types[] = {
        [TD_FIELD_INT] = "integer",   [TD_FIELD_NUMBER] = "number", [TD_FIELD_BOOL] = "boolean",
        [TD_FIELD_STRING] = "string", [TD_FIELD_WORD] = "string",   [TD_FIELD_OBJECT] = "object",
        [TD_FIELD_MAP] = "object"};
    td_json_begin_object(w);
    if (field->kind != TD_FIELD_ANY) {
        td_json_key(w, "type");
        td_json_write_text(w, types[field->kind]);
    }
    if (field->kind == TD_FIELD_INT || field->kind == TD_FIELD_NUMBER) {
        td_json_key(w, field->flags & TD_FIELD_OPEN ? "exclusiveMinimum" : "minimum");
        td_json_write_double(w, field->min);
        td_json_key(w, "maximum");
        td_json_write_double(w, field->max);
    }
    if (field->kind == TD_FIELD_WORD) {
        td_json_key(w, "enum");
        td_json_begin_array(w);
        for (int i = 0; field->words[i]; i++) td_json_write_text(w, field->words[i]);
        td_json_end_array(w);
    }
    if (field->kind == TD_FIELD_MAP) {
        td_json_key(w, "additionalProperties");
        write_field(&field->members[0], w);
    }
    if (field->kind == TD_FIELD_OBJECT) {
        td_json_key(w, "properties");
        td_json_begin_object(w);
        for (const td_field *m = field->members; m->key; m++) {
            td_json_key(w, m->key);
            write_field(m, w);
        }
        td_json_end_object(w);
        td_json_key(w, "required");
        td_json_begin_array(w);
        for (const td_field *m = field->members; m->key; m++)
            if (m->flags & TD_FIELD_REQUIRED) td_json_write_text(w, m->key);
        td_json_end_array(w);
    }
    td_json_end_object(w);
}

static void write_plain_type(const char *type, td_json_writer *w) {
    td_json_begin_object(w);
    td_json_key(w, "type");
    td_json_write_text(w, type);
    td_json_end_object(w);
}

/* null means unset, one alone is a list of one. */
static void write_field(const td_field *field, td_json_writer *w) {
    td_json_begin_object(w);
    td_json_key(w, "anyOf");
    td_json_begin_array(w);
    write_plain_type("null", w);
    write_type(field, w);
    if (field->flags & TD_FIELD_OR_STRING) write_plain_type("string", w);
    if (field->flags & TD_FIELD_OR_OBJECT) write_plain_type("object", w);
    if (field->flags & TD_FIELD_LIST) {
        td_json_begin_object(w);
        td_json_key(w, "type");
        td_json_write_text(w, "array");
        td_json_key(w, "items");
        write_type(field, w);
        if (field->max_items) {
            td_json_key(w, "maxItems");
            td_json_write_int(w, (int64_t)field->max_items);
        }
        td_json_end_object(w);
    }
    td_json_end_array(w);
    td_json_end_object(w);
}

static void write_schema(td_buf *out) {
    td_json_writer w;
    td_json_writer_init(&w, out, 2);
    td_json_begin_object(&w);
    td_json_key(&w, "$schema");
    td_json_write_text(&w, "https://json-schema.org/draft/2020-12/schema");
    td_json_key(&w, "title");
    td_json_write_text(&w, "genai_config.json, version 2");
    td_json_key(&w, "type");
    td_json_write_text(&w, "object");
    td_json_key(&w, "properties");
    td_json_begin_object(&w);
    for (const td_field *m = td_config_fields; m->key; m++) {
        td_json_key(&w, m->key);
        write_field(m, &w);
    }
    td_json_end_object(&w);
    td_json_key(&w, "required");
    td_json_begin_array(&w);
    td_json_write_text(&w, "version");
    td_json_end_array(&w);
    td_json_end_object(&w);
    td_buf_char(out, '\n');
}

TEST(the_schema_is_that_of_the_table) {
    const char *path = td_test_source("schema/genai_config.v2.schema.json");
    td_buf want = {0};
    write_schema(&want);
    REQUIRE(!want.failed);
    if (getenv("TREADLE_UPDATE")) td_test_write(path, want.p, want.n);
    char *have = td_test_read(path, NULL);
    CHECK_EQ_STR(have, want.p);
    free(have);
    td_buf_free(&want);
}
