/* s3_xml.h -- S3's answers: flat XML, of which elements and the texts in them are taken. Not a
 * parser of XML in general: no attributes, comments or nesting of an element in itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_S3_XML_H
#define TD_REMOTE_S3_XML_H

#include "base/text.h"

typedef struct td__s3_xml {
    const char *at, *end;       /* what is left */
    const char *begin, *finish; /* inside of the element found last */
} td__s3_xml;

void td__s3_xml_init(td__s3_xml *x, const td__text *answer);
/* The next <name>...</name>; false: there is none. */
bool td__s3_xml_next(td__s3_xml *x, const char *name);
/* The text of <name> inside it, with its entities resolved; false if it is missing or too long. */
bool td__s3_xml_text(const td__s3_xml *x, const char *name, char *out, size_t nbytes);
/* The same anywhere in an answer. */
bool td__s3_xml_whole_text(const td__text *answer, const char *name, char *out, size_t nbytes);

#endif
