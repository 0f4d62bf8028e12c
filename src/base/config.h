/* config.h -- the one door to the environment. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_CONFIG_H
#define TD_BASE_CONFIG_H

#include <stdbool.h>

/* The variables that the library reads: identifier, name, what it does. */
#define TD_ENV_MAP(X)                                                                       \
    X(ISA, "TANDEM_ISA", "highest instruction set to use: scalar, avx2, avx512, ...")       \
    X(LOG, "TANDEM_LOG", "log levels: \"debug\" or \"graph=debug,backend=trace\"")          \
    X(RANK, "TANDEM_RANK", "rank of this process; set by tandem launch")                    \
    X(SIZE, "TANDEM_SIZE", "number of ranks")                                               \
    X(LOCAL_RANK, "TANDEM_LOCAL_RANK", "rank among those of this host")                     \
    X(LOCAL_SIZE, "TANDEM_LOCAL_SIZE", "number of ranks on this host")                      \
    X(STORE, "TANDEM_STORE", "address of the rendezvous store, HOST:PORT")                  \
    X(SECRET_FILE, "TANDEM_SECRET_FILE", "file (mode 0600) that holds the job's secret")    \
    X(SECRET, "TANDEM_SECRET", "the secret itself, where there is no file for it")          \
    X(STORE_RANK, "TANDEM_STORE_RANK", "rank that serves the store at TANDEM_STORE's port") \
    X(RENDEZVOUS, "TANDEM_RENDEZVOUS", "folder all ranks see, to meet in without a store")  \
    X(HOST, "TANDEM_HOST", "name of this host; equal names may share memory")               \
    X(ADDRESS, "TANDEM_ADDRESS", "address of this host for the other hosts")                \
    X(TLS_DIR, "TANDEM_TLS_DIR", "folder with cert.pem and key.pem, or file: for TLS")      \
    X(JOB, "TANDEM_JOB", "mark of all processes of one launch")                             \
    X(AGENT, "TANDEM_AGENT", "socket of the agent that started this process")               \
    X(PROC, "TANDEM_PROC", "number of this process among those of its launch")              \
    X(RESUME, "TANDEM_RESUME", "run to continue with; set where ranks are started again")   \
    X(ENGINE, "TANDEM_ENGINE", "who carries out collectives: native, mpi, nccl")            \
    X(NCCL, "TANDEM_NCCL", "library to load instead of libnccl.so.2; none: do without")     \
    X(TRANSPORT, "TANDEM_TRANSPORT", "how bytes move between ranks: shm, tcp")              \
    X(ALGO, "TANDEM_ALGO", "algorithm of collectives that name none")                       \
    X(MODULES, "TANDEM_MODULES", "folder of the MPI modules")                               \
    X(CUDA_DRIVER, "TANDEM_CUDA_DRIVER", "library to load instead of libcuda.so.1")         \
    X(CUDA_LIBS, "TANDEM_CUDA_LIBS", "folders of cuBLASLt and cuDNN, with : between; none") \
    X(CUDA_SPLIT, "TANDEM_CUDA_SPLIT", "each GPU counts as so many; for tests")             \
    X(CUDA_TUNE, "TANDEM_CUDA_TUNE", "file for timed products: cublaslt_choose.c")          \
    X(CUDA_WAIT, "TANDEM_CUDA_WAIT", "1: one kernel at a time; failures name the node")     \
    X(CUDA_BRANCHES, "TANDEM_CUDA_BRANCHES", "weight gradients beside others: none, all")   \
    X(OMPI_RANK, "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun")                               \
    X(OMPI_SIZE, "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun")                               \
    X(OMPI_LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "Open MPI's mpirun")                   \
    X(OMPI_LOCAL_SIZE, "OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI's mpirun")                   \
    X(PMI_RANK, "PMI_RANK", "MPICH's mpirun")                                               \
    X(PMI_SIZE, "PMI_SIZE", "MPICH's mpirun")                                               \
    X(PMI_LOCAL_RANK, "MPI_LOCALRANKID", "MPICH's mpirun")                                  \
    X(PMI_LOCAL_SIZE, "MPI_LOCALNRANKS", "MPICH's mpirun")                                  \
    X(SLURM_RANK, "SLURM_PROCID", "srun")                                                   \
    X(SLURM_SIZE, "SLURM_NTASKS", "srun")                                                   \
    X(SLURM_LOCAL_RANK, "SLURM_LOCALID", "srun")                                            \
    X(SLURM_JOB, "SLURM_JOB_ID", "srun")                                                    \
    X(SLURM_STEP, "SLURM_STEP_ID", "srun; not set in a batch script")                       \
    X(TORCH_RANK, "RANK", "torchrun")                                                       \
    X(TORCH_SIZE, "WORLD_SIZE", "torchrun")                                                 \
    X(TORCH_LOCAL_RANK, "LOCAL_RANK", "torchrun")                                           \
    X(TORCH_LOCAL_SIZE, "LOCAL_WORLD_SIZE", "torchrun")                                     \
    X(AWS_ACCESS_KEY, "AWS_ACCESS_KEY_ID", "S3: access key")                                \
    X(AWS_SECRET_KEY, "AWS_SECRET_ACCESS_KEY", "S3: secret key")                            \
    X(AWS_SESSION_TOKEN, "AWS_SESSION_TOKEN", "S3: token of temporary keys")                \
    X(AWS_REGION, "AWS_REGION", "S3: region")                                               \
    X(AWS_DEFAULT_REGION, "AWS_DEFAULT_REGION", "S3: region if AWS_REGION is not set")      \
    X(AWS_ENDPOINT_S3, "AWS_ENDPOINT_URL_S3", "S3: address of another store than AWS")      \
    X(AWS_ENDPOINT, "AWS_ENDPOINT_URL", "S3: the same if AWS_ENDPOINT_URL_S3 is not set")   \
    X(KUBECONFIG, "KUBECONFIG", "kubeconfig file")                                          \
    X(KUBERNETES_HOST, "KUBERNETES_SERVICE_HOST", "API server, inside a cluster")           \
    X(KUBERNETES_PORT, "KUBERNETES_SERVICE_PORT", "its port")                               \
    X(CHECKPOINT_URL, "TANDEM_CHECKPOINT_URL", "where tandem save and load keep a state")   \
    X(SERVER, "TANDEM_SERVER", "address of a training service")                             \
    X(TOKEN, "TANDEM_TOKEN", "token for it")                                                \
    X(HOME, "HOME", "the user's home")                                                      \
    X(RUNTIME_DIR, "XDG_RUNTIME_DIR", "folder of the user for sockets and the like")        \
    X(TMPDIR, "TMPDIR", "folder of temporary files")

typedef enum td__env {
#define X(id, name, help) TD_ENV_##id,
    TD_ENV_MAP(X)
#undef X
        TD_ENV_COUNT
} td__env;

/* The variable's value; NULL when it is not set or empty. */
const char *td__env_get(td__env var);
const char *td__env_name(td__env var);
const char *td__env_help(td__env var); /* what it does, one line */

#endif
