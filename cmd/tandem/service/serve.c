/* serve.c -- `tandem serve`: the training service, until it is told to stop.
 *
 * SIGTERM and Ctrl-C let open calls end (for five seconds) and leave; a second one leaves at once.
 * Jobs go on under their supervisors, and the next service adopts them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fail.h"
#include "command.h"
#include "rpc/loop.h"
#include "service/grpc/api.h"
#include "service/http/api.h"
#include "resident.h"

enum { LINGER_MS = 5000 };

typedef struct server {
    td__service_config *config;
    td__loop *loop;
    td__service *service;
    td__tokens *tokens;
    td__sweeps *sweeps;
    td__data *data;
    td__grpc_api *grpc;
    td__http_api *http;
    td__watch signals;
    td__resident resident;
    bool stopping;
} server;

static td_status load(const td__args *a, td__service_config **out)
{
    const char *path = td__args_value(a, "config"), *book = getenv("APP_CONFIG");
    const char *const *sets;
    int n = td__args_values(a, "set", &sets);

    if (!path && book && *book)
        return td__config_load_book(book, sets, n, out);
    return td__config_load(path, sets, n, out);
}

static void on_idle(void *arg)
{
    server *s = arg;

    td__loop_stop(s->loop);
}

static void on_signal(void *arg, uint32_t events)
{
    server *s = arg;
    struct signalfd_siginfo info;

    (void)events;
    if (read(s->signals.fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (s->stopping) {
        td__loop_stop(s->loop);
        return;
    }
    s->stopping = true;
    td__grpc_api_shutdown(s->grpc, td__deadline_in_ms(LINGER_MS), on_idle, s);
}

static td_status watch_signals(server *s)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before threads are made, which inherit it */
    s->signals = (td__watch){
        .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .ready = on_signal, .arg = s};
    if (s->signals.fd < 0)
        return TD_FAIL(TD_EIO, "no descriptor for signals");
    return td__loop_watch(s->loop, &s->signals, EPOLLIN);
}

static td_status open_server(server *s, const char *self)
{
    TD_TRY(td__loop_create(&s->loop));
    TD_TRY(watch_signals(s));
    TD_TRY(td__config_tokens(s->config, &s->tokens));
    td__service_opts o = {.loop = s->loop, .config = s->config, .self = self};
    TD_TRY(td__service_create(&o, &s->service));
    TD_TRY(td__sweeps_create(s->service, &s->sweeps));
    TD_TRY(td__data_create(s->service, &s->data));
    TD_TRY(td__grpc_api_create(
        &(td__grpc_api_opts){
            .service = s->service, .sweeps = s->sweeps, .data = s->data, .tokens = s->tokens},
        &s->grpc));
    return td__http_api_create(
        &(td__http_api_opts){
            .service = s->service, .sweeps = s->sweeps, .tokens = s->tokens, .grpc = s->grpc},
        &s->http);
}

static void close_server(server *s)
{
    td__resident_stop(&s->resident);
    td__http_api_destroy(s->http);
    td__grpc_api_destroy(s->grpc);
    td__data_destroy(s->data);
    td__sweeps_destroy(s->sweeps);
    td__service_destroy(s->service);
    td__tokens_destroy(s->tokens);
    if (s->loop && s->signals.fd > 0) {
        td__loop_unwatch(s->loop, &s->signals);
        close(s->signals.fd);
    }
    td__loop_destroy(s->loop);
    td__config_destroy(s->config);
}

static void say_addresses(const server *s)
{
    const char *address;

    for (int i = 0; (address = td__grpc_api_address(s->grpc, i)); i++)
        printf("gRPC  %s\n", address);
    for (int i = 0; (address = td__http_api_address(s->http, i)); i++)
        printf("HTTP  %s://%s/\n", *s->config->tls_cert ? "https" : "http", address);
    printf("data  %s\n", s->config->data_dir);
    fflush(stdout);
}

static int run(const td__args *a)
{
    server s = {0};
    char self[4096] = "tandem";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    self[length > 0 ? length : 6] = 0;
    td__resident_limit();
    td_status st = load(a, &s.config);
    if (!st)
        st = open_server(&s, self);
    if (!st) {
        say_addresses(&s);
        td__resident_start(&s.resident, s.loop, s.config->data_dir);
        st = td__loop_run(s.loop);
    }
    if (!st && s.service && td__service_failed(s.service))
        st = TD_EIO;
    int rc = st ? td__failure(a, st) : TD_EXIT_OK;
    close_server(&s);
    return rc;
}

static const td__flag FLAGS[] = {
    {"config", 'c', "FILE", "configuration, YAML; `tandem help service` lists its keys", "FILE"},
    {"set", 0, "KEY=VALUE", "override a key of it; may be given several times", NULL},
    {NULL, 0, NULL, NULL, NULL},
};

static const char *const EXAMPLES[] = {
    "tandem serve",
    "gRPC at 127.0.0.1:6003, HTTP and dashboard at 127.0.0.1:6004, files in tandem-service/",
    "tandem serve --config service.yaml --set data.dir=/var/lib/tandem",
    "as the file says, with another directory",
    NULL,
};

const td__command td__command_serve = {
    .name = "serve",
    .args = "",
    .summary = "run the training service: submit, queue, run, watch, recover",
    .text = "Takes jobs over gRPC and HTTP, runs them as resources allow, and keeps everything in "
            "one directory. Nothing that was accepted is lost: after a crash or a restart it "
            "continues where it was, with the jobs that still run.\n\n"
            "Without tokens only this host is served. Without --config, the properties file that "
            "APP_CONFIG names is read, if it is set.\n\n"
            "SIGTERM and Ctrl-C let open calls end and leave; running jobs go on, and the next "
            "service adopts them. A second one leaves at once.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .run = run,
};
