/* kernels/simd_math.h - elementary functions on the vf of simd_avx2.h or simd_avx512.h, included after one of them.
 *
 * Each lane is computed by itself, so the place of a value in a vector does not matter. Errors are below 4 units in the
 * last place over the whole range (tests/kernels/test_kernel_vmath.c). The polynomials are Chebyshev interpolations in
 * float64 of the functions that their comments name. */
#ifndef TD_KERNELS_SIMD_MATH_H
#define TD_KERNELS_SIMD_MATH_H

/* 2^n * e^r, |r| <= ln 2 / 2, Taylor to r^7 (5e-9). Goes to 0 and infinity as it should; NaN stays NaN. */
TD_INLINE vf vf_exp(vf x) {
    x = vf_max(vf_set1(-104.0f), vf_min(vf_set1(104.0f), x));
    vf n = vf_round(vf_mul(x, vf_set1(0x1.715476p+0f)));
    vf r = vf_fma(n, vf_set1(-0x1.62e4p-1f), x); /* ln 2 in two parts; n times the first is exact */
    r = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), r);
    vf p = vf_set1(1.0f / 5040);
    p = vf_fma(p, r, vf_set1(1.0f / 720));
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, vf_mul(r, r), r); /* 1 last, so that it is rounded once */
    return vf_scale(vf_add(p, vf_set1(1.0f)), n);
}

TD_INLINE vf vf_sigmoid(vf x) { return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x)))); }

/* x * sigmoid(alpha * x) */
TD_INLINE vf vf_swish(vf x, vf alpha) {
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), vf_mul(alpha, x)))));
}

TD_INLINE vf vf_tanh(vf x) {
    vf a = vf_abs(x), s = vf_mul(x, x);
    vf p = vf_set1(0.00229584159f); /* (tanh x - x) / x^3 in x^2, up to 0.625 */
    p = vf_fma(p, s, vf_set1(-0.00834698085f));
    p = vf_fma(p, s, vf_set1(0.0217699611f));
    p = vf_fma(p, s, vf_set1(-0.0539594059f));
    p = vf_fma(p, s, vf_set1(0.133333043f));
    p = vf_fma(p, s, vf_set1(-0.333333332f));
    p = vf_fma(vf_mul(p, s), x, x);
    vf e = vf_exp(vf_add(a, a));
    vf q = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), vf_add(e, vf_set1(1.0f))));
    return vf_if_less(a, vf_set1(0.625f), p, vf_copysign(q, x));
}

/* erf(x) / x in x^2, up to 1 */
TD_INLINE vf erf_ratio(vf s) {
    vf p = vf_set1(-9.67359061e-06f);
    p = vf_fma(p, s, vf_set1(0.000112682538f));
    p = vf_fma(p, s, vf_set1(-0.000848439655f));
    p = vf_fma(p, s, vf_set1(0.00522105341f));
    p = vf_fma(p, s, vf_set1(-0.0268654383f));
    p = vf_fma(p, s, vf_set1(0.112837826f));
    p = vf_fma(p, s, vf_set1(-0.376126385f));
    return vf_fma(p, s, vf_set1(1.12837917f));
}

/* exp(z^2) * erfc(z) for z >= 0.45, in 1 / (1 + z / 2) */
TD_INLINE vf erfc_scaled(vf z) {
    vf t = vf_div(vf_set1(1.0f), vf_fma(z, vf_set1(0.5f), vf_set1(1.0f)));
    vf p = vf_set1(-0.0745759825f);
    p = vf_fma(p, t, vf_set1(0.351773061f));
    p = vf_fma(p, t, vf_set1(-0.611650829f));
    p = vf_fma(p, t, vf_set1(0.406810272f));
    p = vf_fma(p, t, vf_set1(-0.108246358f));
    p = vf_fma(p, t, vf_set1(0.235424752f));
    p = vf_fma(p, t, vf_set1(0.234832573f));
    p = vf_fma(p, t, vf_set1(0.28363959f));
    p = vf_fma(p, t, vf_set1(0.281980671f));
    return vf_fma(p, t, vf_set1(3.67815266e-06f));
}

/* exp(-h * scale) for h = x * x: what rounding took from h is given back. */
TD_INLINE vf exp_minus_square(vf x, float scale) {
    vf h = vf_mul(x, x), low = vf_fma(x, x, vf_sub(vf_zero(), h));
    vf e = vf_exp(vf_mul(h, vf_set1(-scale)));
    return vf_fma(vf_mul(e, low), vf_set1(-scale), e);
}

TD_INLINE vf vf_erf(vf x) {
    vf a = vf_min(vf_set1(4.0f), vf_abs(x)); /* erf(4) rounds to 1; NaN stays */
    vf near = vf_mul(x, erf_ratio(vf_mul(x, x)));
    vf far = vf_sub(vf_set1(1.0f), vf_mul(exp_minus_square(a, 1.0f), erfc_scaled(a)));
    return vf_if_less(a, vf_set1(1.0f), near, vf_copysign(far, x));
}

/* x * (1 + erf(x / sqrt 2)) / 2; below -0.7 by erfc, which has no cancellation. */
TD_INLINE vf vf_gelu(vf x) {
    const float root_half = 0.707106781f;
    vf a = vf_min(vf_set1(14.4f), vf_abs(x)), z = vf_mul(a, vf_set1(root_half)), half = vf_mul(x, vf_set1(0.5f));
    vf s = vf_mul(vf_mul(x, x), vf_set1(0.5f));
    vf near = vf_fma(vf_mul(half, vf_mul(x, vf_set1(root_half))), erf_ratio(s), half);
    vf tail = vf_mul(exp_minus_square(a, 0.5f), erfc_scaled(z)); /* erfc(z) */
    vf lost = vf_mul(vf_mul(a, vf_set1(-0.5f)), tail);           /* finite: a is */
    vf far = vf_if_less(x, vf_zero(), lost, vf_add(x, lost));
    return vf_if_less(a, vf_set1(0.7f), near, far);
}

/* x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 = x * sigmoid of twice that */
TD_INLINE vf vf_gelu_tanh(vf x) {
    vf inner = vf_mul(x, vf_fma(vf_mul(x, x), vf_set1(2 * 0.79788456f * 0.044715f), vf_set1(2 * 0.79788456f)));
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), inner))));
}

#endif
