# SPDX-License-Identifier: Apache-2.0
# The training service, src/rpc, src/remote and src/service: a static library, td_service, that only
# the program and the tests link, so that libtandem needs none of its libraries.
# td_service names the target, and is empty where TD_SERVICE is OFF.
set(td_service "")
if(NOT TD_SERVICE)
  return()
endif()

set(td_service_libraries "")
foreach(module IN ITEMS sqlite3)
  string(REPLACE "-" "_" id ${module})
  pkg_check_modules(TD_SERVICE_${id} REQUIRED IMPORTED_TARGET ${module})
  list(APPEND td_service_libraries PkgConfig::TD_SERVICE_${id})
endforeach()

file(GLOB_RECURSE td_service_sources CONFIGURE_DEPENDS
  src/rpc/*.c src/remote/*.c src/service/*.c)
add_library(td_service STATIC ${td_service_sources})
target_link_libraries(td_service PRIVATE td_flags td_exact)
target_link_libraries(td_service PUBLIC ${td_service_libraries} ${td_libraries})
target_compile_definitions(td_service PUBLIC TD_HAVE_SERVICE=1)
set(td_service td_service)
