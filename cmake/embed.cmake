# SPDX-License-Identifier: Apache-2.0
# cmake -DSYMBOL=name -DFILE=path -DOUTPUT=file.c -P embed.cmake: a file as an array in C.
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "#include <stddef.h>
extern const unsigned char ${SYMBOL}[];
extern const size_t ${SYMBOL}_bytes;
const unsigned char ${SYMBOL}[] = {\n${bytes}0};
const size_t ${SYMBOL}_bytes = sizeof ${SYMBOL} - 1; /* a final 0 follows the file */
")
