/* light/ops/rnn_cell_tmpl.h - the recurrence of RNN, GRU and LSTM for one type, included by rnn_cell.c with
 *     REAL       float or double
 *     NAME(x)    x with a suffix of the type
 *     ACTIVATE   void (const td_rnn_activation *, REAL *values, int64_t n), in place */

static void NAME(clip)(const td_rnn *rnn, REAL *v, int64_t n) {
    REAL limit = (REAL)rnn->clip;
    if (!rnn->has_clip) return;
    for (int64_t i = 0; i < n; i++) v[i] = v[i] > limit ? limit : v[i] < -limit ? -limit : v[i];
}

static void NAME(apply)(const td_rnn *rnn, const td_rnn_activation *a, REAL *v, int64_t n) {
    NAME(clip)(rnn, v, n);
    ACTIVATE(a, v, n);
}

static void NAME(add)(REAL *to, const REAL *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void NAME(add_product)(REAL *to, const REAL *a, const REAL *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += a[i] * b[i];
}

/* g: gates i, o, f, c with everything but the peepholes in them; h and c become the new states. */
static void NAME(lstm)(const td_rnn_job *job, REAL *g, REAL *h, REAL *c) {
    const td_rnn_activation *f = job->rnn->activations[job->direction];
    const REAL *p = job->peepholes;
    int64_t n = job->hidden;
    REAL *in = g, *out = g + n, *forget = g + 2 * n, *cell = g + 3 * n;

    if (p) {
        NAME(add_product)(in, p, c, n);
        NAME(add_product)(forget, p + 2 * n, c, n);
    }
    NAME(apply)(job->rnn, &f[0], in, n);
    if (!job->rnn->input_forget) NAME(apply)(job->rnn, &f[0], forget, n);
    NAME(apply)(job->rnn, &f[1], cell, n);
    for (int64_t i = 0; i < n; i++) {
        REAL keep = job->rnn->input_forget ? 1 - in[i] : forget[i];
        c[i] = keep * c[i] + in[i] * cell[i];
    }
    if (p) NAME(add_product)(out, p + n, c, n);
    NAME(apply)(job->rnn, &f[0], out, n);
    for (int64_t i = 0; i < n; i++) h[i] = c[i];
    ACTIVATE(&f[2], h, n); /* `clip` is for gates only, as in ONNX Runtime */
    for (int64_t i = 0; i < n; i++) h[i] *= out[i];
}

/* The steps of batch item b that are left at step s; its time then. */
static bool NAME(time_of)(const td_rnn_job *job, int64_t s, int64_t b, int64_t *t) {
    int64_t length = job->lengths ? job->lengths[b] : job->steps;
    *t = job->rnn->reverse[job->direction] ? length - 1 - s : s;
    return s < length;
}

/* GRU: z and r of all items, then the hidden gate of all items from r * h. */
static void NAME(gru_step)(const td_rnn_job *job, int64_t s) {
    const td_rnn_activation *f = job->rnn->activations[job->direction];
    int64_t n = job->hidden, t;
    REAL *zr = job->gates, *hidden = zr + job->batch * 2 * n, *work = job->work;
    const REAL *bias = job->hidden_bias;
    bool before = job->rnn->linear_before_reset;

    job->multiply(job->ctx, 0, job->h, job->batch, zr);
    if (before) job->multiply(job->ctx, 1, job->h, job->batch, hidden);
    for (int64_t b = 0; b < job->batch; b++, zr += 2 * n) {
        const REAL *h = (const REAL *)job->h + b * n;
        if (!NAME(time_of)(job, s, b, &t)) t = 0; /* of no consequence */
        NAME(add)(zr, (const REAL *)job->x + t * job->x_step + b * job->x_batch, 2 * n);
        NAME(apply)(job->rnn, &f[0], zr, 2 * n);
        for (int64_t i = 0; i < n && !before; i++) work[b * n + i] = zr[n + i] * h[i];
    }
    if (!before) job->multiply(job->ctx, 1, work, job->batch, hidden);
    zr = job->gates;
    for (int64_t b = 0; b < job->batch; b++, zr += 2 * n, hidden += n) {
        REAL *h = (REAL *)job->h + b * n;
        if (!NAME(time_of)(job, s, b, &t)) continue;
        for (int64_t i = 0; i < n && before; i++) hidden[i] = zr[n + i] * (hidden[i] + (bias ? bias[i] : 0));
        NAME(add)(hidden, (const REAL *)job->x + t * job->x_step + b * job->x_batch + 2 * n, n);
        NAME(apply)(job->rnn, &f[1], hidden, n);
        for (int64_t i = 0; i < n; i++) h[i] = (1 - zr[i]) * hidden[i] + zr[i] * h[i];
    }
}

static void NAME(plain_step)(const td_rnn_job *job, int64_t s) {
    int64_t n = job->hidden, width = td_rnn_columns(job->rnn->kind, 0, n), t;
    REAL *gates = job->gates;

    job->multiply(job->ctx, 0, job->h, job->batch, gates);
    for (int64_t b = 0; b < job->batch; b++, gates += width) {
        REAL *h = (REAL *)job->h + b * n;
        if (!NAME(time_of)(job, s, b, &t)) continue;
        NAME(add)(gates, (const REAL *)job->x + t * job->x_step + b * job->x_batch, width);
        if (job->rnn->kind == TD_RNN_LSTM) {
            NAME(lstm)(job, gates, h, (REAL *)job->c + b * n);
        } else {
            NAME(apply)(job->rnn, &job->rnn->activations[job->direction][0], gates, n);
            memcpy(h, gates, (size_t)n * sizeof *h);
        }
    }
}

void NAME(td_rnn_run)(const td_rnn_job *job) {
    size_t row = (size_t)job->hidden * sizeof(REAL);

    for (int64_t s = 0; s < job->steps; s++) {
        if (job->rnn->kind == TD_RNN_GRU) NAME(gru_step)(job, s);
        else NAME(plain_step)(job, s);
        for (int64_t b = 0; b < job->batch && job->y; b++) {
            int64_t t;
            bool there = NAME(time_of)(job, s, b, &t);
            REAL *y = (REAL *)job->y + (there ? t : s) * job->y_step + b * job->y_batch;
            if (there) memcpy(y, (const REAL *)job->h + b * job->hidden, row);
            else memset(y, 0, row); /* behind the end */
        }
    }
}

#undef REAL
#undef NAME
#undef ACTIVATE
