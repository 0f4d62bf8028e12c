/* Names that become known later: of containers and pods that start beside the one that asks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/socket.h"
#include "support/check.h"

static int asked, unknown, answer;

/* In place of the C library's: the first `unknown` times the name stands for no host, then for this
 * one. */
int getaddrinfo(const char *restrict node, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict out)
{
    static struct addrinfo found;
    static struct sockaddr_in at;

    (void)node;
    asked++;
    if (unknown && unknown-- > 0)
        return answer;
    at = (struct sockaddr_in){.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)strtol(service, NULL, 10)),
                              .sin_addr = {htonl(INADDR_LOOPBACK)}};
    found = (struct addrinfo){.ai_family = AF_INET,
                              .ai_socktype = hints->ai_socktype,
                              .ai_addr = (struct sockaddr *)&at,
                              .ai_addrlen = sizeof at};
    *out = &found;
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    (void)found;
}

TEST(a_name_becomes_known)
{
    static const int LATER[] = {EAI_NONAME, EAI_AGAIN, EAI_NODATA};
    char address[TD_ADDRESS_BYTES], named[TD_ADDRESS_BYTES];
    int listener, fd;

    CHECK_OK(td__socket_listen("127.0.0.1:0", &listener, address));
    snprintf(named, sizeof named, "member-0%s", strrchr(address, ':'));
    for (size_t i = 0; i < sizeof LATER / sizeof *LATER; i++) {
        asked = 0;
        unknown = 3;
        answer = LATER[i];
        CHECK_OK(td__socket_connect(named, td__deadline_in_ms(20000), &fd));
        assert_int_equal(asked, 4);
        close(fd);
    }
    close(listener);
}

TEST(a_name_that_stays_unknown)
{
    int fd;

    unknown = 1000000;
    answer = EAI_NONAME;
    CHECK_STATUS(td__socket_connect("member-0:1", td__deadline_in_ms(150), &fd), TD_ETIMEDOUT);
    assert_non_null(strstr(td_last_error(), "member-0:1"));
    asked = 0;
    answer = EAI_FAIL; /* no later answer is expected */
    CHECK_STATUS(td__socket_connect("member-0:1", td__deadline_in_ms(20000), &fd), TD_EINVAL);
    assert_int_equal(asked, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_becomes_known),
        cmocka_unit_test(a_name_that_stays_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
