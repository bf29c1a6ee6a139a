#ifndef KSCOPE_NATIVE_H
#define KSCOPE_NATIVE_H

#include <stdint.h>

#endif
