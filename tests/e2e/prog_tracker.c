/* prog_tracker.c -- drives one tracker as the service does, for scripts:
 *
 *     prog_tracker TRACKER CONFIG SPEC DIR TOKEN [-e K=V]... [-d DATA] STEP...
 *
 * Steps, in order: start, adopt, wait:EVENT (of this kind, within a minute; another final event
 * fails), file:PATH (until it is there), stop, kill, restart:MEMBER, logs:MEMBER, forget. Every
 * event is a line on standard output. SPEC: the text of a job's spec, with command and image. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/loop.h"
#include "service/config.h"
#include "service/spec.h"
#include "service/track/tracker.h"

enum { WAIT_MS = 60000, MOST_ENV = 64, MOST_MEMBERS = 8 };

static const char *const KINDS[] = {[TD_TRACK_STARTED] = "STARTED",
                                    [TD_TRACK_FAILED] = "FAILED",
                                    [TD_TRACK_MEMBER_RESTARTED] = "RESTARTED",
                                    [TD_TRACK_EXITED] = "EXITED",
                                    [TD_TRACK_UNKNOWN] = "UNKNOWN",
                                    [TD_TRACK_LOG] = "LOG",
                                    [TD_TRACK_METRICS] = "METRICS",
                                    [TD_TRACK_AGAIN] = "AGAIN",
                                    [TD_TRACK_TROUBLE] = "TROUBLE",
                                    [TD_TRACK_PENDING] = "PENDING",
                                    [TD_TRACK_PLACED] = "PLACED",
                                    [TD_TRACK_FORGOTTEN] = "FORGOTTEN"};

typedef struct driver {
    td__loop *loop;
    td__tracker *t;
    td__group g;
    const char *data; /* of the group; NULL: none */
    int seen[TD_TRACK_FORGOTTEN + 1];
    bool log_ended;
} driver;

static void on_event(void *arg, const td__track_event *e)
{
    driver *d = arg;
    d->seen[e->kind]++;
    printf("%s member %d status %d class %s%s%s\n", KINDS[e->kind], e->member, e->exit_status,
           td__exit_class_name(e->exit_class), e->text ? ": " : "", e->text ? e->text : "");
    fflush(stdout);
}

static void on_data(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    (void)arg;
    (void)offset;
    fwrite(bytes, 1, nbytes, stdout);
}

static void on_end(void *arg, td_status st)
{
    driver *d = arg;
    d->log_ended = true;
    if (st)
        printf("logs: %s\n", td_last_error());
    fflush(stdout);
}

static int fail(const char *what)
{
    fprintf(stderr, "prog_tracker: %s: %s\n", what, td_last_error());
    return 1;
}

static bool turn_until(driver *d, const int *counter, int above, uint64_t ms)
{
    td__deadline end = td__deadline_in_ms(ms);
    while ((counter ? *counter <= above : !d->log_ended) && !td__deadline_passed(end))
        if (td__loop_turn(d->loop, 20))
            return false;
    return counter ? *counter > above : d->log_ended;
}

static int wait_for(driver *d, const char *name)
{
    int kind = 0;
    while (strcmp(KINDS[kind], name) != 0)
        if (++kind > TD_TRACK_FORGOTTEN)
            return fail("no such event");
    td__deadline end = td__deadline_in_ms(WAIT_MS);
    static const td__track_event_kind FINAL[] = {TD_TRACK_FAILED, TD_TRACK_EXITED, TD_TRACK_UNKNOWN,
                                                 TD_TRACK_AGAIN};
    while (!d->seen[kind]) {
        for (size_t i = 0; i < sizeof FINAL / sizeof *FINAL; i++)
            if (d->seen[FINAL[i]])
                return 3; /* it ended otherwise; the script has seen how */
        if (td__deadline_passed(end) || td__loop_turn(d->loop, 20))
            return fail("waited too long");
    }
    d->seen[kind]--;
    return 0;
}

static int wait_file(driver *d, const char *path)
{
    td__deadline end = td__deadline_in_ms(WAIT_MS);
    while (access(path, F_OK) != 0)
        if (td__deadline_passed(end) || td__loop_turn(d->loop, 20))
            return fail("waited too long for a file");
    return 0;
}

static int step(driver *d, const char *s)
{
    const td__tracker_ops *o = d->t->ops;

    if (strcmp(s, "start") == 0)
        o->start(d->t, &d->g);
    else if (strcmp(s, "adopt") == 0)
        o->adopt(d->t, &d->g);
    else if (strcmp(s, "stop") == 0)
        o->signal(d->t, d->g.token, TD_TRACK_ALL, TD_TRACK_STOP);
    else if (strcmp(s, "kill") == 0)
        o->signal(d->t, d->g.token, TD_TRACK_ALL, TD_TRACK_KILL);
    else if (strncmp(s, "restart:", 8) == 0)
        o->signal(d->t, d->g.token, (int)strtol(s + 8, NULL, 10), TD_TRACK_RESTART);
    else if (strncmp(s, "wait:", 5) == 0)
        return wait_for(d, s + 5);
    else if (strncmp(s, "file:", 5) == 0)
        return wait_file(d, s + 5);
    else if (strncmp(s, "logs:", 5) == 0) {
        d->log_ended = false;
        o->logs(d->t, d->g.token, d->g.dir, (int)strtol(s + 5, NULL, 10), 0,
                &(td__log_sink){.data = on_data, .end = on_end, .arg = d});
        return turn_until(d, NULL, 0, WAIT_MS) ? 0 : fail("no end of output");
    } else if (strcmp(s, "members") == 0) {
        td__track_member m[MOST_MEMBERS] = {0};
        int n = d->g.spec->members < MOST_MEMBERS ? d->g.spec->members : MOST_MEMBERS;
        o->members(d->t, d->g.token, m, n);
        for (int i = 0; i < n; i++)
            printf("member %d %s on %s\n", i, td__member_state_name(m[i].state), m[i].host);
        fflush(stdout);
    } else if (strcmp(s, "forget") == 0) {
        d->seen[TD_TRACK_FORGOTTEN] = 0;
        o->forget(d->t, d->g.token);
        if (o->leaves && !turn_until(d, &d->seen[TD_TRACK_FORGOTTEN], 0, WAIT_MS))
            return fail("not forgotten");
    } else
        return fail("no such step");
    return 0;
}

static char *slurp(const char *path, size_t *n)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "rb");
    *n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[*n] = '\0';
    return text;
}

int main(int argc, char **argv)
{
    const char *env[MOST_ENV + 1] = {NULL};
    int n_env = 0, at = 6, result = 0;
    td__service_config *config;
    td__job_spec *spec;
    driver d = {0};
    size_t n;

    signal(SIGPIPE, SIG_IGN); /* as the service does: a command may not read what it is given */
    if (argc < 7)
        return fail(
            "usage: prog_tracker TRACKER CONFIG SPEC DIR TOKEN [-e K=V]... [-d DATA] STEP...");
    for (; at + 1 < argc && strcmp(argv[at], "-e") == 0 && n_env < MOST_ENV; at += 2)
        env[n_env++] = argv[at + 1];
    if (at + 1 < argc && strcmp(argv[at], "-d") == 0) {
        d.data = argv[at + 1];
        at += 2;
    }
    const td__tracker_ops *o = td__tracker_find(argv[1]);
    if (!o)
        return fail("no such tracker");
    char *text = slurp(argv[3], &n);
    if (td__config_load(argv[2], NULL, 0, &config) || td__spec_parse(text, n, argv[3], &spec) ||
        td__loop_create(&d.loop))
        return fail("set-up");
    const char **command = calloc((size_t)spec->n_command + 1, sizeof *command);
    for (int i = 0; i < spec->n_command; i++)
        command[i] = spec->command[i];
    d.g = (td__group){.token = argv[5],
                      .job = 12,
                      .attempt = 1,
                      .spec = spec,
                      .dir = argv[4],
                      .data = d.data,
                      .env = env,
                      .command = command,
                      .image = spec->image};
    td__tracker_config c = {
        .loop = d.loop, .config = config, .self = "/proc/self/exe", .event = on_event, .arg = &d};
    if (o->create(&c, &d.t))
        return fail("create");
    for (; at < argc && result == 0; at++)
        result = step(&d, argv[at]);
    o->destroy(d.t);
    td__loop_destroy(d.loop);
    td__config_destroy(config);
    td__spec_destroy(spec);
    free(command);
    return result;
}
