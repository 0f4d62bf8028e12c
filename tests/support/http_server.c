/* http_server.c -- a small HTTP server that can misbehave (see http_server.h). One connection at a
 * time, one request per connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/http_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/check.h"

enum { OBJECTS = 32, HEAD = 16384, URLS = 4 };

typedef struct object {
    char name[256];
    char *data;
    size_t nbytes;
} object;

struct http_server {
    pthread_t thread;
    pthread_mutex_t lock; /* everything below */
    int fd, port, end[2]; /* a byte in `end` stops the server, and what it stalls in */
    http_faults faults;
    object objects[OBJECTS];
    int requests;
    char last[HEAD], shown[HEAD], url[URLS][512];
    int next_url;
    http_answer answer;
    void *user;
};

static object *find(http_server *s, const char *name, bool make)
{
    for (int i = 0; i < OBJECTS; i++)
        if (s->objects[i].name[0] && strcmp(s->objects[i].name, name) == 0)
            return &s->objects[i];
    for (int i = 0; make && i < OBJECTS; i++)
        if (!s->objects[i].name[0]) {
            snprintf(s->objects[i].name, sizeof s->objects[i].name, "%s", name);
            return &s->objects[i];
        }
    return NULL;
}

static void set(http_server *s, const char *name, const void *data, size_t nbytes)
{
    object *o = find(s, name, true);
    CHECK(o, "the server has no room for %s", name);
    free(o->data);
    o->data = malloc(nbytes + 1);
    memcpy(o->data, data, nbytes);
    o->data[nbytes] = '\0';
    o->nbytes = nbytes;
}

static void send_all(int fd, const void *data, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t n = send(fd, (const char *)data + done, nbytes - done, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        done += (size_t)n;
    }
}

static void reply(int fd, int status, const char *headers, const char *body)
{
    char head[1024];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d Text\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n",
                     status, headers, strlen(body));
    send_all(fd, head, (size_t)n);
    send_all(fd, body, strlen(body));
}

/* Until the server is stopped or the client goes away. The lock is held by the caller. */
static void stall(http_server *s, int fd)
{
    struct pollfd p[2] = {{.fd = s->end[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    pthread_mutex_unlock(&s->lock);
    poll(p, 2, 20000);
    pthread_mutex_lock(&s->lock);
}

static void send_chunks(int fd, const char *data, size_t nbytes)
{
    char size[16];
    for (size_t at = 0; at < nbytes; at += 7) {
        size_t n = nbytes - at < 7 ? nbytes - at : 7;
        int m = snprintf(size, sizeof size, "%zx\r\n", n);
        send_all(fd, size, (size_t)m);
        send_all(fd, data + at, n);
        send_all(fd, "\r\n", 2);
    }
    send_all(fd, "0\r\n\r\n", 5);
}

static void give(http_server *s, int fd, const object *o, const char *head)
{
    const char *range = strcasestr(head, "\r\nRange: bytes=");
    unsigned long long from = range && !s->faults.no_ranges ? strtoull(range + 15, NULL, 10) : 0;
    char line[512], length[64] = "Transfer-Encoding: chunked\r\n";

    if (from > o->nbytes) {
        reply(fd, 416, "", "");
        return;
    }
    size_t nbytes = o->nbytes - (size_t)from, sent = nbytes;
    if (!s->faults.chunked)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", nbytes);
    int n = snprintf(line, sizeof line,
                     "HTTP/1.1 %d Text\r\n%sETag: \"tag-%zu\"\r\nConnection: close\r\n",
                     from ? 206 : 200, length, o->nbytes);
    send_all(fd, line, (size_t)n);
    if (from) {
        n = snprintf(line, sizeof line, "Content-Range: bytes %llu-%zu/%zu\r\n", from,
                     o->nbytes - 1, o->nbytes);
        send_all(fd, line, (size_t)n);
    }
    send_all(fd, "\r\n", 2);
    if (s->faults.cut > 0) {
        s->faults.cut--;
        sent = s->faults.cut_after < nbytes ? s->faults.cut_after : nbytes;
    } else if (s->faults.stall > 0) {
        s->faults.stall--;
        send_all(fd, o->data + from, nbytes / 2);
        stall(s, fd);
        return;
    }
    if (s->faults.chunked)
        send_chunks(fd, o->data + from, nbytes);
    else
        send_all(fd, o->data + from, sent);
}

/* Head and body of a request; the body's bytes. */
static size_t receive(int fd, char *head, char **body)
{
    size_t used = 0, length = 0;
    char *end = NULL;

    *body = NULL;
    head[0] = '\0';
    while (!end && used < HEAD - 1) {
        ssize_t n = recv(fd, head + used, HEAD - 1 - used, 0);
        if (n <= 0)
            return 0;
        used += (size_t)n;
        head[used] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    if (!end)
        return 0;
    const char *said = strcasestr(head, "\r\nContent-Length:");
    if (said && said < end)
        length = strtoull(said + 17, NULL, 10);
    size_t have = used - (size_t)(end + 4 - head);
    *body = malloc(length + 1);
    memcpy(*body, end + 4, have < length ? have : length);
    while (have < length) {
        ssize_t n = recv(fd, *body + have, length - have, 0);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    (*body)[length] = '\0';
    end[2] = '\0';
    return have < length ? have : length;
}

static void serve(http_server *s, int fd)
{
    char head[HEAD], method[16], name[1024], *body;
    size_t nbytes = receive(fd, head, &body);

    pthread_mutex_lock(&s->lock);
    if (sscanf(head, "%15s /%1023[^ ?]", method, name) == 2 && body) {
        const char *text = s->answer ? s->answer(s->user, head, body) : NULL;
        object *o = find(s, name, false);
        s->requests++;
        memcpy(s->last, head, sizeof head);
        if (s->faults.drop > 0) {
            s->faults.drop--;
        } else if (s->faults.refuse > 0) {
            s->faults.refuse--;
            reply(fd, s->faults.status ? s->faults.status : 503, "",
                  s->faults.said ? s->faults.said : "");
        } else if (text) {
            send_all(fd, text, strlen(text));
        } else if (strcmp(method, "PUT") == 0) {
            set(s, name, body, nbytes);
            reply(fd, 200, "ETag: \"put\"\r\n", "");
        } else if (!o) {
            reply(fd, 404, "", "{\"message\": \"no such object\"}");
        } else if (strcmp(method, "DELETE") == 0) {
            free(o->data);
            *o = (object){0};
            reply(fd, 204, "", "");
        } else {
            give(s, fd, o, head);
        }
    }
    pthread_mutex_unlock(&s->lock);
    free(body);
}

static void *run(void *arg)
{
    http_server *s = arg;
    struct pollfd p[2] = {{.fd = s->end[0], .events = POLLIN}, {.fd = s->fd, .events = POLLIN}};

    for (;;) {
        poll(p, 2, -1);
        if (p[0].revents)
            return NULL;
        int fd = accept(s->fd, NULL, NULL);
        if (fd >= 0) {
            serve(s, fd);
            close(fd);
        }
    }
}

http_server *http_server_start(const char *unix_path)
{
    http_server *s = calloc(1, sizeof *s);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t n = sizeof in;

    pthread_mutex_init(&s->lock, NULL);
    s->fd = socket(unix_path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (unix_path) {
        snprintf(un.sun_path, sizeof un.sun_path, "%s", unix_path);
        CHECK(bind(s->fd, (struct sockaddr *)&un, sizeof un) == 0, "bind");
    } else {
        CHECK(bind(s->fd, (struct sockaddr *)&in, sizeof in) == 0, "bind");
        CHECK(getsockname(s->fd, (struct sockaddr *)&in, &n) == 0, "getsockname");
        s->port = ntohs(in.sin_port);
    }
    CHECK(listen(s->fd, 16) == 0 && pipe(s->end) == 0, "listen");
    CHECK(pthread_create(&s->thread, NULL, run, s) == 0, "thread");
    return s;
}

void http_server_stop(http_server *s)
{
    CHECK(write(s->end[1], "", 1) == 1, "write");
    pthread_join(s->thread, NULL);
    close(s->fd);
    close(s->end[0]);
    close(s->end[1]);
    for (int i = 0; i < OBJECTS; i++)
        free(s->objects[i].data);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

const char *http_server_url(http_server *s, const char *name)
{
    char *url = s->url[s->next_url++ % URLS];
    snprintf(url, sizeof s->url[0], "http://127.0.0.1:%d/%s", s->port, name);
    return url;
}

void http_server_misbehave(http_server *s, const http_faults *f)
{
    pthread_mutex_lock(&s->lock);
    s->faults = *f;
    pthread_mutex_unlock(&s->lock);
}

int http_server_requests(http_server *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}

const char *http_server_last(http_server *s)
{
    pthread_mutex_lock(&s->lock);
    memcpy(s->shown, s->last, sizeof s->shown);
    pthread_mutex_unlock(&s->lock);
    return s->shown;
}

void http_server_set(http_server *s, const char *name, const void *data, size_t nbytes)
{
    pthread_mutex_lock(&s->lock);
    set(s, name, data, nbytes);
    pthread_mutex_unlock(&s->lock);
}

void http_server_answer(http_server *s, http_answer answer, void *user)
{
    pthread_mutex_lock(&s->lock);
    s->answer = answer;
    s->user = user;
    pthread_mutex_unlock(&s->lock);
}
