/* source_parquet.c -- Parquet files as tables (records.h): flat columns, as pyarrow, pandas, Spark
 * and DuckDB write them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format/parquet.h"

static const td__table_format FORMAT = {
    .source = "parquet",
    .expected = "a Parquet file",
    .parse = td__parquet_parse,
};

static td_status parquet_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, NULL, out);
}

static td_status parquet_open_fitted(const td__source_opts *o, const char *part, const td__fit *fit,
                                     td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, fit, NULL, out);
}

static td_status parquet_open_cut(const td__source_opts *o, const char *part,
                                  const struct td__split *cut, td__dataset **out)
{
    return td__records_open(&FORMAT, o, part, NULL, cut, out);
}

const td__source_def td__source_parquet = {
    .name = "parquet",
    .help = "Parquet files with flat columns, plain or compressed by snappy, gzip or zstd: a label "
            "column and feature columns",
    .reads = "dir train valid test label columns features missing fit window horizon stride target",
    .open = parquet_open,
    .open_fitted = parquet_open_fitted,
    .open_cut = parquet_open_cut,
};
