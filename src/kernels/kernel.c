/* kernels/kernel.c - picks a variant by the CPU's flags. */
#include "kernels/kernel.h"

const void *td_kernel_pick(const td_kernel_variant *variants, size_t n) {
    unsigned flags = td_cpu_flags();
    const void *best = variants[0].table;
    for (size_t i = 1; i < n; i++)
        if ((variants[i].needs & flags) == variants[i].needs) best = variants[i].table;
    return best;
}
