/* base/compiler.h - the only place for compiler extensions. */
#ifndef TD_BASE_COMPILER_H
#define TD_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TD_PRINTF(fmt_index, args_index) __attribute__((format(printf, fmt_index, args_index)))
#define TD_INLINE                                                                                                      \
    static inline __attribute__((always_inline)) /* for "templates": always-inline with constant arguments */
#define TD_NOINLINE __attribute__((noinline))
/* For wholly unrolled SIMD code, which UndefinedBehaviorSanitizer's checks blow up to minutes of compiling. */
#define TD_NO_UBSAN __attribute__((no_sanitize("undefined")))
#define TD_SIMD TD_INLINE TD_NO_UBSAN
#define TD_LIKELY(x) __builtin_expect(!!(x), 1)
#define TD_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TD_ALIGNED(n) __attribute__((aligned(n)))
#define TD_RESTRICT __restrict__
#define TD_MUST_CHECK __attribute__((warn_unused_result))
#define TD_UNUSED __attribute__((unused))
#define TD_WEAK __attribute__((weak, visibility("hidden"))) /* may stay undefined; its address is then NULL */
#define TD_CTZ64(x) __builtin_ctzll(x)                      /* x not 0 */
#define TD_PREFETCH(p) __builtin_prefetch((p), 0, 3)
/* Before a loop with a constant count of at most 32: unroll it whole, so that arrays indexed by it stay in registers.
 * Not under clang's sanitizers, whose checks in every copy take it minutes to compile. */
#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define TD_UNROLL
#else
#define TD_UNROLL _Pragma("clang loop unroll(full)")
#endif
#else
#define TD_UNROLL _Pragma("GCC unroll 32")
#endif
#if defined(__x86_64__)
#define TD_PIN_SIMD(v) __asm__("" : "+x"(v)) /* v is computed here: no reassociation of sums across this point */
#endif
#else
#error "treadle needs gcc or clang"
#endif

#if defined(__x86_64__)
#define TD_X86_64 1
#else
#define TD_X86_64 0
#endif

/* Tells the core that this is a spin loop. */
#if TD_X86_64
#define TD_SPIN_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TD_SPIN_PAUSE() __asm__ __volatile__("isb" ::: "memory") /* longer than "yield", which most cores ignore */
#else
#define TD_SPIN_PAUSE() __asm__ __volatile__("" ::: "memory")
#endif

#if TD_X86_64
/* XCR0: the register states that the operating system saves. Only where CPUID says OSXSAVE. */
TD_INLINE uint64_t td_xgetbv(void) {
    uint32_t low, high;
    __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "model files are read in place: little-endian machines only");

#define TD_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TD_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TD_MAX(a, b) ((a) > (b) ? (a) : (b))
#define TD_ROUND_UP(n, multiple) (((n) + (multiple)-1) / (multiple) * (multiple))

/* Checked size arithmetic: true on overflow, as the builtins say. */
#define TD_MUL_OVERFLOWS(a, b, out) __builtin_mul_overflow((a), (b), (out))
#define TD_ADD_OVERFLOWS(a, b, out) __builtin_add_overflow((a), (b), (out))

#endif
