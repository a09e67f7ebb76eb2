"""A random model and a tokenizer for ExecuTorch's TextLLMRunner, which its wheel brings.

    python -m tests.support.language_model FOLDER

Apart, since torch and ExecuTorch warn when they are imported.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

WORDS = 128
CACHE = 64
RUN = """\
import sys
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
runner = TextLLMRunner(sys.argv[1], sys.argv[2])
runner.generate("o" * 24, GenerationConfig(max_new_tokens=16, temperature=0.0, echo=False))
"""


def write_model(file: Path) -> None:
    """A program that the runner takes: a token and its place in, an answer out."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from torch import nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, 1024)
            self.layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12)))
            self.head = nn.Linear(1024, WORDS)

        def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            hidden = self.words(tokens) + places[None, :, None].float()
            answer: torch.Tensor = self.head(self.layers(hidden)[:, -1])
            return answer

    tokens = torch.export.Dim("tokens", min=1, max=CACHE - 1)
    example = (torch.zeros(1, 8, dtype=torch.long), torch.arange(8))
    facts = {
        "get_max_seq_len": CACHE, "get_max_context_len": CACHE, "get_vocab_size": WORDS,
        "use_kv_cache": True, "enable_dynamic_shape": True, "get_bos_id": 1,
        "get_eos_ids": [WORDS - 1],
    }  # fmt: skip
    with torch.no_grad():
        shapes = ({1: tokens}, {0: tokens})
        captured = torch.export.export(Words().eval(), example, dynamic_shapes=shapes)
        lowered = to_edge_transform_and_lower(
            captured, partitioner=[XnnpackPartitioner()], constant_methods=facts
        )
    file.write_bytes(lowered.to_executorch().buffer)


def write_tokenizer(file: Path) -> None:
    """One token per letter, in the form of llama2.c."""
    known = [b"<unk>", b"<s>", b"</s>", *(bytes([letter]) for letter in range(32, 127))]
    known += [b"w%02d" % number for number in range(WORDS - len(known))]
    entries = (struct.pack("<fi", 0.0, len(word)) + word for word in known)
    file.write_bytes(struct.pack("<4i", WORDS, 1, 2, 8) + b"".join(entries))


def main(folder: Path) -> None:
    write_model(folder / "words.pte")
    write_tokenizer(folder / "words.bin")
    (folder / "run.py").write_text(RUN, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
