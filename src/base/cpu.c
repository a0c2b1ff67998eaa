/* base/cpu.c - what the CPU can do, what the operating system lets it do, and what the mask leaves of it.
 *
 * A set of instructions counts as there only if all of its parts are and the operating system saves the registers it
 * uses (XCR0). Sources: Intel SDM volume 1 chapters 13 to 15 and 18, volume 2 CPUID; Linux Documentation/x86/xstate. */
#include "base/cpu.h"

#include "base/log.h"
#include "base/str.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const struct {
    const char *text;
    unsigned bit;
} names[] = {
#define ROW(name, bit, text) {text, 1u << (bit)},
    TD_CPU_LIST(ROW)
#undef ROW
};

static const unsigned arm_bits = TD_CPU_NEON | TD_CPU_NEONDOT;

/* What code written for one set takes for granted. */
static unsigned with_implied(unsigned bits) {
    if (bits & TD_CPU_AMX) bits |= TD_CPU_AVX512;
    if (bits & TD_CPU_AVX512BF16) bits |= TD_CPU_AVX512;
    if (bits & (TD_CPU_AVX512 | TD_CPU_AVXVNNI)) bits |= TD_CPU_AVX2;
    if (bits & TD_CPU_NEONDOT) bits |= TD_CPU_NEON;
    return bits;
}

#if TD_X86_64

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_GET_XCOMP_SUPP_ = 0x1021, ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_TILE_DATA = 18 };

typedef struct registers {
    unsigned a, b, c, d;
} registers;

static registers cpuid(unsigned leaf, unsigned subleaf) {
    registers r = {0};
    if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) r = (registers){0};
    return r;
}

static bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

static unsigned detect(void) {
    registers one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = {0};
    if (seven.a >= 1) seven_one = cpuid(7, 1);
    if (!has(one.c, 1u << 27 | 1u << 28)) return 0; /* OSXSAVE, AVX */
    uint64_t saved = td_xgetbv();
    bool ymm = (saved & 0x6) == 0x6, zmm = ymm && (saved & 0xE0) == 0xE0, tiles = zmm && (saved & 0x60000) == 0x60000;

    unsigned found = 0;
    bool avx2 = ymm && has(one.c, 1u << 12 | 1u << 29) /* FMA, F16C */ && has(seven.b, 1u << 5 | 1u << 3 | 1u << 8);
    if (!avx2) return 0; /* AVX2, BMI1, BMI2 are the floor of all that follows */
    found |= TD_CPU_AVX2;
    if (has(seven_one.a, 1u << 4)) found |= TD_CPU_AVXVNNI;
    bool avx512 = zmm && has(seven.b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) /* F, DQ, BW, VL */ &&
                  has(seven.c, 1u << 11) /* VNNI */;
    if (!avx512) return found;
    found |= TD_CPU_AVX512;
    if (has(seven_one.a, 1u << 5)) found |= TD_CPU_AVX512BF16;
    if (tiles && has(seven.d, 1u << 22 | 1u << 24 | 1u << 25)) { /* AMX-BF16, TILE, INT8 */
        unsigned long supported = 0;
        bool known = syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP_, &supported) == 0;
        if (known && (supported >> XFEATURE_TILE_DATA & 1)) found |= TD_CPU_AMX;
    }
    return found;
}

/* Linux wants to be asked once per process before tiles may be touched: they make signal frames 8 KB larger. */
static bool amx_permitted(void) { return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_TILE_DATA) == 0; }

static void read_name(char out[49]) {
    if (cpuid(0x80000000u, 0).a < 0x80000004u) return;
    for (unsigned i = 0; i < 3; i++) {
        registers r = cpuid(0x80000002u + i, 0);
        memcpy(out + 16 * i, &r, 16);
    }
    out[48] = '\0';
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

static unsigned detect(void) {
    return TD_CPU_NEON | (getauxval(AT_HWCAP) >> 20 & 1 ? TD_CPU_NEONDOT : 0); /* HWCAP_ASIMDDP */
}

static bool amx_permitted(void) { return false; }

static void read_name(char out[49]) { out[0] = '\0'; }

#else

static unsigned detect(void) { return 0; }

static bool amx_permitted(void) { return false; }

static void read_name(char out[49]) { out[0] = '\0'; }

#endif

/* Everything here is computed anew to the same value by whoever comes first, so that plain atomics will do. */
enum { KNOWN = 1u << 30 };
static atomic_uint detected_bits, mask_bits, effective_bits; /* each with KNOWN once set */

unsigned td_cpu_detected(void) {
    unsigned bits = atomic_load_explicit(&detected_bits, memory_order_relaxed);
    if (!bits) {
        bits = detect() | KNOWN;
        atomic_store_explicit(&detected_bits, bits, memory_order_relaxed);
    }
    return bits & ~(unsigned)KNOWN;
}

/* One name alone: it and all before it of the same architecture. */
static unsigned up_to(unsigned bit) {
    unsigned below = (bit << 1) - 1;
    return bit & arm_bits ? below & arm_bits : below;
}

static bool parse_mask(const char *text, unsigned *out, treadle_error *err) {
    unsigned bits = 0, last = 0;
    int n_names = 0;
    for (const char *p = text;; p++) {
        td_str word = {p, strcspn(p, ",")};
        if (td_str_is(word, "all")) {
            bits |= ~(unsigned)KNOWN;
        } else if (!td_str_is(word, "none") && !td_str_is(word, "c")) {
            last = 0;
            for (size_t i = 0; i < TD_COUNT(names); i++) {
                if (td_str_is(word, names[i].text)) last = names[i].bit;
            }
            if (!last) {
                td_fail(err, TREADLE_INVALID_ARGUMENT,
                        "expected instruction sets, found \"%.*s\" (choices: none, all"
#define TEXT(name, bit, text) ", " text
                        TD_CPU_LIST(TEXT)
#undef TEXT
                            ", or a list of them with commas)",
                        (int)TD_MIN(word.n, 100), word.p);
                return false;
            }
            bits |= with_implied(last);
        }
        n_names++;
        p += word.n;
        if (*p == '\0') break;
    }
    *out = n_names == 1 && last ? up_to(last) : bits;
    return true;
}

static unsigned mask(void) {
    unsigned bits = atomic_load_explicit(&mask_bits, memory_order_relaxed);
    if (bits) return bits;
    const char *text = getenv("TREADLE_CPU");
    treadle_error err;
    bits = ~(unsigned)KNOWN;
    if (text && text[0] && !parse_mask(text, &bits, &err)) td_log(TD_LOG_WARNING, "TREADLE_CPU: %s", err.message);
    bits |= KNOWN;
    atomic_store_explicit(&mask_bits, bits, memory_order_relaxed);
    return bits;
}

unsigned td_cpu_flags(void) {
    unsigned bits = atomic_load_explicit(&effective_bits, memory_order_relaxed);
    if (!bits) {
        bits = td_cpu_detected() & mask();
        if ((bits & TD_CPU_AMX) && !amx_permitted()) bits &= ~(unsigned)TD_CPU_AMX;
        bits |= KNOWN;
        atomic_store_explicit(&effective_bits, bits, memory_order_relaxed);
    }
    return bits & ~(unsigned)KNOWN;
}

treadle_status td_cpu_set_mask(const char *text, treadle_error *err) {
    unsigned bits;
    if (!parse_mask(text, &bits, err)) return TREADLE_INVALID_ARGUMENT;
    atomic_store_explicit(&mask_bits, bits | KNOWN, memory_order_relaxed);
    atomic_store_explicit(&effective_bits, 0, memory_order_relaxed);
    return TREADLE_OK;
}

static char cpu_name[49];
static pthread_once_t cpu_name_once = PTHREAD_ONCE_INIT;

static void fill_name(void) {
    read_name(cpu_name);
    char *start = cpu_name + strspn(cpu_name, " "); /* some are padded on the left */
    memmove(cpu_name, start, strlen(start) + 1);
    size_t n = strlen(cpu_name);
    while (n > 0 && cpu_name[n - 1] == ' ') cpu_name[--n] = '\0';
}

const char *td_cpu_name(void) {
    pthread_once(&cpu_name_once, fill_name);
    return cpu_name;
}
