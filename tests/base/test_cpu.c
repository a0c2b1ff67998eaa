/* base/cpu.h: detection against the kernel's list, masks. */
#include "support/test.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static bool kernel_says(const char *cpuinfo, const char *flag) {
    const char *line = strstr(cpuinfo, "\nflags"), *end = line ? strchr(line + 1, '\n') : NULL;
    size_t n = strlen(flag);
    for (const char *p = line; p && (p = strstr(p, flag)) != NULL && p < end; p++) {
        if (p[-1] == ' ' && (p[n] == ' ' || p[n] == '\n')) return true;
    }
    return false;
}

static bool kernel_says_all(const char *cpuinfo, const char *flags) {
    char list[128];
    strcpy(list, flags);
    for (char *flag = strtok(list, " "); flag; flag = strtok(NULL, " ")) {
        if (!kernel_says(cpuinfo, flag)) return false;
    }
    return true;
}

/* First, because the environment counts only until the mask is known. */
TEST(mask_of_the_environment) {
    setenv("TREADLE_CPU", "none", 1);
    CHECK_EQ_UINT(td_cpu_flags(), 0);
}

/* The kernel lists what the CPU has and what it saves the registers of. */
TEST(agrees_with_the_kernel) {
    if (!TD_X86_64) SKIP("x86-64 only");
    static const struct {
        unsigned bit;
        const char *flags;
    } sets[] = {{TD_CPU_AVX2, "avx avx2 fma f16c bmi1 bmi2"},
                {TD_CPU_AVXVNNI, "avx2 avx_vnni"},
                {TD_CPU_AVX512, "avx2 avx512f avx512bw avx512vl avx512dq avx512_vnni"},
                {TD_CPU_AVX512BF16, "avx512f avx512_vnni avx512_bf16"},
                {TD_CPU_AMX, "avx512f amx_tile amx_int8 amx_bf16"}};
    char *cpuinfo;
    size_t n;
    treadle_error err;
    CHECK_OK(td_file_read("/proc/cpuinfo", 0, &cpuinfo, &n, &err), &err);
    for (size_t i = 0; i < TD_COUNT(sets); i++)
        CHECK_EQ_INT((td_cpu_detected() & sets[i].bit) != 0, kernel_says_all(cpuinfo, sets[i].flags));
    if (td_cpu_name()[0]) CHECK_HAS_STR(cpuinfo, td_cpu_name());
    td_free(cpuinfo);
}

TEST(masks) {
    static const struct {
        const char *text;
        unsigned bits;
    } cases[] = {
        {"none", 0},
        {"c", 0},
        {"all", ~0u},
        {"avx2", TD_CPU_AVX2},
        {"avxvnni", TD_CPU_AVX2 | TD_CPU_AVXVNNI},
        {"avx512", TD_CPU_AVX2 | TD_CPU_AVXVNNI | TD_CPU_AVX512},
        {"amx", TD_CPU_AVX2 | TD_CPU_AVXVNNI | TD_CPU_AVX512 | TD_CPU_AVX512BF16 | TD_CPU_AMX},
        {"neon", TD_CPU_NEON},
        {"neondot", TD_CPU_NEON | TD_CPU_NEONDOT},
        {"avx2,avx512", TD_CPU_AVX2 | TD_CPU_AVX512}, /* a list is just these, and what they build on */
        {"none,avx512bf16", TD_CPU_AVX2 | TD_CPU_AVX512 | TD_CPU_AVX512BF16},
        {"none,avxvnni", TD_CPU_AVX2 | TD_CPU_AVXVNNI},
    };
    treadle_error err;
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        CHECK_OK(td_cpu_set_mask(cases[i].text, &err), &err);
        CHECK_EQ_UINT(td_cpu_flags(), td_cpu_detected() & cases[i].bits);
    }
    CHECK_OK(td_cpu_set_mask("avx2", &err), &err);
    const char *const bad[] = {"", "avx3", "avx2,", ",avx2", "AVX2 ", "avx2,,amx", "none,nothing"};
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        CHECK_STATUS(td_cpu_set_mask(bad[i], &err), TREADLE_INVALID_ARGUMENT, &err);
        CHECK_HAS_STR(err.message, "none, all, avx2, avxvnni, avx512, avx512bf16, amx, neon, neondot");
    }
    CHECK_EQ_UINT(td_cpu_flags(), td_cpu_detected() & TD_CPU_AVX2); /* a bad mask changes nothing */
    CHECK_OK(td_cpu_set_mask("all", &err), &err);
}
