# SPDX-License-Identifier: Apache-2.0
# How a test becomes known to ctest: its labels, its timeout, its longer form.
#
# A test's labels are its folder (unit, dist, ...), `fast` or `slow`, and what a line "Test labels:"
# in its own file says:
#   slow        takes more than four seconds on a quiet machine; the others are `fast`
#   full        has a longer form (environment: TD_TEST_FULL=1), which is a second test NAME_full
#               that only `ctest -C full` (make test-full) runs
#   one-thread  creates no thread, so that the thread sanitizer has nothing to find: the test is
#               left out there. Creating a thread all the same ends it (support/one_thread.c).
enable_testing()
set(td_timeout 600) # seconds, against hangs; sanitizers are several times slower
if(TD_SANITIZE)
  set(td_timeout 1800)
endif()
set(td_timeout_full 3600)

# td_labels(SOURCE VARIABLE): the labels of the test in that file
function(td_labels source variable)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} line REGEX "Test labels:" LIMIT_COUNT 1)
  string(REGEX REPLACE ".*Test labels:" "" line "${line}")
  string(REGEX MATCHALL "[a-z-]+" labels "${line}")
  foreach(label IN LISTS labels)
    if(NOT label MATCHES "^(slow|full|one-thread)$")
      message(FATAL_ERROR "${source}: there is no test label '${label}'")
    endif()
  endforeach()
  if(NOT "slow" IN_LIST labels)
    list(APPEND labels fast)
  endif()
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  set(${variable} ${folder} ${labels} PARENT_SCOPE)
endfunction()

# td_add_test(NAME LABELS label... COMMAND argument... [ENVIRONMENT NAME=VALUE...]
#             [CONFIGURATIONS name])
function(td_add_test name)
  cmake_parse_arguments(arg "" "" "LABELS;COMMAND;ENVIRONMENT;CONFIGURATIONS" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND} CONFIGURATIONS ${arg_CONFIGURATIONS}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${td_timeout}
    ENVIRONMENT "${arg_ENVIRONMENT}")
  if("e2e" IN_LIST arg_LABELS) # of a script; of a program 77 is a number of failures
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
  if("slow" IN_LIST arg_LABELS) # before the others, or the last of them runs alone
    set_tests_properties(${name} PROPERTIES COST 10)
  endif()
  if("full" IN_LIST arg_LABELS)
    list(REMOVE_ITEM arg_LABELS full fast)
    td_add_test(${name}_full LABELS ${arg_LABELS} COMMAND ${arg_COMMAND}
      CONFIGURATIONS full ENVIRONMENT ${arg_ENVIRONMENT} TD_TEST_FULL=1)
    set_tests_properties(${name}_full PROPERTIES TIMEOUT ${td_timeout_full})
  endif()
endfunction()
