/* kube_objects.h -- what a group is made of in Kubernetes, as JSON, and what a pod says of itself.
 *
 * A group of N members on a job with the base name B ("job-" and compat.names):
 *     ConfigMap  tandem-TOKEN          B and N; the owner of all others. Its name is the token's,
 *                                      so it can be created once only.
 *     Secret     tandem-TOKEN          values of variables whose names speak of secrets
 *     Service    B-service             of member 0, for MASTER_ADDR (N > 1)
 *     Service    B-members             headless, so that each pod has a name (N > 1)
 *     Pod        B-master, B-worker-1, ...  */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_KUBE_OBJECTS_H
#define TD_SERVICE_TRACK_KUBE_OBJECTS_H

#include <jansson.h>

#include "service/track/cluster.h"

#define TD_KUBE_TOKEN "tandem-token" /* labels */
#define TD_KUBE_MEMBER "tandem-member"
#define TD_KUBE_CONTAINER "traincode"

enum { TD_KUBE_NAME = 56 }; /* bytes of B: with "-service" it is a name of 63 at most */

typedef struct td__kube_group {
    const td__launch *l;
    const char *namespace_;
    const char *self; /* path of tandem on the service's host: "tandem" in the image */
    char name[TD_KUBE_NAME];
    char owner[64], owner_uid[64];
} td__kube_group;

json_t *td__kube_config_map(const td__kube_group *g);
json_t *td__kube_secret(const td__kube_group *g); /* NULL: there is nothing secret */
json_t *td__kube_service(const td__kube_group *g, bool headless);
TD_NODISCARD td_status td__kube_pod(const td__kube_group *g, int member, json_t **out);

/* What a pod of the API server has become. false: it is none of ours. */
bool td__kube_seen(const json_t *pod, int *member, td__seen *out);

#endif
