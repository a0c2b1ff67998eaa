/* base/mersenne.c - see mersenne.h. */
#include "base/mersenne.h"

#include <math.h>

enum { N = TD_MERSENNE_WORDS, M = 397 };

void td_mersenne_seed(td_mersenne *m, uint32_t seed) {
    m->words[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t before = m->words[i - 1];
        m->words[i] = 1812433253u * (before ^ before >> 30) + i;
    }
    m->at = N;
    m->has_spare = false;
}

static void refill(td_mersenne *m) {
    uint32_t *w = m->words;
    for (int i = 0; i < N; i++) {
        uint32_t mixed = (w[i] & 0x80000000u) | (w[(i + 1) % N] & 0x7fffffffu);
        w[i] = w[(i + M) % N] ^ mixed >> 1 ^ (mixed & 1 ? 0x9908b0dfu : 0);
    }
    m->at = 0;
}

static uint32_t next_u32(td_mersenne *m) {
    if (m->at == N) refill(m);
    uint32_t x = m->words[m->at++];
    x ^= x >> 11;
    x ^= x << 7 & 0x9d2c5680u;
    x ^= x << 15 & 0xefc60000u;
    return x ^ x >> 18;
}

double td_mersenne_double(td_mersenne *m) {
    uint32_t high = next_u32(m) >> 5, low = next_u32(m) >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

double td_mersenne_normal(td_mersenne *m) {
    double x, y, square;
    if (m->has_spare) {
        m->has_spare = false;
        return m->spare;
    }
    do {
        x = 2.0 * td_mersenne_double(m) - 1.0;
        y = 2.0 * td_mersenne_double(m) - 1.0;
        square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    double factor = sqrt(-2.0 * log(square) / square);
    m->spare = factor * x;
    m->has_spare = true;
    return factor * y;
}
