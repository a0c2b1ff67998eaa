/* onnx/schema.c - lookups in the tables of schema.inc, schema_microsoft.inc and schema_treadle.inc. */
#include "onnx/schema.h"

#include <limits.h>

#include "onnx/schema.inc"
#include "onnx/schema_microsoft.inc"
#include "onnx/schema_treadle.inc"

/* In the order that td_schema_at promises: "" < "ai.onnx.ml" < ... < "com.microsoft" < "treadle". */
static const struct {
    const td_schema *rows;
    size_t n;
} tables[] = {{standard, TD_COUNT(standard)}, {microsoft, TD_COUNT(microsoft)}, {treadle_rows, TD_COUNT(treadle_rows)}};

static int compare_name(const td_schema *s, td_str domain, td_str name) {
    int order = td_str_compare(td_str_from(s->domain), domain);
    return order ? order : td_str_compare(td_str_from(s->name), name);
}

/* Rows are sorted by domain, name and since_version: the answer is the last one not above the key. */
static const td_schema *find_in(const td_schema *rows, size_t n, td_str domain, td_str name, int64_t version) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = compare_name(&rows[mid], domain, name);
        if (order < 0 || (order == 0 && rows[mid].since_version <= version)) low = mid + 1;
        else high = mid;
    }
    return low > 0 && compare_name(&rows[low - 1], domain, name) == 0 ? &rows[low - 1] : NULL;
}

const td_schema *td_schema_find(td_str domain, td_str name, int64_t opset_version) {
    if (td_str_is(domain, "ai.onnx")) domain = (td_str){NULL, 0};
    for (size_t i = 0; i < TD_COUNT(tables); i++) {
        const td_schema *found = find_in(tables[i].rows, tables[i].n, domain, name, opset_version);
        if (found) return found;
    }
    return domain.n == 0 ? find_in(aliases, TD_COUNT(aliases), domain, name, INT64_MAX) : NULL;
}

const td_schema_attr *td_schema_find_attr(const td_schema *schema, td_str name) {
    for (size_t i = 0; i < schema->n_attrs; i++)
        if (td_str_is(name, schema->attrs[i].name)) return &schema->attrs[i];
    return NULL;
}

static const td_schema_formal *find_formal(const td_schema_formal *list, size_t n, size_t index) {
    if (index < n) return &list[index];
    return n > 0 && list[n - 1].option == TD_SCHEMA_VARIADIC ? &list[n - 1] : NULL;
}

const td_schema_formal *td_schema_input(const td_schema *schema, size_t index) {
    return find_formal(schema->inputs, schema->n_inputs, index);
}

bool td_schema_allows(const td_schema *schema, const td_schema_formal *formal, td_dtype dtype) {
    return (unsigned)dtype < TD_DTYPE_END && schema->types[formal->type].tensor >> dtype & 1;
}

const td_schema *td_schema_at(size_t index) {
    for (size_t i = 0; i < TD_COUNT(tables); i++) {
        if (index < tables[i].n) return &tables[i].rows[index];
        index -= tables[i].n;
    }
    return NULL;
}

int64_t td_schema_latest(td_str domain) {
    int64_t latest = -1;
    if (td_str_is(domain, "ai.onnx")) domain = (td_str){NULL, 0};
    for (size_t i = 0; i < TD_COUNT(tables); i++)
        for (size_t k = 0; k < tables[i].n; k++)
            if (td_str_is(domain, tables[i].rows[k].domain)) latest = TD_MAX(latest, tables[i].rows[k].since_version);
    return latest;
}
