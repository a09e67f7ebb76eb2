// Marks for an emulator that logs every system call: they say where in its log an inference, or
// the tracer's own work, begins and ends. Off unless --marks asks for them.
#pragma once

namespace sme2 {

void use_marks(bool on);

// A system call that does nothing but fail; its argument is what the log shows.
void mark(const char* name);

// Stop this process until somebody lets it go on: whoever reads the log may switch more of it on.
void pause_at_mark();

}  // namespace sme2
