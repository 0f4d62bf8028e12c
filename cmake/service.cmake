# SPDX-License-Identifier: Apache-2.0
# The training service, src/rpc, src/remote, src/mirror and src/service: a static library,
# td_service, that only the program and the tests link, so that libtandem needs none of its
# libraries. td_service names the target, and is empty where TD_SERVICE is OFF.
set(td_service "")
if(NOT TD_SERVICE)
  return()
endif()

set(td_service_libraries "")
foreach(module IN ITEMS sqlite3 libcurl libnghttp2 libprotobuf-c libmicrohttpd)
  string(REPLACE "-" "_" id ${module})
  pkg_check_modules(TD_SERVICE_${id} REQUIRED IMPORTED_TARGET ${module})
  list(APPEND td_service_libraries PkgConfig::TD_SERVICE_${id})
endforeach()

find_program(PROTOC_C protoc-c REQUIRED)

# td_protos(OUTPUT_VARIABLE SYMBOL FOLDER NAME=FILE...): messages in C from protoc-c, and the set of
# descriptors for reflection, embedded as SYMBOL. NAME is the file's name for clients and imports,
# FILE lies in FOLDER.
function(td_protos variable symbol folder)
  set(sources "")
  set(names "")
  set(paths "")
  set(files "")
  foreach(pair IN LISTS ARGN)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 name)
    list(GET pair 1 file)
    string(REGEX REPLACE "\\.proto$" ".pb-c" stem ${name})
    list(APPEND names ${name})
    list(APPEND paths -I${name}=${CMAKE_SOURCE_DIR}/${folder}/${file})
    list(APPEND files ${CMAKE_SOURCE_DIR}/${folder}/${file})
    list(APPEND sources ${td_generated}/${stem}.c)
    list(APPEND headers ${td_generated}/${stem}.h)
  endforeach()
  add_custom_command(OUTPUT ${sources} ${headers} ${td_generated}/${symbol}.bin
    COMMAND ${CMAKE_COMMAND} -E make_directory ${td_generated}
    COMMAND ${PROTOC_C} ${paths} --c_out=${td_generated}
      --descriptor_set_out=${td_generated}/${symbol}.bin ${names}
    DEPENDS ${files} VERBATIM)
  td_embed(embedded ${symbol} ${td_generated}/${symbol}.bin)
  set(${variable} ${sources} ${headers} ${embedded} PARENT_SCOPE)
endfunction()

td_protos(td_rpc_protos td__rpc_descriptors src/rpc/proto
  grpc/health/v1/health.proto=health.proto
  grpc/reflection/v1/reflection.proto=reflection_v1.proto
  grpc/reflection/v1alpha/reflection.proto=reflection_v1alpha.proto)
td_protos(td_service_protos td__service_descriptors src/service/proto
  google/protobuf/empty.proto=empty.proto
  training_service.proto=training_service.proto
  data_management.proto=data_management.proto
  metadata_store.proto=metadata_store.proto
  prediction_service.proto=prediction_service.proto
  tandem.proto=tandem.proto)

# Generated code is not ours to warn about.
add_library(td_proto_objects OBJECT ${td_rpc_protos} ${td_service_protos})
target_compile_options(td_proto_objects PRIVATE -O2 -w
  $<TARGET_PROPERTY:td_flags,INTERFACE_COMPILE_OPTIONS> -w)
target_include_directories(td_proto_objects PUBLIC ${td_generated})
target_link_libraries(td_proto_objects PUBLIC PkgConfig::TD_SERVICE_libprotobuf_c)

# The dashboard: every file of web/ becomes a row of td__web_files (src/service/http/web_files.h).
file(GLOB td_web CONFIGURE_DEPENDS web/*)
set(td_web_sources "")
set(td_web_declarations "")
set(td_web_rows "")
foreach(file IN LISTS td_web)
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER "td__web_${name}" symbol)
  td_embed(source ${symbol} ${file})
  list(APPEND td_web_sources ${source})
  string(APPEND td_web_declarations
    "extern const unsigned char ${symbol}[];\nextern const size_t ${symbol}_bytes;\n")
  string(APPEND td_web_rows "    {\"${name}\", ${symbol}, &${symbol}_bytes},\n")
endforeach()
file(CONFIGURE OUTPUT ${td_generated}/td__web_files.c @ONLY CONTENT
"#include \"service/http/web_files.h\"
@td_web_declarations@
const td__web_file td__web_files[] = {
@td_web_rows@    {NULL, NULL, NULL},
};
")
list(APPEND td_web_sources ${td_generated}/td__web_files.c)

file(GLOB_RECURSE td_service_sources CONFIGURE_DEPENDS
  src/rpc/*.c src/remote/*.c src/mirror/*.c src/service/*.c)
add_library(td_service STATIC ${td_service_sources} ${td_web_sources}
  $<TARGET_OBJECTS:td_proto_objects>)
target_include_directories(td_service PUBLIC ${td_generated})
add_dependencies(td_service td_proto_objects)
target_link_libraries(td_service PRIVATE td_flags td_exact)
target_link_libraries(td_service PUBLIC ${td_service_libraries} ${td_libraries})
target_compile_definitions(td_service PUBLIC TD_HAVE_SERVICE=1)
set(td_service td_service)
