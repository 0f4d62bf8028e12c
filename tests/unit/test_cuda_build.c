/* test_cuda_build.c -- what can be said of the CUDA backend without a GPU: every operator has a
 * planner, and every file of kernels is in the library as machine code and PTX. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <elf.h>
#include <string.h>

#include "ops/op.h"
#include "support/check.h"
#include "support/sample.h"
#if TD_CUDA
#include "device/cuda/images.h"
#endif

static const bool PLANNED[TD_OP_COUNT] = {
#define TD_CUDA_KERNEL(OP, plan) [TD_OP_##OP] = true,
#include "backend/cuda/kernels.def"
#undef TD_CUDA_KERNEL
};

TEST(every_operator_has_a_planner)
{
    for (int op = 0; op < TD_OP_COUNT; op++) {
        const td_op_def *def = td__op((td_opcode)op);
        CHECK(PLANNED[op] || def->scalar || def->is_view || sample_is_exempt((td_opcode)op),
              "operator %s has no line in backend/cuda/kernels.def", def->name);
    }
}

#if TD_CUDA
/* The first place of `what` in an image; NULL: it is not there. */
static const unsigned char *find(const td__cuda_image *i, const void *what, size_t nbytes)
{
    return memmem(i->begin, (size_t)(i->end - i->begin), what, nbytes);
}

TEST(every_image_has_machine_code_and_ptx)
{
    enum { MACHINE_CUDA = 190 };
    CHECK(td__cuda_n_images > 10, "%d images", td__cuda_n_images);
    for (int k = 0; k < td__cuda_n_images; k++) {
        const td__cuda_image *i = &td__cuda_images[k];
        const unsigned char *elf = find(i, ELFMAG, SELFMAG);
        Elf64_Ehdr header;
        CHECK(elf && (size_t)(i->end - elf) > sizeof header, "%s: no ELF file in it", i->name);
        memcpy(&header, elf, sizeof header);
        CHECK_EQ_INT(header.e_machine, MACHINE_CUDA);
        CHECK(find(i, ".text.", 6), "%s: no kernel in it", i->name);
        CHECK(find(i, ".visible .entry", 15), "%s: no PTX in it", i->name);
    }
}

TEST(images_hold_the_kernels_of_their_file)
{
    static const struct {
        const char *image, *kernel;
    } SOME[] = {{"blocks", ".text.blocks_adam"},
                {"attention_tiles", ".text.attention_tiles_kv_64"},
                {"product", ".text.product_bf16"},
                {"lookup", ".text.lookup_sort"}};
    for (size_t k = 0; k < sizeof SOME / sizeof *SOME; k++) {
        bool found = false;
        for (int i = 0; i < td__cuda_n_images; i++)
            if (strcmp(td__cuda_images[i].name, SOME[k].image) == 0)
                found = find(&td__cuda_images[i], SOME[k].kernel, strlen(SOME[k].kernel));
        CHECK(found, "image %s lacks %s", SOME[k].image, SOME[k].kernel);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_planner),
#if TD_CUDA
        cmocka_unit_test(every_image_has_machine_code_and_ptx),
        cmocka_unit_test(images_hold_the_kernels_of_their_file),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
