/* ps_lite.cpp -- the push and pull of lanes.c and rows.c by ps-lite, for bench/ps/run --ps-lite: a
 * summing server, ZPush and ZPull of a worker over its ZeroMQ van. run compiles it against a
 * checkout of ps-lite that its user has built; nothing of it is shipped.
 *
 *     ps_lite dense BYTES KEY_BYTES ROUNDS
 *     ps_lite rows VOCAB WIDTH IDS ROUNDS
 *
 * in the environment that ps-lite asks for (DMLC_ROLE and so on). The server adds up what is pushed
 * by key. Of `dense`, a worker pushes all keys of a block and pulls them; of `rows`, those of IDS
 * rows, others in every round and for every worker; all VOCAB rows are there before. Each worker
 * checks its last pull and prints the median of the rounds in microseconds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

namespace
{

using Keys = ps::SArray<ps::Key>;
using Values = ps::SArray<float>;

/* ---- Server ---------------------------------------------------------------------------------- */

/* Adds what is pushed to the values of each key, and answers pulls with them. */
struct Sums {
    std::unordered_map<ps::Key, std::vector<float>> at;

    void operator()(const ps::KVMeta &meta, const ps::KVPairs<float> &data,
                    ps::KVServer<float> *server)
    {
        ps::KVPairs<float> answer;
        size_t n = data.keys.size();
        if (meta.push) {
            const float *from = data.vals.data();
            for (size_t i = 0; i < n; i++) {
                std::vector<float> &sum = at[data.keys[i]];
                size_t count = data.lens.size() ? data.lens[i] : data.vals.size() / n;
                if (sum.size() < count)
                    sum.resize(count);
                for (size_t k = 0; k < count; k++)
                    sum[k] += from[k];
                from += count;
            }
        } else {
            size_t all = 0;
            std::vector<const std::vector<float> *> found(n);
            answer.keys = data.keys;
            answer.lens.resize(n);
            for (size_t i = 0; i < n; i++) {
                found[i] = &at[data.keys[i]];
                answer.lens[i] = static_cast<int>(found[i]->size());
                all += found[i]->size();
            }
            answer.vals.resize(all);
            float *to = answer.vals.data();
            for (const std::vector<float> *v : found) {
                std::memcpy(to, v->data(), v->size() * sizeof(float));
                to += v->size();
            }
        }
        server->Response(meta, answer);
    }
};

/* ---- Worker ---------------------------------------------------------------------------------- */

struct Batch {
    Keys keys;
    ps::SArray<int> lens;
    Values mine;
};

double push_and_pull(ps::KVWorker<float> *kv, const Batch &b, Values *got)
{
    auto begin = std::chrono::steady_clock::now();
    kv->Wait(kv->ZPush(b.keys, b.mine, b.lens)); /* a pull would overtake it */
    kv->Wait(kv->ZPull(b.keys, got));
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count();
}

/* All floats of a block, in keys that follow one another over the whole range of keys. */
Batch block(size_t floats, size_t key)
{
    Batch b;
    size_t n = (floats + key - 1) / key;
    b.keys.resize(n);
    b.lens.resize(n);
    b.mine.resize(floats, 1);
    for (size_t i = 0; i < n; i++) {
        b.keys[i] = ps::kMaxKey / n * i;
        b.lens[i] = static_cast<int>(std::min(key, floats - i * key));
    }
    return b;
}

/* Rows [first, first + n) stride apart, each shifted by less than its stride. */
Batch rows(size_t vocab, size_t width, size_t n, size_t round)
{
    Batch b;
    size_t stride = vocab / n, own = stride / ps::NumWorkers(), from = own * ps::MyRank();
    b.keys.resize(n);
    b.lens.resize(n, static_cast<int>(width));
    b.mine.resize(n * width, 1);
    size_t seed = (round + 1) * 2654435761u;
    for (size_t i = 0; i < n; i++)
        b.keys[i] = ps::kMaxKey / vocab * (i * stride + from + (seed >> (i % 32)) % own);
    return b;
}

void fill(ps::KVWorker<float> *kv, size_t vocab, size_t width)
{
    const size_t SLICE = 4096;
    for (size_t at = 0; ps::MyRank() == 0 && at < vocab; at += SLICE) {
        size_t n = std::min(SLICE, vocab - at);
        Batch b;
        b.keys.resize(n);
        b.lens.resize(n, static_cast<int>(width));
        b.mine.resize(n * width, 0);
        for (size_t i = 0; i < n; i++)
            b.keys[i] = ps::kMaxKey / vocab * (at + i);
        kv->Wait(kv->ZPush(b.keys, b.mine, b.lens));
    }
    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
}

int work(bool dense, const std::vector<size_t> &n)
{
    ps::KVWorker<float> kv(0, 0);
    size_t rounds = n.back(), warm = rounds / 4 + 1;
    std::vector<double> took;
    Values got;
    if (!dense)
        fill(&kv, n[0], n[1]);
    Batch b = dense ? block(n[0] / sizeof(float), n[1] / sizeof(float)) : Batch();
    for (size_t r = 0; r < rounds + warm; r++) {
        if (!dense)
            b = rows(n[0], n[1], n[2], r);
        got.resize(b.mine.size());
        double us = push_and_pull(&kv, b, &got);
        if (r >= warm)
            took.push_back(us);
    }
    std::vector<float> last(got.begin(), got.end());
    push_and_pull(&kv, b, &got);
    for (size_t i = 0; i < last.size(); i++)
        if (got[i] != last[i] + (dense ? static_cast<float>(ps::NumWorkers()) : 1.F)) {
            std::fprintf(stderr, "ps_lite: %g after %g\n", got[i], last[i]);
            return 1;
        }
    std::sort(took.begin(), took.end());
    std::printf("%.1f\n", took[took.size() / 2]);
    std::fflush(stdout);
    return 0;
}

} /* namespace */

int main(int argc, char **argv)
{
    bool dense = argc == 5 && std::strcmp(argv[1], "dense") == 0;
    bool table = argc == 6 && std::strcmp(argv[1], "rows") == 0;
    std::vector<size_t> numbers;
    int rc = 0;
    for (int i = 2; i < argc; i++)
        numbers.push_back(std::strtoul(argv[i], nullptr, 10));
    if ((!dense && !table) || *std::min_element(numbers.begin(), numbers.end()) < 1) {
        std::fprintf(stderr, "usage: ps_lite dense BYTES KEY_BYTES ROUNDS\n"
                             "       ps_lite rows VOCAB WIDTH IDS ROUNDS\n");
        return 2;
    }
    ps::Start(0);
    ps::KVServer<float> *server = nullptr;
    if (ps::IsServer()) {
        server = new ps::KVServer<float>(0);
        server->set_request_handle(Sums());
    }
    if (ps::IsWorker())
        rc = work(dense, numbers);
    ps::Finalize(0, true);
    delete server;
    return rc;
}
