/* The sources that this library was built from; the loader compares them with those beside it. */

#include "native.h"

const char *ks_digest(void)
{
    return KS_DIGEST;
}
