/* launch.c -- `tandem launch`: run a program in many ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent_http.h"
#include "base/check.h"
#include "command.h"
#include "elastic_args.h"
#include "launch/foreign/foreign.h"
#include "mpi_program.h"

/* Elastic ranks of a program that does not join as tandem train does: whenever there are to be
 * others, all are started again, as a world of fixed ranks. */
static int begin_worlds(const td__args *a, td__launch_opts *o)
{
    if (o->spares)
        return td__usage_error(a, "--spares: programs that do not join as tandem train does are "
                                  "started again in a new world, and have none");
    o->min_world = o->min_ranks;
    o->size = o->most;
    o->restarts = o->crashes;
    o->min_ranks = o->most = o->crashes = 0;
    o->capped = false;
    return 0;
}

/* The framework of the program: --framework, or the MPI library that it is linked with. Warns of an
 * MPI program that would run as singletons. */
static int find_framework(const td__args *a, const char *program, td__launch_opts *o)
{
    const char *asked = td__args_value(a, "framework");
    char library[64], names[64];
    bool mpi = td__mpi_program(program, library, sizeof library);
    bool ours = asked && strcmp(asked, "tandem") == 0;

    if (asked && !ours && strcmp(asked, "none") != 0) {
        if (!td__foreign_known(asked))
            return td__usage_error(a, "--framework: expected %s, tandem or none, found '%s'",
                                   td__foreign_names(names, sizeof names), asked);
        if (td__foreign_check(asked, o->http))
            return td__usage_error(a, "--framework %s: %s", asked, td_last_error());
        o->framework = asked;
    }
    if (o->most && !ours && (asked || !td__program_joins(program))) {
        int rc = begin_worlds(a, o);
        if (rc)
            return rc;
        if (!asked)
            fprintf(stderr,
                    "tandem launch: %s does not join as tandem train does: whenever a rank fails "
                    "or hosts come and go, all its ranks are started again in a new world\n",
                    program);
    }
    if (!mpi || o->framework || ours)
        return 0;
    const char *name = td__mpi_framework(library), *why = "";
    if (asked)
        why = "--framework is none";
    else if (o->most)
        why = "the ranks are elastic";
    else if (td__foreign_check(name, o->http))
        why = td_last_error();
    else
        o->framework = name;
    if (!o->framework)
        fprintf(stderr,
                "tandem launch: %s is an MPI program (%s), and gets no world here, as %s: each "
                "rank runs as a singleton, alone in a world of one; start it with mpirun -n %d\n",
                program, library, why, o->size ? o->size : 2);
    return 0;
}

static int run(const td__args *a)
{
    long n;
    char self[4096] = "tandem";
    td__launch_opts o = {.hosts = td__args_value(a, "hosts"),
                         .hosts_file = td__args_value(a, "hosts-file"),
                         .ssh = td__args_value(a, "ssh"),
                         .self = td__args_value(a, "agent"),
                         .listen = td__args_value(a, "listen"),
                         .log_dir = td__args_value(a, "log-dir"),
                         .roles = td__args_value(a, "roles"),
                         .tls = td__args_has(a, "tls"),
                         .http = td__agent_http()};
    const char *grace = td__args_value(a, "grace");
    int rc = td__elastic_args(a, &o);
    if (rc)
        return rc;
    o.control = td__args_value(a, "control");
    if (!o.most && !td__args_int(a, "ranks", 1, 65536, 0, &n))
        return TD_EXIT_USAGE;
    n = o.most ? o.most : n;
    o.size = (int)n;
    if (!n && !o.hosts && !o.hosts_file)
        return td__usage_error(a, "the number of ranks is missing: give -n N or --hosts");
    if (o.hosts && o.hosts_file)
        return td__usage_error(a, "give --hosts or --hosts-file, not both");
    if (o.hosts_file && access(o.hosts_file, R_OK))
        return td__usage_error(a, "--hosts-file: cannot read %s: %s", o.hosts_file,
                               strerror(errno));
    if (grace && !td__parse_ms(grace, &o.grace_ms))
        return td__usage_error(
            a, "--grace: expected a time such as 5s or 200ms, up to 2000000s, found '%s'", grace);
    o.n_env = td__args_values(a, "env", &o.env);
    for (int i = 0; i < o.n_env; i++)
        if (!strchr(o.env[i], '=') || o.env[i][0] == '=')
            return td__usage_error(a, "--env: expected KEY=VALUE, found '%s'", o.env[i]);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0)
        self[length] = 0;
    if (!o.self)
        o.self = self;

    int count = td__args_count(a), exit_status = 0;
    const char **argv = calloc((size_t)count + 1, sizeof *argv);
    if (!argv)
        return td__usage_error(a, "out of memory");
    for (int i = 0; i < count; i++)
        argv[i] = td__args_at(a, i);
    rc = find_framework(a, argv[0], &o);
    if (!rc && o.roles && o.most)
        rc = td__usage_error(a, "--roles: elastic ranks that join as tandem train does have no "
                                "roles; give -n N, or --framework for a program of another system");
    td_status st = rc ? TD_OK : td__launch_run(&o, argv, &exit_status);
    free(argv);
    return rc ? rc : st ? td__failure(a, st) : exit_status;
}

static const td__flag FLAGS[] = {
    {"ranks", 'n', "N", "number of ranks; with hosts, at most their slots. 2:8: elastic", NULL},
    TD_FLAGS_ELASTIC,
    {"control", 0, "FILE", "write the job's address to FILE, for `tandem status FILE` and `scale`",
     "FILE"},
    {"hosts", 0, "HOST:SLOTS,...", "the hosts and how many ranks each may run", NULL},
    {"hosts-file", 0, "FILE", "the same, a line 'HOST:SLOTS' or 'HOST slots=N' each", "FILE"},
    {"ssh", 0, "COMMAND", "command that starts agents: COMMAND HOST PROGRAM agent (ssh)", NULL},
    {"agent", 0, "PATH", "path of this program on the other hosts (its path here)", "FILE"},
    {"listen", 0, "ADDRESS", "address of the first host, as seen by the others (by route)", NULL},
    {"tls", 0, NULL, "encrypt the connections between ranks", NULL},
    {"log-dir", 0, "DIR", "write rank-N.log there for each rank", "FILE"},
    {"framework", 0, "NAME",
     "framework of the program: mpich, openmpi or horovod get a rendezvous, none does not, tandem "
     "joins elastic ranks; without it the program's libraries decide",
     NULL},
    {"roles", 0, "NAME:N,...",
     "roles of the first ranks, such as chief:1,ps:2 for TensorFlow; the others are workers", NULL},
    {"env", 0, "KEY=VALUE", "set a variable for all ranks; may be given several times", NULL},
    {"grace", 0, "TIME", "time between SIGTERM and SIGKILL after a rank failed (5s)", NULL},
    {NULL, 0, NULL, NULL, NULL},
};

static const char *const EXAMPLES[] = {
    "tandem launch -n 4 -- tandem train digits.yaml",
    "four ranks on this host",
    "tandem launch --hosts a:4,b:4 --log-dir logs -- python3 ddp.py",
    "eight ranks of a PyTorch program on two hosts",
    NULL,
};

const td__command td__command_launch = {
    .name = "launch",
    .args = "PROGRAM [ARGUMENT...]",
    .summary = "run a program in many ranks, on this host or over ssh",
    .text =
        "Starts one agent per host, and through it the ranks. Each rank finds RANK, "
        "LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TF_CONFIG, "
        "HOROVOD_*, OMPI_COMM_WORLD_* and TANDEM_* in its environment. Output comes line by "
        "line, after [rank].\n\n"
        "When a rank fails, the others are ended, the last lines of the first that failed "
        "are shown again, and its exit status is ours (128 + N for signal N). Ctrl-C ends "
        "all ranks (130); a second one at once.\n\n"
        "With -n 2:8 or --elastic a rank that fails is replaced, one that is silent for the lease "
        "is killed, hosts may be lost, and the job continues as long as the minimum number of "
        "ranks is there. Programs take part in this as tandem train does; of others (PyTorch's, "
        "MPI's, and all with --framework but tandem's) all ranks are ended and started again in a "
        "new world, as under torchrun, when one fails or hosts come and go.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = -1,
    .run = run,
};
