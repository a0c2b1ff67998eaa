/* kernels/recurrence_f32.c - the table of variants. */
#include "kernels/recurrence_f32.h"

#define TD_KERNEL(isa, needs) {#isa, (needs), &td_recurrence_f32_##isa},
const td_kernel_variant td_recurrence_f32_variants[] = {
#include "kernels/recurrence_f32.inc"
};
#undef TD_KERNEL
const size_t td_recurrence_f32_n_variants = TD_COUNT(td_recurrence_f32_variants);

const td_recurrence_f32_kernels *td_recurrence_f32_pick(void) {
    return td_kernel_pick(td_recurrence_f32_variants, td_recurrence_f32_n_variants);
}
