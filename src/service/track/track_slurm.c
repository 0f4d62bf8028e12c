/* track_slurm.c -- groups as batch jobs of Slurm: sbatch, squeue, scancel. No accounting is needed:
 * what becomes of members is written down by themselves (member_dir.h), in slurm.dir or the job's
 * directory, which all nodes see.
 *
 * A group is one batch job, called like its token, of one task for each member. Its script first
 * asks each task where it is, and puts the names of hosts into the members' scripts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "service/track/command.h"
#include "service/track/member_dir.h"
#include "service/track/slurm_list.h"

enum { LIMIT_MS = 60000, PORT_FIRST = 20000, PORT_COUNT = 10000, PATH = 4096, TAIL_MS = 3600000 };

typedef struct slurm {
    const td__service_config *config;
    td__slurm_list *jobs; /* for looks at groups */
    atomic_bool stopped;
} slurm;

static td_status list_jobs(void *system, td__text *out);

static td_status open_slurm(const td__tracker_config *c, void **out)
{
    slurm *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "out of memory for tracker slurm");
    s->config = c->config;
    td_status st = td__slurm_list_create(list_jobs, td__clock_ns, s, &s->jobs);
    if (st)
        td__free(s);
    else
        *out = s;
    return st;
}

static void close_slurm(void *system)
{
    slurm *s = system;
    td__slurm_list_destroy(s->jobs);
    td__free(s);
}

static void stop_slurm(void *s)
{
    atomic_store(&((slurm *)s)->stopped, true);
}

static td_status run(slurm *s, const char *const *argv, const char *input, td__text *out)
{
    return td__command(&(td__command_opts){.argv = argv,
                                           .input = input,
                                           .out = out,
                                           .until = td__deadline_in_ms(LIMIT_MS),
                                           .stop = &s->stopped},
                       NULL);
}

static td_status run_script(slurm *s, td__text *script, td__text *out)
{
    TD_TRY(td__text_status(script));
    return run(s, (const char *const[]){"sh", "-s", NULL}, script->data, out);
}

/* slurm.dir/TOKEN, or in the job's directory. */
static void group_dir(const slurm *s, const td__launch *l, char out[PATH])
{
    const char *base = s->config->slurm_dir;
    snprintf(out, PATH, "%s/%s", base && base[0] ? base : l->g.dir, l->g.token);
}

static void place_of(const td__service_config *c, const char *token, char *out, size_t nbytes)
{
    out[0] = '\0';
    if (c->slurm_dir && c->slurm_dir[0])
        snprintf(out, nbytes, "%s/%s", c->slurm_dir, token);
}

/* All jobs of this user, the service's. */
static td_status list_jobs(void *system, td__text *out)
{
    char user[16];

    snprintf(user, sizeof user, "%u", (unsigned)getuid());
    const char *argv[] = {"squeue", "--noheader", "--states=all", "--format=%j|%T|%r|%i", "--user",
                          user,     NULL};
    return run(system, argv, NULL, out);
}

/* "STATE|REASON|ID" of the batch job of that name; empty: Slurm does not know it (any more). */
static td_status find_job(slurm *s, const char *token, td__text *out)
{
    const char *argv[] = {"squeue", "--noheader", "--states=all", "--format=%T|%r|%i", "--name",
                          token,    NULL};
    return run(s, argv, NULL, out);
}

/* ---- start ---- */

/* Names of hosts are not known before the job runs: members' scripts have @HOST-M@ instead. */
static td_status make_place(const td__launch *l, td__arena *a, td__group_place *place)
{
    const char **hosts = td__arena_alloc(a, (size_t)l->members * sizeof *hosts);
    uint32_t hash = 2166136261u;

    for (int i = 0; hosts && i < l->members; i++)
        if (!(hosts[i] = td__arena_printf(a, "@HOST-%d@", i)))
            hosts = NULL;
    for (const char *c = l->g.token; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    /* Groups on one node do not share a port, as far as chance goes. */
    *place =
        (td__group_place){.hosts = hosts, .master_port = PORT_FIRST + (int)(hash % PORT_COUNT)};
    return hosts ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory for names of hosts");
}

static void batch_script(const slurm *s, const td__launch *l, const char *dir, td__text *out)
{
    const td__job_spec *p = l->spec;

    td__text_printf(out, "#!/bin/sh\n#SBATCH --job-name=%s\n#SBATCH --ntasks=%d\n", l->g.token,
                    l->members);
    td__text_printf(out, "#SBATCH --cpus-per-task=%d\n", p->slots > 0 ? p->slots : 1);
    if (p->memory_mb > 0)
        td__text_printf(out, "#SBATCH --mem-per-cpu=%lldM\n",
                        (long long)p->memory_mb / (p->slots > 0 ? p->slots : 1) + 1);
    if (p->gpus > 0)
        td__text_printf(out, "#SBATCH --gpus-per-task=%d\n", p->gpus);
    if (p->time_limit_s > 0)
        td__text_printf(out, "#SBATCH --time=%lld\n", (long long)p->time_limit_s / 60 + 1);
    if (p->pack)
        td__text_add(out, "#SBATCH --distribution=block\n");
    if (s->config->slurm_partition && s->config->slurm_partition[0])
        td__text_printf(out, "#SBATCH --partition=%s\n", s->config->slurm_partition);
    if (s->config->slurm_account && s->config->slurm_account[0])
        td__text_printf(out, "#SBATCH --account=%s\n", s->config->slurm_account);
    td__text_add(out, "#SBATCH --no-requeue\n#SBATCH --output=/dev/null\ncd ");
    td__shell_quote(out, dir);
    td__text_add(out,
                 " || exit 1\n"
                 "exec 2>batch.log\n"
                 "srun sh -c 'echo $SLURM_PROCID $(hostname)' >hosts || exit 1\n"
                 "while read -r m host; do\n"
                 "    sed -i \"s/@HOST-$m@/$host/g\" member-*.sh\n"
                 "done <hosts\n"
                 "mkdir -p artifacts rendezvous && export TANDEM_RENDEZVOUS=\"$PWD/rendezvous\"\n"
                 "srun --kill-on-bad-exit=0 --input=none sh -c 'dir=$1; shift; "
                 "exec sh \"$dir/task.sh\" $SLURM_PROCID \"$@\"' sh ");
    td__shell_quote(out, dir);
    for (int i = 0; l->g.command[i]; i++) {
        td__text_add(out, " ");
        td__shell_quote(out, l->g.command[i]);
    }
    td__text_add(out, "\n");
}

static td_status forget_dir(slurm *s, const char *dir)
{
    td__text out = {0};
    td_status st = run(s, (const char *const[]){"rm", "-rf", "--", dir, NULL}, NULL, &out);
    td__text_fini(&out);
    return st;
}

/* The directory is the claim: who finds it already there looks whether Slurm got the job. */
static td_status start(void *system, const td__launch *l)
{
    slurm *s = system;
    char dir[PATH];
    td__group_place place;
    td__text script = {0}, batch = {0}, out = {0}, found = {0};
    td__arena *a = NULL;
    td_status st;

    if (!l->g.command[0])
        return TD_FAIL(TD_EINVAL, "tracker slurm needs a command: key command or job");
    group_dir(s, l, dir);
    TD_TRY_OR(st, done, td__arena_create(&a));
    TD_TRY_OR(st, done, make_place(l, a, &place));
    TD_TRY_OR(st, done, td__member_dir_create(l, &place, dir, 0, l->members, &script));
    td__member_dir_made(&script);
    TD_TRY_OR(st, done, run_script(s, &script, &out));
    TD_TRY_OR(st, done, find_job(s, l->g.token, &found));
    if (found.used > 0)
        goto done; /* it was submitted before */
    if (out.used && strncmp(out.data, "old", 3) == 0) {
        td__seen *seen = td__calloc((size_t)l->members, sizeof *seen);
        td__text state = {0}, answer = {0};
        td__member_dir_state(dir, 0, l->members, false, &state);
        st = seen ? run_script(s, &state, &answer) : TD_FAIL(TD_ENOMEM, "out of memory");
        if (!st)
            td__member_dir_seen(answer.data, seen, l->members);
        bool ran = !st && seen[0].state != TD_SEEN_WAITING;
        td__text_fini(&state);
        td__text_fini(&answer);
        td__free(seen);
        if (st || ran)
            goto done; /* it ran, and Slurm has forgotten it */
    }
    batch_script(s, l, dir, &batch);
    TD_TRY_OR(st, done, td__text_status(&batch));
    st = run(s, (const char *const[]){"sbatch", "--parsable", NULL}, batch.data, &found);
    td__slurm_list_changed(s->jobs);
    if (st == TD_EINVAL) { /* refused */
        char text[1024];
        snprintf(text, sizeof text, "%s", td_last_error());
        (void)!forget_dir(s, dir);
        st = TD_FAIL(TD_EINVAL, "%s", text);
    }
done:
    td__arena_destroy(a);
    td__text_fini(&script);
    td__text_fini(&batch);
    td__text_fini(&out);
    td__text_fini(&found);
    return st;
}

/* ---- look, signal, output, forget ---- */

static bool is_waiting(const char *state)
{
    return strncmp(state, "PENDING", 7) == 0 || strncmp(state, "CONFIGURING", 11) == 0;
}

static bool is_live(const char *state)
{
    return is_waiting(state) || strncmp(state, "RUNNING", 7) == 0 ||
           strncmp(state, "SUSPENDED", 9) == 0 || strncmp(state, "COMPLETING", 10) == 0;
}

/* A member that did not write down its end: by what Slurm says of the job. */
static void settle(const char *job, td__seen *m)
{
    size_t n = strcspn(job, "|");

    if (is_waiting(job)) {
        const char *reason = job + n + (job[n] == '|');
        size_t r = strcspn(reason, "|\n");
        m->state = TD_SEEN_WAITING;
        m->queued = job[0] == 'P'; /* CONFIGURING has its nodes */
        if (strncmp(reason, "None", r) != 0 && strncmp(reason, "Resources", r) != 0 &&
            strncmp(reason, "Priority", r) != 0)
            snprintf(m->text, sizeof m->text, "%.*s", (int)r, reason);
    } else if (!is_live(job)) {
        bool lost = strncmp(job, "NODE_FAIL", 9) == 0 || strncmp(job, "PREEMPTED", 9) == 0 ||
                    strncmp(job, "BOOT_FAIL", 9) == 0;
        m->state = job[0] ? TD_SEEN_ENDED : TD_SEEN_ABSENT;
        m->exit_status = strncmp(job, "CANCELLED", 9) == 0 ? 143 : -1;
        m->exit_class = lost ? TD_EXIT_CLASS_LOST : TD_EXIT_CLASS_NONE;
        snprintf(m->text, sizeof m->text, "%.*s", (int)(n < 200 ? n : 200), job);
    }
}

/* Lines "host M NAME", once the batch job has asked its tasks where they are. */
static void read_hosts(const char *text, td__seen *seen, int members)
{
    char host[sizeof seen->host];
    int m;

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (sscanf(line, "host %d %127s", &m, host) == 2 && m >= 0 && m < members)
            memcpy(seen[m].host, host, sizeof host);
    }
}

static td_status look(void *system, const td__launch *l, td__seen *seen)
{
    slurm *s = system;
    char dir[PATH];
    td__text script = {0}, out = {0}, job = {0};
    td_status st;

    group_dir(s, l, dir);
    /* The job first: what it wrote down is there when Slurm says that it has ended. */
    TD_TRY_OR(st, done, td__slurm_list_find(s->jobs, l->g.token, &job));
    td__member_dir_state(dir, 0, l->members, false, &script);
    td__text_add(&script, "[ -e hosts ] && sed 's/^/host /' hosts\n:\n");
    TD_TRY_OR(st, done, run_script(s, &script, &out));
    td__member_dir_seen(out.data, seen, l->members);
    read_hosts(out.data, seen, l->members);
    for (int m = 0; m < l->members; m++)
        if (out.used && seen[m].state != TD_SEEN_ENDED)
            settle(job.data ? job.data : "", &seen[m]);
done:
    td__text_fini(&script);
    td__text_fini(&out);
    td__text_fini(&job);
    return st;
}

static td_status signal_members(void *system, const td__launch *l, int member,
                                td__track_signal what)
{
    slurm *s = system;
    char dir[PATH];
    td__text script = {0}, out = {0}, job = {0};
    td_status st = TD_OK;

    group_dir(s, l, dir);
    if (what == TD_TRACK_RESTART) {
        td__member_dir_restart(dir, member, &script);
        st = run_script(s, &script, &out);
        goto done;
    }
    td__text_printf(&script, "cd '%s' 2>/dev/null && >over\n:\n", dir);
    TD_TRY_OR(st, done, run_script(s, &script, &out));
    TD_TRY_OR(st, done, find_job(s, l->g.token, &job));
    if (!job.used || !is_live(job.data))
        goto done;
    /* A job that waits has no processes: it is taken out of the queue. */
    const char *terminate[] = {"scancel", "--signal=TERM", "--name", l->g.token, NULL};
    const char *cancel[] = {"scancel", "--name", l->g.token, NULL};
    bool gentle = what == TD_TRACK_STOP && !is_waiting(job.data);
    st = run(s, gentle ? terminate : cancel, NULL, &out);
    td__slurm_list_changed(s->jobs);
done:
    td__text_fini(&script);
    td__text_fini(&out);
    td__text_fini(&job);
    return st;
}

static td_status output(void *system, const td__launch *l, int member, bool follow,
                        td__cluster_sink sink, void *user)
{
    slurm *s = system;
    char dir[PATH], path[PATH + 32];

    group_dir(s, l, dir);
    snprintf(path, sizeof path, "%s/out-%d", dir, member);
    if (access(path, R_OK) != 0)
        return TD_OK; /* it has not begun */
    const char *tail[] = {"tail", "-c", "+1", "-f", path, NULL}, *cat[] = {"cat", path, NULL};
    return td__command(&(td__command_opts){.argv = follow ? tail : cat,
                                           .sink = sink,
                                           .sink_user = user,
                                           .until = td__deadline_in_ms(TAIL_MS),
                                           .stop = &s->stopped},
                       NULL);
}

/* The files in the job's directory go with the job; those in slurm.dir go here. */
static td_status forget(void *system, const char *token)
{
    slurm *s = system;
    char dir[PATH];
    td__text job = {0};
    td_status st;

    TD_TRY_OR(st, done, find_job(s, token, &job));
    if (job.used && is_live(job.data))
        st = run(s, (const char *const[]){"scancel", "--name", token, NULL}, NULL, &job);
    if (!st && s->config->slurm_dir && s->config->slurm_dir[0]) {
        snprintf(dir, sizeof dir, "%s/%s", s->config->slurm_dir, token);
        st = forget_dir(s, dir);
    }
done:
    td__text_fini(&job);
    return st;
}

static const td__cluster_ops OPS = {.open = open_slurm,
                                    .close = close_slurm,
                                    .stop = stop_slurm,
                                    .start = start,
                                    .look = look,
                                    .signal = signal_members,
                                    .output = output,
                                    .forget = forget,
                                    .shared_dir = true,
                                    .look_every_ms = 1000};

extern const td__tracker_ops td__tracker_slurm;
TD_CLUSTER_TRACKER(slurm, "slurm", "batch jobs of Slurm", OPS, .own_capacity = true,
                   .shares_dir = true, .place = place_of, .leaves_files = true);
