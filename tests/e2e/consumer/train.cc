// train.cc -- a user's program in C++17 that trains: samples from a lambda, a model, one epoch.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "tandem/tandem.h"

namespace
{

template <typename T, void (*destroy)(T *)> struct Destroyer {
    void operator()(T *p) const
    {
        destroy(p);
    }
};
using Dataset = std::unique_ptr<td_dataset, Destroyer<td_dataset, td_dataset_destroy>>;
using Trainer = std::unique_ptr<td_trainer, Destroyer<td_trainer, td_trainer_destroy>>;

bool failed(td_status st)
{
    if (st)
        std::fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
    return st != TD_OK;
}

} // namespace

int main()
{
    td_field fields[2]{};
    fields[0] = {"x", TD_F32, {1, {2}}, 0, nullptr};
    fields[1] = {"y", TD_I32, {0, {}}, 2, nullptr};
    td_read_fn read = [](void *, int64_t i, void *const *out) {
        auto *x = static_cast<float *>(out[0]);
        x[0] = static_cast<float>(i % 17) - 8.0f;
        x[1] = static_cast<float>(i % 5) - 2.0f;
        *static_cast<int32_t *>(out[1]) = x[0] + 2 * x[1] > 0;
        return TD_OK;
    };
    td_build_fn build = [](void *, td_build *b) {
        b->output = td_nn_linear(b->g, "fc", td_build_input(b, "x"), 2, nullptr);
        return TD_OK;
    };

    td_dataset *raw = nullptr;
    if (failed(td_dataset_callback(fields, 2, 850, read, nullptr, &raw)))
        return 1;
    Dataset data(raw);
    int steps = 0;
    td_compile_opts opts{};
    opts.batch = 50;
    opts.epochs = 5;
    opts.optimizer.name = "adam";
    opts.optimizer.lr = 0.05;
    opts.callbacks.user = &steps;
    opts.callbacks.step = [](void *user, const td_step_info *) {
        ++*static_cast<int *>(user);
        return TD_CONTINUE;
    };
    td_trainer *made = nullptr;
    if (failed(td_trainer_compile(build, nullptr, data.get(), nullptr, &opts, &made)))
        return 1;
    Trainer trainer(made);
    td_run_result result;
    td_metrics metrics;
    if (failed(td_trainer_fit(trainer.get(), &result)) ||
        failed(td_trainer_evaluate(trainer.get(), data.get(), &metrics)))
        return 1;
    std::printf("c++ training: %d steps, accuracy %.3f\n", steps, metrics.value[1]);
    return steps == 85 && metrics.value[1] > 0.9 ? 0 : 1;
}
