/* kernels/vmath.c - the table of variants of the elementary functions. */
#include "kernels/vmath.h"

#define TD_KERNEL(isa, needs) {#isa, (needs), &td_vmath_##isa},
const td_kernel_variant td_vmath_variants[] = {
#include "kernels/vmath.inc"
};
#undef TD_KERNEL
const size_t td_vmath_n_variants = TD_COUNT(td_vmath_variants);

const td_vmath_kernels *td_vmath_pick(void) { return td_kernel_pick(td_vmath_variants, td_vmath_n_variants); }
