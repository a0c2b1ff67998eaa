/* base/rng.h - PCG32 (O'Neill, 2014, pcg-random.org): small, seedable, the same on every machine. Not for secrets. */
#ifndef TD_BASE_RNG_H
#define TD_BASE_RNG_H

#include <stdint.h>

typedef struct td_rng {
    uint64_t state, stream;
} td_rng;

void td_rng_seed(td_rng *rng, uint64_t seed, uint64_t stream);
uint32_t td_rng_u32(td_rng *rng);
double td_rng_double(td_rng *rng); /* in [0, 1), 53 bits */

#endif
