/* kernels/qmatmul_avx2.c - the quantised matmul with AVX2: vpmaddubsw on 8 outputs at once. */
#define V256_VNNI 0
#define VARIANT td_qmatmul_avx2
#define VARIANT_NAME "avx2"
#include "kernels/qmatmul_v256.h"
