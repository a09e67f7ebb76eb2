#include "arguments.h"

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <set>

#include "failure.h"

namespace sme2 {

const char* const kUsage =
    "usage: sme2_runner --model FILE --sme2 on|off|sme1 --json FILE|-\n"
    "                   [--threads N] [--warmup N] [--runs N] [--etdump FILE]\n"
    "                   [--input FILE]... [--outputs FOLDER] [--seed N]\n"
    "                   [--method NAME] [--shape SHAPE]...\n"
    "                   [--generate N --prompt FILE... --next FILE|@OUTPUT...\n"
    "                    [--prefill NAME] [--prompt-shape SHAPE]...]\n"
    "                   [--turn N --turn-descriptor FD [--lead N]] [--marks on|off]\n"
    "       sme2_runner --give-turns N LOG... -- COMMAND... [-- COMMAND...]\n"
    "\n"
    "Runs one ExecuTorch program and writes what it measured as JSON.\n"
    "  --model FILE      the program (.pte)\n"
    "  --sme2 on|off|sme1  what the libraries may see of the CPU's SME and SME2: both, neither,\n"
    "                    or SME alone\n"
    "  --json FILE|-     where the result goes; - is standard output\n"
    "  --threads N       threads of the pool, 1 unless given\n"
    "  --warmup N        inferences before the timed ones, 0 unless given\n"
    "  --runs N          timed inferences, 1 unless given\n"
    "  --etdump FILE     trace the timed inferences into FILE; untraced unless given\n"
    "  --input FILE      one input as raw little-endian values, in order, once an input;\n"
    "                    without any the inputs are random\n"
    "  --outputs FOLDER  write each output of the last inference as output_N.bin\n"
    "  --seed N          seed of the random inputs, 0 unless given\n"
    "  --method NAME     forward unless given\n"
    "  --shape SHAPE     such as 1x16, of one input, in order, once an input: for programs that\n"
    "                    take several shapes\n"
    "  --generate N      a run is a whole generation: the prompt, then N steps of one token. The\n"
    "                    program's state before it is as loaded, and is kept from step to step\n"
    "  --prompt FILE     one input of the prompt, in order, once an input\n"
    "  --prompt-shape SHAPE  its shape, as --shape\n"
    "  --prefill NAME    the method for the prompt; that of --method unless given\n"
    "  --next FILE|@OUTPUT  one input of the steps, in order, once an input: the values of all\n"
    "                    steps, one after the other, or which output of the step before it\n"
    "  --turn N          take turns with another process: before every N timed inferences,\n"
    "                    or steps of each generation, write a byte to the descriptor and wait\n"
    "                    for one on standard input\n"
    "  --turn-descriptor FD  an open pipe, of the process that gives the turns\n"
    "  --lead N          untimed inferences at the start of a turn, 0 unless given\n"
    "  --marks on|off    make a system call that does nothing where an inference, or the\n"
    "                    tracer's own work, begins and ends, and stop before the\n"
    "                    inference until SIGCONT comes; off unless given\n"
    "  --give-turns N    start each COMMAND with its output in its LOG, and give each N turns.\n"
    "                    Their turn descriptor is 3\n";

namespace {

uint64_t number(
    const std::string& option, const std::string& text, uint64_t least, uint64_t most) {
  const bool digits =
      !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  errno = 0;
  const unsigned long long value = digits ? std::strtoull(text.c_str(), nullptr, 10) : 0;
  if (!digits || errno != 0 || value < least || value > most) {
    throw Failure(
        Exit::kUsage,
        option + " takes a whole number from " + std::to_string(least) + " to " +
            std::to_string(most) + ", not " + quoted(text));
  }
  return value;
}

bool switched(const std::string& option, const std::string& value, bool sme1 = false) {
  if (value != "on" && value != "off" && !(sme1 && value == "sme1")) {
    throw Failure(
        Exit::kUsage,
        option + " takes " + (sme1 ? "on, off or sme1" : "on or off") + ", not " + quoted(value));
  }
  return value == "on";
}

}  // namespace

Arguments parse_arguments(int count, char** values) {
  Arguments arguments;
  std::set<std::string> seen;
  for (int index = 1; index < count; index += 2) {
    const std::string option = values[index];
    if (index + 1 >= count) {
      throw Failure(Exit::kUsage, "no value follows " + quoted(option));
    }
    const std::string value = values[index + 1];
    static const std::set<std::string> kRepeated = {
        "--input", "--shape", "--prompt", "--prompt-shape", "--next"};
    if (!seen.insert(option).second && kRepeated.count(option) == 0) {
      throw Failure(Exit::kUsage, option + " was given twice");
    }
    if (option == "--model") {
      arguments.model = value;
    } else if (option == "--sme2") {
      switched(option, value, true);
      arguments.sme2 = value;
    } else if (option == "--threads") {
      arguments.threads = static_cast<int>(number(option, value, 1, 1024));
    } else if (option == "--warmup") {
      arguments.warmup = static_cast<int>(number(option, value, 0, 1000000));
    } else if (option == "--runs") {
      arguments.runs = static_cast<int>(number(option, value, 1, 1000000));
    } else if (option == "--etdump") {
      arguments.etdump = value;
    } else if (option == "--input") {
      arguments.inputs.push_back(value);
    } else if (option == "--outputs") {
      arguments.outputs = value;
    } else if (option == "--seed") {
      arguments.seed = number(option, value, 0, std::numeric_limits<int64_t>::max());
    } else if (option == "--method") {
      arguments.method = value;
    } else if (option == "--turn") {
      arguments.turn = static_cast<int>(number(option, value, 1, 1000000));
    } else if (option == "--turn-descriptor") {
      arguments.turn_descriptor = static_cast<int>(number(option, value, 3, 1000000));
    } else if (option == "--lead") {
      arguments.lead = static_cast<int>(number(option, value, 0, 1000));
    } else if (option == "--shape") {
      arguments.shapes.push_back(value);
    } else if (option == "--generate") {
      arguments.generate = static_cast<int>(number(option, value, 1, 1000000));
    } else if (option == "--prefill") {
      arguments.prefill = value;
    } else if (option == "--prompt") {
      arguments.prompt.push_back(value);
    } else if (option == "--prompt-shape") {
      arguments.prompt_shapes.push_back(value);
    } else if (option == "--next") {
      arguments.next.push_back(value);
    } else if (option == "--marks") {
      arguments.marks = switched(option, value);
    } else if (option == "--json") {
      arguments.json = value;
    } else {
      throw Failure(Exit::kUsage, "unknown option " + quoted(option));
    }
  }
  for (const char* required : {"--model", "--sme2", "--json"}) {
    if (seen.count(required) == 0) {
      throw Failure(Exit::kUsage, std::string(required) + " is missing");
    }
  }
  if ((arguments.turn > 0) != (arguments.turn_descriptor >= 0)) {
    throw Failure(Exit::kUsage, "--turn and --turn-descriptor go together");
  }
  if (arguments.turn > 0 && !arguments.etdump.empty()) {
    throw Failure(Exit::kUsage, "--turn does not go with --etdump");
  }
  const bool described = !arguments.prompt.empty() && !arguments.next.empty();
  if ((arguments.generate > 0) != described) {
    throw Failure(Exit::kUsage, "--generate, --prompt and --next go together");
  }
  if (arguments.generate > 0 && !arguments.etdump.empty()) {
    throw Failure(Exit::kUsage, "--generate does not go with --etdump");
  }
  return arguments;
}

}  // namespace sme2
