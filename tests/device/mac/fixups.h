// The places in an image that hold addresses: moved with it, or bound to symbols of other images.
#pragma once

#include "image.h"

// Where a symbol is looked for: a library the image needs (1, 2, ...), or one of these.
enum { ITSELF = 0, MAIN_PROGRAM = -1, EVERYWHERE = -2, WEAKLY = -3 };

// The address of a symbol; NULL leaves the place as it is, which is 0 for a missing weak one.
typedef void* (*Resolve)(const Image* from, const char* name, int where, bool may_be_missing);

void apply_fixups(Image* image, Resolve resolve);
