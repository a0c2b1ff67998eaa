/* kernels/conv_f32.c - the table of variants of the inner loops of convolutions. */
#include "kernels/conv_f32.h"

#define TD_KERNEL(isa, needs) {#isa, (needs), &td_conv_f32_##isa},
const td_kernel_variant td_conv_f32_variants[] = {
#include "kernels/conv_f32.inc"
};
#undef TD_KERNEL
const size_t td_conv_f32_n_variants = TD_COUNT(td_conv_f32_variants);

const td_conv_f32_kernels *td_conv_f32_pick(void) {
    return td_kernel_pick(td_conv_f32_variants, td_conv_f32_n_variants);
}
