/* kernels/qmatmul_avxvnni.c - the quantised matmul with AVX-VNNI: 256-bit vpdpbusd, on CPUs without AVX-512. */
#define V256_VNNI 1
#define VARIANT td_qmatmul_avxvnni
#define VARIANT_NAME "avxvnni"
#include "kernels/qmatmul_v256.h"
