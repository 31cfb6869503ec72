/* SPDX-License-Identifier: BSD-3-Clause */
/* test_train_engine.c - the training example's gradients against finite differences */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "jobscripts/train/engine.h"
#include "jobscripts/train/rng.h"

enum { SIDE = 8, CLASSES = 10, SAMPLES = 6 };

static uint8_t pixels[SAMPLES * SIDE * SIDE], labels[SAMPLES] = { 3, 0, 9, 5, 5, 1 };
static const struct dataset data = { SAMPLES, SIDE, SIDE, pixels, labels };
static const uint64_t all[SAMPLES] = { 4, 2, 0, 1, 3, 5 };

struct net {
    struct model model;
    const struct engine_ops *ops;
    struct engine *engine;
    void *grads[MODEL_PARAMS];
    int order[MODEL_PARAMS], nready;
};

static int note_ready(void *arg, int param)
{
    struct net *net = arg;

    net->order[net->nready++] = param;
    return 0;
}

static void net_open(struct net *net, const char *kind, const struct engine_ops *ops)
{
    struct mu_err err = { 0 };

    memset(net, 0, sizeof *net);
    net->ops = ops;
    if (model_build(&net->model, kind, SIDE, SIDE, 5, CLASSES, &err) < 0 ||
        ops->open(&net->model, -1, SAMPLES, 3, &net->engine, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < net->model.nparams; i++) {
        net->grads[i] = calloc(net->model.params[i].count, sizeof(double));
        ops->set_grad(net->engine, i, net->grads[i]);
    }
}

static void net_close(struct net *net)
{
    net->ops->close(net->engine);
    for (int i = 0; i < net->model.nparams; i++)
        free(net->grads[i]);
}

static double train(struct net *net, const uint64_t *index, int n, double scale,
                    int add)
{
    double loss;

    net->nready = 0;
    assert_int_equal(0, net->ops->load(net->engine, &data, index, n, NULL));
    assert_int_equal(0,
                     net->ops->train(net->engine, scale, add, note_ready, net, &loss));
    return loss;
}

static double loss_at(struct net *net)
{
    double loss;
    int correct;

    net->ops->test(net->engine, &loss, &correct);
    return loss;
}

static void gradients_are_right(const char *kind)
{
    struct net net;

    net_open(&net, kind, &engine_cpu_f64);
    train(&net, all, SAMPLES, 1.0 / SAMPLES, 0);
    for (int i = 0; i < net.model.nparams; i++) {
        double *w = net.ops->weights(net.engine, i), *g = net.grads[i], step = 1e-6;
        size_t stride = net.model.params[i].count / 50 + 1;

        for (size_t k = 0; k < net.model.params[i].count; k += stride) {
            double keep = w[k], up, down, slope;

            w[k] = keep + step;
            up = loss_at(&net);
            w[k] = keep - step;
            down = loss_at(&net);
            w[k] = keep;
            slope = (up - down) / (2 * step) / SAMPLES;
            if (fabs(slope - g[k]) > 1e-7 + 1e-5 * fabs(slope))
                fail_msg("%s %s[%zu]: gradient %.9g, slope %.9g", kind,
                         net.model.params[i].name, k, g[k], slope);
        }
    }
    net_close(&net);
}

static void mlp_gradients_equal_finite_differences(void **state)
{
    gradients_are_right("mlp");
}

static void cnn_gradients_equal_finite_differences(void **state)
{
    gradients_are_right("cnn");
}

static void every_gradient_is_ready_once_last_layer_first(void **state)
{
    static const char *const kinds[] = { "mlp", "cnn" };

    for (int k = 0; k < 2; k++) {
        struct net net;

        net_open(&net, kinds[k], &engine_cpu_f32);
        train(&net, all, SAMPLES, 1, 0);
        assert_int_equal(net.nready, net.model.nparams);
        for (int i = 0; i < net.nready; i++)
            assert_int_equal(net.order[i], net.model.nparams - 1 - i);
        net_close(&net);
    }
}

static void micro_batches_add_up_to_the_whole(void **state)
{
    struct net whole, parts;
    double loss;

    net_open(&whole, "cnn", &engine_cpu_f64);
    net_open(&parts, "cnn", &engine_cpu_f64);
    loss = train(&whole, all, SAMPLES, 0.25, 0);
    loss -= train(&parts, all, 2, 0.25, 0);
    loss -= train(&parts, all + 2, 3, 0.25, 1);
    loss -= train(&parts, all + 5, 1, 0.25, 1);
    assert_true(fabs(loss) < 1e-12);
    for (int i = 0; i < whole.model.nparams; i++)
        for (size_t k = 0; k < whole.model.params[i].count; k++)
            assert_true(fabs(((double *)whole.grads[i])[k] -
                             ((double *)parts.grads[i])[k]) < 1e-12);
    net_close(&whole);
    net_close(&parts);
}

static void momentum_and_decay_follow_their_formula(void **state)
{
    struct net net;
    double *w, *g, w0, v = 0, expect;

    net_open(&net, "mlp", &engine_cpu_f64);
    w = net.ops->weights(net.engine, 0);
    g = net.grads[0];
    expect = w0 = w[7];
    for (int step = 0; step < 3; step++) {
        g[7] = 0.5 + step;
        v = 0.9 * v + g[7] + 0.01 * expect;
        expect -= 0.1 * v;
        net.ops->update(net.engine, 0.1, 0.9, 0.01);
    }
    assert_true(w0 != expect);
    assert_true(fabs(w[7] - expect) < 1e-14);
    net_close(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_gradients_equal_finite_differences),
        cmocka_unit_test(cnn_gradients_equal_finite_differences),
        cmocka_unit_test(every_gradient_is_ready_once_last_layer_first),
        cmocka_unit_test(micro_batches_add_up_to_the_whole),
        cmocka_unit_test(momentum_and_decay_follow_their_formula),
    };
    struct rng rng = { 11 };

    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)rng_next(&rng);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
