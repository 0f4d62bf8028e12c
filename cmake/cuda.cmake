# SPDX-License-Identifier: Apache-2.0
# CUDA: where nvcc and the toolkit's headers are, the device and backend `cuda` are part of the
# library. Nothing is linked with CUDA: driver and libraries are loaded when a GPU is asked for.
#
# Every src/**/*.cu becomes a fat binary (machine code for Hopper, PTX for all others from Ampere
# on), which the library holds. The same files compiled as C++ for the processor, with a stand-in
# for the driver, are what tests use on machines without a GPU (tests/emulator/).
set(TD_CUDA AUTO CACHE STRING "Build for NVIDIA GPUs: AUTO (if nvcc is there), ON, OFF")
set_property(CACHE TD_CUDA PROPERTY STRINGS AUTO ON OFF)
set(td_cuda 0)
set(td_cudnn 0)
set(td_cuda_text "off (-DTD_CUDA=OFF)")
if(NOT TD_CUDA STREQUAL "OFF")
  set(td_cache "$ENV{HOME}/.cache")
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(td_cache "$ENV{XDG_CACHE_HOME}")
  endif()
  # Where there is no toolkit: what tools/setup-cuda has put there.
  find_program(TD_NVCC nvcc PATHS /usr/local/cuda/bin ${td_cache}/tandem/cuda-13.0/bin)
  if(TD_NVCC)
    get_filename_component(td_cuda_root ${TD_NVCC} REALPATH)
    get_filename_component(td_cuda_root ${td_cuda_root} DIRECTORY)
    find_path(TD_CUDA_INCLUDE cuda.h HINTS ${td_cuda_root}/../include
      ${td_cuda_root}/../targets/x86_64-linux/include NO_DEFAULT_PATH)
    find_path(TD_CUBLASLT_INCLUDE cublasLt.h HINTS ${TD_CUDA_INCLUDE} NO_DEFAULT_PATH)
    find_path(TD_CUDNN_INCLUDE cudnn_graph.h HINTS ${TD_CUDA_INCLUDE})
  endif()
  if(TD_NVCC AND TD_CUDA_INCLUDE AND TD_CUBLASLT_INCLUDE)
    set(td_cuda 1)
    execute_process(COMMAND ${TD_NVCC} --version OUTPUT_VARIABLE td_nvcc_version)
    string(REGEX MATCH "V[0-9.]+" td_nvcc_version "${td_nvcc_version}")
    set(td_cuda_text "nvcc ${td_nvcc_version} (${TD_NVCC}): backend cuda is built in")
    if(TD_CUDNN_INCLUDE)
      set(td_cudnn 1)
      string(APPEND td_cuda_text ", with cuDNN")
    else()
      string(APPEND td_cuda_text ", without cuDNN (no cudnn_graph.h)")
    endif()
  elseif(NOT TD_NVCC)
    set(td_cuda_text "none: no nvcc was found (tools/setup-cuda installs one)")
  else()
    set(td_cuda_text "none: cuda.h or cublasLt.h is missing beside ${TD_NVCC}")
  endif()
  if(TD_CUDA STREQUAL "ON" AND NOT td_cuda)
    message(FATAL_ERROR "TD_CUDA=ON, but CUDA is ${td_cuda_text}")
  endif()
endif()

set(td_cuda_sources "")
if(td_cuda)
  file(GLOB_RECURSE td_cuda_kernels CONFIGURE_DEPENDS src/*.cu)
  file(GLOB_RECURSE td_cuda_headers CONFIGURE_DEPENDS src/*.cuh src/*/cuda/kernels/*.h)
  set(td_cuda_flags -std=c++17 -I${CMAKE_SOURCE_DIR}/src -Xcompiler -Wall
    --fatbin -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_80,code=compute_80
    -no-compress)
  if(TD_WERROR)
    list(APPEND td_cuda_flags -Werror all-warnings)
  endif()
  set(td_images_c ${CMAKE_BINARY_DIR}/cuda/images.c)
  set(td_images "")
  set(td_image_text "/* Generated: the fat binaries of all kernels. */\n")
  string(APPEND td_image_text "#include \"device/cuda/images.h\"\n\n")
  set(td_image_table "")
  foreach(source IN LISTS td_cuda_kernels)
    get_filename_component(name ${source} NAME_WE)
    set(image ${CMAKE_BINARY_DIR}/cuda/${name}.fatbin)
    if(image IN_LIST td_images)
      message(FATAL_ERROR "${source}: another file of CUDA code is called ${name}.cu")
    endif()
    # Blocks of params have the same bits on every device: no fused products there.
    set(own "")
    if(name STREQUAL "blocks")
      set(own -fmad=false -ftz=true)
    endif()
    add_custom_command(OUTPUT ${image}
      COMMAND ${TD_NVCC} ${td_cuda_flags} ${own} -o ${image} ${source}
      DEPENDS ${source} ${td_cuda_headers} VERBATIM COMMENT "nvcc ${name}.cu")
    list(APPEND td_images ${image})
    string(APPEND td_image_text
      "__asm__(\".pushsection .rodata\\n.balign 64\\ntd__image_${name}:\\n\"\n"
      "        \".incbin \\\"${image}\\\"\\n\"\n"
      "        \"td__image_${name}_end:\\n.byte 0\\n.popsection\\n\");\n"
      "extern const unsigned char td__image_${name}[], td__image_${name}_end[];\n")
    string(APPEND td_image_table
      "    {\"${name}\", td__image_${name}, td__image_${name}_end},\n")
  endforeach()
  string(APPEND td_image_text "\nconst td__cuda_image td__cuda_images[] = {\n${td_image_table}};\n"
    "const int td__cuda_n_images = (int)(sizeof td__cuda_images / sizeof *td__cuda_images);\n")
  file(CONFIGURE OUTPUT ${td_images_c} CONTENT "${td_image_text}" @ONLY)
  set_source_files_properties(${td_images_c} PROPERTIES OBJECT_DEPENDS "${td_images}")
  list(APPEND td_cuda_sources ${td_images_c})

  # The stand-in for the driver.
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    file(GLOB td_emulator CONFIGURE_DEPENDS tests/emulator/*.cpp)
    list(FILTER td_emulator EXCLUDE REGEX "/nccl\\.cpp$")
    set_source_files_properties(${td_cuda_kernels} PROPERTIES LANGUAGE CXX
      COMPILE_OPTIONS "-xc++;-include;${CMAKE_SOURCE_DIR}/tests/emulator/device.h"
      OBJECT_DEPENDS "${CMAKE_SOURCE_DIR}/tests/emulator/device.h")
    add_library(td_emulated_cuda MODULE ${td_emulator} ${td_cuda_kernels})
    set_target_properties(td_emulated_cuda PROPERTIES OUTPUT_NAME emulated_cuda PREFIX lib
      CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_include_directories(td_emulated_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_include_directories(td_emulated_cuda SYSTEM PRIVATE ${TD_CUDA_INCLUDE})
    target_link_options(td_emulated_cuda PRIVATE -Wl,--no-undefined)
    target_compile_options(td_emulated_cuda PRIVATE -g -O2 -ffp-contract=off -Wall -Wextra
      -Wno-unused-function -Wno-unknown-pragmas
      -fno-strict-aliasing $<$<BOOL:${TD_WERROR}>:-Werror>)
    # That for NCCL.
    add_library(td_emulated_nccl MODULE tests/emulator/nccl.cpp)
    set_target_properties(td_emulated_nccl PROPERTIES OUTPUT_NAME emulated_nccl PREFIX lib
      CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_link_libraries(td_emulated_nccl PRIVATE Threads::Threads)
    target_compile_options(td_emulated_nccl PRIVATE -g -O2 -Wall -Wextra
      $<$<BOOL:${TD_WERROR}>:-Werror>)
    if(TD_SANITIZE MATCHES "thread") # its threads wait by atomics, which must be seen
      target_compile_options(td_emulated_nccl PRIVATE -fsanitize=thread)
      target_link_options(td_emulated_nccl PRIVATE -fsanitize=thread)
    endif()
    add_dependencies(td_emulated_cuda td_emulated_nccl)
  endif()
endif()
