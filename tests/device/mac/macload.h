// What the loader's parts share.
#pragma once

#include "image.h"

// A function or a variable named mac_NAME stands in for the Mac's NAME. The loader finds it by that
// name, so it needs no other declaration. What is the same on both systems has no stand-in.
#define MAC __attribute__((visibility("default"), used))

enum { MOST_IMAGES = 64 };
extern Image* images[MOST_IMAGES];
extern int image_count;

// Where the program lies.
extern char program_path[4096];
extern int argument_count;
extern char** arguments;

// The image that an address is in; NULL if it is in none.
const Image* image_at(const void* address);

// Threads of the program, besides its first.
void thread_begins(void);
void thread_ends(void);

void prepare_thread_variables(Image* image);
void use_streams(void);
