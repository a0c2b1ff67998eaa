/* tensor/dtype.c - see dtype.h. */
#include "tensor/dtype.h"

typedef struct dtype_row {
    int bits;
    td_kind kind;
    const char *name;
} dtype_row;

static const dtype_row rows[TD_DTYPE_END] = {[TD_UNDEFINED] = {0, TD_KIND_NONE, "undefined"},
#define ROW(name, number, bits, kind, text) [TD_##name] = {bits, TD_KIND_##kind, text},
                                             TD_DTYPE_LIST(ROW)
#undef ROW
};

static const dtype_row *row_of(td_dtype dtype) { return &rows[(unsigned)dtype < TD_DTYPE_END ? dtype : TD_UNDEFINED]; }

int td_dtype_bits(td_dtype dtype) { return row_of(dtype)->bits; }
td_kind td_dtype_kind(td_dtype dtype) { return row_of(dtype)->kind; }
const char *td_dtype_name(td_dtype dtype) { return row_of(dtype)->name; }

td_dtype td_dtype_from_name(td_str name) {
    static const struct {
        const char *name;
        td_dtype dtype;
    } aliases[] = {{"float", TD_FLOAT}, {"double", TD_DOUBLE}, {"half", TD_FLOAT16}};
    for (int i = 1; i < TD_DTYPE_END; i++)
        if (td_str_is(name, rows[i].name)) return (td_dtype)i;
    for (size_t i = 0; i < TD_COUNT(aliases); i++)
        if (td_str_is(name, aliases[i].name)) return aliases[i].dtype;
    return TD_UNDEFINED;
}

bool td_dtype_bytes(td_dtype dtype, int64_t count, size_t *out) {
    int bits = td_dtype_bits(dtype);
    if (bits == 0 || count < 0) return false;
    if (bits < 8) {
        size_t per_byte = (size_t)(8 / bits);
        *out = (size_t)count / per_byte + ((size_t)count % per_byte != 0);
        return true;
    }
    return !TD_MUL_OVERFLOWS((size_t)count, (size_t)bits / 8, out) && *out <= PTRDIFF_MAX;
}
