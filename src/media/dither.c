/* media/dither.c - a little normal noise on the samples, the same for the same number of samples.
 *
 * The noise is torch.randn's on a CPU with the number of samples as seed, since extractors that dither do it so:
 * Mersenne Twister (M. Matsumoto and T. Nishimura, 1998) to uniform numbers of 24 bits to pairs of normal ones (G. Box
 * and M. Muller, 1958), sixteen at a time: number j and j + 8 are a pair; a rest is drawn anew so that it makes up
 * sixteen, over what stood there. */
#include "base/alloc.h"
#include "media/steps.h"

#include <math.h>

typedef struct twister {
    uint32_t state[624];
    int at;
} twister;

static void seed(twister *t, uint32_t value) {
    t->state[0] = value;
    for (uint32_t i = 1; i < 624; i++) t->state[i] = 1812433253u * (t->state[i - 1] ^ t->state[i - 1] >> 30) + i;
    t->at = 624;
}

static void refill(twister *t) {
    for (int i = 0; i < 624; i++) {
        uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % 624] & 0x7fffffffu);
        t->state[i] = t->state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

/* In [0, 1). */
static float uniform(twister *t) {
    if (t->at == 624) refill(t);
    uint32_t y = t->state[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    y ^= y >> 18;
    return (float)(y & 0xffffff) / 16777216.0f;
}

static void make_pairs(float x[16]) {
    for (int j = 0; j < 8; j++) {
        float radius = sqrtf(-2 * logf(1 - x[j])), angle = 2 * (float)M_PI * x[j + 8];
        x[j] = radius * cosf(angle);
        x[j + 8] = radius * sinf(angle);
    }
}

typedef struct dither_params {
    float amount;
} dither_params;

void *td_read_dither(td_step_reader *r) {
    dither_params *p = td_step_alloc(r, 1, sizeof *p);
    if (p) p->amount = (float)td_step_number(r, "amount", 0, 0, 1);
    return p;
}

treadle_status td_wave_dither(const void *params, td_wave *wave, treadle_error *err) {
    const dither_params *p = params;
    int64_t n = wave->n_valid;
    if (p->amount <= 0 || n < 16) return TREADLE_OK; /* fewer samples than that make no frame */
    float *noise = td_alloc_array((size_t)n, sizeof *noise), *x = wave->x + wave->start;
    if (!noise) return td_fail_memory(err, "noise", (size_t)n * sizeof *noise);
    twister t;
    seed(&t, (uint32_t)n);
    for (int64_t i = 0; i < n; i++) noise[i] = uniform(&t);
    for (int64_t i = 0; i + 16 <= n; i += 16) make_pairs(noise + i);
    if (n % 16) {
        for (int64_t i = n - 16; i < n; i++) noise[i] = uniform(&t);
        make_pairs(noise + n - 16);
    }
    for (int64_t i = 0; i < n; i++) x[i] += p->amount * noise[i];
    td_free(noise);
    return TREADLE_OK;
}
