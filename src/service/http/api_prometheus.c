/* api_prometheus.c -- /metrics: counters and gauges in Prometheus' text format. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "service/http/api_impl.h"

static void family(td__text *t, const char *name, const char *type, const char *help)
{
    td__text_printf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void whole(td__text *t, const char *name, const char *type, const char *help, int64_t v)
{
    family(t, name, type, help);
    td__text_printf(t, "%s %" PRId64 "\n", name, v);
}

static void seconds(td__text *t, const char *name, const char *help, double v)
{
    family(t, name, "counter", help);
    td__text_printf(t, "%s %.9g\n", name, v);
}

static void by_state(td__text *t, const char *name, const char *type, const char *help,
                     const int64_t *v, bool final)
{
    family(t, name, type, help);
    for (int i = 0; i < TD_JOB_STATE_COUNT; i++)
        if (!final || td__job_state_final((td__job_state)i))
            td__text_printf(t, "%s{state=\"%s\"} %" PRId64 "\n", name,
                            td__job_state_name((td__job_state)i), v[i]);
}

static void grpc_counters(td__text *t, const td__grpc_api *grpc)
{
    td__grpc_counters c;

    td__grpc_api_counters(grpc, &c);
    whole(t, "tandem_grpc_calls_total", "counter", "gRPC calls begun.", (int64_t)c.now.calls);
    family(t, "tandem_grpc_ended_total", "counter", "gRPC calls, by how they ended.");
    for (int i = 0; i < TD__GRPC_CODES; i++)
        if (i == TD_GRPC_OK || c.ended[i])
            td__text_printf(t, "tandem_grpc_ended_total{code=\"%s\"} %" PRIu64 "\n",
                            td__grpc_code_name((td__grpc_code)i), c.ended[i]);
    seconds(t, "tandem_grpc_seconds_total", "Time of gRPC calls that are no streams.", c.seconds);
    whole(t, "tandem_grpc_refused_connections_total", "counter",
          "Connections refused: too many, in all or of one address.",
          (int64_t)c.now.refused_connections);
    whole(t, "tandem_grpc_connections", "gauge", "Open connections.", c.now.open_connections);
    whole(t, "tandem_grpc_open_calls", "gauge", "Open calls, with streams.", c.now.open_calls);
}

void td__http_prometheus(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__service_stats s;
    td__httpd_counters all = {0};
    td__text out = {0}, *t = &out;
    td__service_get_stats(a->o.service, &s);
    for (int i = 0; i < a->n_servers; i++) {
        td__httpd_counters c = td__httpd_counters_of(a->servers[i]);
        all.requests += c.requests;
        all.refused += c.refused;
        all.errors += c.errors;
        all.bytes_out += c.bytes_out;
        all.connections += c.connections;
        all.streams += c.streams;
    }
    by_state(t, "tandem_jobs", "gauge", "Jobs in the store.", s.jobs, false);
    by_state(t, "tandem_jobs_finished_total", "counter", "Jobs that ended.", s.finished, true);
    whole(t, "tandem_jobs_submitted_total", "counter", "Jobs submitted.", s.submitted);
    whole(t, "tandem_launches_total", "counter", "Groups launched.", s.launched);
    whole(t, "tandem_retries_total", "counter", "Launches that were retries.", s.retried);
    whole(t, "tandem_preemptions_total", "counter", "Jobs stopped for others.", s.preempted);
    seconds(t, "tandem_wait_seconds_total", "From submission to launch, summed.", s.wait_seconds);
    whole(t, "tandem_slots", "gauge", "Slots to hand out.", s.slots);
    whole(t, "tandem_slots_used", "gauge", "Slots in use.", s.slots_used);
    whole(t, "tandem_gpus", "gauge", "GPUs to hand out.", s.gpus);
    whole(t, "tandem_gpus_used", "gauge", "GPUs in use.", s.gpus_used);
    whole(t, "tandem_memory_bytes", "gauge", "Memory to hand out.", s.memory_mb * 1048576);
    whole(t, "tandem_memory_used_bytes", "gauge", "Memory in use.", s.memory_mb_used * 1048576);
    whole(t, "tandem_store_commits_total", "counter", "Transactions of the store.", s.commits);
    seconds(t, "tandem_store_commit_seconds_total", "Time they took.", s.commit_seconds);
    whole(t, "tandem_start_time_seconds", "gauge", "When the service started.", s.start_ms / 1000);
    whole(t, "tandem_http_requests_total", "counter", "HTTP requests.", (int64_t)all.requests);
    whole(t, "tandem_http_refused_total", "counter",
          "HTTP requests refused: host, origin, token, rate, size.", (int64_t)all.refused);
    whole(t, "tandem_http_errors_total", "counter", "HTTP answers of 5xx.", (int64_t)all.errors);
    whole(t, "tandem_http_sent_bytes_total", "counter", "Bytes of bodies.", (int64_t)all.bytes_out);
    whole(t, "tandem_http_connections", "gauge", "Open connections.", all.connections);
    whole(t, "tandem_http_streams", "gauge", "Open streams.", all.streams);
    if (a->o.grpc)
        grpc_counters(t, a->o.grpc);
    td__httpd_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}
