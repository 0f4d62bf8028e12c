# SPDX-License-Identifier: Apache-2.0
# Files as arrays in C.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(td_generated ${CMAKE_BINARY_DIR}/generated)

  # td_embed(OUTPUT_VARIABLE SYMBOL FILE): a C source with the file's bytes, as
  # `const unsigned char SYMBOL[]` and `const size_t SYMBOL_bytes`.
  function(td_embed variable symbol file)
    set(source ${td_generated}/${symbol}.c)
    add_custom_command(OUTPUT ${source}
      COMMAND ${CMAKE_COMMAND} -DSYMBOL=${symbol} -DFILE=${file} -DOUTPUT=${source}
        -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
      DEPENDS ${file} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
    set(${variable} ${source} PARENT_SCOPE)
  endfunction()
  return()
endif()

# cmake -DSYMBOL=name -DFILE=path -DOUTPUT=file.c -P embed.cmake
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "#include <stddef.h>
extern const unsigned char ${SYMBOL}[];
extern const size_t ${SYMBOL}_bytes;
const unsigned char ${SYMBOL}[] = {\n${bytes}0};
const size_t ${SYMBOL}_bytes = sizeof ${SYMBOL} - 1; /* a final 0 follows the file */
")
