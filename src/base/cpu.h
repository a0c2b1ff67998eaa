/* base/cpu.h - instruction sets of this CPU, cut by a mask.
 *
 * The mask comes from td_cpu_set_mask or, before the first call, from the environment variable TREADLE_CPU: a name
 * below means "up to and including this one", "none" (or "c") the plain C reference, "all" everything found. */
#ifndef TD_BASE_CPU_H
#define TD_BASE_CPU_H

#include "base/compiler.h"
#include "base/error.h"

/* X(NAME, bit, text); in order of preference, later ones imply the earlier ones they list in cpu.c. */
#define TD_CPU_LIST(X)                                                                                                 \
    X(AVX2, 0, "avx2")       /* AVX2, FMA, F16C, BMI2 */                                                               \
    X(AVXVNNI, 1, "avxvnni") /* 256-bit VNNI */                                                                        \
    X(AVX512, 2, "avx512")   /* AVX-512 F, BW, VL, DQ, VNNI */                                                         \
    X(AVX512BF16, 3, "avx512bf16")                                                                                     \
    X(AMX, 4, "amx") /* tiles, int8, bf16; permission asked for at first use */                                        \
    X(NEON, 5, "neon")                                                                                                 \
    X(NEONDOT, 6, "neondot")

enum {
#define TD_CPU_ENUM(name, bit, text) TD_CPU_##name = 1 << bit,
    TD_CPU_LIST(TD_CPU_ENUM)
#undef TD_CPU_ENUM
};

unsigned td_cpu_flags(void);    /* detected & mask; cheap */
unsigned td_cpu_detected(void); /* what the CPU and the operating system offer */
/* "avx2", "avx512", "none", "all", or a list "avx2,avxvnni". Not thread-safe against running sessions: set it first. */
treadle_status td_cpu_set_mask(const char *text, treadle_error *err);
const char *td_cpu_name(void); /* brand string, "" if unknown */

#endif
