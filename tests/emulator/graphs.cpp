/* graphs.cpp -- graphs of the driver's stand-in: what was recorded, node by node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs.h"

#include "device.h"
#include "fibers.h"

EXPORT cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode)
{
    ((stream *)s)->recording = true;
    return CUDA_SUCCESS;
}
EXPORT cuStreamEndCapture(CUstream on, CUgraph *out)
{
    stream *s = (stream *)on;
    bool joined = true;
    s->recording = false;
    for (stream *b : s->branches) {
        joined = joined && b->tape.empty();
        for (node *n : b->tape)
            delete n;
        b->tape.clear();
        b->recording = false;
        b->origin = nullptr;
    }
    s->branches.clear();
    if (!joined)
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    graph *g = new graph;
    g->nodes.swap(s->tape);
    for (node *n : g->nodes)
        n->in = g;
    *out = (CUgraph)g;
    return CUDA_SUCCESS;
}

/* Neighbours of a node are those before and behind it, also where a branch runs between. */
EXPORT cuGraphGetNodes(CUgraph from, CUgraphNode *to, size_t *n)
{
    const graph *g = (graph *)from;
    for (size_t i = 0; to && i < g->nodes.size() && i < *n; i++)
        to[i] = (CUgraphNode)g->nodes[i];
    *n = g->nodes.size();
    return CUDA_SUCCESS;
}
EXPORT cuGraphNodeGetType(CUgraphNode n, CUgraphNodeType *type)
{
    *type = ((node *)n)->fills ? CU_GRAPH_NODE_TYPE_MEMSET : CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}
EXPORT cuGraphMemsetNodeGetParams(CUgraphNode n, CUDA_MEMSET_NODE_PARAMS *to)
{
    CALLED
    *to = ((node *)n)->fill;
    return ((node *)n)->fills ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORT cuGraphNodeGetDependencies_v2(CUgraphNode of, CUgraphNode *to, CUgraphEdgeData *, size_t *n)
{
    const graph *g = ((node *)of)->in;
    size_t i = g->find((node *)of);
    *n = i > 0;
    if (to && i > 0)
        to[0] = (CUgraphNode)g->nodes[i - 1];
    return CUDA_SUCCESS;
}
EXPORT cuGraphNodeGetDependentNodes_v2(CUgraphNode of, CUgraphNode *to, CUgraphEdgeData *,
                                       size_t *n)
{
    const graph *g = ((node *)of)->in;
    size_t i = g->find((node *)of) + 1;
    *n = i < g->nodes.size();
    if (to && *n)
        to[0] = (CUgraphNode)g->nodes[i];
    return CUDA_SUCCESS;
}
/* Behind what it depends on; the node that it is there for is the next one. */
EXPORT cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph to, const CUgraphNode *after, size_t n,
                               const CUDA_KERNEL_NODE_PARAMS *p)
{
    CALLED
    graph *g = (graph *)to;
    const emulated_kernel *k = (const emulated_kernel *)p->func;
    const char *args = (const char *)p->kernelParams[0];
    std::vector<char> kept(args, args + k->nbytes);
    const unsigned x = p->gridDimX, y = p->gridDimY, z = p->gridDimZ, threads = p->blockDimX,
                   shared = p->sharedMemBytes;
    node *made = new node{[=] {
        const unsigned grid[3] = {x, y, z};
        emulated_run(k->fn, kept.data(), grid, threads, shared);
    }};
    made->in = g;
    size_t at = n ? g->find((const node *)after[0]) + 1 : 0;
    g->nodes.insert(g->nodes.begin() + (long)at, made);
    *out = (CUgraphNode)made;
    return CUDA_SUCCESS;
}
EXPORT cuGraphAddDependencies_v2(CUgraph to, const CUgraphNode *before, const CUgraphNode *after,
                                 const CUgraphEdgeData *, size_t n)
{
    const graph *g = (graph *)to;
    for (size_t i = 0; i < n; i++)
        if (g->find((const node *)before[i]) >= g->find((const node *)after[i]))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
EXPORT cuGraphDestroyNode(CUgraphNode n)
{
    CALLED
    graph *g = ((node *)n)->in;
    g->nodes.erase(g->nodes.begin() + (long)g->find((node *)n));
    delete (node *)n;
    return CUDA_SUCCESS;
}
EXPORT cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph of, unsigned long long)
{
    CALLED
    auto *list = new std::vector<std::function<void()>>;
    for (const node *n : ((graph *)of)->nodes)
        list->push_back(n->work);
    *exec = (CUgraphExec)list;
    return CUDA_SUCCESS;
}
EXPORT cuGraphLaunch(CUgraphExec exec, CUstream on)
{
    CALLED
    if (elsewhere(on))
        return CUDA_ERROR_INVALID_CONTEXT;
    for (auto &work : *(std::vector<std::function<void()>> *)exec)
        work();
    return CUDA_SUCCESS;
}
EXPORT cuGraphExecDestroy(CUgraphExec exec)
{
    delete (std::vector<std::function<void()>> *)exec;
    return CUDA_SUCCESS;
}
EXPORT cuGraphDestroy(CUgraph of)
{
    for (node *n : ((graph *)of)->nodes)
        delete n;
    delete (graph *)of;
    return CUDA_SUCCESS;
}
