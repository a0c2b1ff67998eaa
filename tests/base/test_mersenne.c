/* MT19937 and the numbers made of it, against NumPy's RandomState(seed): .rand and .randn. */
#include "base/mersenne.h"
#include "support/test.h"

TEST(uniform_numbers) {
    static const double want[] = {0.22199317108973948, 0.8707323061773764, 0.20671915533942642, 0.9186109079379216};
    td_mersenne m;
    td_mersenne_seed(&m, 5);
    for (int i = 0; i < 4; i++) CHECK(td_mersenne_double(&m) == want[i]);
    td_mersenne_seed(&m, UINT32_MAX);
    for (int i = 0; i < 700; i++) td_mersenne_double(&m);
    CHECK(td_mersenne_double(&m) == 0.6863296221322835);
}

TEST(normal_numbers) {
    static const double want[] = {0.44122748688504143, -0.33087015189408764, 2.43077118700778, -0.2520921296030769,
                                  0.10960984157818278};
    td_mersenne m;
    td_mersenne_seed(&m, 5);
    for (int i = 0; i < 5; i++) {
        double difference = td_mersenne_normal(&m) - want[i];
        CHECK(difference < 1e-14 && difference > -1e-14);
    }
}
