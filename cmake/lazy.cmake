# SPDX-License-Identifier: Apache-2.0
# Libraries that the program loads when it first calls them, so that a command starts with those
# that it needs: `tandem train` of a small model without oneDNN, nothing without libcurl and the
# thirty libraries behind it. For each function of such a library the program has a stub of that
# name (lazy_stubs.cmake); cmd/tandem/lazy_load.c finds the function behind it. The linker then
# finds nothing that it needs the library for, and leaves it out (--as-needed).
#
# td_lazy(TARGET PREFIXES LIBRARY): functions whose names begin with one of PREFIXES (a|b). Only
# functions can be had in this way; a library of which data is used stays as it is.
# BUILD/tandem.libraries has their paths, for whoever packs the program.
set(td_lazy_list ${CMAKE_BINARY_DIR}/tandem.libraries)
file(WRITE ${td_lazy_list} "")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" OR TD_SANITIZE)
  function(td_lazy) # sanitizers want to see libraries from the start; other stubs are not written
  endfunction()
  return()
endif()
enable_language(ASM)

function(td_lazy target prefixes library)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library} OUTPUT_VARIABLE headers
    COMMAND_ERROR_IS_FATAL ANY)
  if(NOT headers MATCHES "SONAME +([^\n ]+)")
    message(FATAL_ERROR "${library} has no name to load it by")
  endif()
  set(soname ${CMAKE_MATCH_1})
  get_filename_component(name ${library} NAME_WE)
  get_filename_component(folder ${library} DIRECTORY)
  set(stubs ${CMAKE_BINARY_DIR}/generated/lazy_${name}.s)
  add_custom_command(OUTPUT ${stubs}
    COMMAND ${CMAKE_COMMAND} -DLIBRARY=${library} -DSONAME=${soname} "-DPREFIXES=${prefixes}"
      -DOUTPUT=${stubs} -DNM=${CMAKE_NM} -P ${CMAKE_SOURCE_DIR}/cmake/lazy_stubs.cmake
    DEPENDS ${library} ${CMAKE_SOURCE_DIR}/cmake/lazy_stubs.cmake VERBATIM)
  target_sources(${target} PRIVATE ${stubs})
  file(APPEND ${td_lazy_list} "${folder}/${soname}\n")
endfunction()
