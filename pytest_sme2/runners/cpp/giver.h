// Gives turns to processes that take them, where nobody else can: on a phone.
#pragma once

namespace sme2 {

// sme2_runner --give-turns N LOG... -- COMMAND... -- COMMAND...
//
// Starts each command when the one before waits for its first turn, gives each N turns, and writes
// one line to standard output for each that ended: its number from 0, then "exit" or "signal", then
// which. If one ends too early or too late, the others are killed and only that one has a line.
// Returns the exit code of this process. Throws Failure where it cannot start or was asked wrongly.
int give_turns(int count, char** values);

}  // namespace sme2
