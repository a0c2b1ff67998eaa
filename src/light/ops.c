/* light/ops.c - the table of ops (ops.inc) and the search in it.
 *
 * The rows are sorted once by the compiler's reader, not at run time: domain, then name, then version, bytewise; a test
 * checks the order. */
#include "light/op.h"

#define TD_OP(domain, name, since, impl) extern const td_op_impl impl;
#include "light/ops.inc"
#undef TD_OP

static const td_op ops[] = {
#define TD_OP(domain, name, since, impl) {domain, name, since, &impl},
#include "light/ops.inc"
#undef TD_OP
};

size_t td_op_count(void) { return TD_COUNT(ops); }

const td_op *td_op_at(size_t index) { return index < TD_COUNT(ops) ? &ops[index] : NULL; }

static int compare(const td_op *op, td_str domain, td_str name) {
    int by_domain = td_str_compare(td_str_from(op->domain), domain);
    return by_domain ? by_domain : td_str_compare(td_str_from(op->name), name);
}

const td_op *td_op_find(td_str domain, td_str name, int64_t version) {
    size_t low = 0, high = TD_COUNT(ops); /* first row not below (domain, name) */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&ops[middle], domain, name) < 0) low = middle + 1;
        else high = middle;
    }
    const td_op *best = NULL;
    for (; low < TD_COUNT(ops) && compare(&ops[low], domain, name) == 0; low++)
        if (ops[low].since <= version) best = &ops[low];
    return best;
}
