/* base/rng.c - PCG-XSH-RR 64/32 (O'Neill, "PCG: a family of simple fast space-efficient statistically good algorithms
 * for random number generation", 2014). */
#include "base/rng.h"

void td_rng_seed(td_rng *rng, uint64_t seed, uint64_t stream) {
    rng->state = 0;
    rng->stream = stream << 1 | 1; /* the increment must be odd */
    td_rng_u32(rng);
    rng->state += seed;
    td_rng_u32(rng);
}

uint32_t td_rng_u32(td_rng *rng) {
    uint64_t old = rng->state;
    rng->state = old * 6364136223846793005u + rng->stream;
    uint32_t xorshifted = (uint32_t)((old >> 18 ^ old) >> 27), rotation = (uint32_t)(old >> 59);
    return xorshifted >> rotation | xorshifted << (-rotation & 31);
}

double td_rng_double(td_rng *rng) {
    uint64_t high = td_rng_u32(rng) >> 5, low = td_rng_u32(rng) >> 6; /* 27 and 26 bits */
    return (double)(high << 26 | low) * 0x1p-53;
}
