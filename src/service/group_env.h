/* group_env.h -- the environment of the processes of a group, the same for all trackers.
 *
 * Two parts. What all processes share: JOB_ID, ALGORITHM_NAME, TRAINING_DATA_BUCKET and the like of
 * the book, the job's parameters and env as far as they are allowed, checkpoint and artifact
 * places (td__job_env, made by the service: td__group.env). What differs by process: RANK,
 * WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, TF_CONFIG, Horovod's and MPI's, which need the
 * addresses of the members and so are added by the tracker (td__process_env); these win. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_GROUP_ENV_H
#define TD_SERVICE_GROUP_ENV_H

#include "launch/message.h"
#include "net/socket.h"
#include "service/answer.h"
#include "service/config.h"
#include "service/track/tracker.h"

enum { TD__MASTER_PORT = 12356, TD__WORKER_PORT = 12400 }; /* of the book; of TF_CONFIG */

/* Where processes are found by each other. */
typedef struct td__group_place {
    const char *const *hosts;   /* of each member; NULL: all are on this host */
    const char *master;         /* host of member 0 for the others; NULL: hosts[0] */
    int master_port;            /* 0: TD__MASTER_PORT; the one before it is the group's too */
    const char *const *workers; /* "HOST:PORT" of every process, for TF_CONFIG; NULL: hosts with
                                   ports after master_port, which are the group's as much as that;
                                   from TD__WORKER_PORT on where master_port is 0 */
} td__group_place;

/* Do its ranks meet at a store that rank 0 serves? Those of tandem at the master's port; Horovod's
 * and MPI's under `tandem attend`, at the port before it. */
bool td__framework_meets(const char *framework);
/* Appends "K=V" for one process of a member. */
void td__process_env(const td__group *g, const td__group_place *p, int member, int process,
                     td__texts *out);

/* The address of gRPC for jobs of a tracker: grpc.advertise, else where it listens, which is
 * "0.0.0.0:6003" for any address of this host: then one that reaches it from there. */
void td__advertised(const td__service_config *c, const char *listens, const char *tracker,
                    char out[TD_ADDRESS_BYTES]);

/* The same of HTTP, by http.advertise; false: jobs of that tracker do not reach it. */
bool td__advertised_http(const td__service_config *c, const char *listens, const char *tracker,
                         char out[TD_ADDRESS_BYTES]);

/* Appends what all processes share. grpc: where they reach the service. dir: the job's directory as
 * they see it. checkpoints: their URL where the job names none; NULL: in that directory. tandem:
 * the command is tandem's own, which is given no variable of the client's but those of
 * security.env_allow. */
void td__job_env(const td__service_config *c, const td__job_record *r, const char *grpc,
                 const char *dir, const char *checkpoints, bool tandem, td__texts *out);

/* Does security.env_allow name this variable? */
bool td__env_allowed(const td__service_config *c, const char *name);
/* May a client set this variable? td_last_error() names it and the key that would allow it. PATH,
 * LD_* and their like, and what the service sets itself are always refused; proxies, AWS_* and
 * KUBE* where security.env_allow does not name them. */
TD_NODISCARD td__answer td__env_check(const td__service_config *c, const char *name,
                                      bool parameter);

#endif
