/* base/compiler.h - the only place for compiler extensions. */
#ifndef TD_BASE_COMPILER_H
#define TD_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TD_PRINTF(fmt_index, args_index) __attribute__((format(printf, fmt_index, args_index)))
#define TD_INLINE static inline __attribute__((always_inline)) /* for "templates": always-inline with constant arguments */
#define TD_NOINLINE __attribute__((noinline))
#define TD_LIKELY(x) __builtin_expect(!!(x), 1)
#define TD_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TD_ALIGNED(n) __attribute__((aligned(n)))
#define TD_RESTRICT __restrict__
#define TD_MUST_CHECK __attribute__((warn_unused_result))
#define TD_UNUSED __attribute__((unused))
#define TD_WEAK __attribute__((weak)) /* a declaration that may stay undefined; its address is then NULL */
#define TD_CTZ64(x) __builtin_ctzll(x) /* x not 0 */
#define TD_PREFETCH(p) __builtin_prefetch((p), 0, 3)
#else
#error "treadle needs gcc or clang"
#endif

#if defined(__x86_64__)
#define TD_X86_64 1
#else
#define TD_X86_64 0
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "model files are read in place: little-endian machines only");

#define TD_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TD_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TD_MAX(a, b) ((a) > (b) ? (a) : (b))
#define TD_ROUND_UP(n, multiple) (((n) + (multiple) - 1) / (multiple) * (multiple))

/* Checked size arithmetic: true on overflow, as the builtins say. */
#define TD_MUL_OVERFLOWS(a, b, out) __builtin_mul_overflow((a), (b), (out))
#define TD_ADD_OVERFLOWS(a, b, out) __builtin_add_overflow((a), (b), (out))

#endif
