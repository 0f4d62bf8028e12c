/* cuda_tape.c -- graphs as tapes.
 *
 * Libraries clear a counter before most of their kernels. A node of a graph that sets memory costs
 * the host 2 us each time the graph is launched, ten times what a kernel does, so these become
 * kernels of our own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "device/cuda/cuda_impl.h"
#include "device/cuda/kernels/blocks.h"

enum { THREADS = 256, NEIGHBOURS = 16 };

td_status td__cuda_tape_begin(td_stream *s)
{
    td__cuda_enter(s->device);
    return td__cuda_status(
        td__cu.cuStreamBeginCapture_v2(td__cuda_stream(s), CU_STREAM_CAPTURE_MODE_RELAXED),
        "recording a graph");
}

/* The byte that an element repeats, in a word of them. */
static unsigned word_of(const CUDA_MEMSET_NODE_PARAMS *p)
{
    switch (p->elementSize) {
    case 1: return (p->value & 0xffu) * 0x01010101u;
    case 2: return (p->value & 0xffffu) * 0x00010001u;
    default: return p->value;
    }
}

static CUresult add_fill(const td__cuda_gpu *d, CUgraph graph, const CUDA_MEMSET_NODE_PARAMS *p,
                         const CUgraphNode *after, size_t n_after, CUgraphNode *out)
{
    td__blocks_fill a = {.to = (unsigned char *)p->dst,
                         .n = (long long)(p->width * p->elementSize),
                         .word = word_of(p)};
    long long most = (long long)d->kind.processors * 32;
    long long need = (a.n / 16 + THREADS) / THREADS;
    void *args[] = {&a};
    CUDA_KERNEL_NODE_PARAMS k = {.func = d->blocks[TD__CUDA_FILL],
                                 .gridDimX = (unsigned)(need < most ? need : most),
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = THREADS,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    return td__cu.cuGraphAddKernelNode_v2(out, graph, after, n_after, &k);
}

/* A node that sets memory, if it is one in a row and has few neighbours, becomes a kernel. */
static CUresult replace(const td__cuda_gpu *d, CUgraph graph, CUgraphNode node)
{
    CUgraphNodeType type;
    CUDA_MEMSET_NODE_PARAMS p;
    CUgraphNode before[NEIGHBOURS], next[NEIGHBOURS], from[NEIGHBOURS], made;
    CUgraphEdgeData edges[NEIGHBOURS];
    size_t n_before = 0, n_next = 0;
    CUresult r = td__cu.cuGraphNodeGetType(node, &type);
    if (r || type != CU_GRAPH_NODE_TYPE_MEMSET)
        return r;
    r = td__cu.cuGraphMemsetNodeGetParams(node, &p);
    r = r ? r : td__cu.cuGraphNodeGetDependencies_v2(node, NULL, NULL, &n_before);
    r = r ? r : td__cu.cuGraphNodeGetDependentNodes_v2(node, NULL, NULL, &n_next);
    if (r || p.height != 1 || n_before > NEIGHBOURS || n_next > NEIGHBOURS)
        return r;
    if (n_before)
        r = td__cu.cuGraphNodeGetDependencies_v2(node, before, edges, &n_before);
    if (n_next && !r)
        r = td__cu.cuGraphNodeGetDependentNodes_v2(node, next, edges, &n_next);
    r = r ? r : add_fill(d, graph, &p, before, n_before, &made);
    for (size_t i = 0; i < n_next && !r; i++)
        from[i] = made;
    if (n_next && !r)
        r = td__cu.cuGraphAddDependencies_v2(graph, from, next, NULL, n_next);
    return r ? r : td__cu.cuGraphDestroyNode(node);
}

static td_status replace_all(const td__cuda_gpu *d, CUgraph graph)
{
    size_t n = 0;
    CUresult r = td__cu.cuGraphGetNodes(graph, NULL, &n);
    CUgraphNode *nodes = r ? NULL : td__calloc(n + 1, sizeof *nodes);
    if (!r && !nodes)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu nodes of a graph", n);
    if (!r && n)
        r = td__cu.cuGraphGetNodes(graph, nodes, &n);
    for (size_t i = 0; i < n && !r; i++)
        r = replace(d, graph, nodes[i]);
    td__free(nodes);
    return td__cuda_status(r, "the nodes of a graph");
}

td_status td__cuda_tape_end(td_stream *s, void **tape)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    td__cuda_enter(s->device);
    TD_TRY(td__cuda_status(td__cu.cuStreamEndCapture(td__cuda_stream(s), &graph),
                           "recording a graph"));
    td_status st = replace_all((const td__cuda_gpu *)s->device, graph);
    if (!st)
        st = td__cuda_status(td__cu.cuGraphInstantiateWithFlags(&exec, graph, 0), "a graph");
    td__cu.cuGraphDestroy(graph);
    *tape = exec;
    return st;
}

void td__cuda_tape_play(td_stream *s, void *tape)
{
    td__cuda_enter(s->device);
    td__cuda_check(s, td__cu.cuGraphLaunch(tape, td__cuda_stream(s)), "a graph");
}

void td__cuda_tape_destroy(td_stream *s, void *tape)
{
    td__cuda_enter(s->device);
    td__cu.cuGraphExecDestroy(tape);
}
