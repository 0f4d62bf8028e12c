/* postgres.h -- the rows of a query to a PostgreSQL server as a table, by libpq, which is loaded
 * when it is first needed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_POSTGRES_H
#define TD_DATA_POSTGRES_H

#include "data/records.h"

/* Does the name of a part mean a server: postgresql://HOST/DATABASE? */
bool td__is_postgres(const char *name);
/* Ask it. A query that gives no bytes for a minute, or takes more than ten, is ended. */
TD_NODISCARD td_status td__postgres_read(td__records *r, const char *uri, const char *query);

#endif
