/* base/mersenne.h - MT19937 (Matsumoto and Nishimura, 1998) with NumPy's RandomState on top: the same numbers from the
 * same seed, so that what random operators give can be checked against the standard's reference. Not for secrets. */
#ifndef TD_BASE_MERSENNE_H
#define TD_BASE_MERSENNE_H

#include <stdbool.h>
#include <stdint.h>

enum { TD_MERSENNE_WORDS = 624 };

typedef struct td_mersenne {
    uint32_t words[TD_MERSENNE_WORDS];
    int at;
    bool has_spare; /* of normal numbers, which are made in pairs */
    double spare;
} td_mersenne;

void td_mersenne_seed(td_mersenne *m, uint32_t seed);
double td_mersenne_double(td_mersenne *m); /* in [0, 1), 53 bits */
double td_mersenne_normal(td_mersenne *m); /* mean 0, deviation 1, by the polar method */

#endif
