/* .npy, .npz and safetensors: round trips, files of other programs, every allocation failing, and
 * files cut and flipped at every place.
 *
 * With TD_KEEP_FILES=DIR some files are left in DIR for tests/golden/tensor/make.py verify. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/hostile.h"
#include "tandem/tensor.h"

#define GOLDEN "tests/golden/tensor/"

static float a_data[6] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f}; /* (2, 3) */
static int64_t b_data = -7;
static uint8_t c_data[3] = {0, 1, 2};

static td_tensor wrap(td_dtype dtype, td_shape shape, void *data)
{
    td_tensor t;
    CHECK_OK(td_tensor_wrap(&t, dtype, shape, data));
    return t;
}

static void check_equal(const td_tensor *x, const td_tensor *y)
{
    td_tensor dense;
    char a[128], b[128];

    CHECK(x->dtype == y->dtype && td_shape_equal(&x->shape, &y->shape), "%s %s, not %s %s",
          td_dtype_name(x->dtype), td_shape_text(&x->shape, a, sizeof a), td_dtype_name(y->dtype),
          td_shape_text(&y->shape, b, sizeof b));
    CHECK_OK(td_tensor_contiguous(y, &dense));
    CHECK(td_tensor_is_contiguous(x), "not row-major");
    CHECK(!td_tensor_count(x) || memcmp(x->data, dense.data, td_tensor_nbytes(x)) == 0,
          "elements differ");
    td_tensor_fini(&dense);
}

/* Tensors worth saving: all types, all ranks, empty, and strided. */
enum { N_SAMPLES = TD_DTYPE_COUNT + 4 };
static void make_samples(td_tensor *t)
{
    td_tensor source;
    td_shape shape = TD_SCALAR;

    CHECK_OK(td_tensor_init(&source, TD_I32, TD_SHAPE(1, 2, 3, 1, 2, 2)));
    for (int i = 0; i < 24; i++)
        ((int32_t *)source.data)[i] = i * 5 % 7;
    for (int i = 0; i < TD_DTYPE_COUNT; i++)
        CHECK_OK(td_tensor_convert(&source, (td_dtype)i, &t[i]));
    CHECK_OK(td_tensor_init(&t[TD_DTYPE_COUNT], TD_F64, shape));
    CHECK_OK(td_tensor_init(&t[TD_DTYPE_COUNT + 1], TD_I64, TD_SHAPE(3, 0)));
    CHECK_OK(td_tensor_permute(&source, (int[]){5, 4, 3, 2, 1, 0}, &t[TD_DTYPE_COUNT + 2]));
    CHECK_OK(td_tensor_slice(&source, 2, 2, -9, -1, &t[TD_DTYPE_COUNT + 3]));
    td_tensor_fini(&source);
}

static void free_samples(td_tensor *t)
{
    for (int i = 0; i < N_SAMPLES; i++)
        td_tensor_fini(&t[i]);
}

static int set_up(void **state)
{
    (void)state;
    check_tmpdir();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    check_tmpdir_remove();
    return 0;
}

TEST(npy_round_trips)
{
    td_tensor t[N_SAMPLES], back;

    make_samples(t);
    for (int i = 0; i < N_SAMPLES; i++) {
        if (t[i].dtype == TD_BF16) {
            CHECK_STATUS(td_npy_save(check_path("x.npy"), &t[i]), TD_ENOTSUP);
            continue;
        }
        CHECK_OK(td_npy_save(check_path("x.npy"), &t[i]));
        CHECK_OK(td_npy_load(check_path("x.npy"), &back));
        check_equal(&back, &t[i]);
        td_tensor_fini(&back);
    }
    free_samples(t);
    CHECK_STATUS(td_npy_load(check_path("missing.npy"), &back), TD_EIO);
    CHECK_STATUS(td_npy_load(check_path(""), &back), TD_EIO);
}

TEST(npz_round_trips)
{
    td_tensor t[N_SAMPLES], back;
    td_named_tensor items[N_SAMPLES];
    char names[N_SAMPLES][16];
    int n = 0;
    td_npz *z;

    make_samples(t);
    for (int i = 0; i < N_SAMPLES; i++) {
        if (t[i].dtype == TD_BF16)
            continue;
        snprintf(names[n], sizeof names[n], "layer/%d", N_SAMPLES - i);
        items[n] = (td_named_tensor){names[n], &t[i]};
        n++;
    }
    for (int compress = 0; compress < 2; compress++) {
        CHECK_OK(td_npz_save(check_path("x.npz"), items, n, compress));
        CHECK_OK(td_npz_open(check_path("x.npz"), &z));
        CHECK_EQ_INT(td_npz_count(z), n);
        for (int i = 0; i < n; i++) {
            assert_string_equal(td_npz_name(z, i), items[i].name);
            CHECK_EQ_INT(td_npz_find(z, items[i].name), i);
            CHECK_OK(td_npz_load(z, i, &back));
            check_equal(&back, items[i].tensor);
            td_tensor_fini(&back);
        }
        CHECK_EQ_INT(td_npz_find(z, "layer"), -1);
        assert_null(td_npz_name(z, n));
        CHECK_STATUS(td_npz_load(z, n, &back), TD_EINVAL);
        td_npz_close(z);
    }
    td_npz_close(NULL);
    CHECK_OK(td_npz_save(check_path("none.npz"), NULL, 0, true));
    CHECK_OK(td_npz_open(check_path("none.npz"), &z));
    CHECK_EQ_INT(td_npz_count(z), 0);
    td_npz_close(z);

    td_named_tensor twice[] = {{"x", &t[0]}, {"x", &t[0]}}, nameless = {"", &t[0]};
    CHECK_STATUS(td_npz_save(check_path("x.npz"), twice, 2, false), TD_EINVAL);
    CHECK_STATUS(td_npz_save(check_path("x.npz"), &nameless, 1, false), TD_EINVAL);
    free_samples(t);
}

TEST(safetensors_round_trip)
{
    td_tensor t[N_SAMPLES];
    td_named_tensor items[N_SAMPLES];
    char names[N_SAMPLES][16];
    td_metadata meta[] = {{"format", "pt"}, {"note", "\"quoted\" \xc3\xbc \n"}};
    td_safetensors *s;

    make_samples(t);
    for (int i = 0; i < N_SAMPLES; i++) {
        snprintf(names[i], sizeof names[i], "w.%d", N_SAMPLES - i);
        items[i] = (td_named_tensor){names[i], &t[i]};
    }
    CHECK_OK(td_safetensors_save(check_path("x"), items, N_SAMPLES, meta, 2));
    CHECK_OK(td_safetensors_open(check_path("x"), &s));
    CHECK_EQ_INT(td_safetensors_count(s), N_SAMPLES);
    for (int i = 0; i < N_SAMPLES; i++) {
        int k = td_safetensors_find(s, names[i]);
        CHECK(k >= 0, "%s is lost", names[i]);
        assert_string_equal(td_safetensors_name(s, k), names[i]);
        td_tensor view = td_safetensors_tensor(s, k);
        check_equal(&view, &t[i]);
        CHECK((uintptr_t)view.data % td_dtype_size(view.dtype) == 0, "%s is unaligned", names[i]);
    }
    CHECK_EQ_INT(td_safetensors_find(s, "w"), -1);
    assert_null(td_safetensors_name(s, -1));
    CHECK_EQ_INT(td_safetensors_metadata_count(s), 2);
    for (int i = 0; i < 2; i++) {
        td_metadata m = td_safetensors_metadata(s, i);
        int k = strcmp(m.key, "note") == 0;
        assert_string_equal(m.key, meta[k].key);
        assert_string_equal(m.value, meta[k].value);
    }
    td_safetensors_close(s);
    td_safetensors_close(NULL);

    CHECK_OK(td_safetensors_save(check_path("none"), NULL, 0, NULL, 0));
    CHECK_OK(td_safetensors_open(check_path("none"), &s));
    CHECK_EQ_INT(td_safetensors_count(s), 0);
    td_safetensors_close(s);

    td_named_tensor bad[][2] = {
        {{"x", &t[0]}, {"x", &t[1]}},
        {{"x", &t[0]}, {"__metadata__", &t[1]}},
        {{"x", &t[0]}, {NULL, &t[1]}},
        {{"x", &t[0]}, {"\xff\xfe", &t[1]}},
        {{"x", &t[0]}, {"empty", &(td_tensor){.shape = {.ndim = -1}}}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(td_safetensors_save(check_path("bad"), bad[i], 2, NULL, 0), TD_EINVAL);
    td_metadata same[] = {{"k", "1"}, {"k", "2"}};
    CHECK_STATUS(td_safetensors_save(check_path("bad"), NULL, 0, same, 2), TD_EINVAL);
    free_samples(t);
}

TEST(files_of_other_programs)
{
    td_tensor a = wrap(TD_F32, TD_SHAPE(2, 3), a_data), b = wrap(TD_I64, TD_SCALAR, &b_data);
    td_tensor c = wrap(TD_U8, TD_SHAPE(3), c_data), got;
    static const char *const ARCHIVES[] = {GOLDEN "stored.npz", GOLDEN "deflated.npz"};
    td_npz *z;
    td_safetensors *s;

    for (int i = 0; i < 2; i++) {
        CHECK_OK(td_npz_open(ARCHIVES[i], &z));
        CHECK_EQ_INT(td_npz_count(z), 2);
        CHECK_OK(td_npz_load(z, td_npz_find(z, "a"), &got));
        check_equal(&got, &a);
        td_tensor_fini(&got);
        CHECK_OK(td_npz_load(z, td_npz_find(z, "b"), &got));
        check_equal(&got, &b);
        td_tensor_fini(&got);
        td_npz_close(z);
    }
    CHECK_OK(td_npy_load(GOLDEN "fortran_big_endian.npy", &got));
    check_equal(&got, &a);
    td_tensor_fini(&got);
    CHECK_OK(td_npy_load(GOLDEN "bool.npy", &got));
    td_tensor bools = wrap(TD_BOOL, TD_SHAPE(3), (uint8_t[]){1, 0, 1});
    check_equal(&got, &bools);
    td_tensor_fini(&got);

    CHECK_OK(td_safetensors_open(GOLDEN "python.safetensors", &s));
    CHECK_EQ_INT(td_safetensors_count(s), 2);
    got = td_safetensors_tensor(s, td_safetensors_find(s, "a"));
    check_equal(&got, &a);
    got = td_safetensors_tensor(s, td_safetensors_find(s, "b"));
    check_equal(&got, &c);
    assert_string_equal(td_safetensors_metadata(s, 0).value, "Python");
    td_safetensors_close(s);
}

/* Leave files for Python to look at. */
TEST(files_for_other_programs)
{
    const char *dir = getenv("TD_KEEP_FILES");
    td_tensor a = wrap(TD_F32, TD_SHAPE(2, 3), a_data), b = wrap(TD_I64, TD_SCALAR, &b_data);
    td_tensor c = wrap(TD_U8, TD_SHAPE(3), c_data), none = wrap(TD_BF16, TD_SHAPE(3, 0), NULL);
    td_tensor at;
    char path[4][256];
    static const char *const NAMES[] = {"stored.npz", "deflated.npz", "transposed.npy",
                                        "tandem.safetensors"};

    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", dir ? dir : check_path(""), NAMES[i]);
    CHECK_OK(td_tensor_permute(&a, (int[]){1, 0}, &at));
    td_tensor empty = wrap(TD_F16, TD_SHAPE(3, 0), NULL);
    td_named_tensor items[] = {{"a", &a}, {"b", &b}, {"empty", &empty}};
    CHECK_OK(td_npz_save(path[0], items, 3, false));
    CHECK_OK(td_npz_save(path[1], items, 3, true));
    CHECK_OK(td_npy_save(path[2], &at));
    td_named_tensor more[] = {
        {"a", &at}, {"b", &b}, {"empty", dir ? &empty : &none}, {"\xc3\xbc \"quoted\"\n", &c}};
    td_metadata meta[] = {{"format", "pt"}, {"k\xc3\xa4se", "\t"}};
    CHECK_OK(td_safetensors_save(path[3], more, 4, meta, 2));
    td_tensor_fini(&at);
}

static td_status read_npy(const char *path)
{
    td_tensor t;
    td_status st = td_npy_load(path, &t);
    td_tensor_fini(&t);
    return st;
}

static td_status read_npz(const char *path)
{
    td_npz *z;
    td_status st = td_npz_open(path, &z);
    for (int i = 0; !st && i < td_npz_count(z); i++) {
        td_tensor t;
        st = td_npz_load(z, i, &t);
        td_tensor_fini(&t);
    }
    td_npz_close(z);
    return st;
}

static td_status read_safetensors(const char *path)
{
    td_safetensors *s;
    td_status st = td_safetensors_open(path, &s);
    for (int i = 0; !st && i < td_safetensors_count(s); i++) {
        td_tensor view = td_safetensors_tensor(s, i), copy;
        st = td_tensor_convert(&view, TD_F32, &copy); /* reads every byte */
        td_tensor_fini(&copy);
    }
    td_safetensors_close(s);
    return st;
}

TEST(cut_and_flipped_files)
{
    static const struct {
        const char *path;
        td_status (*read)(const char *path);
    } FILES[] = {
        {GOLDEN "bool.npy", read_npy},
        {GOLDEN "fortran_big_endian.npy", read_npy},
        {GOLDEN "stored.npz", read_npz},
        {GOLDEN "deflated.npz", read_npz},
        {GOLDEN "python.safetensors", read_safetensors},
    };
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        size_t nbytes;
        void *good = check_read_file(FILES[i].path, &nbytes);
        check_hostile_file(FILES[i].read, check_path("hostile"), good, nbytes, nbytes);
        free(good);
    }
}

/* A flipped bit in the elements of an archive is always noticed. */
TEST(npz_checksums)
{
    td_tensor a = wrap(TD_F32, TD_SHAPE(2, 3), a_data);
    td_named_tensor item = {"a", &a};
    size_t nbytes;

    CHECK_OK(td_npz_save(check_path("x.npz"), &item, 1, false));
    unsigned char *file = check_read_file(check_path("x.npz"), &nbytes);
    size_t first = 30 + 5 + 128;
    CHECK(memcmp(file + first, a_data, sizeof a_data) == 0, "elements are not where I thought");
    for (size_t i = 35; i < first + sizeof a_data; i++) {
        file[i] ^= 0x10;
        check_write_file(check_path("x.npz"), file, nbytes);
        CHECK_STATUS(read_npz(check_path("x.npz")), TD_EPROTO);
        file[i] ^= 0x10;
    }
    free(file);
}

TEST(hostile_npy_headers)
{
    static const struct {
        const char *header;
        td_status want;
    } CASES[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", TD_OK},
        {"{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}", TD_OK},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", TD_OK},
        {"{'descr': '=i4', 'fortran_order': True, 'shape': (), }", TD_OK},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1), }", TD_ENOTSUP},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }",
         TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", TD_EPROTO},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", TD_ENOTSUP},
        {"{'descr': '|V2', 'fortran_order': False, 'shape': (2,), }", TD_ENOTSUP},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", TD_ENOTSUP},
        {"{'descr': '', 'fortran_order': False, 'shape': (1,), }", TD_ENOTSUP},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", TD_ENOTSUP},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, }", TD_EPROTO},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", TD_EPROTO},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }", TD_EPROTO},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", TD_EPROTO},
        {"{'descr': '<f4", TD_EPROTO},
        {"{", TD_EPROTO},
        {"", TD_EPROTO},
    };
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
            unsigned char file[256] = "\x93NUMPY";
            size_t len = strlen(CASES[i].header), at = version == 1 ? 10 : 12;
            file[6] = (unsigned char)version;
            file[8] = (unsigned char)len;
            memcpy(file + at, CASES[i].header, len);
            check_write_file(check_path("x"), file, at + len + 4);
            td_status st = read_npy(check_path("x"));
            bool cut_string = strcmp(CASES[i].header, "{'descr': '<f4") == 0;
            CHECK(st == CASES[i].want || (cut_string && st == TD_ENOTSUP),
                  "version %d, %s: %s (%s)", version, CASES[i].header, td_status_name(st),
                  st ? td_last_error() : "");
        }
    check_write_file(check_path("x"), "\x93NUMPY\x04\x00\x02\x00{}", 12);
    CHECK_STATUS(read_npy(check_path("x")), TD_ENOTSUP);
    check_write_file(check_path("x"), "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
    CHECK_STATUS(read_npy(check_path("x")), TD_EPROTO);
}

TEST(hostile_safetensors_headers)
{
#define F4 "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"
    static const struct {
        const char *header;
        td_status want;
    } CASES[] = {
        /* over 8 bytes of elements */
        {"{\"a\":{" F4 "[0,4]},\"b\":{" F4 "[4,8]}}", TD_OK},
        {"{\"b\":{" F4 "[4,8]},\"a\":{" F4 "[0,4]}}   ", TD_OK},
        {"{\"\":{\"shape\":[2],\"data_offsets\":[0,8],\"dtype\":\"F32\"}}", TD_OK},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8,1,1,1,1,1],\"data_offsets\":[0,8]}}", TD_OK},
        {"{\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
         "\"e\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[8,8]}}",
         TD_OK},
        {"{\"a\\u00e9\\n\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", TD_OK},
        {"{\"a\":{" F4 "[0,4]},\"b\":{" F4 "[0,4]}}", TD_EPROTO}, /* overlap, and a rest */
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},\"b\":{" F4 "[4,8]}}",
         TD_EPROTO},
        {"{\"a\":{" F4 "[4,8]}}", TD_EPROTO},  /* a hole at the start */
        {"{\"a\":{" F4 "[0,4]}}", TD_EPROTO},  /* a rest */
        {"{\"a\":{" F4 "[8,12]}}", TD_EPROTO}, /* outside */
        {"{\"a\":{" F4 "[4,0]}}", TD_EPROTO},
        {"{\"a\":{" F4 "[-4,0]}}", TD_EPROTO},
        {"{\"a\":{" F4 "[0,4,8]}}", TD_EPROTO},
        {"{\"a\":{" F4 "[0]}}", TD_EPROTO},
        {"{\"a\":{" F4 "[0,4.0]}}", TD_EPROTO},
        {"{\"a\":{" F4 "{}}}", TD_EPROTO},
        {"{\"a\":{" F4 "[0,99999999999999999999]}}", TD_EPROTO},
        {"{\"a\":{" F4 "[0,9223372036854775807]}}", TD_EPROTO},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387906],\"data_offsets\":[0,8]}}",
         TD_EPROTO},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         TD_EPROTO},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8,1,1,1,1,1,1],\"data_offsets\":[0,8]}}", TD_ENOTSUP},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", TD_ENOTSUP},
        {"{\"a\":{\"dtype\":1,\"shape\":[8],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"a\":{\"shape\":[8],\"data_offsets\":[0,8],\"x\":1}}", TD_EPROTO},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", TD_EPROTO},
        {"{\"a\":[1,2]}", TD_EPROTO},
        {"{\"a\":{" F4 "[0,4]},\"a\":{" F4 "[4,8]}}", TD_EPROTO}, /* the same name twice */
        {"{\"\\u0000\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"\xff\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"\\ud800\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"__metadata__\":{\"k\":1},"
         "\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
         TD_EPROTO},
        {"{\"__metadata__\":[],\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
         TD_EPROTO},
        {"{\"__metadata__\":{\"k\":{\"k\":\"v\"}}}", TD_EPROTO},
        {" {\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", TD_EPROTO},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}} x", TD_EPROTO},
        {"[]", TD_EPROTO},
        {"{}", TD_EPROTO},
        {"{", TD_EPROTO},
        {"", TD_EPROTO},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        unsigned char file[512] = {0};
        size_t len = strlen(CASES[i].header);
        file[0] = (unsigned char)(len & 0xff);
        file[1] = (unsigned char)(len >> 8);
        memcpy(file + 8, CASES[i].header, len);
        check_write_file(check_path("x"), file, 8 + len + 8);
        td_status st = read_safetensors(check_path("x"));
        CHECK(st == CASES[i].want, "%s: %s (%s)", CASES[i].header, td_status_name(st),
              st ? td_last_error() : "");
    }
}

/* Lengths that promise more than there is, and nesting deeper than any stack. */
TEST(huge_promises)
{
    static const unsigned char LENGTHS[][8] = {
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
        {0x00, 0xe1, 0xf5, 0x05, 0, 0, 0, 0}, /* 100,000,000 */
        {0x01, 0, 0, 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        unsigned char file[10] = {0};
        memcpy(file, LENGTHS[i], 8);
        file[8] = '{';
        file[9] = '}';
        check_write_file(check_path("x"), file, sizeof file);
        CHECK_STATUS(read_safetensors(check_path("x")), TD_EPROTO);
    }
    size_t deep = 1 << 20;
    unsigned char *file = malloc(8 + deep);
    CHECK(file, "no memory");
    memcpy(file, (unsigned char[]){0, 0, 0x10, 0, 0, 0, 0, 0}, 8);
    memcpy(file + 8, "{\"a\":", 5);
    memset(file + 13, '[', deep - 5);
    check_write_file(check_path("x"), file, 8 + deep);
    CHECK_STATUS(read_safetensors(check_path("x")), TD_EPROTO);
    free(file);

    /* A member that claims to inflate to more than deflate can. */
    size_t nbytes;
    unsigned char *z = check_read_file(GOLDEN "deflated.npz", &nbytes);
    for (size_t i = 0; i + 28 < nbytes; i++)
        if (memcmp(z + i, "PK\1\2", 4) == 0)
            memset(z + i + 24, 0x7f, 4); /* its uncompressed size */
    check_write_file(check_path("x"), z, nbytes);
    CHECK_STATUS(read_npz(check_path("x")), TD_EPROTO);
    free(z);
}

static td_status everything(void *unused)
{
    td_tensor a, t = {0}, at = {0};
    td_npz *z = NULL;
    td_safetensors *s = NULL;
    td_metadata meta = {"k", "v"};
    td_status st = TD_OK;

    (void)unused;
    CHECK_OK(td_tensor_wrap(&a, TD_F32, TD_SHAPE(2, 3), a_data));
    CHECK_OK(td_tensor_permute(&a, (int[]){1, 0}, &at));
    td_named_tensor items[] = {{"a", &a}, {"at", &at}};
    for (int compress = 0; !st && compress < 2; compress++) {
        st = td_npz_save(check_path("all.npz"), items, 2, compress);
        if (!st)
            st = td_npz_open(check_path("all.npz"), &z);
        if (!st)
            st = td_npz_load(z, 1, &t);
        td_tensor_fini(&t);
        td_npz_close(z);
        z = NULL;
    }
    if (!st)
        st = td_npy_save(check_path("all.npy"), &at);
    if (!st)
        st = td_npy_load(check_path("all.npy"), &t);
    td_tensor_fini(&t);
    if (!st)
        st = td_safetensors_save(check_path("all.st"), items, 2, &meta, 1);
    if (!st)
        st = td_safetensors_open(check_path("all.st"), &s);
    td_safetensors_close(s);
    td_tensor_fini(&at);
    return st;
}

TEST(every_allocation_may_fail)
{
    check_every_allocation(everything, NULL);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(npy_round_trips),
        WITH_DIR(npz_round_trips),
        WITH_DIR(safetensors_round_trip),
        WITH_DIR(files_of_other_programs),
        WITH_DIR(files_for_other_programs),
        WITH_DIR(cut_and_flipped_files),
        WITH_DIR(npz_checksums),
        WITH_DIR(hostile_npy_headers),
        WITH_DIR(hostile_safetensors_headers),
        WITH_DIR(huge_promises),
        WITH_DIR(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
