/* kernels/kernel.h - how a family of kernels is dispatched.
 *
 * A family FAM is a struct of function pointers `td_FAM_kernels` and one constant of it per variant, `td_FAM_c` (the
 * plain C reference), `td_FAM_avx2`, ... each in a translation unit of its own with its own compiler flags. The
 * variants are listed once, in FAM.inc, one row each, worst first:
 *
 *     TD_KERNEL(c, 0)
 *     #if TD_X86_64
 *     TD_KERNEL(avx2, TD_CPU_AVX2)
 *     #endif
 *
 * FAM.h includes the list to declare them, FAM.c to build the table that td_kernel_pick searches, and the checker
 * (tests/kernels/checker.h) to run each against the reference. Adding a variant is one file and one row.
 */
#ifndef TD_KERNELS_KERNEL_H
#define TD_KERNELS_KERNEL_H

#include "base/cpu.h"

typedef struct td_kernel_variant {
    const char *name;  /* "avx2" */
    unsigned needs;    /* TD_CPU_* flags that must all be there */
    const void *table; /* a td_FAM_kernels */
} td_kernel_variant;

/* The table of the last variant all of whose needs are in td_cpu_flags(). The first row needs nothing, so there is
 * one. */
const void *td_kernel_pick(const td_kernel_variant *variants, size_t n);

#endif
