// Two processes that take turns, so that both meet the same state of the machine.
#pragma once

namespace sme2 {

// Waits until no other thread of this process works. A pool's threads look for more work for a while
// after an inference, and would do so in the other process's turn.
void wait_until_still();

// Says on the descriptor that this process is at rest, and waits on standard input until it may go
// on. Throws Failure(kExecutionFailed) where whoever gives the turns is gone.
void wait_for_turn(int descriptor);

}  // namespace sme2
