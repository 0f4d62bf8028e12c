# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN by its header and library and gives the target DNNL::dnnl. Not through oneDNN's own
# CMake package: Debian's also asks for the OpenCL development files, which we do not need.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(OneDNN_LIBRARY dnnl)
find_library(OneDNN_GOMP_LIBRARY NAMES gomp libgomp.so.1) # its thread pool, held to one thread
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY OneDNN_GOMP_LIBRARY)
if(OneDNN_INCLUDE_DIR)
  file(STRINGS ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h td_lines
    REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]+" "" td_lines "${td_lines}")
  string(REPLACE ";" "." OneDNN_VERSION "${td_lines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
  OneDNN_GOMP_LIBRARY
  VERSION_VAR OneDNN_VERSION)
if(OneDNN_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES
    IMPORTED_LOCATION ${OneDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR}
    INTERFACE_LINK_LIBRARIES ${OneDNN_GOMP_LIBRARY})
endif()
