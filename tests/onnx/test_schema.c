/* The operator table: versions, aliases, order, and that every row is consistent. */
#include "support/test.h"

#include "onnx/schema.h"

#include <limits.h>
#include <string.h>

static const td_schema *find(const char *domain, const char *name, int64_t version) {
    return td_schema_find(td_str_from(domain), td_str_from(name), version);
}

TEST(versions) {
    CHECK(find("", "Squeeze", 0) == NULL);
    CHECK_EQ_INT(find("", "Squeeze", 12)->since_version, 11);
    CHECK_EQ_INT(find("ai.onnx", "Squeeze", 13)->since_version, 13);
    CHECK_EQ_INT(find("", "Squeeze", 13)->max_inputs, 2);
    CHECK(find("", "Upsample", 13)->deprecated);
    CHECK(find("", "NoSuch", 13) == NULL && find("nowhere", "Add", 13) == NULL);
    CHECK(find("", "Gelu", 20)->is_function);
    CHECK_EQ_INT(td_schema_latest(TD_STR("")), 27);
    CHECK_EQ_INT(td_schema_latest(TD_STR("nowhere")), -1);
}

TEST(defaults_and_types) {
    const td_schema *gemm = find("", "Gemm", 13), *concat = find("", "Concat", 13), *loop = find("", "Loop", 21);
    CHECK_NEAR(td_schema_find_attr(gemm, TD_STR("alpha"))->f, 1.0, 0);
    CHECK(td_schema_find_attr(concat, TD_STR("axis"))->required &&
          !td_schema_find_attr(concat, TD_STR("axis"))->has_default);
    CHECK(td_schema_find_attr(gemm, TD_STR("beta2")) == NULL);
    CHECK(td_schema_input(concat, 99) == td_schema_input(concat, 0));
    CHECK(td_schema_input(gemm, 3) == NULL && td_schema_input(gemm, 2)->option == TD_SCHEMA_OPTIONAL);
    CHECK(td_schema_allows(gemm, td_schema_input(gemm, 0), TD_BFLOAT16) &&
          !td_schema_allows(gemm, td_schema_input(gemm, 0), TD_STRING));
    CHECK(!td_schema_input(loop, 2)->homogeneous && loop->max_inputs == INT_MAX);
}

TEST(contrib_and_own) {
    const td_schema *n = find("com.microsoft", "MatMulNBits", 1), *s = find("", "SimplifiedLayerNormalization", 7);
    CHECK(n && td_schema_find_attr(n, TD_STR("K"))->required && td_schema_find_attr(n, TD_STR("bits"))->i == 4);
    CHECK_EQ_INT(find("com.microsoft", "GroupQueryAttention", 1)->max_inputs, 16);
    CHECK(s && s->n_outputs == 2);
    CHECK(find("treadle", "BlockAffineMatMul", 1) && find("treadle", "BlockAffineGather", 1)->is_function);
}

TEST(rows_are_sorted_and_consistent) {
    const td_schema *before = NULL, *s;
    for (size_t i = 0; (s = td_schema_at(i)); before = s, i++) {
        if (before) {
            int order = strcmp(before->domain, s->domain);
            if (order == 0) order = strcmp(before->name, s->name);
            CHECK(order < 0 || (order == 0 && before->since_version < s->since_version));
        }
        CHECK(find(s->domain, s->name, s->since_version) == s);
        CHECK(s->min_inputs <= s->max_inputs && s->min_outputs <= s->max_outputs);
        for (int k = 0; k < s->n_inputs; k++) CHECK(s->inputs[k].type < s->n_types);
        for (int k = 0; k < s->n_outputs; k++) CHECK(s->outputs[k].type < s->n_types);
        for (int k = 1; k < s->n_attrs; k++) CHECK(strcmp(s->attrs[k - 1].name, s->attrs[k].name) < 0);
    }
    CHECK(before != NULL);
}
