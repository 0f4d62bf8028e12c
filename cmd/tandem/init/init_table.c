/* init_table.c -- `tandem init` for tables: what each column is, and a small network over them.
 *
 * Every decision is written into the job as a line with its reason, so that it can be seen and
 * changed: columns that say nothing (constant, empty, a text of its own in each row) are left out
 * by name. A number beside dates or times alone is a time series, predicted from its own past. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/schema/schema.h"
#include "init.h"

enum {
    MOST_CATEGORIES = 64, /* of a column without data.features; more are hashed */
    FEW_CLASSES = 20,     /* so many whole numbers are classes, and up to */
    MOST_CLASSES = 100,   /* if they lie close together; else a number is to be predicted */
    HASHED_BUCKETS = 64,
    LEAST_ROWS = 10, /* for each text of a hashed column: with less, rows are learnt by heart */
    LONG_TEXT = 20,  /* bytes on average: words rather than a code */
    SEEN_ROWS = 50000,
    WANT_STEPS = 1500,
    MOST_BATCH = 64,
    WINDOW = 24,        /* rows of a time series that the next one is predicted from */
    LEAST_WINDOWS = 10, /* so many times that, at least: three parts, with gaps between them */
};

static const char TIMES[] =
    "dates or times; to predict from the rows before: data.window, and flatten first";

typedef enum role { LABEL, NUMERIC, ONE_HOT, HASHED, WORDS, LEFT_OUT } role;

typedef struct seen {
    role role;
    const char *why; /* LEFT_OUT */
    int64_t numbers, texts, missing, different;
    double least, most;
    bool whole;    /* all numbers are whole */
    size_t nbytes; /* of all texts */
} seen;

/* Does it begin as a date or a time of day does: "2024-01-31", "31.1.2024", "1/31/24", "12:30"? */
static bool is_time(const td__cell *c)
{
    size_t digits = 0, n = 0;

    while (digits < c->nbytes && c->text[digits] >= '0' && c->text[digits] <= '9')
        digits++;
    if (digits < 1 || digits > 4 || digits + 1 >= c->nbytes || !strchr("-/.:", c->text[digits]))
        return false;
    for (size_t i = digits + 1; i < c->nbytes && c->text[i] >= '0' && c->text[i] <= '9'; i++)
        n++;
    return n == 1 || n == 2;
}

/* Different values in the first rows. */
static td_status count_different(const td__records *r, int64_t at, seen *c)
{
    int64_t rows = r->rows < SEEN_ROWS ? r->rows : SEEN_ROWS, n = 0;
    td__cell *all = td__calloc((size_t)rows + 1, sizeof *all);

    if (!all)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for column '%s'", r->where, r->names[at]);
    for (int64_t i = 0; i < rows; i++)
        if (!td__missing_at(r, i, at))
            all[n++] = td__cell_at(r, i, at, NULL);
    qsort(all, (size_t)n, sizeof *all, td__cell_compare);
    for (int64_t i = 0; i < n; i++)
        c->different += i == 0 || td__cell_compare(&all[i - 1], &all[i]) != 0;
    td__free(all);
    return TD_OK;
}

static td_status look_at(const td__records *r, int64_t at, seen *c)
{
    double x;

    *c = (seen){.whole = true, .least = INFINITY, .most = -INFINITY};
    for (int64_t i = 0; i < r->rows; i++) {
        if (td__number_at(r, i, at, &x)) {
            c->numbers++;
            c->least = fmin(c->least, x);
            c->most = fmax(c->most, x);
            c->whole = c->whole && x == floor(x);
        } else if (td__missing_at(r, i, at)) {
            c->missing++;
        } else {
            c->texts++;
            c->nbytes += td__cell_at(r, i, at, NULL).nbytes;
        }
    }
    return count_different(r, at, c);
}

static int64_t find_label(const td__records *r)
{
    static const char *const NAMES[] = {"label", "target", "class", "y"};

    for (int i = 0; i < TD_LEN(NAMES); i++)
        for (int64_t c = 0; c < r->cols; c++)
            if (!strcasecmp(r->names[c], NAMES[i]))
                return c;
    return r->cols - 1;
}

static bool names_rows(const char *name)
{
    size_t n = strlen(name);

    return !n || !strcasecmp(name, "id") || !strcasecmp(name, "index") ||
           !strncasecmp(name, "unnamed", 7) || (n > 3 && !strcasecmp(name + n - 3, "_id"));
}

/* As far as its first rows tell: one text may begin as a time does. */
static bool all_times(const td__records *r, int64_t at)
{
    enum { ROWS = 100 };
    bool all = r->rows > 0;
    for (int64_t i = 0; all && i < r->rows && i < ROWS; i++) {
        td__cell c = td__cell_at(r, i, at, NULL);
        all = is_time(&c);
    }
    return all;
}

static void decide(const td__records *r, int64_t at, seen *c)
{
    int64_t rows = r->rows < SEEN_ROWS ? r->rows : SEEN_ROWS;
    bool own = c->different * 2 > rows && c->different > MOST_CATEGORIES;

    c->role = LEFT_OUT;
    if (!c->numbers && !c->texts)
        c->why = "no value in any row";
    else if (c->different == 1)
        c->why = "the same value in every row";
    else if (!c->texts && c->whole && c->different == rows && names_rows(r->names[at]))
        c->why = "it numbers the rows";
    else if (!c->texts)
        c->role = NUMERIC;
    else if (own && c->texts == r->rows && all_times(r, at))
        c->why = TIMES;
    else if (c->nbytes / (size_t)c->texts >= LONG_TEXT && own)
        c->role = WORDS;
    else if (c->different <= MOST_CATEGORIES)
        c->role = ONE_HOT;
    else if (c->different * LEAST_ROWS > rows && c->nbytes / (size_t)c->texts >= LONG_TEXT)
        c->role = WORDS;
    else if (c->different * LEAST_ROWS > rows)
        c->why = "too few rows for each of its texts";
    else
        c->role = HASHED;
}

/* One text alone is a text to classify. Beside other columns it needs more than this start. */
static void decide_words(const td__records *r, seen *cols, int64_t *words)
{
    int64_t others = 0;

    *words = -1;
    for (int64_t c = 0; c < r->cols; c++) {
        others += cols[c].role != LABEL && cols[c].role != LEFT_OUT && cols[c].role != WORDS;
        if (cols[c].role == WORDS && *words < 0)
            *words = c;
        else if (cols[c].role == WORDS)
            cols[c] = (seen){.role = LEFT_OUT, .why = "another text column is taken"};
    }
    if (*words >= 0 && others) {
        cols[*words].role = LEFT_OUT;
        cols[*words].why = "a text; data.features can have it as {text: NAME}, a field of its own";
        *words = -1;
    }
}

static void add_seen(td__text *t, const seen *c, int64_t rows)
{
    if (c->role == NUMERIC)
        td__text_printf(t, " # %.6g .. %.6g", c->least, c->most);
    else if (c->role == WORDS)
        td__text_printf(t, " # %zu bytes on average", c->nbytes / (size_t)c->texts);
    else
        td__text_printf(t, " # %" PRId64 " different values", c->different);
    if (c->missing)
        td__text_printf(t, ", %.3g %% missing", 100.0 * (double)c->missing / (double)rows);
    td__text_add(t, "\n");
}

static void add_features(td__text *t, const td__records *r, const seen *cols, bool series)
{
    static const char *const KINDS[] = {
        [NUMERIC] = "numeric", [ONE_HOT] = "one_hot", [HASHED] = "hashed", [WORDS] = "text"};

    td__text_add(t, "  features: # what columns become\n");
    for (int64_t c = 0; c < r->cols; c++) {
        seen own = cols[c];
        if (own.role == LABEL && series)
            own.role = NUMERIC;
        if (own.role == LABEL || own.role == LEFT_OUT)
            continue;
        td__text_printf(t, "    - {%s: ", KINDS[own.role]);
        td__init_word(t, r->names[c]);
        if (own.role == HASHED)
            td__text_printf(t, ", buckets: %d", HASHED_BUCKETS);
        td__text_add(t, "}");
        add_seen(t, &own, r->rows);
    }
    for (int64_t c = 0; c < r->cols; c++)
        if (cols[c].role == LEFT_OUT) {
            td__text_add(t, "    # left out: ");
            td__init_word(t, r->names[c]);
            td__text_printf(t, " (%s)\n",
                            series && cols[c].why == TIMES
                                ? "dates or times; the rows are in their order"
                                : cols[c].why);
        }
}

static void add_model(td__text *t, bool words, bool number, bool series)
{
    td__text_add(t, "model:\n");
    if (series)
        td__text_add(t, "  - flatten # the rows of a window, one after the other\n");
    if (words)
        td__text_add(t, "  - {bag: 64, padding: 0} # the mean of the words' vectors\n"
                        "  - dropout: 0.3\n"
                        "  - {linear: 64, act: relu}\n");
    else
        td__text_add(t, "  - {linear: 64, act: relu}\n"
                        "  - {linear: 64, act: relu}\n");
    td__text_printf(t, "  - linear # %s\n",
                    number ? "one value: the target is a number" : "one value per class");
}

/* What to do about missing cells: labels cannot be filled in. */
static const char *missing_word(const td__records *r, const seen *cols)
{
    bool feature = false;

    for (int64_t c = 0; c < r->cols; c++) {
        if (cols[c].role == LABEL && cols[c].missing)
            return "drop # rows without a label teach nothing";
        feature = feature || (cols[c].role != LEFT_OUT && cols[c].missing);
    }
    return feature ? "mean # of the column; or median, zero, drop" : NULL;
}

static bool is_number(const seen *y)
{
    if (y->texts || (y->whole && y->different <= FEW_CLASSES))
        return false;
    return !y->whole || y->different > MOST_CLASSES ||
           y->most - y->least >= 2 * (double)y->different;
}

/* Is there nothing to predict from but the label's own past? */
static bool is_series(const td__records *r, const seen *cols, int64_t label)
{
    bool times = false;

    for (int64_t c = 0; c < r->cols; c++) {
        if (cols[c].role != LABEL && cols[c].role != LEFT_OUT)
            return false;
        times = times || cols[c].why == TIMES;
    }
    return times && is_number(&cols[label]) && r->rows >= LEAST_WINDOWS * WINDOW;
}

static td_status write_job(td__init *in, const td__records *r, const seen *cols, int64_t label,
                           char delimiter, bool jsonl)
{
    td__text *t = &in->text;
    const seen *y = &cols[label];
    bool number = is_number(y), words = false, series = is_series(r, cols, label);
    td__init_sizes z = td__init_size((r->rows - y->missing) * 7 / 10, MOST_BATCH, WANT_STEPS);

    for (int64_t c = 0; c < r->cols; c++)
        words = words || cols[c].role == WORDS;
    td__text_printf(t, "# A table of %" PRId64 " rows and %" PRId64 " columns%s.\n", r->rows,
                    r->cols, series ? ": a time series" : "");
    td__text_printf(t, "name: %s\n", in->name);
    add_model(t, words, number, series);
    td__text_add(t, number ? "loss: huber # less moved by single far-off values than mse\n"
                             "metrics: [mae]\n"
                           : "metrics: [accuracy]\n");
    td__text_printf(t, "data:\n  source: %s\n  train: ", jsonl ? "jsonl" : "csv");
    td__init_word(t, in->seen);
    if (delimiter != ',')
        td__text_printf(t, "\n  delimiter: \"%s\"",
                        delimiter == '\t' ? "\\t" : (const char[2]){delimiter, 0});
    td__text_add(t, "\n  label: ");
    td__init_word(t, r->names[label]);
    td__text_printf(t, " # what is predicted; %" PRId64 " different values\n", y->different);
    td__text_printf(t, "  target: %s\n", number ? "number" : "class");
    const char *missing = missing_word(r, cols);
    if (missing)
        td__text_printf(t, "  missing: %s\n", missing);
    add_features(t, r, cols, series);
    if (series)
        td__text_printf(t,
                        "  window: %d # rows on end, from which the next one is predicted; further "
                        "ahead: horizon\n",
                        WINDOW);
    if (words)
        td__text_add(t, "  maps: [{tokenize: {unit: word, vocab: 10000, size: 64}}]\n");
    else if (number)
        td__text_add(t, "  maps: [normalize, {normalize: {field: y}}] # results are in the data's "
                        "units all the same\n");
    else
        td__text_add(t, "  maps: [normalize] # by means and deviations of the training part\n");
    td__text_printf(t, "  split: {valid: 0.15, test: 0.15} # %s\n",
                    series ? "the last rows, in their order"
                           : "drawn at random, the same every time");
    td__text_add(t, "  fit: train # nothing is measured on rows of those two parts\n");
    td__init_train(in, &z, "0.003", number ? "mae" : "accuracy");
    return td__text_status(t);
}

/* What is between the cells: of the first line, as it has names and seldom quotes. A comma is
 * believed wherever there is one. */
static char find_delimiter(const td__init *in, const uint8_t *text, size_t nbytes)
{
    static const char OTHERS[] = ";\t|";
    size_t n = strlen(in->path), most = 0;
    const uint8_t *end = nbytes ? memchr(text, '\n', nbytes) : NULL;
    size_t length = end ? (size_t)(end - text) : nbytes;
    char best = ',';

    if (n > 4 && !strcasecmp(in->path + n - 4, ".tsv"))
        return '\t';
    if (length && memchr(text, ',', length))
        return best;
    for (const char *d = OTHERS; *d; d++) {
        size_t count = 0;
        for (size_t i = 0; i < length; i++)
            count += text[i] == (uint8_t)*d;
        if (count > most) {
            most = count;
            best = *d;
        }
    }
    return best;
}

static td_status look_at_all(td__init *in, const td__records *r, seen *cols, char delimiter,
                             bool jsonl)
{
    int64_t label = in->label ? td__records_find(r, in->label) : find_label(r), words, taken = 0;

    if (label < 0)
        return td__no_column(r, in->label);
    for (int64_t c = 0; c < r->cols; c++) {
        TD_TRY(look_at(r, c, &cols[c]));
        if (c != label)
            decide(r, c, &cols[c]);
    }
    cols[label].role = LABEL;
    if (cols[label].different < 2)
        return TD_FAIL(TD_EINVAL,
                       "%s: column '%s' has one value in all rows: there is nothing to predict; "
                       "--label names another",
                       r->where, r->names[label]);
    decide_words(r, cols, &words);
    for (int64_t c = 0; c < r->cols; c++)
        taken += cols[c].role != LABEL && cols[c].role != LEFT_OUT;
    if (!taken && !is_series(r, cols, label))
        return TD_FAIL(TD_EINVAL, "%s: no column says anything about '%s'", r->where,
                       r->names[label]);
    return write_job(in, r, cols, label, delimiter, jsonl);
}

td_status td__init_table(td__init *in, bool jsonl)
{
    td__source_opts o = {.delimiter = ','};
    td__file_map m = {0};
    td__records r = {0};
    seen *cols = NULL;
    td_status st = TD_OK;

    TD_TRY(td__data_map(in->path, "a table", &m));
    TD_TRY_OR(st, done, td__records_init(&r, in->path));
    if (!jsonl)
        o.delimiter = find_delimiter(in, m.data, m.nbytes);
    TD_TRY_OR(st, done, (jsonl ? td__jsonl_parse : td__csv_parse)(&r, &o, m.data, m.nbytes));
    cols = td__calloc((size_t)r.cols, sizeof *cols);
    if (!cols) {
        st = TD_FAIL(TD_ENOMEM, "%s: no memory for its columns", in->path);
        goto done;
    }
    TD_TRY_OR(st, done, look_at_all(in, &r, cols, o.delimiter, jsonl));
done:
    td__free(cols);
    td__records_fini(&r);
    td__file_map_close(&m);
    return st;
}
