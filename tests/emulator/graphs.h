/* graphs.h -- streams and recorded graphs of the driver's stand-in, for its two files: driver.cpp
 * puts work into streams, graphs.cpp makes graphs of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_EMULATOR_GRAPHS_H
#define TD_TESTS_EMULATOR_GRAPHS_H

#include <cuda.h>

#include <algorithm>
#include <functional>
#include <vector>

struct graph;
struct node {
    std::function<void()> work;
    bool fills = false;
    CUDA_MEMSET_NODE_PARAMS fill = {}; /* where it does */
    graph *in = nullptr;
};
struct graph {
    std::vector<node *> nodes; /* in the order in which they are run */
    size_t find(const node *n) const
    {
        return (size_t)(std::find(nodes.begin(), nodes.end(), n) - nodes.begin());
    }
};
/* While a graph is recorded from `origin`, a stream that waits for an event of it records too. What
 * a branch has is put into the graph where it is joined, as late as it may be done: a value that is
 * overwritten before is seen. */
struct stream {
    CUcontext context;
    bool recording = false;
    stream *origin = nullptr;       /* of the recording that a branch is part of */
    std::vector<stream *> branches; /* of the origin */
    std::vector<node *> tape;
};

/* Of another context than the calling thread works with. */
bool elsewhere(CUstream on);
CUresult do_or_record(CUstream on, std::function<void()> work);

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

/* Counts a call by its name, and says whether a test wants it to fail. */
CUresult called(const char *name);
#define CALLED                          \
    if (CUresult r_ = called(__func__)) \
        return r_;

#endif
